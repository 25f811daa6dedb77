"""A dialect: the events and keys that a kind of client gets, and in which shape, as data.

Ours sends everything. That of a neighbour sends the events that have a row, and of these the keys in the row: what is
added to an event or becomes an event tomorrow does not reach its clients. Answers to commands that the neighbour does
not have need no row: the client has asked for them by a name of ours. The agent never behaves differently because of a
dialect; one splits runs where they are tried again, one begins with another interrupt mode.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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


class Shape(Struct, frozen=True):
    """The keys of an object that are sent. In a list, the shape holds for every item."""

    keys: Mapping[str, "Shape | None"]
    """Each with the shape of its value; None: as it is."""
    unless_null: frozenset[str] = frozenset()
    """Keys that are left out if they are null."""
    ours: frozenset[str] | None = None
    """If set, keys that are not among these are sent, too: they are of others, and carried as they are."""
    in_lists: frozenset[str] = frozenset()
    """Keys whose value is sent as the only one of a list."""
    drops_empty: bool = False
    """Whether items with an empty text are left out of a list."""


def shape(names: str = "", *, ours: frozenset[str] | None = None, **inner: Shape) -> Shape:
    """Read `toolCallId result?`: `?` stands for a key that is left out if it is null. `inner` has shapes of values."""
    keys: dict[str, Shape | None] = {name.rstrip("?"): None for name in names.split()}
    unless_null = frozenset(name.rstrip("?") for name in names.split() if name.endswith("?"))
    return Shape(keys | inner, unless_null, ours)


def shaped(data: bytes, wanted: Shape | None) -> bytes:
    """Return JSON with the keys of a shape alone; None: as it is."""
    return data if wanted is None else encode(_shaped(decode(data), wanted))


def _shaped(value: Any, wanted: Shape) -> Any:
    if isinstance(value, list):
        items = [item for item in value if item.get("text") != ""] if wanted.drops_empty else value
        return [_shaped(item, wanted) for item in items]
    if not isinstance(value, dict):
        return value
    keys, ours, left = wanted.keys, wanted.ours, {}
    for key, inner in value.items():
        if key in keys:
            if inner is not None or key not in wanted.unless_null:
                within = keys[key]
                sent = inner if within is None else _shaped(inner, within)
                left[key] = [sent] if key in wanted.in_lists else sent
        elif ours is not None and key not in ours:
            left[key] = inner
    return left


class Dialect(Struct, frozen=True):
    name: str
    rows: Mapping[str, Shape | None] | None = None
    """Type of event, `extension_ui_request <method>`, `response <command>` or `entry` → what is sent; None: as it is.

    Without rows, everything is sent.
    """
    updates: UpdateMode = "full"
    """Form of `message_update` unless the client asks for another."""
    silent: frozenset[str] = frozenset()
    """Events that are not sent, whatever the rows say: this one client has no use for them."""
    documented: bool = False
    """Messages have the empty keys that the samples of the documents show, and no program sends."""
    interrupt_mode: str | None = None
    """Of sessions that begin with such a client, unless the settings have one."""
    bare_faults: bool = False
    """Whether responses to frames that are no proper command have no id; see `Misread` and `Misused`."""
    splits_runs: bool = False
    """Whether each try of a run has an `agent_start` and an `agent_end` of its own; see `Tries`."""

    def sends(self, name: str) -> bool:
        """Say whether an event of that name is sent."""
        return name not in self.silent and (self.rows is None or name in self.rows)

    def shape_of(self, name: str) -> Shape | None:
        """Return the shape in which something of that name is sent; None: as it is."""
        return None if self.rows is None else self.rows.get(name)

    def entry(self, data: bytes) -> bytes:
        """Return an entry of a session as it is sent."""
        return shaped(data, self.shape_of("entry"))


ANSWER_EDGES = "message_update start done error"
"""The updates at the start and the end of an answer, as the name of an event."""
TITLE = "extension_ui_request setTitle"
EVENTS_FOR_OTHERS = frozenset({"session_changed", "state_changed"})
"""These tell the other clients of a shared session what one client did."""
WITH_TITLE: Mapping[str, Shape | None] = {TITLE: shape("type id method title")}
SPINDLE = Dialect("spindle", documented=True)
DIALECTS = ("spindle", "pi-0.74", "pi-0.87", "pi-1.5", "xcsh", "omp")


def dialect_named(name: str) -> Dialect:
    """Return the dialect of that name, which is one of `DIALECTS`."""
    if name == SPINDLE.name:
        return SPINDLE
    from spindle.protocol.neighbours import NEIGHBOURS  # few clients need one

    return NEIGHBOURS[name]


def find_dialect(name: str, env: Mapping[str, str]) -> Dialect:
    """Return the dialect for the only client of an agent, without the events that tell clients about each other.

    `PI_RPC_EMIT_TITLE` in `env` overrides whether titles are sent.
    """
    dialect = replace(dialect_named(name), silent=EVENTS_FOR_OTHERS)
    wanted = env.get("PI_RPC_EMIT_TITLE", "").strip().lower()
    if wanted in ("1", "true", "yes", "on") and dialect.rows is not None:
        return replace(dialect, rows={**dialect.rows, **WITH_TITLE})
    if wanted in ("0", "false", "no", "off"):
        return replace(dialect, silent=dialect.silent | {TITLE})
    return dialect


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
