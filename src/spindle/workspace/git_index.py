"""Finds files of a git directory in an index: git would write them at the next `git restore`, and obey them."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from spindle.programs.file_times import is_settled, shows_writes

_IS_PART: Final = re.compile(rb"(?:^|/)\.git(?:/|$)")
_MAY_BE: Final = re.compile(rb"\.git[/\0]")
_WIDTHS: Final = (20, 32)
"""Bytes of an object id."""
_EXTENDED: Final = 0x4000
_MORE: Final = 0x80
_HEADER: Final = 12
_NUMBERS: Final = 40
"""Bytes of an entry before its object id."""
_MOST: Final = 512 << 20
"""Bytes of an index; those of the largest projects have a tenth of it."""


def names_git(path: str, *, keep: bool = True) -> bool:
    """Say whether an index, or one that it shares with others, has an entry that is a `.git` or in one.

    Without `keep` it is read again the next time: a process that goes on may change it.
    """
    folder, shared = os.path.dirname(path), list[str]()
    with suppress(OSError):
        shared = [name for name in os.listdir(folder) if name.startswith("sharedindex.")]
    return any(_looked_at(os.path.join(folder, name), keep) for name in (os.path.basename(path), *shared))


def _looked_at(path: str, keep: bool) -> bool:
    with suppress(OSError):  # git cannot read it, either
        status, now = os.stat(path), time.time_ns()
        keep = keep and is_settled(status.st_ctime_ns, now) and shows_writes(path, status.st_dev)
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return _known(path, numbers) if keep else _has_git(path)
    return False


@lru_cache(256)
def _known(path: str, numbers: tuple[int, ...]) -> bool:
    """`numbers` change with the file."""
    return _has_git(path)


def _has_git(path: str) -> bool:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(4)
        if data != b"DIRC":  # git cannot read it
            return False
        data += file.read(_MOST)
    if len(data) > _MOST:
        return True
    version = int.from_bytes(data[4:8], "big")
    if version < 4 and not _MAY_BE.search(data):  # most of what there is, in little time
        return False
    for width in _WIDTHS:
        with suppress(IndexError, ValueError):  # the other width, or git reads none of it, either
            if any(map(_IS_PART.search, _names(data, version, width))):
                return True
    return False


def _names(data: bytes, version: int, width: int) -> Iterator[bytes]:
    """Yield the names in an index. Raises `IndexError`, `ValueError`."""
    at, name = _HEADER, b""
    for _ in range(int.from_bytes(data[8:12], "big")):
        start, at = at, at + _NUMBERS + width
        at += 4 if int.from_bytes(data[at : at + 2], "big") & _EXTENDED else 2
        if version >= 4:
            cut, at = _number(data, at)
            end = data.index(0, at)
            name = name[: len(name) - cut] + data[at:end]
            at = end + 1
        else:
            end = data.index(0, at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        yield name


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of several bytes, and where it ends."""
    value, at = data[at] & 0x7F, at + 1
    while data[at - 1] & _MORE:
        value = ((value + 1) << 7) | (data[at] & 0x7F)
        at += 1
    return value, at
