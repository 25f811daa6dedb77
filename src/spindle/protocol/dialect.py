"""A dialect: the events and keys that older and neighbouring clients do not know, as data.

A dialect only leaves things out on the wire: event types, and keys of events and responses. The agent never behaves
differently because of it. Host tool calls and dialogs are never left out: only clients that asked for them get them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from spindle.shapes.codec import decode, encode

UpdateMode: TypeAlias = Literal["full", "delta"]
Path: TypeAlias = tuple[str, ...]
"""Keys from the outside in. In a list, the path holds for every item. `key?` means the key only if it is null."""


class Dialect(Struct, frozen=True):
    name: str
    updates: UpdateMode = "full"
    """Form of `message_update` unless the client asks for another."""
    events: frozenset[str] = frozenset()
    """Event types that are not sent; a dialog or notice is named `extension_ui_request <method>`."""
    keys: Mapping[str, tuple[Path, ...]] = {}
    """Event type, or `response <command>` → keys that are not sent."""


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
            key = first.removesuffix("?")
            if key == first or value.get(key, first) is None:
                value.pop(key, None)
        elif first in value:
            _leave_out(value[first], tuple(rest))


ANSWER_EDGES = "message_update start done error"
"""The updates at the start and the end of an answer, as the name of an event."""
TITLE = "extension_ui_request setTitle"
EVENTS_FOR_OTHERS = {"session_changed", "state_changed"}
"""These tell the other clients of a shared session what one client did."""
SPINDLE = Dialect("spindle")
