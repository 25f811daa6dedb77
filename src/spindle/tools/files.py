"""Files as tools use them: resolving paths, opening files safely, one writer at a time, work in threads.

Paths are not restricted: absolute paths and `..` may lead anywhere. Only regular files are opened: a pipe or a device
could block for ever or never end. A file that is replaced keeps its links and permissions, and survives a full disk
and a kill.
"""

import asyncio
import errno
import os
import stat
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from spindle.tools.base import Files, ToolError, ToolSettings, doing

T = TypeVar("T")

_DEFAULTS = ToolSettings()

_PLAIN_SPACES = dict.fromkeys([0x00A0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
_NARROW_SPACE = "\u202f"
_CURLY_QUOTE = "\u2019"
_OF_PROCESSES = ("environ", "cmdline", "mem", "auxv")
"""Files in which Linux shows the variables, words and memory of a process, ours too: keys are in them."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# -- paths ---------------------------------------------------------------------------------------


def resolve_path(path: str, cwd: str) -> str:
    """Return the absolute, normalised path. Raises `ToolError` for a path that no file can have."""
    path = path.translate(_PLAIN_SPACES).removeprefix("@")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
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


def resolve_existing(path: str, cwd: str) -> str:
    """Like `resolve_path`; if there is no such file, try the spellings macOS gives to file names.

    Those are: a narrow space before AM and PM in screenshots, decomposed accents, a curly apostrophe.
    """
    resolved = resolve_path(path, cwd)
    if os.path.lexists(resolved):
        return resolved
    import re
    from unicodedata import normalize

    decomposed = normalize("NFD", resolved)
    spellings = (
        re.sub(r" (AM|PM)\.", _NARROW_SPACE + r"\1.", resolved, flags=re.IGNORECASE),
        decomposed,
        resolved.replace("'", _CURLY_QUOTE),
        decomposed.replace("'", _CURLY_QUOTE),
    )
    return next((spelling for spelling in spellings if os.path.lexists(spelling)), resolved)


# -- opening and writing -------------------------------------------------------------------------


def holds_secrets(path: str) -> bool:
    """Say whether a path leads, by whatever links, to a file that shows secrets of a process."""
    try:
        if os.path.basename(real := os.path.realpath(path)) not in _OF_PROCESSES:
            return False
        return os.stat(real).st_dev == os.stat("/proc").st_dev
    except (OSError, ValueError):
        return False


def require_regular(path: str) -> os.stat_result:
    """Return the status of a regular file.

    Raises `OSError` if there is none or if it is a directory, `ToolError` for pipes, sockets, devices and files with
    secrets of a process.
    """
    if holds_secrets(path):
        raise ToolError(f"{path} shows secrets of a process and is not opened")
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"Not a regular file: {path}")
    return status


def require_text_place(path: str) -> None:
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


def require_folder(path: str) -> None:
    """Raise `ToolError` unless this is a folder."""
    if not os.path.isdir(path):
        raise ToolError(f"{'Not a directory' if os.path.exists(path) else 'Path not found'}: {path}")


def replace_file(path: str, data: bytes) -> None:
    """Replace the content of the file at `path` by `data`: a kill at any time leaves the old content or the new.

    The new content is written beside the old and takes its name, mode, owner and attributes; a link stays a link. Where
    that is impossible (other hard links, a read-only folder, an owner we cannot set) the file itself is overwritten.
    Raises `OSError`.
    """
    path = os.path.realpath(path)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        _write_beside(path, data, None)
        return
    try:
        if os.fstat(file).st_nlink > 1 or not _write_beside(path, data, file):
            overwrite(file, data)
    finally:
        os.close(file)


def _write_beside(path: str, data: bytes, old: int | None) -> bool:
    """Write a new file and rename it to `path`. Return False if it cannot take the place of the open file `old`."""
    folder, name = os.path.split(path)
    scratch = os.path.join(folder, f".{name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if old is None else 0o600)
    except OSError as error:
        if old is None or error.errno in _NO_ROOM:
            raise
        return False
    try:
        try:
            if old is not None and not _dress(file, old):
                return False
            _write_all(file, data)
        finally:
            os.close(file)
        try:
            os.replace(scratch, path)
        except OSError:
            if old is None:
                raise
            return False  # a mount point, or a file of another user in a folder such as /tmp
        return True
    finally:
        with suppress(FileNotFoundError):
            os.unlink(scratch)


def _dress(file: int, old: int) -> bool:
    """Give a file the owner, the mode and the attributes of the file `old`. Return whether that was possible."""
    status, mine = os.fstat(old), os.fstat(file)
    try:
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(file, status.st_uid, status.st_gid)
        os.fchmod(file, stat.S_IMODE(status.st_mode))
        if hasattr(os, "listxattr"):
            for name in os.listxattr(old):
                if not name.startswith("security."):  # the system sets these
                    os.setxattr(file, name, os.getxattr(old, name))
    except OSError as error:
        return error.errno == errno.ENOTSUP  # no attributes on this file system
    return True


def overwrite(file: int, data: bytes) -> None:
    """Replace the content of an open file in place.

    Raises `OSError`. If the disk is full the old content stays, on file systems that can reserve room.
    """
    status = os.fstat(file)
    size = status.st_size
    room = size if status.st_blocks * 512 >= size else 0  # a file with holes lacks room even for its own content
    if len(data) > room and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, room, len(data) - room)
        except OSError as error:
            if error.errno in _NO_ROOM:
                os.ftruncate(file, size)
                raise
            # This file system cannot reserve room; writing will show whether there is enough.
    os.lseek(file, 0, os.SEEK_SET)
    _write_all(file, data)
    os.ftruncate(file, len(data))


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


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


# -- threads -------------------------------------------------------------------------------------


def _run(work: Callable[["Cancel"], T], cancel: "Cancel", settings: ToolSettings) -> T:
    if settings.sandbox is None:
        return work(cancel)
    # The kernel checks paths as they are at this moment, whatever links a program makes meanwhile.
    return settings.sandbox.inner.run(lambda: work(cancel))


class Cancel(threading.Event):
    """Tells work in a thread to stop; the work checks it now and then."""

    def check(self) -> None:
        """Raise `ToolError` if the result is not wanted any more."""
        if self.is_set():
            raise ToolError("Operation aborted")


async def run_abandonable(work: Callable[[Cancel], T], settings: ToolSettings = _DEFAULTS) -> T:
    """Run work that only reads. When cancelled, return at once; the thread ends at its next `check`."""
    cancel = Cancel()
    try:
        return await asyncio.to_thread(_run, work, cancel, settings)
    except asyncio.CancelledError:
        cancel.set()
        raise


async def run_to_end(work: Callable[[Cancel], T], settings: ToolSettings = _DEFAULTS) -> T:
    """Run work that changes something. When cancelled, tell the work, but return only when it has ended."""
    cancel = Cancel()
    running = asyncio.ensure_future(asyncio.to_thread(_run, work, cancel, settings))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancel.set()
            cancelled = error
    if cancelled:
        running.exception()  # Looked at, so that asyncio does not complain.
        raise cancelled
    return running.result()
