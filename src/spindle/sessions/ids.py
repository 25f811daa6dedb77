"""Ids and times as session files write them."""

import os
import re
import time
from collections.abc import Container
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from spindle.sessions.errors import SessionError

__all__ = ["check_session_id", "iso_time", "new_entry_id", "new_session_id", "now_ms", "parse_time"]

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_SESSION_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class _SessionIds:
    """UUIDs of version 7: milliseconds, a counter that starts at random in each of them, random bits."""

    def __init__(self) -> None:
        self._millisecond = 0
        self._counter = 0

    def next(self) -> str:
        now = now_ms()
        if now > self._millisecond:
            self._millisecond, self._counter = now, int.from_bytes(os.urandom(4))
        else:  # same millisecond, or the clock went back: ids must still grow
            self._counter += 1
            if self._counter >> 32:
                self._millisecond, self._counter = self._millisecond + 1, 0
        tail = self._counter << 42 | int.from_bytes(os.urandom(6)) >> 6
        value = self._millisecond << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | tail & (1 << 62) - 1
        return _hyphenate(f"{value:032x}")


_session_ids = _SessionIds()


def new_session_id() -> str:
    """Return a fresh UUID of version 7."""
    return _session_ids.next()


def check_session_id(session_id: str) -> str:
    """Return `session_id` if it may become part of a file name. Raises `SessionError`."""
    if not _SESSION_ID.fullmatch(session_id):
        raise SessionError(
            "Session id must be non-empty, contain only alphanumeric characters, '-', '_', and '.', "
            "and start and end with an alphanumeric character"
        )
    return session_id


def new_entry_id(taken: Container[str]) -> str:
    """Return eight hex digits that are not in `taken`, or a whole UUID if luck runs out."""
    for _ in range(100):
        entry_id = os.urandom(4).hex()
        if entry_id not in taken:
            return entry_id
    value = int.from_bytes(os.urandom(16)) & ~(0xF << 76 | 0b11 << 62) | 0x4 << 76 | 0b10 << 62
    return _hyphenate(f"{value:032x}")


def _hyphenate(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def now_ms() -> int:
    """Return the time as Unix milliseconds."""
    return time.time_ns() // 1_000_000


def iso_time(milliseconds: int) -> str:
    """Return `YYYY-MM-DDTHH:MM:SS.mmmZ` of a time that `parse_time` may have given."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_date_and_time(seconds)}.{rest:03d}Z"


@lru_cache(64)  # a busy session asks many times in one second
def _date_and_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def parse_time(value: Any) -> int | None:
    """Return Unix milliseconds of an ISO date (or of a number, taken as milliseconds).

    None if it is neither, or no time of the years 1 to 9999.
    """
    if isinstance(value, str):
        try:
            value = round(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None
    elif not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return int(value) if _FIRST_MS <= value <= _LAST_MS else None
