"""Files as tools use them: resolving paths, one writer at a time, work in threads.

Paths are not restricted: absolute paths and `..` may lead anywhere. What is done to files is in `workspace`.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from spindle.tools.base import Files
from spindle.workspace.disk import Cancel, ToolError, doing, require_regular
from spindle.workspace.settings import ToolSettings

T = TypeVar("T")

_DEFAULTS = ToolSettings()

_PLAIN_SPACES = dict.fromkeys([0x00A0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")


# -- paths ---------------------------------------------------------------------------------------


def resolve_path(path: str, cwd: str, home: str | None = None) -> str:
    """Return the absolute, normalised path. Raises `ToolError` for a path that no file can have.

    `home`: what `~` means; None: our own home directory.
    """
    path = path.translate(_PLAIN_SPACES).removeprefix("@")
    if path == "~" or path.startswith("~/"):
        path = (home or os.path.expanduser("~")) + path[1:]
    elif path.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise ToolError(f"File URL must name a file of this machine: {path}")
        path = unquote(parts.path)
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(f"Path is not valid text: {path!a}") from None
    if b"\0" in encoded:
        raise ToolError(f"Path must not contain null bytes: {path!a}")
    resolved = os.path.normpath(os.path.join(cwd, path))
    # POSIX lets exactly two leading slashes mean something else; no system here does.
    return resolved[1:] if resolved.startswith("//") else resolved


def require_text_place(cancel: Cancel, path: str) -> None:
    """Check a path before another program reads or writes a text there. Raises `ToolError`."""
    with doing("open", path), suppress(FileNotFoundError, NotADirectoryError):
        require_regular(path)


def has_text(path: str, text: str) -> bool:
    """Say whether the file on disk has this text."""
    data = text.encode("utf-8", "surrogatepass")
    try:
        if require_regular(path).st_size != len(data):
            return False
        with open(path, "rb") as file:
            return file.read() == data
    except (OSError, ToolError):
        return False


def elsewhere(path: str, text: str, files: Files) -> str:
    """Return the end of a sentence about a text that another program has written, and perhaps not saved."""
    return f" in {files.name}" + ("" if has_text(path, text) else "; it is not on disk yet")


# -- one writer per file -------------------------------------------------------------------------


# Agents of one process may run on different event loops, so an `asyncio.Lock` will not do: it belongs to one loop.
_queues: dict[str, deque[Future[None]]] = {}
"""For each file the turns of its writers: the first holds it, the others wait."""
_queues_guard = threading.Lock()


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """Hold the file at the absolute `path`, also under its other names."""
    # Resolved here and not in a thread: the order of arrival is the order of the queue.
    key = os.path.realpath(path)
    turn: Future[None] = Future()
    with _queues_guard:
        queue = _queues.setdefault(key, deque())
        queue.append(turn)
        must_wait = len(queue) > 1
    try:
        if must_wait:
            await asyncio.wrap_future(turn)
        yield
    finally:
        with _queues_guard:
            was_first = queue[0] is turn
            queue.remove(turn)
            following = queue[0] if queue else None
            if following is None:
                del _queues[key]
        # A cancelled turn gets no result: it passes the file on when it ends itself.
        if was_first and following is not None and following.set_running_or_notify_cancel():
            following.set_result(None)
