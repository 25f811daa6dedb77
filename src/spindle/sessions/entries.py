"""One line of a session file in memory: its bytes, and the keys that the tree needs. Also ids and times.

The bytes stay as they were read, so that keys we do not know are never lost; only type, id, parent and time are decoded
at once, the rest on use.
"""

import gc
import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, TypeAlias

import msgspec

from spindle.base.errors import AgentError
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import (
    AgentMessage,
    Image,
    KnownMessage,
    OpaqueMessage,
    Text,
    Usage,
    Wire,
    message_from_value,
)

SESSION_VERSION = 3
UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for a line that is broken, or merely unusual."""


class SessionError(AgentError):
    """Base of all errors that this package raises on purpose; the text is for people."""


class SessionNotFound(SessionError):
    """The name is of no session or file, or the beginning of several ids; the text has near names, if there are any."""


# -- lines that we write; field order is the key order on disk -------------------------------------


class SessionHeader(Wire, tag_field="type", tag="session"):
    version: int
    id: str
    timestamp: str
    """ISO 8601 with milliseconds and Z, here and in every entry."""
    cwd: str
    parent_session: str | None = None


class _Placed(Wire):
    id: str
    parent_id: str | None
    timestamp: str


class MessageEntry(_Placed, tag_field="type", tag="message"):
    message: KnownMessage


class ModelChangeEntry(_Placed, tag_field="type", tag="model_change"):
    provider: str
    model_id: str


class ThinkingLevelChangeEntry(_Placed, tag_field="type", tag="thinking_level_change"):
    thinking_level: str


class CompactionEntry(_Placed, kw_only=True, tag_field="type", tag="compaction"):
    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int | float
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class BranchSummaryEntry(_Placed, kw_only=True, tag_field="type", tag="branch_summary"):
    from_id: str
    """The leaf of the branch that was left, or `root`."""
    summary: str
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class UsageEntry(_Placed, kw_only=True, tag_field="type", tag="usage"):
    """What a model used beside the conversation."""

    kind: str
    provider: str
    model: str
    usage: Usage


class CustomEntry(Wire, kw_only=True, tag_field="type", tag="custom"):
    """State of an extension; never sent to a model."""

    custom_type: str
    data: Any = None
    id: str
    parent_id: str | None
    timestamp: str


class CustomMessageEntry(Wire, kw_only=True, tag_field="type", tag="custom_message"):
    custom_type: str
    content: str | list[Text | Image]
    display: bool
    details: Any = None
    id: str
    parent_id: str | None
    timestamp: str


class LabelEntry(_Placed, tag_field="type", tag="label"):
    target_id: str
    label: str | None = None
    """Missing or empty clears the label."""


class SessionInfoEntry(_Placed, tag_field="type", tag="session_info"):
    name: str
    usage: Usage | None = None
    """What a model used to find the name."""


KnownEntry: TypeAlias = (
    MessageEntry
    | ModelChangeEntry
    | ThinkingLevelChangeEntry
    | CompactionEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfoEntry
)
"""The entries that we write. Files of other programs have more, which clients pass over."""


# -- lines as they are read ------------------------------------------------------------------------


class Line:
    """A JSON object with its bytes."""

    __slots__ = ()
    _line: bytes

    @property
    def raw(self) -> bytes:
        """The object's bytes as in the file, without the newline."""
        return self._line.strip()

    @property
    def ended(self) -> bytes:
        """The object's bytes with one newline, ready to be added to a file."""
        line = self._line
        return line if line.startswith(b"{") and line.endswith(b"}\n") else line.strip() + b"\n"

    @property
    def value(self) -> dict[str, Any]:
        """The object, decoded again at each call."""
        return _decode_object(self._line)

    @property
    def wire(self) -> bytes:
        """The bytes for any JSON reader: valid UTF-8, no raw U+2028 or U+2029."""
        raw = self.raw
        if raw.isascii():
            return raw
        try:
            raw.decode()
        except UnicodeDecodeError:
            return encode(self.value)
        return raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")


class Header(Line):
    """The first line: which session this is and where it was begun."""

    __slots__ = ("_line", "cwd", "id", "parent_session", "timestamp", "version")

    def __init__(self, line: bytes) -> None:
        self._line = line
        value = self.value
        self.id: Any = value.get("id")
        """A string in every session that opens; anything in a damaged one."""
        self.cwd = text_or_empty(value.get("cwd"))
        self.timestamp = text_or_empty(value.get("timestamp"))
        self.parent_session = text_or_empty(value.get("parentSession")) or None
        # A file without a version is of the oldest; a version that is no number is read as the newest.
        version = value.get("version", 1)
        is_number = isinstance(version, (int, float)) and not isinstance(version, bool)
        self.version: int | float = version if is_number else 1 if version is None else SESSION_VERSION


_NOWHERE = msgspec.Raw()


class Entry(Line, msgspec.Struct, rename="camel", eq=False, gc=False):
    """A node of the tree.

    msgspec makes it from a line: it decodes the keys below, and checks and skips the rest. A message is decoded on use;
    until then only its place in the line is known. Entries cannot form circles (links are ids), so the garbage
    collector need not walk a hundred thousand of them.
    """

    type: str = ""
    id: str = ""
    parent_id: str | None = None
    timestamp: str = ""
    _line: bytes = b""
    _message: Any = None
    _stored: msgspec.Raw = msgspec.field(default=_NOWHERE, name="message")
    """The message's place in the line, if the entry was read from one; it has no bytes of its own."""

    @classmethod
    def of(cls, value: Any) -> "Entry":
        """Make an entry from one of the shapes above."""
        message = getattr(value, "message", None)
        return cls(
            value.__struct_config__.tag,
            value.id,
            value.parent_id,
            value.timestamp,
            encode(value) + b"\n",
            None if isinstance(message, dict) else message,
        )

    @property
    def message(self) -> AgentMessage:
        """The message of a `message` entry, decoded once. Opaque if it is missing or cannot be read."""
        if self._message is None:
            try:
                self._message = _decode_message(self._stored)
            except UNREADABLE:
                value = self.value.get("message")
                self._message = message_from_value(value) if isinstance(value, dict) else OpaqueMessage(None)
        message: AgentMessage = self._message
        return message

    def __getattr__(self, name: str) -> Any:
        """Return the value of any other key, by its name in the file: `summary`, `parentId`."""
        if name.startswith("_") or name not in (value := self.value):
            raise AttributeError(f"This entry of the type {self.type} has no {name}")
        return value[name]

    def as_stored(self, message: Any) -> Any:
        """Return `message`; if it was read from this line, its JSON, which also has keys that we do not know."""
        if self._message is not message or self._stored is _NOWHERE:
            return message
        if not self._line.isascii():
            try:
                self._line.decode()
            except UnicodeDecodeError:
                return message
        return self._stored

    def edited(self, changes: Mapping[str, Any], drop: Iterable[str] = ()) -> "Entry":
        """Return a copy with some keys other than the message set or dropped."""
        return Entry(
            changes.get("type", self.type),
            changes.get("id", self.id),
            changes.get("parentId", self.parent_id),
            changes.get("timestamp", self.timestamp),
            edit_line(self._line, changes, drop) + b"\n",
            None,
            self._stored,
        )

    def __repr__(self) -> str:
        return f"<Entry {self.type} {self.id} under {self.parent_id}>"


_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_message = msgspec.json.Decoder(KnownMessage).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_entry(line: bytes) -> Entry:
    """Return the entry in a line; missing keys are empty. Raises the errors in `UNREADABLE`."""
    entry = _decode_entry(line)
    entry.type = intern(entry.type)
    entry._line, entry._message = line, None  # the line may have keys of these names
    return entry


def new_header(cwd: str, *, session_id: str | None = None, parent_session: str | None = None) -> Header:
    """Return the header of a new session."""
    timestamp = iso_time(now_ms())
    shape = SessionHeader(SESSION_VERSION, session_id or new_session_id(), timestamp, cwd, parent_session)
    return Header(encode(shape) + b"\n")


def edit_line(line: bytes, changes: Mapping[str, Any], drop: Iterable[str] = ()) -> bytes:
    """Return the object of `line` with some keys set or dropped; all other values keep their bytes and their order."""
    fields = _fields(line)
    for key in drop:
        fields.pop(key, None)
    fields.update(changes)
    return encode(fields)


def edit_inner(line: bytes, key: str, changes: Mapping[str, Any]) -> bytes:
    """Return the object of `line` with keys set in the object under `key`."""
    return edit_line(line, {key: msgspec.Raw(edit_line(encode(_fields(line)[key]), changes))})


def _fields(line: bytes) -> dict[str, Any]:
    """Return the top level of an object, its values still as bytes if possible."""
    try:
        return _decode_fields(line)
    except UNREADABLE:
        return _decode_object(line)


def _decode_object(line: bytes) -> dict[str, Any]:
    try:
        value = decode(line)
    except (DecodeError, RecursionError):
        import json

        try:  # a number out of range: other programs read it, so must we
            value = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: walking the new objects again and again takes half the time of a long load."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


class _SessionIds:
    """UUIDs of version 7: milliseconds, a counter that starts at random in each millisecond, random bits."""

    def __init__(self) -> None:
        self._millisecond = 0
        self._counter = 0

    def next(self) -> str:
        """Return a new id."""
        now = now_ms()
        if now > self._millisecond:
            self._millisecond, self._counter = now, int.from_bytes(os.urandom(4))
        else:  # same millisecond, or the clock went back: ids must still grow
            self._counter += 1
            if self._counter >> 32:
                self._millisecond, self._counter = self._millisecond + 1, 0
        tail = self._counter << 42 | int.from_bytes(os.urandom(6)) >> 6
        value = self._millisecond << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | tail & (1 << 62) - 1
        digits = f"{value:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


new_session_id = _SessionIds().next


def new_entry_id(taken: Container[str]) -> str:
    """Return eight hex digits that are not in `taken`."""
    while (entry_id := os.urandom(4).hex()) in taken:
        pass
    return entry_id


def now_ms() -> int:
    """Return the time as Unix milliseconds."""
    return time.time_ns() // 1_000_000


def iso_time(milliseconds: int) -> str:
    """Return `YYYY-MM-DDTHH:MM:SS.mmmZ` for a time in the range of `parse_time`."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_date_and_time(seconds)}.{rest:03d}Z"


@lru_cache(64)  # a busy session asks many times in one second
def _date_and_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def parse_time(value: Any) -> int | None:
    """Return Unix milliseconds of an ISO date (or of a number, taken as milliseconds).

    None if it is neither, or outside the years 1 to 9999.
    """
    if isinstance(value, str):
        try:
            value = round(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None
    elif not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return int(value) if _FIRST_MS <= value <= _LAST_MS else None
