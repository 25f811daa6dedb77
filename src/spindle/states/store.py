"""States of a folder, kept outside of it: taken, compared, and put back byte for byte.

A state is a tree object, made by a `Recorder`, and a manifest of what a tree does not hold: modes, empty folders, the
names that are not covered. Where the folder is too large for that, and for files outside of it, a state has only the
copies of files that were named (`copy`). The repository that the folder may be is only read.

One store holds the states of one folder. A process that is killed leaves it whole: a state counts once its manifest is
there, and each file is put back in one step.
"""

import asyncio
import fcntl
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from spindle.base import limits
from spindle.states.differences import Differences
from spindle.states.git import GitError
from spindle.states.recorder import Recorder, digest, keep_objects, write_file
from spindle.states.state import Change, Copy, State, StateGone
from spindle.workspace.states import keep_files

STORE_BYTES: Final = 2 << 30
"""Size of a store. When it is larger, the oldest states go."""
MAX_AGE: Final = 30 * 86400
"""Seconds after which a state goes."""
LARGEST_COPY: Final = 200 << 20
"""Bytes of a file that is kept because a restore or an edit replaces it."""
LOOSE: Final = 4000
"""Objects in files of their own; when there are more, they are packed."""


def find_root(cwd: str, *, above: bool = True) -> tuple[str, bool]:
    """Return the folder whose states are kept for work in `cwd`, and whether it is a repository.

    `above`: the working directory may be a part of a repository.
    """
    start = Path(os.path.realpath(cwd))
    for folder in (start, *(start.parents if above else ())):
        if (folder / ".git").exists():
            return str(folder), True
    return str(start), False


def store_of(stores: Path, root: str) -> Path:
    """Return the folder with what is kept of another folder."""
    return stores / f"{os.path.basename(root)[:40]}-{digest(root)}"


def release(stores: Path, root: str, ids: Iterable[str]) -> None:
    """Drop states of a folder whose session is gone, and what only they were made of. Nothing if it is in use."""
    store = store_of(stores, root)
    # Beside the state before a turn there may be that after it, `ID+`.
    paths = [path for id in ids for path in (store / "states").glob(f"{id}*.json")]
    if not paths:
        return
    with _opened(store / "working") as working, _opened(store / "lock") as lock:
        for path in paths:
            path.unlink(missing_ok=True)
        if not (_locked(working, fcntl.LOCK_EX) and _locked(lock, fcntl.LOCK_EX)):
            return  # an agent is at work in the folder: the objects go when the store is tidied
        rest = list((store / "states").glob("*.json"))
        if not rest:
            shutil.rmtree(store, ignore_errors=True)
        elif (store / "git").is_dir():
            keep_objects(store, root, _objects_of(rest))


def remove_unused(store: Path) -> bool:
    """Delete the store of a folder, unless an agent is at work there. Returns whether it is gone."""
    with _opened(store / "working") as working, _opened(store / "lock") as lock:
        if not (_locked(working, fcntl.LOCK_EX) and _locked(lock, fcntl.LOCK_EX)):
            return False
        shutil.rmtree(store, ignore_errors=True)
    return not store.exists()


def _objects_of(states: Iterable[Path]) -> set[str]:
    used: set[str] = set()
    for path in states:
        with suppress(OSError, ValueError):
            used |= msgspec.convert(json.loads(path.read_bytes()), State).objects()
    return used


class Snapshots:
    """The store of one folder: manifests of its states, and the locks of those who work with them."""

    def __init__(self, store: Path, recorder: Recorder) -> None:
        self.store = store
        self.recorder = recorder
        self.root = recorder.root
        self.differences = Differences(recorder)
        self._lock = f"{store}/lock"
        self._states = f"{store}/states"

    # -- the store -------------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep other processes and sessions out of the store. Raises `OSError`, `GitError`."""
        file = _open(self._lock)
        try:
            await _wait_for(file, fcntl.LOCK_EX)
            self.recorder.clear_up()
            yield
        finally:
            os.close(file)  # this ends the lock, too

    async def at_work(self) -> ExitStack:
        """Note for other sessions and processes that an agent is writing to the folder, until the result is closed.

        Waits for a restore that another session has begun. Raises `OSError`, `GitError`.
        """
        with ExitStack() as stack:
            await _wait_for(stack.enter_context(_opened(self.store / "working")), fcntl.LOCK_SH)
            return stack.pop_all()

    @contextmanager
    def nobody_at_work(self) -> Iterator[bool]:
        """Say whether no agent is writing to the folder; if so, none begins inside of this."""
        with _opened(self.store / "working") as file:
            yield _locked(file, fcntl.LOCK_EX)

    def keep(self, id: str, state: State, like: tuple[str, State] | None = None) -> None:
        """Keep a state under a name, until it is too old. `like`: one that is kept, and may be the same."""
        states = self._states
        if like is not None and msgspec.structs.replace(like[1], time=state.time) == state:
            try:
                os.link(f"{states}/{like[0]}.json", f"{states}/{id}.json")
                return
            except OSError:
                pass  # not every disk has links
        self.recorder.keep(state.objects())
        if not os.path.exists(states):
            os.mkdir(states, 0o700)
            write_file(f"{self.store}/folder", os.fsencode(self.root))
        write_file(f"{states}/{id}.json", json.dumps(msgspec.to_builtins(state)).encode())

    def has(self, id: str) -> bool:
        return (self.store / "states" / f"{id}.json").exists()

    def load(self, id: str) -> State:
        """Raises `StateGone`."""
        try:
            return msgspec.convert(json.loads((self.store / "states" / f"{id}.json").read_bytes()), State)
        except (OSError, ValueError):
            raise StateGone(id) from None

    def size(self) -> int:
        """Return the bytes of the store on disk."""
        return sum(entry.stat().st_blocks * 512 for entry in _files(self.store))

    async def tidy(self) -> None:
        """Remove states that are too old or too many, pack the others, and remove stores that are not in use."""
        states, old = await asyncio.to_thread(self._by_age)
        if not old and not await asyncio.to_thread(self._is_untidy):
            return
        async with self.alone():
            await self._drop(old)
            while states and await asyncio.to_thread(self.size) > STORE_BYTES:
                half = (len(states) + 1) // 2
                await self._drop(states[:half])
                states = states[half:]
        await asyncio.to_thread(self._remove_unused)

    def _by_age(self) -> tuple[list[Path], list[Path]]:
        """Return the files of all states that are not too old, the oldest first, and those that are."""
        times = {path: path.stat().st_mtime for path in (self.store / "states").glob("*.json")}
        states, limit = sorted(times, key=lambda path: times[path]), time.time() - MAX_AGE
        return [path for path in states if times[path] >= limit], [path for path in states if times[path] < limit]

    def _is_untidy(self) -> bool:
        loose = sum(1 for entry in _files(self.store / "git/objects") if len(entry.name) == 38)
        return loose > LOOSE or self.size() > STORE_BYTES

    async def _drop(self, states: Sequence[Path]) -> None:
        for path in states:
            path.unlink(missing_ok=True)
        used: set[str] = set()
        for path in (self.store / "states").glob("*.json"):
            try:
                used |= self.load(path.stem).objects()
            except StateGone:  # damaged: it can never be put back
                path.unlink(missing_ok=True)
        await self.recorder.keep_only(used)

    def _remove_unused(self) -> None:
        for store in self.store.parent.iterdir():
            with suppress(OSError):
                if store != self.store and (store / "lock").stat().st_mtime < time.time() - MAX_AGE:
                    shutil.rmtree(store)

    # -- taking a state --------------------------------------------------------------------------

    async def now(self) -> State:
        """Return the state of the folder; inside of `alone`. Raises `GitError`, `OSError`."""
        os.utime(self._lock)
        return await self.recorder.state()

    async def copy(self, path: str) -> Copy | None:
        """Keep a file outside of the tree. Returns None if there is none. Raises `GitError`, `OSError`."""
        found, lost = await self.copies([path])
        if path in lost:
            raise OSError(f"{path}: {lost[path]}")
        return found[path]

    async def copies(self, paths: Iterable[str]) -> tuple[dict[str, Copy | None], dict[str, str]]:
        """Keep files outside of the tree. Returns also those that cannot be kept, with the reason.

        Raises `GitError`, `OSError`.
        """
        if not (listed := list(paths)):
            return {}, {}
        found, lost = await self.recorder.do(keep_files, listed, LARGEST_COPY)
        return {path: None if form is None else Copy(*form) for path, form in found.items()}, lost

    async def look_closer(self, now: State, other: State) -> dict[str, str]:
        """Compare also what only the other state covers: let both have copies of it, and `now` of the other's copies.

        Returns those files that are there, but cannot be kept, with the reason. Raises `GitError`, `OSError`.
        """
        hidden: list[Change] = []
        if now.skipped.keys() - other.skipped.keys():
            await self.differences.compare(now, other, hidden)
        theirs = {os.path.join(self.root, one.path): one.after for one in hidden if other.covers(one.path)}
        now.copies, lost = await self.copies([*other.copies, *theirs])
        other.copies = theirs | other.copies
        now.copies |= dict.fromkeys(lost)  # all that is known of it
        return lost


# -- files ---------------------------------------------------------------------------------------


def _open(path: str) -> int:
    how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, how, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return os.open(path, how, 0o600)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = _open(str(path))
    try:
        yield file
    finally:
        os.close(file)  # this ends the lock, too


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _wait_for(file: int, how: int) -> None:
    deadline = time.monotonic() + limits.GIT
    while not _locked(file, how):
        if time.monotonic() > deadline:
            raise GitError("another process holds the checkpoints of this folder")
        await asyncio.sleep(0.01)


def _files(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry
