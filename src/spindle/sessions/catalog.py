"""The catalog: what lists show of session files, remembered so that only files that have changed are read again.

It is one private SQLite file in the agent directory, shared by all processes, and never the truth: a row counts only
while size, time and inode of its file are still the same. Who deletes the catalog loses nothing; where it cannot be
written or is damaged, lists read the files.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from spindle.base import limits
from spindle.base.agent_dir import agent_dir

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

FILE = "spindle-sessions.db"
_FORM = 1
"""Raised when the table changes: a catalog of another form is made again."""
_TABLE = """
CREATE TABLE IF NOT EXISTS session (
    folder BLOB, name BLOB, size INTEGER, mtime INTEGER, inode INTEGER, cwd TEXT, modified INTEGER, id TEXT, facts BLOB,
    PRIMARY KEY (folder, name)
) WITHOUT ROWID
"""
_RECALL = "SELECT name, size, mtime, inode, cwd, modified, id, facts FROM session WHERE folder = ?"
_REMEMBER = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM session WHERE folder = ? AND name = ?"


Stamp: TypeAlias = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, inode: a file is unchanged while these are."""
NO_STAMP: Stamp = (-1, 0, 0)
"""That of a file that cannot be read; no file has it, so its row never counts."""


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


class Row(NamedTuple):
    stamp: Stamp
    cwd: str | None = None
    """None: the file is no session."""
    modified: int = 0
    id: str = ""
    facts: bytes | None = None
    """JSON of what a list shows; None: only the header was read."""


def recall(folders: Iterable[str]) -> dict[str, Row]:
    """Return what is remembered of the files in these folders, by path."""

    def look(catalog: "Connection") -> dict[str, Row]:
        rows = {}
        for folder in folders:
            prefix = os.path.join(folder, "")
            for name, size, mtime, inode, *rest in catalog.execute(_RECALL, (os.fsencode(folder),)):
                rows[prefix + os.fsdecode(name)] = Row((size, mtime, inode), *rest)
        return rows

    return _use(look) or {}


def remember(rows: Mapping[str, Row], gone: Iterable[str] = ()) -> None:
    """Remember what was read of these files, and forget those that are gone."""

    def write(catalog: "Connection") -> None:
        catalog.executemany(_FORGET, map(_key, gone))
        catalog.executemany(_REMEMBER, [(*_key(path), *row.stamp, *row[1:]) for path, row in rows.items()])

    _use(write, make=os.path.isdir(agent_dir()))  # to list sessions is no reason to make it


def forget(paths: Iterable[str]) -> None:
    """Erase what is remembered of files that were deleted."""
    _use(lambda catalog: catalog.executemany(_FORGET, map(_key, paths)))


def _key(path: str) -> tuple[bytes, bytes]:
    folder, name = os.path.split(path)
    return os.fsencode(folder), os.fsencode(name)


def _use(work: "Callable[[Connection], T]", *, make: bool = False) -> T | None:
    """Do something with the catalog in one transaction; None if there is none, or it cannot be used."""
    import sqlite3

    path = agent_dir() / FILE
    try:
        if make:  # SQLite itself would let everybody read it
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        elif not path.exists():
            return None
        with closing(sqlite3.connect(path, timeout=limits.CATALOG_WAIT)) as catalog, catalog:
            # Nothing is lost with it, so the disk need not be waited for. What is deleted is overwritten.
            catalog.executescript("PRAGMA synchronous = OFF; PRAGMA secure_delete = ON")
            if catalog.execute("PRAGMA user_version").fetchone() != (_FORM,):
                catalog.executescript(f"DROP TABLE IF EXISTS session; {_TABLE}; PRAGMA user_version = {_FORM}")
            return work(catalog)
    except (sqlite3.OperationalError, UnicodeError, OSError):
        return None  # it is locked for too long, the disk is full, or a file has a strange name or id
    except sqlite3.DatabaseError:
        with suppress(OSError):
            path.unlink()
        return None
