"""The session file: its path, and its bytes: read them, add to the end, replace the whole file.

Added bytes go out in one write at the end of the file. Bytes that could not be written stay queued here, exactly
from the byte where the disk refused, so that the next attempt goes on as if nothing had happened.
"""

import errno
import io
import os
import re
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import BinaryIO, ClassVar, TypeAlias

from spindle.base.agent_dir import agent_dir, expand_home

StrPath: TypeAlias = str | os.PathLike[str]
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change newlines without it
_APPEND = os.O_WRONLY | os.O_APPEND | _BINARY


def open_for_reading(path: Path) -> BinaryIO:
    return open(path, "rb", buffering=1 << 17)  # few reads, but small enough for the processor's cache


def absolute(path: StrPath) -> str:
    """Return `path` with `~` expanded, absolute and normalised; links are not followed."""
    return os.path.abspath(expand_home(os.fspath(path)))


def is_path(name: str) -> bool:
    """Say whether this names a session by its file, and not by its id."""
    return "/" in name or "\\" in name or name.endswith(".jsonl")


def session_dir_for(cwd: StrPath) -> Path:
    """Return the directory for sessions of the project in `cwd`; it may not exist yet."""
    return agent_dir() / "sessions" / encode_cwd(absolute(cwd))


def encode_cwd(cwd: str) -> str:
    """Return the directory name for `cwd`. Two projects may share one: `/a/b` and `/a-b` encode alike."""
    without_root = re.sub(r"^[/\\]", "", cwd)
    return "--" + re.sub(r"[/\\:]", "-", without_root) + "--"


def session_file_name(timestamp: str, session_id: str) -> str:
    """Return the name of a new session's file; `timestamp` is the one in its header."""
    return f"{re.sub('[:.]', '-', timestamp)}_{session_id}.jsonl"


def make_private_dir(path: Path) -> None:
    """Create `path` and its missing parents for the owner only; existing directories keep their mode."""
    missing = []
    while not os.path.isdir(path) and path != path.parent:
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


class Descriptor:
    """Closed with the last reference to it, so that it stays open while a thread waits for the disk."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.number)


class AppendFile:
    """The end of one file, as far as we know it."""

    def __init__(self, path: Path, status: os.stat_result, *, ends_open: bool = False, torn: int = 0) -> None:
        self.path = path
        self.size = status.st_size
        """How far we have read or written it."""
        self.ends_open = ends_open
        """Its last line has no newline."""
        self._torn = torn
        """Bytes of a last line that a full disk or a crash has cut: they make no sense, and go with the next append."""
        self.queue = bytearray()
        """Bytes that must follow the end of the file."""
        self._unread: list[tuple[int, int]] = []
        """Ranges that other programs wrote between our last look and our write."""
        self._identity = status.st_dev, status.st_ino
        self._descriptor: Descriptor | None = None
        self._unsynced = False
        """Whether we have written since the last sync began."""

    @classmethod
    def create(cls, path: Path) -> "AppendFile":
        """Make a new private file. Raises `FileExistsError`."""
        descriptor = Descriptor(os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600))
        file = cls(path, os.fstat(descriptor.number))
        file._descriptor = descriptor
        return file

    def is_unchanged(self, status: os.stat_result) -> bool:
        return status.st_size == self.size and self._is_same(status) and not self._unread

    def has_grown(self, status: os.stat_result) -> bool:
        """Say whether another program added lines to this same file, which ended in a whole line."""
        has_more = status.st_size > self.size or bool(self._unread)
        return has_more and self._is_same(status) and not self.ends_open and not self.queue

    def _is_same(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity

    def read_news(self) -> Sequence[bytes]:
        """Return the lines that other programs have added since our last look."""
        with open_for_reading(self.path) as file:
            lines = []
            for start, end in self._unread:
                file.seek(start)
                lines += io.BytesIO(file.read(end - start)).readlines()
            file.seek(self.size)
            tail = file.readlines()
            self.size = file.tell()
        self._unread.clear()
        self.ends_open = bool(tail) and not tail[-1].endswith(b"\n")
        return lines + tail

    def put(self, lines: bytes) -> None:
        """Queue whole lines for the end of the file."""
        if self.ends_open:
            self.queue += b"" if self._torn else b"\n"
            self.ends_open = False
        self.queue += lines

    def flush(self) -> None:
        """Write the queue. Raises `OSError`; bytes written before the error are no longer queued."""
        if not self.queue:
            return
        if self._descriptor is None:
            self._descriptor = Descriptor(os.open(self.path, _APPEND))
        descriptor = self._descriptor.number
        if self._torn:
            self._mend(descriptor)
        while self.queue:
            written = os.write(descriptor, self.queue)
            self._unsynced = True
            del self.queue[:written]
            start = os.lseek(descriptor, 0, os.SEEK_CUR) - written
            if start > self.size:  # another program was quicker, so our bytes follow its bytes
                self._unread.append((self.size, start))
                self.size = start
            self.size += written

    def _mend(self, descriptor: int) -> None:
        """Take the torn line away, unless another program goes on with it."""
        if os.fstat(descriptor).st_size == self.size:
            os.ftruncate(descriptor, self.size - self._torn)
            self.size -= self._torn
        else:
            self.queue[:0] = b"\n"
        self._torn = 0

    def sync(self) -> None:
        """Wait until all written bytes are on the disk itself. Raises `OSError`."""
        if wait := self.begin_sync():
            wait()

    def begin_sync(self) -> Callable[[], None] | None:
        """Return a function that waits for the disk; None if nothing was written since the last sync.

        It may be called in any thread, whatever happens to the file meanwhile, and raises `OSError`. After a failure,
        the next sync waits for the same bytes again.
        """
        if not self._unsynced or self._descriptor is None:
            return None
        descriptor = self._descriptor
        self._unsynced = False

        def wait() -> None:
            try:
                os.fsync(descriptor.number)
            except OSError:
                self._unsynced = True
                raise

        return wait

    def close(self) -> None:
        self._descriptor = None


def write_new_file(path: Path, data: bytes) -> None:
    """Make a new private file, on the disk itself; after a failure there is none. Raises `OSError`."""
    file = AppendFile.create(path)
    try:
        file.put(data)
        file.flush()
        file.sync()
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        file.close()


def replace_file(path: Path, data: bytes, *, keep_old: bool) -> None:
    """Replace the file by `data` in one step: after a crash, either the old or the new file is there, whole.

    The old file stays beside it as `.bak` until the new one is safe, and for good if `keep_old`. Raises `OSError`.
    """
    path = path.resolve()  # a link to a session stays one
    fresh = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    names = (path.with_name(f"{path.name}.bak{number or ''}") for number in count())
    backup = next(name for name in names if not name.exists())
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(path, backup)
        except OSError:  # a file system without hard links
            import shutil

            shutil.copy2(path, backup)
        os.replace(fresh, path)
        sync_directory(path.parent)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if not keep_old:
        backup.unlink(missing_ok=True)


def put_side_file(path: Path, data: bytes | None, *, sync: bool, is_new: bool = False) -> None:
    """Write `data` to `path` for the owner only; None removes the file. An older file stays until the new is complete.

    Raises `OSError`.
    """
    if data is None:
        path.unlink(missing_ok=True)
        return
    target = path if is_new else path.with_name(f"{path.name}.tmp")
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600)
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if not is_new:
        os.replace(target, path)


class DirectorySync:
    """Makes new names in a directory survive a power failure: one sync for all callers that asked before it began."""

    _due: ClassVar[dict[Path, "DirectorySync"]] = {}

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._done = False

    @classmethod
    def of(cls, path: Path) -> "DirectorySync":
        """Return the next sync of a directory."""
        return cls._due.setdefault(path, cls(path))

    def wait(self) -> None:
        with self._turn:
            if not self._done:
                del self._due[self._path]  # later callers may have made a name that this sync misses
                sync_directory(self._path)
                self._done = True


def sync_directory(path: Path) -> None:
    """Make a new name in `path` survive a power failure, where the system allows it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot sync a directory; their names are durable by other means
    finally:
        os.close(descriptor)


def beside(session_file: Path, kind: str) -> Path:
    """Return the path of a side file: the same for every link by which the session may be opened."""
    real = os.path.realpath(session_file) if os.path.islink(session_file) else session_file
    return Path(f"{real}.{kind}")
