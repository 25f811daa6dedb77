"""A dialect: the events and keys that older and neighbouring clients do not know, as data.

A dialect only leaves things out on the wire: event types, and keys of events and responses; one splits runs where they
are tried again. The agent never behaves differently because of it; one begins with another interrupt mode. Host tool
calls and dialogs are never left out: only clients that asked for them get them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from spindle.shapes.codec import decode, encode
from spindle.shapes.events import (
    AgentEnd,
    AgentStart,
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionStart,
    MessageEnd,
    TurnStart,
)

UpdateMode: TypeAlias = Literal["full", "delta"]
Path: TypeAlias = tuple[str, ...]
"""Keys from the outside in. In a list, the path holds for every item.

`key?` means the key only if it is null, `key*` only the empty texts in the list of that key.
"""


class Dialect(Struct, frozen=True):
    name: str
    updates: UpdateMode = "full"
    """Form of `message_update` unless the client asks for another."""
    events: frozenset[str] = frozenset()
    """Event types that are not sent; a dialog or notice is named `extension_ui_request <method>`."""
    keys: Mapping[str, tuple[Path, ...]] = {}
    """Event type, or `response <command>` → keys that are not sent."""
    documented: bool = False
    """Messages have the empty keys that the samples of the documents show, and no program sends."""
    interrupt_mode: str | None = None
    """Of sessions that begin with such a client, unless the settings have one."""
    bare_faults: bool = False
    """Whether responses to frames that are no proper command have no id; see `Misread` and `Misused`."""
    splits_runs: bool = False
    """Whether each try of a run has an `agent_start` and an `agent_end` of its own; see `Tries`."""


def without(data: bytes, paths: Sequence[Path]) -> bytes:
    """Return the JSON without the keys named by `paths`."""
    if not paths:
        return data
    value = decode(data)
    for path in paths:
        _leave_out(value, path)
    return encode(value)


def _leave_out(value: Any, path: Path) -> None:
    if isinstance(value, list):
        for item in value:
            _leave_out(item, path)
    elif isinstance(value, dict):
        first, *rest = path
        if not rest:
            key = first.rstrip("?*")
            if first.endswith("*"):
                value[key] = [item for item in value[key] if item.get("text") != ""]
            elif key == first or value.get(key, first) is None:
                value.pop(key, None)
        elif first in value:
            _leave_out(value[first], tuple(rest))


ANSWER_EDGES = "message_update start done error"
"""The updates at the start and the end of an answer, as the name of an event."""
TITLE = "extension_ui_request setTitle"
EVENTS_FOR_OTHERS = {"session_changed", "state_changed"}
"""These tell the other clients of a shared session what one client did."""
SPINDLE = Dialect("spindle", documented=True)


class Tries:
    """Splits runs where they are tried again. Events that stand between two tries then stand between two runs."""

    def __init__(self) -> None:
        self._trying = False
        self._between = False
        """Whether a try of the run is over, and the run is not."""
        self._messages: list[Any] = []
        """Messages of the try."""
        self._told = 0
        """Messages of the run that stood in the `agent_end` of an earlier try."""

    def split(self, item: Any) -> Sequence[Any]:
        """Return the events to send in the place of `item`."""
        match item:
            case AgentStart():
                self._trying, self._between, self._messages, self._told = True, False, [], 0
            case AgentEnd():
                ended, self._trying, self._between = self._between, False, False
                return () if ended else (AgentEnd(item.messages[self._told :], will_retry=False),)
            case TurnStart():
                again, self._trying, self._between = self._between, True, False
                return (AgentStart(), item) if again else (item,)
            case MessageEnd():
                self._messages.append(item.message)
            case AutoRetryStart() | AutoRetryEnd(success=False) | CompactionStart() | CompactionEnd() if self._trying:
                messages, self._messages = self._messages, []
                self._trying, self._between, self._told = False, True, self._told + len(messages)
                return AgentEnd(messages, will_retry=isinstance(item, AutoRetryStart)), item
        return (item,)
