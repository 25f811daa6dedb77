"""States of a folder, kept outside of it: taken, compared, and put back byte for byte.

A state is a tree object of `Shadow`, and a manifest of what a tree does not hold: modes, empty folders, the names that
are not covered. Where the folder is too large for that, and for files outside of it, a state has only the copies of
files that were named (`copy`). The repository that the folder may be is only read.

One store holds the states of one folder. A process that is killed leaves it whole: a state counts once its manifest is
there, and each file is put back in one step.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from spindle.base import limits
from spindle.base.differences import Differences
from spindle.base.git import GitError, Shadow
from spindle.base.inventory import LARGEST, NO_SIGN, Found, Inventory, TooLarge
from spindle.base.put_back import RESTORING, kept_form
from spindle.base.states import Copy, State, StateGone
from spindle.base.workspace.states import HASH_OBJECT

MOST_FILES: Final = 100_000
MOST_BYTES: Final = 2 << 30
"""Files of a repository, and their size; larger ones are not covered as a whole."""
MOST_FILES_OUTSIDE: Final = 5_000
MOST_BYTES_OUTSIDE: Final = 200 << 20
"""The same for a folder that is not in a repository: it may be a home directory."""
STORE_BYTES: Final = 2 << 30
"""Size of a store. When it is larger, the oldest states go."""
MAX_AGE: Final = 30 * 86400
"""Seconds after which a state goes."""
LOOSE: Final = 4000
"""Objects in files of their own; when there are more, they are packed."""
_REFS: Final = "refs/kept"
"""Folder of the git directory: each tree and each copy of a state has a file there, so that git keeps it."""


def find_root(cwd: str, *, above: bool = True) -> tuple[Path, bool]:
    """Return the folder whose states are kept for work in `cwd`, and whether it is a repository.

    `above`: the working directory may be a part of a repository.
    """
    start = Path(os.path.realpath(cwd))
    for folder in (start, *(start.parents if above else ())):
        if (folder / ".git").exists():
            return folder, True
    return start, False


class _Kept(msgspec.Struct):
    """What a process leaves for the next one."""

    signs: tuple[int, ...] | None
    rules: bytes
    tree: str
    found: Found


class Snapshots:
    """The store of one folder."""

    def __init__(
        self,
        stores: Path,
        root: Path,
        *,
        is_repository: bool,
        own: Sequence[Path] = (),
        withheld: Collection[str] = (),
    ) -> None:
        """`own` are files and folders of ours that may be inside of `root`: they are neither kept nor put back.

        Git gets no variable in `withheld`.
        """
        digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        self.store = stores / f"{root.name[:40]}-{digest}"
        self.root = root
        self._stores = stores
        self._is_repository = is_repository
        self._withheld = withheld
        self._own = [os.path.relpath(path, root) for path in (stores.parent, *own) if path.is_relative_to(root)]
        self._shadow = Shadow(self.store / "git", root, lambda text: None)
        self.differences = Differences(self._shadow, root, self.store)
        most = (MOST_FILES, MOST_BYTES) if is_repository else (MOST_FILES_OUTSIDE, MOST_BYTES_OUTSIDE)
        self._inventory = Inventory(root, self._shadow.ignored, most)
        self._last: State | None = None
        """The last state, if the inventory is of it."""
        self._is_open = False
        self._is_too_large = False
        self._signs: tuple[int, ...] | None = None
        """Of the index with what the inventory has; another process may work with the same store."""

    # -- the store -------------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep other processes and sessions out of the store. Raises `OSError`, `GitError`."""
        with _opened(self.store / "lock") as file:
            await _wait_for(file, fcntl.LOCK_EX)
            self._clear_up()
            yield

    def _clear_up(self) -> None:
        """Remove what a process left that held the store and was killed."""
        for left in (self.store / "git/index.lock", self.root / RESTORING):
            left.unlink(missing_ok=True)

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

    async def _open(self) -> None:
        """Make ready for the first state in this process."""
        if self._is_open:
            return
        own = (*self._own, RESTORING, ".git")
        self._inventory.own = {os.fsencode(f"{path}{end}") for path in own for end in ("", "/")}
        self._inventory.forced = await self._shadow.keep(self._withheld, is_repository=self._is_repository)
        for folder in ("states", f"git/{_REFS}"):
            (self.store / folder).mkdir(parents=True, mode=0o700, exist_ok=True)
        usual = self.store / "usual.json"
        if usual.exists():
            self.differences.usual = tuple(json.loads(usual.read_bytes()))
        else:
            probe = self.store / "probe"
            os.close(os.open(probe, os.O_CREAT, 0o777))
            mode = stat.S_IMODE(probe.stat().st_mode)
            probe.unlink()
            self.differences.usual = (mode & 0o666, mode, mode)
            _write(str(usual), json.dumps(self.differences.usual).encode())
            _write(f"{self.store}/folder", os.fsencode(self.root))
        self._is_open = True

    def keep(self, id: str, state: State) -> None:
        """Keep a state under a name, until it is too old."""
        self._keep_objects(state)
        _write(f"{self.store}/states/{id}.json", json.dumps(msgspec.to_builtins(state)).encode())

    def _keep_objects(self, state: State) -> None:
        for oid in state.objects():
            if not os.path.exists(ref := f"{self.store}/git/{_REFS}/{oid}"):
                _write(ref, f"{oid}\n".encode())

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
            await self._open()
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
        for ref in (self.store / "git" / _REFS).iterdir():
            if ref.name not in used:
                ref.unlink()
        await self._shadow.run("repack", "-a", "-d", "-q")
        await self._shadow.run("prune", "--expire=now")

    def _remove_unused(self) -> None:
        for store in self._stores.iterdir():
            with suppress(OSError):
                if store != self.store and (store / "lock").stat().st_mtime < time.time() - MAX_AGE:
                    shutil.rmtree(store)

    # -- taking a state --------------------------------------------------------------------------

    async def now(self) -> State:
        """Return the state of the folder; inside of `alone`. Raises `GitError`, `OSError`."""
        await self._open()
        os.utime(self.store / "lock")
        state = State(str(self.root), time.time())
        if self._is_too_large:
            return self._without_tree(state)
        if self._signs is None or self._signs != self._index_signs():
            await self._catch_up()
        signs, self._signs = self._signs, None  # until the index has what is found now
        try:
            changed = await self._inventory.update()
        except TooLarge:
            self._is_too_large = True
            return self._without_tree(state)
        if changed is not None or self._last is None:
            covers = self._inventory.covers
            there = [name for name in changed or () if covers(name)]
            state.tree = await self._shadow.record([name for name in changed or () if not covers(name)], there)
            self._inventory.pass_over(self._shadow.unrecorded)
            await asyncio.to_thread(self._describe, state)
            self._last = state
            signs = self._index_signs()
            await asyncio.to_thread(self._remember, signs, state.tree)
        self._signs = signs
        return msgspec.structs.replace(self._last, time=state.time, copies={})

    async def _catch_up(self) -> None:
        """Learn the files in the tree, if this process does not know them, or another one has changed them."""
        self._last = None
        with suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.msgpack.decode((self.store / "found").read_bytes(), type=_Kept)
            if kept.signs == self._index_signs() and kept.rules == self._rules():
                self._inventory.found, self._signs = kept.found, kept.signs
                self._shadow.last(kept.tree)
                return
        self._shadow.last(None)
        listed = await self._shadow.run("ls-files", "-z")
        self._inventory.found = Found(files={name: NO_SIGN for name in listed.split(b"\0") if name})

    def _remember(self, signs: tuple[int, ...] | None, tree: str) -> None:
        """Save the next process the work of looking at all files."""
        kept = _Kept(signs, self._rules(), tree, self._inventory.found)
        _write(f"{self.store}/found", msgspec.msgpack.encode(kept))

    def _rules(self) -> bytes:
        return hashlib.sha256(self._shadow.rules()).digest()

    def _describe(self, state: State) -> None:
        """Put into a state what a tree does not hold."""
        found = self._inventory.found
        state.modes = self._inventory.modes(*self.differences.usual)
        state.folders = sorted(map(os.fsdecode, found.empty))
        state.skipped = {os.fsdecode(name): why for name, why in found.skipped.items()}
        state.files = len(found.files) - sum(name in found.files for name in found.skipped)

    def _without_tree(self, state: State) -> State:
        most = MOST_FILES if self._is_repository else MOST_FILES_OUTSIDE
        state.skipped = {"./": f"more than {most:,} files, or too many bytes: only the tools' own edits are covered"}
        return state

    def has_in_tree(self, path: str) -> bool:
        """Say whether the last state has a file, given by its absolute path, in its tree."""
        return self._inventory.covers(os.fsencode(os.path.relpath(path, self.root)))

    def _index_signs(self) -> tuple[int, ...] | None:
        try:
            about = os.stat(self.store / "git/index")
        except OSError:
            return None
        return about.st_ino, about.st_size, about.st_mtime_ns

    async def copy(self, path: str) -> Copy | None:
        """Keep a file outside of the tree. Returns None if there is none. Raises `GitError`, `OSError`."""
        await self._open()
        found = await asyncio.to_thread(kept_form, path, LARGEST)
        if found is None:
            return None
        said = await self._shadow.run(*HASH_OBJECT, input=found[1])
        return Copy(found[0], said.decode().strip())


# -- files ---------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _write(path: str, data: bytes) -> None:
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
        file.write(data)
    os.replace(f"{path}.new", path)


def _files(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry
