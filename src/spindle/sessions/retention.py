"""How long data is kept, as the settings say: looked at once a day, when a session ends. By default for ever."""

import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from spindle.base.settings import Retention
from spindle.sessions.holdings import KINDS, Kind, Places, outdated, places
from spindle.sessions.open import wanted_directory

_UNITS: Final = {"h": 3600, "d": 86400, "w": 7 * 86400, "m": 30 * 86400, "y": 365 * 86400}
_DAY: Final = 86400
_MARK: Final = "spindle-data-kept"
"""A file in the agent directory: when old data was looked for last."""

log = logging.getLogger("spindle.data")


class Ended(NamedTuple):
    """What was deleted of a kind."""

    kind: Kind
    number: int
    bytes: int
    left: list[str]
    """Why some was left."""


def seconds(age: str) -> int | None:
    """Return an age such as `90d` in seconds; None if it is none."""
    found = re.fullmatch(r"(\d{1,5})([hdwmy])", age)
    return int(found[1]) * _UNITS[found[2]] if found else None


def ages(retention: Retention) -> dict[str, int]:
    """Return how long kinds of data are kept, in seconds; those that are kept for ever are left out."""
    given = {"sessions": retention.sessions, "uploads": retention.sessions, "usage": retention.usage}
    return {kind: found for kind, age in given.items() if (found := seconds(age)) is not None}


def delete_old(retention: Retention, where: Places) -> Iterator[Ended]:
    """Delete what is older than the settings say, and not in use; the latest `keep_last` sessions stay."""
    wanted = ages(retention)
    for kind in KINDS:
        if kind.name in wanted:
            before = time.time() - wanted[kind.name]
            last = retention.keep_last if kind.name == "sessions" else None
            yield _delete(kind, where, before, last)


def _delete(kind: Kind, where: Places, before: float, keep_last: int | None) -> Ended:
    number, size, left = 0, 0, []
    for item in outdated(kind, where, before, keep_last):
        if (why := kind.remove(item.path)) is None:
            number, size = number + 1, size + item.bytes
        else:
            left.append(why)
    return Ended(kind, number, size, left)


def once_a_day(retention: Retention, agent_dir: Path, given: str | None, setting: str | None) -> None:
    """Delete what is too old, unless that was done today already; a server does it for all of its users.

    `given` and `setting` are directories of sessions, as `wanted_directory` takes them.
    """
    mark = agent_dir / _MARK
    try:
        if time.time() - mark.stat().st_mtime < _DAY:
            return
    except OSError:
        pass  # never yet
    try:
        mark.touch(0o600)
        os.utime(mark)
    except OSError as error:
        log.warning("Cannot look for old data: %s: %s", mark, error.strerror)
        return
    folder = wanted_directory(given, setting)
    for ended in delete_old(retention, places(*([] if folder is None else [folder]))):
        if ended.number:
            log.info("Deleted %d %s, %d bytes, as the retention says", ended.number, ended.kind.name, ended.bytes)
