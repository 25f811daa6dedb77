"""What a method of a client is: `@command` makes one from a declaration. Those of the protocol are in `commands.py`.

Answers are plain JSON values; if an answer is a single list or text, the method returns just that.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import MethodType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from msgspec import UNSET, UnsetType

from spindle.base.signature import json_schema
from spindle.base.spelling import did_you_mean
from spindle.client.transport import Json
from spindle.shapes.run_limits import RUN_LIMITS, LimitArguments

P = ParamSpec("P")
R = TypeVar("R")
Timeout: TypeAlias = float | UnsetType | None
"""Seconds; None waits for ever; unset: the `request_timeout` of the client."""
Images: TypeAlias = Sequence[Json] | None
"""Pictures in the form that `image_file` makes."""
Behavior: TypeAlias = Literal["steer", "followUp"] | None
"""How a prompt is queued while the agent runs; with None it is refused."""


class Wishes(LimitArguments, total=False):
    """The limits and the schema that a prompt may set for its run."""

    schema: Any
    """A type or a JSON Schema that the result has to fit."""


def wire_wishes(wishes: Wishes) -> Json:
    """Return the wishes as fields of `prompt`. Raises `TypeError` for a name that is none, and for a bad schema."""
    for name in wishes:
        if name not in Wishes.__optional_keys__:
            near = did_you_mean(name, Wishes.__optional_keys__)
            raise TypeError(f"run() got an unexpected keyword argument {name!r}.{near}")
    fields: Json = {limit.wire_name: wishes.get(limit.name) for limit in RUN_LIMITS}
    return fields | {"jsonSchema": json_schema(wishes.get("schema"))}


def image_file(path: str | Path) -> Json:
    """Read a picture into the form that `images` takes."""
    import base64
    import mimetypes

    kind = mimetypes.guess_type(path)[0] or "image/png"
    return {"type": "image", "data": base64.b64encode(Path(path).read_bytes()).decode(), "mimeType": kind}


class PlainCalls:
    """Marks a handle whose methods return when they are done, for programs without an event loop."""


Declared: TypeAlias = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]


class Method(Generic[P, R]):
    """A coroutine method of a handle. On a handle with `PlainCalls` it is a plain call with the same signature."""

    def __init__(self, function: Declared[P, R]) -> None:
        self._function = function

    @overload
    def __get__(self, handle: PlainCalls, owner: Any = None) -> Callable[P, R]: ...

    @overload
    def __get__(self, handle: Any, owner: Any = None) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, handle: Any, owner: Any = None) -> Any:
        return self._function if handle is None else handle._bound(self._function)


def command(key: str | None = None) -> Callable[[Declared[P, R]], Method[P, R]]:
    """Make a method that sends the command of its name; its parameters are the fields, in camelCase on the wire, and
    those that are left out are not sent.

    It returns the value under `key` of the answer; without a key, the whole answer.
    """

    def declare(function: Declared[P, R]) -> Method[P, R]:
        returned = function.__annotations__["return"]

        @functools.wraps(function)
        async def send(handle: Any, /, *args: P.args, **given: P.kwargs) -> Any:
            shape = _signature(function)
            bound = shape.bind(handle, *args, **given)
            bound.arguments.setdefault("timeout", shape.parameters["timeout"].default)
            _, *fields = bound.arguments.items()
            answer = await handle.request(function.__name__, **{_on_wire(name): value for name, value in fields}) or {}
            if returned is None:
                return None
            may_be_none = type(None) in get_args(returned)
            if key is None:
                return answer or (None if may_be_none else answer)
            return answer.get(key) if may_be_none else answer[key]

        return Method(send)

    return declare


_signature = functools.cache(inspect.signature)


def _on_wire(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


class Sender:
    """A handle that sends commands, with those that are more than one request and its answer."""

    def _bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return MethodType(function, self)

    _send: Callable[[str, Timeout, Json], Coroutine[Any, Any, Any]]
    """How the handle that has the event loop sends a command."""

    @Method
    async def request(self, command: str, /, *, timeout: Timeout = UNSET, **fields: Any) -> Any:
        """Send a command and return the `data` of its answer. Fields that are None are not sent.

        Raises `CommandFailed` if the agent refuses it, `RequestTimeout`, `ClientClosed`, and `AgentCrashed` or
        `ConnectionLost` if the agent is gone.
        """
        return await self._send(command, timeout, fields)

    @Method
    async def prompt(
        self,
        message: str,
        *,
        images: Images = None,
        streaming_behavior: Behavior = None,
        timeout: Timeout = None,
        **wishes: Unpack[Wishes],
    ) -> Json:
        """Send a message and return once it is accepted; the run's events follow."""
        fields = {"message": message, "images": images, "streamingBehavior": streaming_behavior}
        return await self.request("prompt", timeout=timeout, **fields, **wire_wishes(wishes)) or {}

    @Method
    async def get_tree(self) -> Json:
        """Return the session's `tree` and its `leafId`."""
        answer: Json = await self.request("get_tree", flat=True) or {}  # nested, it could be too deep to read
        return {**answer, "tree": _nested(answer["tree"])} if "tree" in answer else answer


def _nested(nodes: list[Json]) -> list[Json]:
    """Give each node of a flat tree its `children`. Agents without the flat form send a nested tree."""
    if not nodes or "children" in nodes[0]:
        return nodes
    made = {node["id"]: {"entry": node["entry"], "children": []} for node in nodes}
    roots: list[Json] = []
    for node in nodes:
        one, parent_id = made[node["id"]], node["parentId"]
        one.update((key, node[key]) for key in ("label", "labelTimestamp") if key in node)
        (roots if parent_id is None else made[parent_id]["children"]).append(one)
    return roots
