"""The advisory lock of a session: a side file that says who writes.

The kernel holds the lock, so it ends with the process that had it, however that died; the text in the side
file only tells people who it is. Readers and other programs (pi) are never kept out.
"""

import os
import sys
import weakref
from pathlib import Path

from spindle.sessions.errors import SessionLocked
from spindle.shapes.codec import DecodeError, decode, encode

__all__ = ["SessionLock", "try_lock"]


class SessionLock:
    """Held from creation until `release`, or until nobody refers to it any more."""

    def __init__(self, session_file: Path) -> None:
        """Take the lock. Raises `SessionLocked`, or `OSError` where no side file can be made."""
        real = session_file.resolve()  # whatever name it was opened by
        path = real.with_name(real.name + ".lock")
        descriptor = _take(path, session_file)
        self._release = weakref.finalize(self, _let_go, descriptor, path, os.getpid())
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, encode({"pid": os.getpid(), "host": _host()}) + b"\n")
        except OSError:
            pass  # a full disk: the lock holds all the same, it only does not say whose it is

    def release(self) -> None:
        self._release()


def try_lock(session_file: Path) -> SessionLock | None:
    """Take the lock; None where no side file can be made, as on read-only media. Raises `SessionLocked`."""
    try:
        return SessionLock(session_file)
    except OSError:
        return None


def _take(path: Path, session_file: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _lock(descriptor):
                raise SessionLocked(session_file, *_holder(descriptor))
            # The former holder may have removed the file between our open and our lock: then nobody else sees ours.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _let_go(descriptor: int, path: Path, owner: int) -> None:
    try:
        # A forked child that exits must not take its parent's lock away.
        if os.getpid() == owner and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            os.unlink(path)  # while still locked, so that it cannot be somebody else's
    except OSError:
        pass  # the directory is gone or read-only; a side file without a holder does no harm
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> tuple[int | None, str | None]:
    try:
        told = decode(os.pread(descriptor, 4096, 0))
        return int(told["pid"]), str(told["host"])
    except (DecodeError, ValueError, KeyError, TypeError):
        return None, None  # it has just begun to write


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        return True  # there is no lock of this kind; appends are whole lines all the same

    def _host() -> str:
        return os.environ.get("COMPUTERNAME", "this machine")

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _host() -> str:
        return os.uname().nodename
