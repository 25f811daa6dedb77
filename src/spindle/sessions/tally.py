"""What a list shows of a session, collected from its lines. Only the keys that a list shows are decoded."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from spindle.sessions.entries import UNREADABLE, Header, parse_time, text_or_empty
from spindle.sessions.facts import RUN_ENTRY, RUN_OPEN
from spindle.shapes.codec import DecodeError, decode, encode

NO_MESSAGES = "(no messages)"


class SessionInfo(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    id: str
    cwd: str
    name: str | None
    parent_session_path: str | None
    created: int | None
    """Unix milliseconds, like `modified`; None if the header has no readable time."""
    modified: int
    """Time of the last message of user or model."""
    message_count: int
    first_message: str
    interrupted: bool = False
    """Whether a run was cut off, by the end of its process."""


class _MessageLine(msgspec.Struct):
    role: Any = None
    content: msgspec.Raw | UnsetType = UNSET
    timestamp: Any = None
    stop_reason: Any = msgspec.field(default=None, name="stopReason")


class _Line(msgspec.Struct):
    type: Any = None
    timestamp: Any = None
    name: Any = None
    message: _MessageLine | None = None
    custom_type: Any = msgspec.field(default=None, name="customType")
    data: msgspec.Raw = msgspec.Raw()


_decode_line = msgspec.json.Decoder(_Line).decode


class Tally:
    """Collects name, count, first message and last time from the lines of one session."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.count = 0
        self.first = ""
        self.last_time = 0
        self._run: Any = None
        """The last record of a run."""
        self._is_answered = False
        """Whether the last message is a final answer."""

    def is_open(self, session: str) -> bool:
        """Say whether a run of this session has begun and not ended."""
        run = self._run if isinstance(self._run, dict) else {}
        return run.get("session") == session and run.get("state") in RUN_OPEN and not self._is_answered

    @property
    def works(self) -> bool:
        """Whether the last run has begun and neither ended nor waits for an answer."""
        return isinstance(self._run, dict) and self._run.get("state") in RUN_OPEN[:2] and not self._is_answered

    def info(self, path: str, header: Header, written: int) -> SessionInfo:
        """Return what a list shows; `written` is when the session was written to last."""
        created = parse_time(header.timestamp)
        return SessionInfo(
            path=path,
            id=header.id,
            cwd=header.cwd,
            name=self.name,
            parent_session_path=header.parent_session,
            created=created,
            modified=self.last_time or (written if created is None else created),
            message_count=self.count,
            first_message=self.first or NO_MESSAGES,
            interrupted=self.is_open(header.id),
        )

    def add(self, data: bytes) -> None:
        try:
            line = _decode_line(data)
        except UNREADABLE:
            line = _decode_slowly(data)
        if line.type == "session_info":
            self.name = text_or_empty(line.name).strip() or None
        elif line.type == "custom" and line.custom_type == RUN_ENTRY:
            self._run = _decode_or_none(bytes(line.data))
        elif line.type == "message":
            self.count += 1
            message = line.message
            self._is_answered = message is not None and message.role == "assistant" and message.stop_reason == "stop"
            if message is None or message.content is UNSET or message.role not in ("user", "assistant"):
                return
            time = parse_time(line.timestamp if message.timestamp is None else message.timestamp)
            self.last_time = max(self.last_time, time or 0)
            if not self.first and message.role == "user":
                self.first = _text_of(_decode_or_none(bytes(message.content)))


def _text_of(content: Any) -> str:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = (block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    return " ".join(text for text in texts if isinstance(text, str))


def _decode_slowly(data: bytes) -> _Line:
    """Read a line that msgspec refuses: half of a surrogate pair in it, or a message that is no object."""
    value = _decode_or_none(data)
    if not isinstance(value, dict):
        return _Line()
    line = _Line(value.get("type"), value.get("timestamp"), value.get("name"))
    if isinstance(message := value.get("message"), dict):
        line.message = _MessageLine(message.get("role"), timestamp=message.get("timestamp"))
        if "content" in message:
            line.message.content = msgspec.Raw(encode(message["content"]))
    return line


def _decode_or_none(data: bytes) -> Any:
    try:
        return decode(data)
    except (DecodeError, RecursionError):
        return None
