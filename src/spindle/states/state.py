"""States of a folder as values: what a snapshot has of each file, and how two snapshots differ."""

import os
from typing import Final, NamedTuple

from msgspec import Struct


class StateGone(Exception):
    """A state is not kept any more."""


class Copy(Struct, frozen=True, array_like=True):
    """A file, link or folder in a state."""

    mode: int
    """With its type, as `lstat` has it."""
    oid: str = ""
    """The object with its content; empty for a folder, and where only modes differ."""


class Change(NamedTuple):
    """A path that two states have in different forms. It is absolute, or seen from the folder."""

    path: str
    before: Copy | None
    after: Copy | None


class Detail(Struct):
    """The difference of a file between two trees, for people."""

    path: str
    status: str
    """`added`, `deleted`, `modified` or `renamed`."""
    old_path: str | None = None
    added: int | None = None
    """Lines; None if the file is binary."""
    removed: int | None = None
    diff: str | None = None
    parts: int = 1
    """How many diffs git writes: two if a file has become a link, or the other way round."""


class State(Struct):
    root: str
    time: float
    tree: str | None = None
    """None: only `copies` are covered."""
    files: int = 0
    modes: dict[str, int] = {}
    """Permissions that are not the usual ones; the name of a folder ends with a slash."""
    folders: list[str] = []
    """Empty folders."""
    skipped: dict[str, str] = {}
    """Names that are not covered, with the reason; that of a folder ends with a slash."""
    copies: dict[str, Copy | None] = {}
    """Absolute path → the file before a tool wrote to it; None: there was none."""

    def objects(self) -> set[str]:
        """Return the objects that the state is made of."""
        oids = {copy.oid for copy in self.copies.values() if copy is not None and copy.oid}
        return oids if self.tree is None else oids | {self.tree}

    def knows(self, path: str) -> bool:
        """Say whether the state has the permissions of a file or folder; also if it has nothing of what is in it."""
        return self.covers(path.rstrip("/"))

    def covers(self, path: str) -> bool:
        folders = (path[: at + 1] for at, char in enumerate(path) if char == "/")
        return path not in self.skipped and not any(folder in self.skipped for folder in folders)


_STATUSES: Final = {"A": "added", "D": "deleted", "R": "renamed"}


def read_differences(data: bytes) -> list[Detail]:
    """Read the output of `diff-tree -z --raw --numstat`: all raw lines, then all numbers."""
    found: list[Detail] = []
    words = iter(data.split(b"\0"))
    at = 0
    for word in words:
        if word.startswith(b":"):
            status = word.rsplit(b" ", 1)[1][:1].decode()
            old = os.fsdecode(next(words)) if status in "RC" else None
            path = os.fsdecode(next(words))
            found.append(Detail(path, _STATUSES.get(status, "modified"), old, parts=2 if status == "T" else 1))
        elif word.count(b"\t") >= 2:
            added, removed, name = word.split(b"\t", 2)
            if not name:  # a renamed file: two names follow
                next(words), next(words)
            if added != b"-":
                found[at].added, found[at].removed = int(added), int(removed)
            at += 1
    return found
