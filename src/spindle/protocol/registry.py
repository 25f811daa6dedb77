"""What a command is: a handler whose parameters are its fields, and what it may ask of the wire it came in on."""

from collections.abc import Callable
from functools import cache
from inspect import CO_VARKEYWORDS, iscoroutinefunction
from typing import Any, TypeVar, get_args

import msgspec

from spindle.agent.session import AgentSession
from spindle.protocol.seat import Seat
from spindle.shapes.messages import Wire

T = TypeVar("T")
REPLIES = ("extension_ui_response", "host_tool_result", "host_tool_update")
"""Frames of a client that get no response, and are of use only to a session that is there."""


class LiveInfo(Wire, kw_only=True):
    """A live session, as a list shows it."""

    id: str
    """The `sessionId` of its commands and events: stays the same when the conversation goes on in another file."""
    current_id: str
    """Id of the stored session that it is at now."""
    session_file: str | None = None
    name: str | None = None
    cwd: str
    phase: str
    model: str | None = None
    clients: int
    queue: int
    """Messages that wait."""
    questions: int
    """Questions that wait for an answer of the user."""
    cost: int | float | None = None
    """US dollars; none if a price is not known."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which session a client wants to be opened."""

    cwd: str | None = None
    """Where it works; None: where its file says, or where the process was started."""
    session: str | None = None
    """Id or path of a stored session; None: a new one."""
    model: str | None = None
    """A pattern as on the command line."""
    name: str | None = None
    id: str | None = None
    """Of a session that is begun with exactly this id if there is none."""


class Call(msgspec.Struct, frozen=True):
    """One command in hand."""

    agent: AgentSession
    client: Seat
    id: Any
    """As the client sent it; `msgspec.UNSET` if it sent none."""


class CommandSpec(msgspec.Struct, frozen=True):
    name: str
    shape_name: str
    """What its shapes are called: the first of the names that its handler has."""
    answer: Any
    """Type of `data` in the answer, or of what stands there under `key`; None if there is none."""
    key: str | None
    """`data` is an object with what the handler returns under this key; None: it is what the handler returns."""
    handler: Callable[..., Any]
    waits: bool
    """Whether the handler is a coroutine; others answer at once."""
    doc: str

    @property
    def fields(self) -> type[msgspec.Struct]:
        """What a client sends."""
        return _fields(self.handler, self.shape_name)

    @property
    def data(self) -> Any:
        """Type of `data` in the answer; None if there is none."""
        return self.answer if self.key is None else _keyed(self.shape_name, self.key, self.answer)

    def data_of(self, result: Any) -> Any:
        """Return `data` of the answer, of what the handler returned; unset if there is none."""
        if self.answer is None:
            return msgspec.UNSET
        return result if self.key is None else {self.key: result}


# A client uses a few of the commands: shapes are made when they are needed, which spares a start 200 KB.


@cache
def _fields(handler: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    kinds = {field: kind for field, kind in handler.__annotations__.items() if field not in ("call", "return")}
    keywords: dict[str, Any] = {}
    if handler.__code__.co_flags & CO_VARKEYWORDS:  # `**limits: Unpack[…]`: fields that may be left out
        keywords = get_args(kinds.popitem()[1])[0].__annotations__
    defaults = dict(zip(reversed(kinds), reversed(handler.__defaults__ or ()), strict=False)) | dict.fromkeys(keywords)
    kinds |= keywords
    given = [(field, kind, defaults[field]) if field in defaults else (field, kind) for field, kind in kinds.items()]
    return msgspec.defstruct(name, given, bases=(Wire,))


@cache
def _keyed(name: str, key: str, kind: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"{name}_data", [(key, kind)])


COMMANDS: dict[str, CommandSpec] = {}


def command(*names: str, key: str | None = None, data: Any = None) -> Callable[[T], T]:
    """Register a handler under the names of its command. `data` says what is in an answer that is JSON already."""

    def register(handler: Any) -> Any:
        answer = (data if key is None else None) or handler.__annotations__["return"]
        waits, doc = iscoroutinefunction(handler), handler.__doc__.strip()
        for name in names:
            COMMANDS[name] = CommandSpec(name, names[0], answer, key, handler, waits, doc)
        return handler

    return register
