"""The session file as bytes: read it, add to its end, replace it whole. No JSON here.

Added bytes go out in one write at the end of the file. What could not be written stays queued here, exactly
from the byte where the disk refused, so that the next attempt goes on as if nothing had happened.
"""

import io
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

__all__ = ["AppendFile", "open_for_reading", "replace_file", "sync_directory", "write_new_file"]

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change newlines without it
_APPEND = os.O_WRONLY | os.O_APPEND | _BINARY


def open_for_reading(path: Path) -> BinaryIO:
    return open(path, "rb", buffering=1 << 17)  # few reads, and yet what was read is still in the cache


class AppendFile:
    """The end of one file, as far as we know it."""

    def __init__(self, path: Path, status: os.stat_result, *, ends_open: bool = False) -> None:
        self.path = path
        self.size = status.st_size
        """How far we have read or written it."""
        self.ends_open = ends_open
        """Its last line has no newline."""
        self.queue = bytearray()
        """Bytes that must follow the end of the file."""
        self._unread: list[tuple[int, int]] = []
        """Where others wrote just before we did, after we had looked."""
        self._identity = status.st_dev, status.st_ino
        self._descriptor: int | None = None
        self._close: Callable[[], object] | None = None
        self._unsynced = False
        """We wrote something that nobody has begun to bring to the disk itself."""

    @classmethod
    def create(cls, path: Path) -> "AppendFile":
        """Make a new private file. Raises `FileExistsError`."""
        descriptor = os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        file = cls(path, os.fstat(descriptor))
        file._own(descriptor)
        return file

    def _own(self, descriptor: int) -> int:
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)  # also if somebody forgets to close us
        return descriptor

    def is_unchanged(self, status: os.stat_result) -> bool:
        return status.st_size == self.size and self._is_same(status) and not self._unread

    def has_grown(self, status: os.stat_result) -> bool:
        """Say whether somebody else added to this same file after a whole line."""
        has_more = status.st_size > self.size or bool(self._unread)
        return has_more and self._is_same(status) and not self.ends_open and not self.queue

    def _is_same(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity

    def read_news(self) -> Sequence[bytes]:
        """Return the lines that others added since we looked last."""
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
            self.queue += b"\n"
            self.ends_open = False
        self.queue += lines

    def flush(self) -> None:
        """Write what is queued. Raises `OSError`; whatever got through then counts as written."""
        if not self.queue:
            return
        descriptor = self._descriptor if self._descriptor is not None else self._own(os.open(self.path, _APPEND))
        while self.queue:
            written = os.write(descriptor, self.queue)
            self._unsynced = True
            del self.queue[:written]
            start = os.lseek(descriptor, 0, os.SEEK_CUR) - written
            if start > self.size:  # somebody was quicker, so ours stands behind theirs
                self._unread.append((self.size, start))
                self.size = start
            self.size += written

    def sync(self) -> None:
        """Wait until what was written is on the disk itself. Raises `OSError`."""
        if wait := self.begin_sync():
            wait()

    def begin_sync(self) -> Callable[[], None] | None:
        """Return what waits for the disk; None if nothing was written since the last time.

        It may be called in any thread, whatever becomes of the file meanwhile; if it fails, the next one waits for
        the same again. Both raise `OSError`.
        """
        if not self._unsynced or self._descriptor is None:
            return None
        descriptor = os.dup(self._descriptor)
        self._unsynced = False

        def wait() -> None:
            try:
                os.fsync(descriptor)
            except OSError:
                self._unsynced = True
                raise
            finally:
                os.close(descriptor)

        return wait

    def close(self) -> None:
        if self._close is not None:
            self._close()
        self._descriptor = self._close = None


def write_new_file(path: Path, data: bytes) -> None:
    """Make a private file that did not exist, on the disk itself, or nothing. Raises `OSError`."""
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
    """Put `data` in place of the file at once; a crash leaves either the old or the new one whole.

    The old one stays beside it as `.bak` until the new one is safe, and for good if `keep_old`. Raises `OSError`.
    """
    path = path.resolve()  # a link to a session stays one
    fresh = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    backup = _free_name(path.with_name(path.name + ".bak"))
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        _link_or_copy(path, backup)
        os.replace(fresh, path)
        sync_directory(path.parent)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if not keep_old:
        backup.unlink(missing_ok=True)


def _free_name(path: Path) -> Path:
    number = 0
    free = path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}{number}")
    return free


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        import shutil

        shutil.copy2(source, target)


def sync_directory(path: Path) -> None:
    """Make a new name in `path` survive a power failure, where the system allows it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot, and their names are durable by other means
    finally:
        os.close(descriptor)
