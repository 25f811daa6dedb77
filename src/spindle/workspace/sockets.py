"""The unix sockets of other programs that have a path: those programs act for the user, without a fence."""

import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from spindle.programs.file_times import is_settled
from spindle.shapes.sandbox import HARMLESS_SOCKETS, SOCKETS
from spindle.workspace.git_guard import is_below


def sockets_to_hide(opened: Sequence[str] = (), private: Sequence[str] = ()) -> list[str]:
    """Return the sockets with a path that are there, but for those in `opened` folders and those that do no harm.

    Folders that are `private` are hidden as a whole, so they need not be searched.
    """
    expanded = [os.path.expandvars(path) for path in SOCKETS]
    found = {os.path.realpath(path) for path in expanded if "$" not in path}
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as lines:
        found |= _placed_sockets(_names_in(lines.read()), private)
    return [
        path
        for path in sorted(found)
        if not path.startswith(HARMLESS_SOCKETS) and not is_below(path, opened) and _can_reach(path)
    ]


@lru_cache(1)
def _names_in(table: str) -> frozenset[str]:
    """Return the paths in the kernel's table of unix sockets."""
    lines = (line.split(None, 7) for line in table.split("\n"))
    names = {parts[7] for parts in lines if len(parts) == 8}
    return frozenset(name for name in names if not name.startswith("@") and name != "Path")


def _can_reach(path: str) -> bool:
    """Say whether a command under bubblewrap can reach a file. There root has no rights on files of other users, and
    bubblewrap cannot put anything into their closed folders, either."""
    if os.geteuid() != 0 or not os.path.exists(path):
        return os.path.exists(path)
    while path != "/":
        path = os.path.dirname(path)
        status = os.stat(path)
        if not status.st_mode & (0o100 if status.st_uid == 0 else 0o010 if status.st_gid == 0 else 0o001):
            return False
    return True


def _placed_sockets(names: frozenset[str], private: Sequence[str]) -> set[str]:
    """Return where sockets are now. Those with a relative name are looked for where programs are; and beside a socket
    there may be others, which were renamed, or whose program is elsewhere by now."""
    found = {name for name in names if name.startswith("/")}
    relative = names - found
    for process in os.listdir("/proc") if relative else ():
        with suppress(OSError):
            here = os.readlink(f"/proc/{process}/cwd")
            found |= {os.path.normpath(os.path.join(here, name)) for name in relative}
    now = time.time_ns()
    for folder in {os.path.dirname(name) for name in found}:
        with suppress(OSError):
            if not is_below(folder, private):
                changed = os.stat(folder).st_ctime_ns
                found |= _sockets_in(folder, changed, 0 if is_settled(changed, now) else now)
    return found


@lru_cache(256)
def _sockets_in(folder: str, changed: int, young: int) -> frozenset[str]:
    """Return the sockets in a folder. Its time of change tells of new entries, unless it is still `young`."""
    with os.scandir(folder) as entries:
        others = [one for one in entries if not (one.is_symlink() or one.is_file() or one.is_dir())]
        return frozenset(one.path for one in others if stat.S_ISSOCK(one.stat(follow_symlinks=False).st_mode))
