"""The files of a folder that git does not ignore, with signs by which a change is seen without running git.

A sign is what `lstat` says of a file or folder. It changes with every change of the file, and with every name that
comes into the folder or goes. Only new names cost a process: git is asked whether it ignores them.
"""

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field

from spindle.workspace.put_back import folders_of

LARGEST: Final = 10 << 20
"""Bytes of a file that is covered."""
_RULES: Final = b".gitignore"
_GRAIN: Final = 100_000_000
"""Nanoseconds in which two changes may get the same time; on most disks it is a tenth of that."""

_FEW: Final = 200
"""Names that are looked at in half a millisecond, for which a thread is not worth while."""

Sign: TypeAlias = tuple[int, int, int, int, int]
"""Mode, inode, size, time of the last change of the content, and of anything else."""
NO_SIGN: Final = (0, 0, 0, 0, 0)
"""Of a file that has to be looked at again."""


class TooLarge(Exception):
    """The folder has more files or bytes than are covered."""


class Found(Struct):
    """What there is in a folder. Names are seen from it; those of folders end with a slash, its own is empty."""

    files: dict[bytes, Sign] = field(default_factory=dict)
    """Files and links that git does not ignore."""
    folders: dict[bytes, Sign] = field(default_factory=dict)
    """Folders that git does not ignore, and repositories."""
    empty: set[bytes] = field(default_factory=set)
    """Folders with nothing in them."""
    rules: dict[bytes, Sign] = field(default_factory=dict)
    """Each `.gitignore` that is ignored itself."""
    ignored: dict[bytes, set[bytes]] = field(default_factory=dict)
    """Folder → the names in it that git ignores."""
    skipped: dict[bytes, str] = field(default_factory=dict)
    """Files and folders that are not covered, with the reason."""
    fresh: set[bytes] = field(default_factory=set)
    """What was changed so shortly before we looked that a later change may not show."""


class Inventory:
    """What there is in one folder, as `update` saw it last."""

    def __init__(
        self, root: Path, judge: Callable[[Collection[bytes]], Awaitable[set[bytes]]], most: tuple[int, int]
    ) -> None:
        """`judge` returns those of some names that git ignores; `most` are the files and bytes that are covered."""
        self.found = Found()
        self.own: set[bytes] = set()
        """Names that are passed over."""
        self.forced: Collection[bytes] = ()
        """Files that are covered although git ignores them."""
        self._top = os.fsencode(root) + b"/"
        self._judge = judge
        self._most = most
        self._fresh_from = 0

    def covers(self, name: bytes) -> bool:
        return name in self.found.files and name not in self.found.skipped

    def pass_over(self, unread: Mapping[bytes, str]) -> None:
        """Note files that are not covered because git could not read them; they count as changed the next time."""
        for name, why in unread.items():
            self.found.skipped[name] = f"git cannot read it: {why}"
            self.found.files[name] = NO_SIGN

    def modes(self, file: int, program: int, folder: int) -> dict[str, int]:
        """Return all permissions other than these."""
        modes = {}
        for name, (mode, *_) in self.found.files.items():
            bits = mode & 0o7777
            if bits != (program if bits & 0o100 else file) and stat.S_ISREG(mode):
                modes[os.fsdecode(name)] = bits
        for name, (mode, *_) in self.found.folders.items():
            if mode & 0o7777 != folder and name:
                modes[os.fsdecode(name)] = mode & 0o7777
        return modes

    async def update(self) -> set[bytes] | None:
        """Return the files that have come, gone, or may have changed since the last time; None if nothing has changed.

        Raises `TooLarge`, and what the judge raises; what was found is worth nothing then.
        """
        self._fresh_from = time.time_ns() - _GRAIN
        if not os.path.isdir(self._top):
            return self._all_gone()
        is_small = len(self.found.files) + len(self.found.folders) < _FEW
        changed, stale = self._compared() if is_small else await asyncio.to_thread(self._compared)
        if not changed and not stale:
            return None
        before, fresh = dict(self.found.files), set(self.found.fresh)
        is_new = not self.found.folders or any(map(_is_rules, changed))
        if not is_new:
            await asyncio.to_thread(self._note, changed, stale)
            is_new = not await self._explore(stale, (), is_new=False)
        if is_new:  # a file with rules has changed: all names have to be judged again
            kept = [name for name in before if name not in self.found.skipped]
            self.found = Found()
            self._note((), [b""])
            await self._explore([b""], kept, is_new=True)
        after = self.found.files
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name) or name in fresh}

    def _all_gone(self) -> set[bytes] | None:
        """Note that there is no folder any more."""
        before, self.found = self.found.files, Found()
        return set(before) or None

    def _compared(self) -> tuple[list[bytes], list[bytes]]:
        """Return the files, and the folders, whose signs have changed."""
        found, top = self.found, self._top
        stale = [name for name, old in found.folders.items() if _sign(top + name[:-1]) != old or name in found.fresh]
        changed = [*_differing(top, found.files), *_differing(top, found.rules)]
        changed += [name for name in self.forced if name not in found.files and os.path.lexists(top + name)]
        return [*changed, *(found.fresh - found.folders.keys())], stale if found.folders else [b""]

    def _note(self, files: Iterable[bytes], folders: Iterable[bytes]) -> None:
        """Look at files and folders, and forget those that are gone."""
        found, gone = self.found, []
        for name in files:
            found.skipped.pop(name, None)
            sign = _sign(self._top + name)
            if sign is None or not (stat.S_ISREG(sign[0]) or stat.S_ISLNK(sign[0])):
                found.files.pop(name, None)
                continue
            found.files[name] = sign
            self._note_age(name, sign)
            if b".git" in name.lower().split(b"/"):
                found.skipped[name] = "git keeps no file of this name"
            elif stat.S_ISREG(sign[0]) and sign[2] > LARGEST:
                found.skipped[name] = f"larger than {LARGEST >> 20} MB"
            elif stat.S_ISREG(sign[0]) and not os.access(self._top + name, os.R_OK):
                found.skipped[name] = "not readable"
        for name in folders:
            sign = _sign(self._top + name[:-1])
            if sign is None or not stat.S_ISDIR(sign[0]):
                gone.append(name)
                continue
            found.folders[name] = sign
            self._note_age(name, sign)
        if gone:
            self._forget(gone)

    def _note_age(self, name: bytes, sign: Sign) -> None:
        (self.found.fresh.add if sign[4] >= self._fresh_from else self.found.fresh.discard)(name)

    def _forget(self, folders: Sequence[bytes]) -> None:
        """Forget folders and all that is in them."""
        found, above = self.found, tuple(folders)
        for names in (found.files, found.folders, found.rules, found.ignored, found.skipped):
            for name in [name for name in names if name.startswith(above)]:
                del names[name]
        for those in (found.empty, found.fresh):
            those.difference_update([name for name in those if name.startswith(above)])

    async def _explore(self, folders: Sequence[bytes], kept: Collection[bytes], *, is_new: bool) -> bool:
        """List folders, and new ones in them. What is in `kept` stays covered, though it may be ignored now.

        Stop and return False at a new file with rules, unless all is new.
        """
        covered = set(kept).union(*map(_above, kept))
        while folders:
            names = await asyncio.to_thread(self._listed, folders)
            if not is_new and any(map(_is_rules, names)):
                return False
            ignored = await self._judge([name for name in names if name not in covered]) if names else set()
            folders = await asyncio.to_thread(self._taken, names, ignored)
        await asyncio.to_thread(self._note, [name for name in self.forced if name not in self.found.files], ())
        return True

    def _listed(self, folders: Iterable[bytes]) -> list[bytes]:
        """Return the names in folders that are not known yet."""
        found = self.found
        new: list[bytes] = []
        for folder in folders:
            if folder not in found.folders:
                continue
            try:
                with os.scandir(self._top + folder) as entries:
                    kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
                if kinds and not os.access(self._top + folder, os.X_OK):  # its names can be read, and nothing else
                    raise PermissionError
            except OSError:
                if not folder:
                    raise
                self._pass_over_folder(folder, "not readable")
                continue
            if folder and b".git" in kinds:
                self._pass_over_folder(folder, "a repository of its own")
                continue
            inside = {folder + name + (b"/" if is_folder else b"") for name, is_folder in kinds.items()}
            found.skipped.pop(folder, None)
            (found.empty.discard if kinds else found.empty.add)(folder)
            known = found.ignored[folder] = found.ignored.get(folder, set()) & inside
            inside -= known | self.own
            new += sorted(name for name in inside if name not in found.files and name not in found.folders)
        return new

    def _pass_over_folder(self, folder: bytes, why: str) -> None:
        sign = self.found.folders[folder]
        self._forget([folder])
        self.found.folders[folder], self.found.skipped[folder] = sign, why
        self._note_age(folder, sign)

    def _taken(self, names: Iterable[bytes], ignored: Collection[bytes]) -> list[bytes]:
        """Note new names, and return the folders among those that are not ignored."""
        for name in ignored:
            self.found.ignored[_folder(name)].add(name)
            if _is_rules(name) and (sign := _sign(self._top + name)):
                self.found.rules[name] = sign
        folders = [name for name in names if name.endswith(b"/") and name not in ignored]
        self._note([name for name in names if not name.endswith(b"/") and name not in ignored], folders)
        self._check_size()
        return folders

    def _check_size(self) -> None:
        files, size = self._most
        signs = self.found.files.values()
        if len(signs) + len(self.found.folders) > files or sum(sign[2] for sign in signs if sign[2] <= LARGEST) > size:
            raise TooLarge


def _sign(path: bytes) -> Sign | None:
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about.st_mode, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _differing(top: bytes, signs: dict[bytes, Sign]) -> Iterator[bytes]:
    """Yield the files whose signs have changed. There may be thousands: 2.5 µs for each."""
    if not signs:
        return
    folder, look = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.stat
    try:
        for name, (_, inode, _, written, changed) in signs.items():
            try:
                about = look(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                yield name
                continue
            if about.st_ctime_ns != changed or about.st_mtime_ns != written or about.st_ino != inode:
                yield name
    finally:
        os.close(folder)


def _is_rules(name: bytes) -> bool:
    return name == _RULES or name.endswith(b"/" + _RULES)


def _folder(name: bytes) -> bytes:
    """Return the folder that a file or folder is in."""
    return name[: name.rfind(b"/", 0, -1) + 1]


def _above(name: bytes) -> Iterable[bytes]:
    return map(os.fsencode, folders_of(os.fsdecode(name)))
