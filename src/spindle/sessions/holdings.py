"""What is stored on this machine: kinds of data, how much there is, since when, and how each is deleted by its age.

Nothing that is in use is deleted: no session that a process writes to, no checkpoints of a folder that an agent works
in.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from spindle.base.agent_dir import agent_dir
from spindle.sessions.belongings import SUBAGENTS, UPLOADS, beside
from spindle.sessions.load import read_header
from spindle.sessions.lock import SessionLocked
from spindle.sessions.open import delete
from spindle.workspace.texts import KEPT_PREFIXES, kept_folder


class Item(NamedTuple):
    path: Path
    bytes: int
    time: float
    """When it was written last."""


class Kind(NamedTuple):
    name: str
    what: str
    items: Callable[["Places"], Iterator[Item]]
    remove: Callable[[Path], str | None]
    """Deletes one; returns why it was left."""


class Places(NamedTuple):
    """Where data lies."""

    agent_dir: Path
    sessions: tuple[Path, ...]
    """Folders with session files."""


class Holding(NamedTuple):
    """What there is of a kind."""

    kind: Kind
    number: int
    bytes: int
    oldest: float | None


def places(*session_dirs: str) -> Places:
    """Return the places of this user: of all projects, of all users of a server, and further folders of sessions."""
    home = agent_dir()
    folders = [*_folders(home / "sessions"), *_folders(home / "users")]
    for place in map(Path, session_dirs):  # they may be any folders
        folders += filter(_has_sessions, [place, *_folders(place)])
    return Places(home, tuple(dict.fromkeys(folders)))


def _has_sessions(folder: Path) -> bool:
    return any(map(_is_session, folder.glob("*.jsonl")))


def _is_session(path: Path) -> bool:
    try:
        with open(path, "rb") as lines:
            header = read_header(lines)
    except OSError:
        return False
    return header is not None and isinstance(header.id, str)


def holdings(where: Places) -> list[Holding]:
    """Return how much there is of each kind."""
    found = []
    for kind in KINDS:
        items = list(kind.items(where))
        oldest = min((item.time for item in items), default=None)
        found.append(Holding(kind, len(items), sum(item.bytes for item in items), oldest))
    return found


def outdated(kind: Kind, where: Places, before: float | None, keep_last: int | None) -> list[Item]:
    """Return what was written last before a time, and is not among the last `keep_last`; the oldest first."""
    items = sorted(kind.items(where), key=lambda item: item.time)
    if keep_last is not None:
        items = items[: max(0, len(items) - keep_last)]
    return [item for item in items if before is None or item.time < before]


# -- kinds -----------------------------------------------------------------------------------------


def _sessions(where: Places) -> Iterator[Item]:
    for folder in where.sessions:
        for path in folder.glob("*.jsonl"):
            with suppress(OSError):
                status = path.stat()
                queue, subagents, _ = beside(path)
                yield Item(path, status.st_size + _size(queue) + _size(subagents), status.st_mtime)


def _uploads(where: Places) -> Iterator[Item]:
    for folder in where.sessions:
        found = [*folder.glob(f"*{UPLOADS}"), *_folders(folder / "uploads")]  # the latter of older versions
        yield from _items(path for path in found if path.is_dir())


def _outputs(where: Places) -> Iterator[Item]:
    folder = Path(kept_folder())
    yield from _items(path for prefix in KEPT_PREFIXES for path in folder.glob(f"{prefix}*.log"))


def _checkpoints(where: Places) -> Iterator[Item]:
    elsewhere = _folders(where.agent_dir / "checkpoints-elsewhere")
    stores = [
        *_folders(where.agent_dir / "checkpoints"),
        *(store for folder in elsewhere for store in _folders(folder)),
    ]
    yield from _items(stores)


def _usage(where: Places) -> Iterator[Item]:
    yield from _items(path for user in _folders(where.agent_dir / "usage") for path in user.glob("*.jsonl"))


def _caches(where: Places) -> Iterator[Item]:
    yield from _items((where.agent_dir / "mcp-cache").glob("*"))


def _items(paths: Iterable[Path]) -> Iterator[Item]:
    with suppress(OSError):  # a folder that cannot be listed
        for path in paths:
            with suppress(OSError):
                newest = max((one.stat().st_mtime for one in _files(path)), default=path.stat().st_mtime)
                yield Item(path, _size(path), newest)


def _size(path: Path) -> int:
    total = 0
    for file in _files(path):
        with suppress(OSError):
            total += file.stat().st_size
    return total


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file())
    elif path.is_file():
        yield path


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir() and not entry.name.endswith((SUBAGENTS, UPLOADS))]
    except OSError:
        return []


# -- deleting --------------------------------------------------------------------------------------


def _remove_session(path: Path) -> str | None:
    if not _is_session(path):
        return f"{path}: it is no session"
    try:
        delete(path)
    except SessionLocked as error:
        return error.what
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def _remove_upload(path: Path) -> str | None:
    session = path.with_suffix(".jsonl")
    return f"{path}: its session is there, and it goes with it" if session.exists() else _remove(path)


def _remove_store(path: Path) -> str | None:
    from spindle.states.store import remove_unused

    return None if remove_unused(path) else f"{path}: an agent is at work in its folder"


def _remove_usage(path: Path) -> str | None:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{path}: quotas count it today" if path.stem >= today else _remove(path)


def _remove(path: Path) -> str | None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


KINDS = (
    Kind("sessions", "conversations, with what subagents did and kept queues", _sessions, _remove_session),
    Kind("uploads", "files that clients have uploaded", _uploads, _remove_upload),
    Kind("outputs", "whole outputs of commands, for a day", _outputs, _remove),
    Kind("checkpoints", "states of files, for undo, for 30 days", _checkpoints, _remove_store),
    Kind("usage", "runs and cost of the users of a server, by day", _usage, _remove_usage),
    Kind("caches", "tool lists of MCP servers", _caches, _remove),
)
