"""What strangers send, within bounds: the far side of a pipe, MCP servers.

Size, depth and number of values are looked at before anything is decoded. Texts of a stranger that go to a model are
cut; a value of another form than was asked for is an error in our words.
"""

import re
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from spindle.shapes.codec import decode

MAX_BYTES: Final = 64 << 20
"""Bytes of one message, and of the data that goes with it."""
MAX_DEPTH: Final = 100
_MAX_VALUES: Final = 1_000_000
_MAX_WORDS: Final = 4000
"""Characters of a failure as the model sees it."""
_MOST_UNWANTED: Final = 8 << 20
"""Bytes at once that answer nothing."""
_UNWANTED_RATE: Final = 64 << 10
"""Bytes a second that may answer nothing for ever: logs, progress."""
_MESSAGE_COST: Final = 100
"""What a message costs beside its bytes."""
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_WHOLE: Final = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""All but a string without an end."""
_PART: Final = 1 << 20
_BACKSLASH: Final = ord("\\")
_BACKSLASHES: Final = re.compile(rb"\\*")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class StrangerError(Exception):
    """A stranger sent what nobody can take; the text says what."""


def require_bounds(data: bytes) -> None:
    """Raise `StrangerError` if decoding this JSON would cost more than its bytes suggest."""
    if len(data) > MAX_BYTES:
        raise StrangerError(f"a message of more than {MAX_BYTES >> 20} MB")
    if _values(data) > MAX_DEPTH:  # what has less brackets is not deep
        _look_closer(data)


def _values(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{") + data.count(b",")


def _look_closer(data: bytes) -> None:
    values, closed, brackets = 0, 0, []
    for part in _without_strings(data):
        values += _values(part)
        closed += part.count(b"]") + part.count(b"}")
        if max(values, closed) > _MAX_VALUES:
            raise StrangerError(f"a message with more than {_MAX_VALUES:,} values")
        brackets.append(part.translate(None, _NO_BRACKETS))
    left = b"".join(brackets)
    for _ in range(MAX_DEPTH):  # each round takes the innermost away
        if not left:
            return
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    if left:
        raise StrangerError(f"JSON that is nested deeper than {MAX_DEPTH} levels, or whose brackets do not match")


def _without_strings(data: bytes) -> Iterator[bytes]:
    """Yield what lies between the strings, in parts: of millions of strings each would be an object for a time."""
    at, is_inside = 0, False
    while at < len(data):
        end = min(at + _PART, len(data))
        if data[end - 1] == _BACKSLASH and (run := _BACKSLASHES.match(data, end)):  # the last one escapes
            end = run.end() + 1
        part = b'"' + data[at:end] if is_inside else data[at:end]
        whole = _WHOLE.match(part)
        assert whole is not None  # it may be empty
        is_inside, at = whole.end() < len(part), end
        yield _STRINGS.sub(b"", whole[0])


def read_json(data: bytes) -> Any:
    """Return the value of a message. Raises `StrangerError`."""
    require_bounds(data)
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise StrangerError(f"something that is not JSON ({error})") from None


def shaped(value: Any, shape: Any) -> Any:
    """Return the value in the form that was asked for. Raises `StrangerError`."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        raise StrangerError("something else than what was asked for") from None


def words(text: object) -> str:
    """Return a text of a stranger as a model may see it: no longer than a failure deserves."""
    if not isinstance(text, str):
        return "(no reason given)"
    if len(text) <= _MAX_WORDS:
        return text
    half = _MAX_WORDS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters cut …]\n{text[-half:]}"


class Patience:
    """Counts what answers nothing. It may trickle for ever; a flood is the end of the connection."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._at = time.monotonic()

    def spend(self, size: int) -> None:
        """Count a message that nobody waits for. Raises `StrangerError` if there were too many."""
        now = time.monotonic()
        self._spent = max(0.0, self._spent - (now - self._at) * _UNWANTED_RATE) + size + _MESSAGE_COST
        self._at = now
        if self._spent > _MOST_UNWANTED:
            raise StrangerError("a flood of messages that nobody waits for")
