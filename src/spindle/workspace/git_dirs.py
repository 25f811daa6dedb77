"""Finds the git directories below some folders, by what is in them, however they are called.

A folder whose time of change is the same has the same entries, so a second look asks each folder only for its time,
and where the kernel tells which folders have changed, it asks only those.
"""

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

from spindle.base.agent_dir import agent_dir
from spindle.programs.file_times import file_system, is_settled
from spindle.shapes.protected_files import AT_EVERY_DEPTH
from spindle.workspace.folder_events import FolderEvents

MOST_FOLDERS: Final = 200_000
"""Folders that are looked at below one place; what lies further down is not seen."""
_MOST_MADE: Final = 1_000_000
"""The same, when there were fewer folders at the start: a command does not hide a repository among so many."""
_MOMENT: Final = 300_000_000
"""Nanoseconds: what appears between two commands that follow each other as fast counts as made by them."""
_NO_FILES: Final = frozenset(
    (0x9FA0, 0x62656572, 0x27E0EB, 0x63677270, 0x1CD1, 0x64626720, 0x74726163, 0x73636673, 0x62656570, 0xCAFE4A11)
)
"""proc, sysfs, cgroup (both), devpts, debugfs, tracefs, securityfs, configfs, bpf: there is no repository there."""
_MOST_TEXT: Final = 1 << 20
_MOST_LINKS: Final = 40
_NAMES: Final = (".git", "HEAD", "objects", "refs", "commondir")
_LARGE: Final = ("lfs", "annex")
"""Folders of a git directory that are not looked into; nor are those of objects that have two letters."""
_PARTS: Final = ("objects", "refs", "logs", "info", "hooks", "rr-cache", "worktrees", "modules")
"""Folders of a git directory in which git follows links when it writes."""


_INSTALLED: Final = ("node_modules", "site-packages", ".git", *AT_EVERY_DEPTH)


class Entry(Struct, frozen=True):
    """A `.git`, or a folder that git would take for one."""

    form: str
    """What it is: a folder, a link and where it leads, or a file with its content."""
    place: str
    """The git directory, without links; empty: it leads nowhere."""
    number: tuple[int, int]
    """Of the entry itself: device and inode."""
    above: tuple[int, int] = (0, 0)
    """Of the folder it lies in."""


class _Folder(Struct):
    changed: int
    """When, in nanoseconds; 0 if another change might not show."""
    number: tuple[int, int]
    folders: dict[str, int]
    """With their inodes; 0: not known."""
    has_git: bool
    is_git: bool
    obeyed: list[str]
    """What is in it of the names that agents obey."""
    links: list[str]

    @property
    def kind(self) -> tuple[bool, bool]:
        """What decides about the folders in it."""
        return self.has_git, self.is_git

    @property
    def names(self) -> tuple[list[str], list[str]]:
        return self.links, self.obeyed


class GitDirs:
    def __init__(self, tops: list[str]) -> None:
        self._tops = tops
        self._known: dict[str, _Folder] = {}
        self._times: dict[str, list[tuple[bytes, int]]] = {}
        """By top: each folder that is known, as seen from there, and when it changed."""
        self._found: dict[str, Entry] = {}
        self._events = FolderEvents()
        self._numbers: dict[str, tuple[int, int] | None] = {}
        """Of the tops: what happens above them is not told."""
        self._paths: dict[tuple[int, int], str] = {}
        """Of the folders that are known; empty: one of them has two."""
        self._parts: dict[str, bool] = {}
        """Folders of git directories (`_below`)."""
        self._gits: list[str] = []
        """Folders that have a `.git`."""
        self._holds_files: dict[int, bool] = {}
        """By device."""
        self._looked = 0
        self.too_many: list[str] = []
        """Places with more folders than are looked at."""
        self.obeyed: set[str] = set()
        """Paths of names that agents obey, below the tops and outside of other repositories and installed packages."""
        self.links: set[str] = set()
        """Links in git directories."""
        self.closed: set[str] = set()
        """New or changed folders of ours that are closed to us."""
        self._undo = os.path.realpath(agent_dir() / "checkpoints")
        """Git directories that we alone use, whose files that git obeys are written anew before each use."""

    def covers(self, path: str) -> bool:
        """Say whether a path is below the folders that are looked at."""
        return any(path.startswith(f"{top.rstrip('/')}/") for top in self._tops)

    def look(self, *, recent: bool = False) -> dict[str, Entry]:
        """Return the entries by path; with `recent` those of the last look, if it was a moment ago."""
        if recent and time.monotonic_ns() - self._looked < _MOMENT:
            return self._found
        changed = self._changed()
        if changed is None or (changed and not self._follow(changed)):
            self._walk()
        elif not changed:
            self.closed = set()
            self._read_entries()
        self._looked = time.monotonic_ns()
        return self._found

    def _changed(self) -> set[tuple[int, int]] | None:
        """Return the numbers of the folders that are not as they were; None: it may be any of them."""
        if not self._events.can_tell:
            return set() if self._have_same_times() else None
        changed = self._events.changed()
        return changed if self._numbers == {top: number_of(top) for top in self._tops} else None

    def _have_same_times(self) -> bool:
        """Say the same by their times. This is most of what the gate costs then, so the loop is bare."""
        look_up = os.stat
        try:
            for top, times in self._times.items():
                if not times:  # there was none, or it is a file
                    if os.path.isdir(top):
                        return False
                    continue
                here = os.open(top, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # shorter paths are looked up faster
                try:
                    for path, changed in times:
                        if look_up(path, dir_fd=here, follow_symlinks=False).st_ctime_ns != changed:
                            return False
                finally:
                    os.close(here)
        except OSError:
            return False
        return bool(self._known)

    def _walk(self) -> None:
        known, now = self._known, time.time_ns()
        self._numbers = {top: number_of(top) for top in self._tops}
        seen: dict[str, _Folder] = {}
        times: dict[str, list[tuple[bytes, int]]] = {}
        parts = {top: _is_objects(top) for top in self._tops if _is_part(top)}
        most_of_one = _MOST_MADE if known and not self.too_many else MOST_FOLDERS
        self.too_many, self.closed = [], set()
        for top in self._tops:
            # Those near the top first, and new ones last: they do not crowd out what is known.
            waiting, new, most = deque((top,)), deque[str](), len(seen) + most_of_one
            if top not in seen:
                times[top] = []
            while waiting or new:
                path = (waiting or new).popleft()
                if path in seen or path == self._undo:
                    continue
                folder = self._folder(path, known.get(path), now)
                if folder is None:
                    continue
                seen[path] = folder
                times[top].append((os.fsencode(path[len(top) :].lstrip("/") or "."), folder.changed))
                if len(seen) > most:
                    self.too_many.append(top)
                    break
                for one in _below(path, folder, parts):
                    (waiting if one in known else new).append(one)
        self._known, self._times, self._parts = seen, times, parts
        self._note_paths()
        self._sum_up()

    def _note_paths(self) -> None:
        self._paths = {folder.number: path for path, folder in self._known.items()} if self._events.can_tell else {}
        if len(self._paths) < len(self._known):  # mounted twice: the kernel tells of one of them
            self._paths = {}

    def _follow(self, changed: set[tuple[int, int]]) -> bool:
        """Look at the changed folders again, and at what is new in them. Return whether that is enough."""
        if not self._paths:
            return False
        self.closed = set()
        now, comes_to_more = time.time_ns(), False
        for path in sorted(self._paths[number] for number in changed if number in self._paths):
            if (old := self._known.get(path)) is None:
                continue  # it was in one that is gone
            folder = self._folder(path, None, now)
            if folder is None or folder.number != old.number:  # another one, of which nothing is known
                self._forget(path)
                gone, new = set[str](), {path}
            elif folder.kind != old.kind:
                return False
            else:
                self._known[path] = folder
                gone, new = (set(_below(path, one, self._parts)) for one in (old, folder))
                # Nothing is told of the end of a folder that somebody has open, so names alone do not count.
                same = {one for one in gone & new if self._is_same(one, folder.folders[one])}
                gone, new = gone - same, new - same
            for one in gone:
                self._forget(one)
            if not self._add(new, now):
                return False
            comes_to_more = comes_to_more or bool(gone or new) or (folder or old).names != old.names
        if comes_to_more:
            self._sum_up()
        else:
            self._read_entries()
        return self._events.can_tell

    def _is_same(self, path: str, inode: int) -> bool:
        known = self._known.get(path)
        return known is not None and known.number[1] == inode

    def _forget(self, folder: str) -> None:
        """Forget a folder that is gone, and all that was in it."""
        for path in [path for path in self._known if path == folder or path.startswith(f"{folder}/")]:
            gone = self._known.pop(path)
            if self._paths.get(gone.number) == path:
                del self._paths[gone.number]

    def _add(self, folders: Iterable[str], now: int) -> bool:
        """Look at new folders, and at those in them; return False if one is known by another path."""
        waiting = deque(folders)
        while waiting:
            path = waiting.popleft()
            if path in self._known or path == self._undo:
                continue
            folder = self._folder(path, None, now)
            if folder is None:
                continue
            if not self._events.can_tell or self._paths.setdefault(folder.number, path) != path:
                return False
            self._known[path] = folder
            waiting.extend(_below(path, folder, self._parts))
        return True

    def _sum_up(self) -> None:
        """Find out what all known folders come to."""
        self.obeyed, self.links, self._gits, self._found = set(), set(), [], {}
        for path, folder in self._known.items():
            if folder.has_git:
                self._gits.append(path)
            if folder.is_git:
                self._found[path] = Entry("folder", path, folder.number)
            if folder.links:
                self.links.update(_links_of(path, folder, self._parts))
            if folder.obeyed:
                self._obey(path, folder)
        self._read_entries()

    def _read_entries(self) -> None:
        for path in self._gits:
            with suppress(OSError):
                git = os.path.join(path, ".git")
                self._found[git] = _entry(git, self._known[path].number)

    def _obey(self, path: str, folder: _Folder) -> None:
        top = next((top for top in self._tops if f"{path}/".startswith(f"{top.rstrip('/')}/")), path)
        if path != top and not _is_of_others(path, top, self._known):
            self.obeyed.update(folder.obeyed)

    def _folder(self, path: str, known: _Folder | None, now: int) -> _Folder | None:
        try:
            status = os.lstat(path)
            if status.st_dev not in self._holds_files:
                self._holds_files[status.st_dev] = sys.platform != "linux" or file_system(path) not in _NO_FILES
            if not self._holds_files[status.st_dev]:
                return None
            if stat.S_ISDIR(status.st_mode) and self._events.watch(path, (status.st_dev, status.st_ino)):
                status = os.lstat(path)
        except OSError:
            return None
        if known is not None and known.changed == status.st_ctime_ns:
            if known.number == (status.st_dev, status.st_ino):
                return known
        elif not stat.S_ISDIR(status.st_mode):
            return None
        if status.st_mode & 0o500 != 0o500 and status.st_uid == os.geteuid() != 0:
            self.closed.add(path)
        return _scanned(path, status, now)


def number_of(path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at a path; None if there is nothing."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _scanned(path: str, status: os.stat_result, now: int) -> _Folder:
    changed = status.st_ctime_ns if is_settled(status.st_ctime_ns, now) else 0
    folders, names, links = dict[str, int](), set[str](), list[str]()
    inside = path.rstrip("/")
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                names.add(name)
                if entry.is_dir(follow_symlinks=False):
                    folders[f"{inside}/{name}"] = entry.inode()
                elif entry.is_symlink():
                    links.append(f"{inside}/{name}")
    except OSError:  # git finds by name what cannot be listed
        names = {name for name in (*_NAMES, *AT_EVERY_DEPTH) if os.path.lexists(f"{path}/{name}")}
        folders = {f"{inside}/.git": 0} if ".git" in names else {}
    obeyed = [f"{inside}/{name}" for name in AT_EVERY_DEPTH if name in names]
    is_git = "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))
    return _Folder(changed, (status.st_dev, status.st_ino), folders, ".git" in names, is_git, obeyed, links)


def _below(path: str, folder: _Folder, parts: dict[str, bool]) -> Iterator[str]:
    """Yield the folders to look at in a folder. Those in git directories are added to the `parts` of these, with
    whether they are the folder of objects: worktrees and submodules may be called the same."""
    name = os.path.basename(path)
    is_top = name == ".git" or (folder.is_git and name != "worktrees")
    is_part, is_objects = path in parts or name == ".git", parts.get(path, False)
    for one in folder.folders:
        below = os.path.basename(one)
        if (is_top and is_part and below in _LARGE) or (is_objects and len(below) == 2):
            continue
        if is_part or (is_top and below in _PARTS):
            parts[one] = is_top and _is_objects(one)
        yield one


def _links_of(path: str, folder: _Folder, parts: dict[str, bool]) -> list[str]:
    return folder.links if folder.is_git or path in parts or path.endswith("/.git") else []


def _is_part(path: str) -> bool:
    """Say whether a folder belongs to a git directory around it: a worktree's repository."""
    return os.path.basename(path) in _PARTS and os.path.lexists(f"{os.path.dirname(path)}/HEAD")


def _is_objects(path: str) -> bool:
    return os.path.basename(path) == "objects"


def _is_of_others(path: str, top: str, seen: dict[str, _Folder]) -> bool:
    """Say whether a folder is in another repository, whose files nobody trusts, or in an installed package."""
    while path != top:
        folder = seen.get(path)
        if os.path.basename(path) in _INSTALLED or (folder is not None and any(folder.kind)):
            return True
        path = os.path.dirname(path)
    return False


def _entry(path: str, above: tuple[int, int]) -> Entry:
    """Raises `OSError`."""
    status = os.lstat(path)
    number = (status.st_dev, status.st_ino)
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", path, number, above)
    if stat.S_ISLNK(status.st_mode):
        target = real_of(path)
        if os.path.isfile(target):
            return Entry(f"link to {os.readlink(path)}", _named(target, os.path.dirname(path)), number, above)
        return Entry(f"link to {os.readlink(path)}", target, number, above)
    return Entry(f"file {text_of(path)}", _named(path, os.path.dirname(path)), number, above)


def repository_around(folder: str) -> tuple[str, str] | None:
    """Return the entry of the repository that a folder lies in, and the git directory with its configuration."""
    while (folder := os.path.dirname(folder)) != "/":
        with suppress(OSError):
            place = _entry(f"{folder}/.git", (0, 0)).place
            named = path_in(text_of(os.path.join(place, "commondir")))
            return f"{folder}/.git", real_of(os.path.join(place, named)) if named else place
    return None


def text_of(path: str) -> str:
    """Return the beginning of a file; empty: there is none that can be read, or a link, which may lead to a secret."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(_MOST_TEXT).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def path_in(text: str) -> str:
    """Return the path that git reads from a file with one path in it: to the first zero byte, blanks and all."""
    return text.partition("\0")[0].rstrip("\r\n")


def _named(path: str, folder: str) -> str:
    """Return the directory that a file `.git` names; empty: none."""
    text = text_of(path)
    named = path_in(text.removeprefix("gitdir: ")) if text.startswith("gitdir: ") else ""
    return real_of(os.path.join(folder, named)) if named else ""


def real_of(path: str) -> str:
    """Return a path without links; only its beginning if it leads through `/proc`, elsewhere for each process."""
    return next((one for one in on_the_way(path) if one.startswith("/proc/")), "") or os.path.realpath(path)


def on_the_way(path: str, *, links_only: bool = False) -> Iterator[str]:
    """Yield the links that a path leads through, and unless `links_only` the place where it ends."""
    here, parts = "/", path.split("/")[1:]
    for _ in range(_MOST_LINKS):
        while parts:
            here = os.path.normpath(os.path.join(here, parts.pop(0)))
            if os.path.islink(here):
                yield here
                target = os.path.join(os.path.dirname(here), os.readlink(here))
                here, parts = "/", [*target.split("/")[1:], *parts]
                break
        else:
            if not links_only:
                yield here
            return
