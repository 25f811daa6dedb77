"""How commands are declared: under which names, with which fields, answering what.

The list of commands is made here and nowhere else: dispatch, the JSON Schema and the reference page come from it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from spindle.agent.session import AgentSession
from spindle.protocol.dialect import UpdateMode
from spindle.shapes.messages import Wire


class Client(Protocol):
    """What commands may change about the wire they came in on."""

    def set_update_mode(self, mode: UpdateMode) -> None: ...

    def request_shutdown(self) -> None: ...


class Call(msgspec.Struct, frozen=True):
    """One command in hand."""

    agent: AgentSession
    client: Client
    id: Any
    """As the client sent it; `msgspec.UNSET` if it sent none."""


class Fields(Wire):
    """Base of command fields."""


class NoFields(Fields):
    pass


class CommandSpec(msgspec.Struct, frozen=True):
    name: str
    fields: type[Fields]
    data: Any
    """Type of `data` in the answer; None if there is none."""
    handler: Callable[[Call, Any], Awaitable[Any]]
    doc: str


COMMANDS: dict[str, CommandSpec] = {}

Handler = Callable[[Call, Any], Awaitable[Any]]


def command(*names: str, fields: type[Fields] = NoFields, data: Any = None) -> Callable[[Handler], Handler]:
    """Register a handler under its name and the other names it goes by."""

    def register(handler: Handler) -> Handler:
        for name in names:
            COMMANDS[name] = CommandSpec(name, fields, data, handler, (handler.__doc__ or "").strip())
        return handler

    return register
