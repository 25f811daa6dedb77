"""Keeps protected files as they are across commands: remembers them before, compares after, puts back what changed.

Where the kernel cannot forbid a command to change a file in the working directory, this undoes the change. Only the
places that are named are looked at, never the whole tree, and files that have the same numbers are not read again.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from spindle.base.agent_dir import agent_dir
from spindle.programs.fence import names_in
from spindle.programs.file_times import is_settled, shows_writes

_MOST_FILES: Final = 500
_MOST_BYTES: Final = 4 * 1024 * 1024


class Kept(Struct, frozen=True):
    """A file as it was. Its numbers change with every change: no program can set the time of its last change."""

    numbers: tuple[int, ...]
    mode: int
    content: bytes
    """Of a link: where it leads to."""
    settled: bool = True
    """Whether a further change would show in the numbers."""


class _TooBig(Exception):
    pass


class PutBack:
    """Watches over some places: files and folders that may exist or not."""

    def __init__(self, places: list[str], aside: str) -> None:
        """Put changed files into the folder `aside` before the old ones take their places."""
        self._always = places
        self._taken: object = None
        """The `kept` that these two are of: places where something was, and by their folder those where nothing was."""
        self._full: list[str] = []
        self._empty: dict[str, list[str]] = {}
        self._more: Sequence[str] = ()
        self._own = os.path.realpath(agent_dir())
        """We write there ourselves, whatever command runs: a place that it lies in stays as it is."""
        self._set_places(places)
        self._aside = aside
        self.kept: dict[str, dict[str, Kept]] = {}
        """By place: the files in it by path; no entry: it is too big."""
        self._folders: dict[str, tuple[int, ...]] = {}
        """Folders around the places, with their numbers: an unchanged one has no new entries."""

    def remember(self, more: Sequence[str] = ()) -> None:
        """Take the files as they are now for right; there are `more` places for the time being."""
        is_same = more == self._more
        if not is_same:
            self._more = more
            self._set_places((*self._always, *more))
        now, states = time.time_ns(), self._states()
        looked = {place: self._look(place) for place in self._to_look_at(states)}
        if not is_same or any(files != self.kept.get(place) for place, files in looked.items()):
            all_of_them = {place: looked[place] if place in looked else self.kept[place] for place in self._places}
            self.kept = {place: files for place, files in all_of_them.items() if files is not None}
        self._folders = {folder: state for folder, state in states.items() if is_settled(state[0], now)}

    def take(self, kept: dict[str, dict[str, Kept]]) -> None:
        """Take what an earlier agent kept for right."""
        self.kept = kept
        self._set_places((*self._places, *kept))
        self._folders, self._more = {}, ()

    def adopt(self, kept: dict[str, dict[str, Kept]]) -> None:
        """Take what another agent keeps for right, at our places."""
        self.kept = {**self.kept, **{place: files for place, files in kept.items() if place in self._places}}
        self._folders = {}

    def is_part(self, path: str) -> bool:
        """Say whether a file is at one of the places, or below it."""
        return any(path == place or path.startswith(f"{place}/") for place in self._places)

    def numbers(self, more: Iterable[str] = ()) -> set[tuple[int, int]]:
        """Return device and inode of all files at the places, as they are now, and of `more` files."""
        found = set()
        for path in (*(path for files in self.kept.values() for path in files), *more):
            with suppress(OSError):
                status = os.lstat(path)
                found.add((status.st_dev, status.st_ino))
        return found

    def _set_places(self, places: Iterable[str]) -> None:
        ours = f"{self._own}/"
        self._places = {place: os.path.dirname(place) for place in places if not ours.startswith(f"{place}/")}
        self._taken = None
        self._around = set(self._places.values())

    def _states(self) -> dict[str, tuple[int, ...]]:
        return {folder: _state(folder) for folder in self._around}

    def _to_look_at(self, states: dict[str, tuple[int, ...]]) -> list[str]:
        """Return the places but for those where nothing was, and is nothing now."""
        if self._taken is not self.kept:
            self._taken, self._empty = self.kept, {}
            for place, above in self._places.items():
                if not self.kept.get(place, True):
                    self._empty.setdefault(above, []).append(place)
            self._full = [place for place in self._places if self.kept.get(place, True)]
        found = self._full
        for folder, state in states.items():
            if self._folders.get(folder) != state and (empty := self._empty.get(folder)):
                names = names_in(folder)
                found = found + [one for one in empty if names is None or os.path.basename(one).casefold() in names]
        return found

    def unwatched(self) -> list[str]:
        """Return places that are too big to be kept; to be called after `remember`."""
        return [place for place in self._places if place not in self.kept]

    def changed(self) -> dict[str, dict[str, Kept]]:
        """Return the places that are not as they were, each with its files as they are now."""
        found = {}
        for place in self._to_look_at(self._states()):
            if (before := self.kept.get(place)) is not None:
                now = self._look(place)
                if now != before and (now is None or _facts(now) != _facts(before)):
                    found[place] = now or {}
        return found

    def restore(self, place: str) -> None:
        """Make a place what it was; the changed files are kept aside. Raises `OSError`."""
        before = self.kept[place]
        os.makedirs(self._aside, mode=0o700, exist_ok=True)
        above = os.path.dirname(place)
        while above != os.path.dirname(above) and not os.path.islink(above):
            above = os.path.dirname(above)
        # A folder on the way that has become a link would lead us elsewhere.
        for path in (above, place):
            if path != "/" and os.path.lexists(path):
                shutil.move(path, os.path.join(self._aside, f"{os.path.basename(path)}.{os.urandom(3).hex()}"))
        for path, kept in before.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if stat.S_ISDIR(kept.mode):
                os.makedirs(path, exist_ok=True)
                os.chmod(path, stat.S_IMODE(kept.mode))
            elif stat.S_ISLNK(kept.mode):
                os.symlink(kept.content, path)
            else:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(file, "wb") as out:
                    out.write(kept.content)
                    os.fchmod(out.fileno(), stat.S_IMODE(kept.mode))
                    if os.geteuid() == 0:
                        os.fchown(out.fileno(), *kept.numbers[-2:])

    def _look(self, place: str) -> dict[str, Kept] | None:
        """Return the files at a place; None: there are too many."""
        found: dict[str, Kept] = {}
        try:
            self._collect(place, self.kept.get(place) or {}, found, 0)
        except _TooBig:
            return None
        return found

    def _collect(self, path: str, known: dict[str, Kept], found: dict[str, Kept], size: int) -> int:
        """Add the files at a path to those found, which have `size` bytes; return their bytes."""
        try:
            status = os.lstat(path)
            kept = self._keep(path, status, known.get(path))
        except OSError:
            return size  # there is none, or it cannot be read
        found[path] = kept
        size += len(kept.content)
        if len(found) > _MOST_FILES or size > _MOST_BYTES:
            raise _TooBig
        if stat.S_ISDIR(status.st_mode):
            with suppress(OSError):
                for name in os.listdir(path):
                    size = self._collect(f"{path}/{name}", known, found, size)
        return size

    @staticmethod
    def _keep(path: str, status: os.stat_result, known: Kept | None) -> Kept:
        owner = status.st_uid, status.st_gid
        if stat.S_ISDIR(status.st_mode):
            return Kept(owner, status.st_mode, b"")
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, *owner)
        if known is not None and known.settled and known.numbers == numbers:
            return known
        content, now = b"", time.time_ns()
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            if status.st_size > _MOST_BYTES:
                raise _TooBig
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                content = file.read()
        settled = is_settled(status.st_ctime_ns, now) and shows_writes(path, status.st_dev)
        return Kept(numbers, status.st_mode, content, settled)


def _state(path: str) -> tuple[int, ...]:
    """Return numbers that change if a folder is replaced, or gets or loses an entry; the time comes first."""
    try:
        status = os.stat(path)
    except OSError:
        return (0,)
    return status.st_ctime_ns, status.st_dev, status.st_ino


def _facts(files: dict[str, Kept]) -> dict[str, tuple[int, bytes]]:
    """Return what makes files the same, whenever they were written."""
    return {path: (kept.mode, kept.content) for path, kept in files.items()}
