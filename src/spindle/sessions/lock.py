"""The lock of a session: one process may write to it, with one `Session`.

The lock is on a side file. The kernel holds it, so it ends with its process, however that dies; the text in the side
file only tells people which process it is. Readers and other programs (pi) are never kept out.

A process has one such file for all its sessions: their locks are names (hard links) of it, where the file system allows
that. With one file per session, making them took a third of the time of a hundred prompts at once: locks are deleted
all the time, and to find a free inode, ext4 steps over those of recently deleted files, one by one.

Where the kernel offers no locks (some network file systems), the process that makes the side file holds the lock. The
text in it then decides whether its process is still alive.
"""

import os
import sys
import time
import weakref
from pathlib import Path

from spindle.sessions.entries import SessionError
from spindle.sessions.file import Descriptor, StrPath, beside
from spindle.shapes.codec import DecodeError, decode, encode

_CLEARING_S = 0.5
"""How long we wait for another process that removes the lock of a dead one, which takes less than a millisecond."""


class SessionLocked(SessionError):
    """Another process, or another `Session` of this one, writes to the session."""

    def __init__(self, path: StrPath, pid: int | None, host: str | None) -> None:
        holder = f"process {pid} on {host}" if pid is not None else "another process"
        self.what = f"Session is in use by {holder}: {path}"
        """The text without advice, which depends on the caller."""
        super().__init__(f"{self.what}. Open it read-only or fork it.")
        self.path = path
        self.pid = pid
        self.host = host

    @property
    def who(self) -> str:
        """Say who writes to it to people who need not know of processes, machines and paths."""
        if self.host is None:
            return "Another program"
        return "Another program on this machine" if self.host == _host() else "A program on another machine"


class SessionLock:
    """Held from creation until `release`, or until the last reference to it is gone."""

    def __init__(self, session_file: Path) -> None:
        """Take the lock. Raises `SessionLocked`, or `OSError` where no side file can be made."""
        path = beside(session_file, "lock")
        locked = _share(path) or _take(path, session_file)
        self._release = weakref.finalize(self, _let_go, locked, path, os.getpid())

    def release(self) -> None:
        self._release()


def try_lock(session_file: Path) -> SessionLock | None:
    """Take the lock; None where no side file can be made, as on read-only media. Raises `SessionLocked`."""
    try:
        return SessionLock(session_file)
    except OSError:
        return None


def is_locked(session_file: Path) -> bool:
    """Say whether a process writes to a session now. Nothing is made or changed."""
    try:
        descriptor = Descriptor(os.open(beside(session_file, "lock"), os.O_RDONLY))
        return not _lock(descriptor.number)
    except OSError:
        return False


class _Locked:
    """A locked file of this process, unlocked with the last reference to it."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = Descriptor(descriptor)
        self.names = {str(path)}
        """Each name locks a session. Threads may add and discard names at the same time: a set of strings allows it."""

    def is_at(self, path: Path) -> bool:
        return os.path.samestat(os.fstat(self._descriptor.number), os.stat(path))


_shared: weakref.WeakValueDictionary[int, _Locked] = weakref.WeakValueDictionary()
"""The file that gets further names, by process id: a forked child needs its own."""


def _share(path: Path) -> _Locked | None:
    """Lock a session with one more name of a file that is locked already; None if that is not possible."""
    locked = _shared.get(os.getpid())
    if locked is None:
        return None
    try:
        os.link(next(iter(locked.names)), path)
        if locked.is_at(path):
            locked.names.add(str(path))
            return locked
        os.unlink(path)  # another program has replaced our file
    except (OSError, StopIteration, RuntimeError):
        pass  # there is a lock file, perhaps of a dead process; or no links are possible, or a thread changed the names
    return None


def _take(path: Path, session_file: Path) -> _Locked:
    """Lock a session with a new file, which later locks may share. Raises `SessionLocked`, `OSError`."""
    give_up = time.monotonic() + _CLEARING_S
    while True:
        descriptor, is_new = _open(path)
        locked = _Locked(descriptor, path)
        try:
            is_free = _lock(descriptor)
        except OSError:  # the file system has no locks
            is_free = is_new
            if not is_new and _discard_dead(descriptor, path):
                continue
        if not is_free:
            pid, host = _holder(descriptor)
            if pid is None or host != _host() or _is_alive(pid) or time.monotonic() > give_up:
                raise SessionLocked(session_file, pid, host)
            time.sleep(0.001)  # another process holds the dead one's lock for a moment, to remove it
            continue
        try:
            # The former holder may have removed the file between our open and our lock: then other processes miss ours.
            if not locked.is_at(path):
                continue
        except FileNotFoundError:
            continue
        if os.fstat(descriptor).st_nlink > 1:
            os.unlink(path)  # its process died; the file's other names are locks of other sessions
            continue
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, encode({"pid": os.getpid(), "host": _host()}) + b"\n")
        except OSError:
            pass  # a full disk: the lock holds all the same, but does not name its process
        _shared[os.getpid()] = locked
        return locked


def _open(path: Path) -> tuple[int, bool]:
    """Return a descriptor of the side file, and whether it is new. Raises `OSError`."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600), False


def _discard_dead(descriptor: int, path: Path) -> bool:
    """Remove the side file of a process of this machine that is dead. Return whether it is gone."""
    pid, host = _holder(descriptor)
    if pid is None or host != _host() or _is_alive(pid):
        return False
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        os.rename(path, aside)
        if not os.path.samestat(os.fstat(descriptor), os.stat(aside)):
            os.link(aside, path)  # another process was quicker, and this is its new file
        os.unlink(aside)
    except OSError:
        pass  # another process removes it, too
    return True


def _let_go(locked: _Locked, path: Path, owner: int) -> None:
    locked.names.discard(str(path))
    try:
        # A forked child that exits must not take its parent's lock away.
        if os.getpid() == owner and locked.is_at(path):
            os.unlink(path)  # while still locked, so that it cannot be the file of another holder
    except OSError:
        pass  # the directory is gone or read-only; a side file without a holder does no harm


def _holder(descriptor: int) -> tuple[int | None, str | None]:
    try:
        told = decode(os.pread(descriptor, 4096, 0))
        return int(told["pid"]), str(told["host"])
    except (DecodeError, ValueError, KeyError, TypeError):
        return None, None  # the holder has not written it yet


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        return True  # Windows has no such lock; appends are whole lines all the same

    def _host() -> str:
        return os.environ.get("COMPUTERNAME", "this machine")

    def _is_alive(pid: int) -> bool:
        return True

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

    def _is_alive(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True
