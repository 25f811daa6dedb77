"""What a command is: a handler whose parameters are its fields. A `Call` gives it the agent and the client."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from spindle.agent.features.background import RunningCommand
from spindle.agent.features.subagent_list import SubagentInfo
from spindle.agent.session import AgentSession
from spindle.protocol.seat import Seat
from spindle.shapes.messages import Wire
from spindle.shapes.sandbox import SandboxChoice

T = TypeVar("T")
_VARKEYWORDS, _COROUTINE = 0x08, 0x80
"""Flags of a function's code; `inspect` has names for them, and is not loaded for two numbers."""
REPLIES = ("extension_ui_response", "host_tool_result", "host_tool_update", "host_uri_result")
"""Frames of a client that get no response. A session that is not in memory has no use for them."""


class LiveInfo(Wire, kw_only=True):
    """A live session, as a list shows it."""

    id: str
    """The `sessionId` of its commands and events. It stays the same when the conversation goes on in another file."""
    current_id: str
    """Id of the stored session that the conversation is in now."""
    node: str | None = None
    """The server that works on it, as its `/healthz` says; left out if sessions are files."""
    session_file: str | None = None
    name: str | None = None
    cwd: str
    phase: str
    model: str | None = None
    clients: int
    queue: int
    """Number of queued messages."""
    questions: int
    """Number of questions that the user has not answered yet."""
    cost: int | float | None = None
    """US dollars; none if a price is not known."""
    tokens: int = 0
    failed: str | None = None
    """Why the last run failed; left out if it did not."""
    waiting: list[Any] = msgspec.field(default_factory=list)
    """The questions, as the events `permission_request` and `extension_ui_request` have them."""
    background: list[RunningCommand] = msgspec.field(default_factory=list)
    subagents: list[SubagentInfo] = msgspec.field(default_factory=list)


class WantedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a client wants to open."""

    cwd: str | None = None
    """Its working directory; None: the one in its file, or the one that the process was started in."""
    session: str | None = None
    """Id or path of a stored session; None: a new one."""
    copy: bool = False
    """A copy of that session, which another process may hold, instead of the session itself."""
    model: str | None = None
    """A pattern as on the command line."""
    name: str | None = None
    id: str | None = None
    """Id of a stored session; if there is none, a session with exactly this id is begun."""
    sandbox: SandboxChoice | None = None
    """As `set_permissions` takes it."""
    exec: str | None = None
    """A command that leads to where tools work; empty: here. None: as the session, the process or the settings say."""
    exec_cwd: str | None = None
    interrupt_mode: str | None = None
    """The client's, unless the settings have one; None: that of the process."""


class Call(msgspec.Struct, frozen=True):
    """A command that is being carried out."""

    agent: AgentSession
    client: Seat
    id: Any
    """As the client sent it; `msgspec.UNSET` if it sent none."""


class CommandSpec(msgspec.Struct, frozen=True):
    name: str
    shape_name: str
    """Name of its shapes: the first name of its handler."""
    answer: Any
    """Type of `data` in the response, or of the value under `key` in it; None if there is no `data`."""
    key: str | None
    """`data` is an object with the handler's return value under this key; None: `data` is the return value."""
    handler: Callable[..., Any]
    waits: bool
    """Whether the handler is a coroutine; others answer at once."""
    doc: str
    owner: bool = False
    """Only for the owner of the agent directory: a client of a server has to show its code first (`unlock`)."""
    viewer: bool = False
    """Also for another user of the server, who may look at the conversation and do nothing."""

    @property
    def title(self) -> str:
        """The beginning of the names of its shapes, as `GetState`."""
        return "".join(word.title() for word in self.shape_name.split("_"))

    @property
    def fields(self) -> type[msgspec.Struct]:
        """Shape of the fields that a client sends."""
        return _fields(self.handler, self.shape_name)

    @property
    def data(self) -> Any:
        """Type of `data` in the response; None if there is none."""
        return self.answer if self.key is None else _keyed(f"{self.title}Data", self.key, self.answer)

    def data_of(self, result: Any) -> Any:
        """Return `data` of the response, made from what the handler returned; unset if there is none."""
        if self.answer is None:
            return msgspec.UNSET
        return result if self.key is None else {self.key: result}


# A client uses only a few commands, so shapes are made when they are needed: a process starts with 200 KB less.


@cache
def _fields(handler: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    kinds = {field: kind for field, kind in handler.__annotations__.items() if field not in ("call", "return")}
    keywords: dict[str, Any] = {}
    if handler.__code__.co_flags & _VARKEYWORDS:  # `**limits: Unpack[…]`: fields that may be left out
        keywords = get_args(kinds.popitem()[1])[0].__annotations__
    defaults = dict(zip(reversed(kinds), reversed(handler.__defaults__ or ()), strict=False)) | dict.fromkeys(keywords)
    kinds |= keywords
    given = [(field, kind, defaults[field]) if field in defaults else (field, kind) for field, kind in kinds.items()]
    return msgspec.defstruct(name, given, bases=(Wire,))


@cache
def _keyed(name: str, key: str, kind: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, [(key, kind)])


COMMANDS: dict[str, CommandSpec] = {}


def command(
    *names: str, key: str | None = None, data: Any = None, owner: bool = False, viewer: bool = False
) -> Callable[[T], T]:
    """Register a handler under the names of its command. `data` is the type of a result that is already JSON; `owner`
    says that the command changes what is the owner's; `viewer`, that it changes nothing, reads the conversation alone,
    and that what it tells has a row in `viewing` if not all of it is for others."""

    def register(handler: Any) -> Any:
        answer = (data if key is None else None) or handler.__annotations__["return"]
        waits, doc = bool(handler.__code__.co_flags & _COROUTINE), handler.__doc__.strip()
        for name in names:
            COMMANDS[name] = CommandSpec(name, names[0], answer, key, handler, waits, doc, owner, viewer)
        return handler

    return register
