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
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from spindle.base import limits
from spindle.base.differences import Differences
from spindle.base.git import GitError, Seen, Shadow
from spindle.base.put_back import RESTORING
from spindle.base.states import Copy, State, StateGone, folders_of

LARGEST: Final = 10 << 20
"""Bytes of a file that is covered."""
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
_REPOSITORY: Final = "a repository of its own"
_LOOKS: Final = 3
"""How often a folder is looked at for one state, while files come to light."""


def find_root(cwd: str) -> tuple[Path, bool]:
    """Return the folder whose states are kept for work in `cwd`, and whether it is a repository."""
    start = Path(os.path.realpath(cwd))
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder, True
    return start, False


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
        self._own = tuple(
            os.path.relpath(path, root) for path in (stores.parent, *own) if Path(path).is_relative_to(root)
        )
        self._shadow = Shadow(self.store / "git", root, lambda text: None)
        self.differences = Differences(self._shadow, root, self.store)
        self._is_open = False
        self._is_too_large = False
        self._signs: tuple[int, ...] | None = None
        """Of the index, as we left it: another process may work with the same store."""
        self._modes: dict[str, int] = {}
        self._folders: dict[str, int] = {}
        """Folders with files in the tree → number of those files."""
        self._names: set[bytes] = set()
        self._recent: set[bytes] = set()
        """Files that were changed shortly before we looked: git compares whole seconds, and misses another `chmod`."""

    # -- the store -------------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep other processes and sessions out of the store. Raises `OSError`, `GitError`."""
        self.store.mkdir(parents=True, mode=0o700, exist_ok=True)
        with _opened(self.store / "lock") as file:
            deadline = time.monotonic() + limits.GIT
            while not _locked(file, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise GitError("another process holds the checkpoints of this folder")
                await asyncio.sleep(0.01)
            # Whoever held these has been killed.
            for left in (self.store / "git/index.lock", self.root / RESTORING):
                left.unlink(missing_ok=True)
            yield

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Note for other sessions and processes that an agent is writing to the folder."""
        self.store.mkdir(parents=True, mode=0o700, exist_ok=True)
        with _opened(self.store / "working") as file:
            _locked(file, fcntl.LOCK_SH)
            yield

    @contextmanager
    def nobody_at_work(self) -> Iterator[bool]:
        """Say whether no agent is writing to the folder; if so, none begins inside of this."""
        with _opened(self.store / "working") as file:
            yield _locked(file, fcntl.LOCK_EX)

    async def _open(self) -> None:
        """Make ready for the first state in this process."""
        if self._is_open:
            return
        own = [f"/{path}" for path in self._own]
        await self._shadow.keep(self._withheld, is_repository=self._is_repository, excluded=[f"/{RESTORING}", *own])
        usual = self.store / "usual.json"
        if usual.exists():
            self.differences.usual = tuple(json.loads(usual.read_bytes()))
        else:
            probe = self.store / "probe"
            os.close(os.open(probe, os.O_CREAT, 0o777))
            mode = stat.S_IMODE(probe.stat().st_mode)
            probe.unlink()
            self.differences.usual = (mode & 0o666, mode, mode)
            _write(usual, json.dumps(self.differences.usual).encode())
            _write(self.store / "folder", os.fsencode(self.root))
        self._is_open = True

    def keep(self, id: str, state: State) -> None:
        """Keep a state under a name, until it is too old."""
        for folder in ("states", "git/refs/states", "git/refs/copies"):
            (self.store / folder).mkdir(parents=True, mode=0o700, exist_ok=True)
        for copy in state.copies.values():
            if copy is not None and copy.oid:
                _write(self.store / "git/refs/copies" / copy.oid, f"{copy.oid}\n".encode())
        if state.tree is not None:
            _write(self.store / "git/refs/states" / id, f"{state.tree}\n".encode())
        _write(self.store / "states" / f"{id}.json", json.dumps(msgspec.to_builtins(state)).encode())

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
            (self.store / "git/refs/states" / path.stem).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        left = [self.load(path.stem) for path in (self.store / "states").glob("*.json")]
        used = {copy.oid for state in left for copy in state.copies.values() if copy is not None}
        for ref in (self.store / "git/refs/copies").glob("*"):
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
        state = State(str(self.root), time.time())
        os.utime(self.store / "lock")
        if self._is_too_large or (not self._is_repository and await asyncio.to_thread(_is_large, self.root)):
            return self._without_tree(state)
        await self._catch_up()
        for _ in range(_LOOKS):
            skipped: dict[str, str] = {}
            seen = await self._shadow.look(deep=False)
            empty, full = await asyncio.to_thread(self._sorted_out, seen.folders, skipped)
            inside = await self._inside(full, skipped)
            gone, there = await asyncio.to_thread(self._chosen, seen._replace(there=[*seen.there, *inside]), skipped)
            if len(self._names) + len(there) > MOST_FILES or self._is_heavy(there):
                self._is_too_large = True
                return self._without_tree(state)
            state.tree = await self._shadow.record(gone, there)
            self._note(gone, there)
            await asyncio.to_thread(self._learn_modes, self._recent.union(there))
            if not (gone or inside):
                break  # otherwise folders that git had not looked into have come to light
        state.folders, state.skipped, state.files = empty, skipped, len(self._names)
        state.modes = self._modes | await asyncio.to_thread(self._folder_modes, empty)
        self._remember()
        return state

    async def _catch_up(self) -> None:
        """Learn the files in the tree, if this process does not know them, or another one has changed them."""
        if self._signs is not None and self._index_signs() == self._signs:
            return
        self._shadow.forget()
        listed = await self._shadow.run("ls-files", "-z")
        await asyncio.to_thread(self._learn, [name for name in listed.split(b"\0") if name])

    def _sorted_out(self, folders: Iterable[bytes], skipped: dict[str, str]) -> tuple[list[str], list[str]]:
        """Return the empty ones of these folders, and those with files. Repositories are `skipped`."""
        empty: list[str] = []
        full: list[str] = []
        for folder in map(os.fsdecode, folders):
            if os.path.lexists(self.root / folder / ".git"):
                skipped[folder] = _REPOSITORY
            elif not self._is_own(folder.rstrip("/")):
                with suppress(OSError):
                    hollow = _hollow(os.path.join(self.root, folder), folder)
                    (full.append(folder) if hollow is None else empty.extend(hollow))
        return empty, full

    async def _inside(self, folders: Sequence[str], skipped: dict[str, str]) -> list[bytes]:
        """Return the files in new folders. Repositories are `skipped`."""
        if not folders:
            return []
        wanted = [f":(top,literal){folder}" for folder in folders] if len(folders) < 1000 else []
        found = await self._shadow.unknown("--", *wanted)
        skipped |= {os.fsdecode(name): _REPOSITORY for name in found if name.endswith(b"/")}
        return [name for name in found if not name.endswith(b"/")]

    def _remember(self) -> None:
        """Save the next process the work of looking at all modes."""
        if (signs := self._index_signs()) != self._signs:
            self._signs = signs
            recent = list(map(os.fsdecode, self._recent))
            _write(self.store / "modes.json", json.dumps([signs, self._modes, recent]).encode())

    def _without_tree(self, state: State) -> State:
        most = MOST_FILES if self._is_repository else MOST_FILES_OUTSIDE
        state.skipped = {"./": f"more than {most:,} files, or too many bytes: only the tools' own edits are covered"}
        return state

    def has_in_tree(self, path: str) -> bool:
        """Say whether the last state has a file, given by its absolute path, in its tree."""
        return os.fsencode(os.path.relpath(path, self.root)) in self._names

    def _index_signs(self) -> tuple[int, ...] | None:
        try:
            about = os.stat(self.store / "git/index")
        except OSError:
            return None
        return about.st_ino, about.st_size, about.st_mtime_ns

    def _learn(self, names: Collection[bytes]) -> None:
        self._names, self._folders, self._modes = set(), {}, {}
        self._note((), names)
        try:
            signs, modes, recent = json.loads((self.store / "modes.json").read_bytes())
        except (OSError, ValueError):
            signs = None
        if signs is not None and tuple(signs) == self._index_signs():
            self._modes, self._recent = modes, set(map(os.fsencode, recent))
        else:
            self._learn_modes(names)

    def _note(self, gone: Iterable[bytes], there: Iterable[bytes]) -> None:
        """Keep count of the files in the tree, and of their folders."""
        for change, names in ((-1, self._names.intersection(gone)), (1, set(there) - self._names)):
            for name in names:
                for folder in folders_of(os.fsdecode(name)):
                    self._folders[folder] = self._folders.get(folder, 0) + change
            (self._names.update if change > 0 else self._names.difference_update)(names)
        self._folders = {folder: count for folder, count in self._folders.items() if count > 0}
        for name in gone:
            self._modes.pop(os.fsdecode(name), None)

    def _chosen(self, seen: Seen, skipped: dict[str, str]) -> tuple[list[bytes], list[bytes]]:
        """Return the names to take out of the tree and those to put into it; the others are `skipped`."""
        gone, there = list(seen.gone), []
        for name in seen.there:
            path = os.fsdecode(name)
            why = self._reason(path)
            if why is None:
                there.append(name)
                continue
            gone.append(name)
            if why:
                skipped[path] = why
        return [name for name in gone if name in self._names], there

    def _reason(self, path: str) -> str | None:
        """Return why a file is not covered; None if it is, empty if it is ours or gone again."""
        if self._is_own(path):
            return ""
        whole = self.root / path
        try:
            about = os.lstat(whole)
        except OSError:
            return ""
        if stat.S_ISLNK(about.st_mode):
            return None
        if about.st_size > LARGEST:
            return f"larger than {LARGEST >> 20} MB"
        return None if os.access(whole, os.R_OK) else "not readable"

    def _is_own(self, path: str) -> bool:
        return any(path == own or path.startswith(f"{own}/") for own in self._own)

    def _is_heavy(self, names: Sequence[bytes]) -> bool:
        if len(names) < 200:
            return False
        total = 0
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(os.fsencode(self.root), name)).st_size
        return total > MOST_BYTES

    def _learn_modes(self, names: Collection[bytes]) -> None:
        (file, program, _), top = self.differences.usual, os.fspath(self.root)
        self._recent.difference_update(names)
        lately = time.time() - 2
        for name in names:
            path = os.fsdecode(name)
            with suppress(OSError):
                about = os.lstat(f"{top}/{path}")
                if about.st_ctime >= lately:
                    self._recent.add(name)
                self._modes.pop(path, None)
                bits = stat.S_IMODE(about.st_mode)
                if stat.S_ISREG(about.st_mode) and bits != (program if bits & 0o100 else file):
                    self._modes[path] = bits

    def _folder_modes(self, empty: Iterable[str]) -> dict[str, int]:
        found, top, usual = {}, os.fspath(self.root), self.differences.usual[2]
        for folder in (*self._folders, *empty):
            with suppress(OSError):
                if (bits := stat.S_IMODE(os.lstat(f"{top}/{folder}").st_mode)) != usual:
                    found[folder] = bits
        return found

    async def copy(self, path: str) -> Copy | None:
        """Keep a file outside of the tree. Returns None if there is none. Raises `GitError`, `OSError`."""
        await self._open()
        try:
            about = await asyncio.to_thread(os.lstat, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(about.st_mode):
            content = os.fsencode(os.readlink(path))
        elif not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise OSError(f"not a file, or larger than {LARGEST >> 20} MB")
        else:
            content = await asyncio.to_thread(Path(path).read_bytes)
        said = await self._shadow.run("hash-object", "-w", "--stdin", "--no-filters", input=content)
        return Copy(about.st_mode, said.decode().strip())


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


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    beside.replace(path)


def _files(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry


def _is_large(folder: Path) -> bool:
    """Say whether a folder has too many files or bytes to be covered; stop as soon as it has."""
    size = 0
    for count, entry in enumerate(_files(folder), 1):
        with suppress(OSError):
            about = entry.stat(follow_symlinks=False)
            size += about.st_size if about.st_size <= LARGEST else 0
        if count > MOST_FILES_OUTSIDE or size > MOST_BYTES_OUTSIDE:
            return True
    return False


def _hollow(whole: str, name: str) -> list[str] | None:
    """Return the folders at or below this one that have nothing in them; None if there is a file somewhere."""
    with os.scandir(whole) as entries:
        inside = list(entries)
    if not all(entry.is_dir(follow_symlinks=False) for entry in inside):
        return None
    found = [] if inside else [name]
    for entry in inside:
        below = _hollow(entry.path, f"{name}{entry.name}/")
        if below is None:
            return None
        found += below
    return found
