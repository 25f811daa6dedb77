"""Who records the states of a folder: files and objects are here, or on the far side of a pipe.

Both carry out the same operations of `workspace/states.py`, here in a thread, there in the helper. They differ in how
they see what has changed: here by the signs of files (`inventory`), there by git, so that one message does for all.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, Final, Protocol, TypeVar

import msgspec

from spindle.states.git import GitError, Rules, Shadow
from spindle.states.inventory import LARGEST, NO_SIGN, Found, Inventory, TooLarge
from spindle.states.state import State
from spindle.workspace import P, Workspace
from spindle.workspace.disk import Cancel, ToolError
from spindle.workspace.put_back import RESTORING
from spindle.workspace.states import clear_up, git_place, run_git, take_state

T = TypeVar("T")
Work = Callable[Concatenate[Cancel, str, str, P], T]
"""An operation of `workspace/states.py`: after the first argument come the git directory and the folder."""

MOST_FILES: Final = 100_000
MOST_BYTES: Final = 2 << 30
"""Files of a repository, and their size; larger ones are not covered as a whole."""
MOST_FILES_OUTSIDE: Final = 5_000
MOST_BYTES_OUTSIDE: Final = 200 << 20
"""The same for a folder that is not in a repository: it may be a home directory."""
OURS: Final = "the agent directory, where sessions and checkpoints are"
_REFS: Final = "refs/kept"
"""Folder of the git directory: each tree and each copy of a state has a file there, so that git keeps it."""


class Recorder(Protocol):
    """All methods that wait raise `GitError` and `OSError`."""

    root: str
    usual: tuple[int, int, int]
    """Permissions of files, programs and folders for which a state has no others."""

    async def open(self) -> None:
        """Make ready for the first state in this process."""

    async def state(self) -> State:
        """Return the state of the folder."""

    def has(self, path: str) -> bool:
        """Say whether the last state has a file, given by its absolute path, in its tree."""

    async def do(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Carry out an operation that only reads, or adds objects."""

    async def change(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Carry out an operation that changes files. When cancelled, return only when it has ended."""

    def clear_up(self) -> None:
        """Remove what a process left that was killed."""

    def keep(self, objects: Collection[str]) -> None:
        """Keep objects until `keep_only`."""

    async def keep_only(self, objects: Collection[str]) -> None:
        """Drop all objects but these."""


class _Kept(msgspec.Struct):
    """What a process leaves for the next one."""

    signs: tuple[int, ...] | None
    rules: bytes
    tree: str
    found: Found


def keep_objects(store: Path, root: str, objects: Collection[str]) -> None:
    """Drop all objects of a store but these. Blocks."""
    for ref in (store / "git" / _REFS).iterdir():
        if ref.name not in objects:
            ref.unlink()
    for words in (["repack", "-a", "-d", "-q"], ["prune", "--expire=now"]):
        with suppress(ToolError):  # no git: the objects go when the store is tidied
            run_git(Cancel(), str(store / "git"), root, words)


class _Operations:
    """The operations of a workspace, on one folder."""

    def __init__(self, workspace: Workspace, root: str) -> None:
        self.root = root
        self.usual = (0o644, 0o755, 0o755)
        self._workspace = workspace

    async def _place(self) -> str:
        """Return the git directory, ready for a command of git."""
        raise NotImplementedError

    async def do(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._workspace.do(work, await self._place(), self.root, *args, **kwargs)
        except ToolError as error:
            raise GitError(str(error)) from None

    async def change(self, work: "Work[P, T]", *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._workspace.change(work, await self._place(), self.root, *args, **kwargs)
        except ToolError as error:
            raise GitError(str(error)) from None


class Here(_Operations):
    """Records a folder of this machine. Signs of its files are remembered: a state without changes costs no process."""

    def __init__(
        self,
        workspace: Workspace,
        store: Path,
        root: str,
        *,
        is_repository: bool,
        own: Sequence[str] = (),
        withheld: Collection[str] = (),
    ) -> None:
        """`own` are names in the folder that are ours: they are neither kept nor put back.

        Git gets no variable in `withheld`.
        """
        super().__init__(workspace, root)
        self._store = store
        self._restoring = f"{root}/{RESTORING}"
        self._git_dir, self._index = f"{store}/git", f"{store}/git/index"
        self._is_repository = is_repository
        self._withheld = withheld
        self._own = (*own, RESTORING, ".git")
        self._shadow = Shadow(store / "git", Path(root), lambda text: None)
        most = (MOST_FILES, MOST_BYTES) if is_repository else (MOST_FILES_OUTSIDE, MOST_BYTES_OUTSIDE)
        self._inventory = Inventory(Path(root), self._shadow.ignored, most)
        self._last: State | None = None
        """The last state, if the inventory is of it."""
        self._is_open = False
        self._why_not = OURS if os.curdir in own else ""
        """Why no state has a tree."""
        self._signs: tuple[int, ...] | None = None
        """Of the index with what the inventory has; another process may work with the same store."""
        self._tidied = 0
        """Time of the git directory when nothing in it was in the way."""

    async def _place(self) -> str:
        await self.open()
        self._shadow.guard()
        return str(self._store / "git")

    async def open(self) -> None:
        if self._is_open:
            return
        self._inventory.own = {os.fsencode(f"{path}{end}") for path in self._own for end in ("", "/")}
        rules, known = None, self._store / "rules"
        if not self._is_repository:
            rules = msgspec.msgpack.decode(known.read_bytes(), type=Rules) if known.exists() else Rules()
        found = await self._shadow.keep(self._withheld, rules=rules)
        if self._is_repository:  # for the time when its `.git` is gone
            write_file(str(known), msgspec.msgpack.encode(found))
        self._inventory.forced = found.forced
        (self._store / "git" / _REFS).mkdir(parents=True, mode=0o700, exist_ok=True)
        usual = self._store / "usual.json"
        if usual.exists():
            self.usual = tuple(json.loads(usual.read_bytes()))
        else:
            probe = self._store / "probe"
            os.close(os.open(probe, os.O_CREAT, 0o777))
            mode = stat.S_IMODE(probe.stat().st_mode)
            probe.unlink()
            self.usual = (mode & 0o666, mode, mode)
            write_file(str(usual), json.dumps(self.usual).encode())
        self._is_open = True

    def clear_up(self) -> None:
        try:
            if os.stat(self._git_dir).st_mtime_ns != self._tidied:  # else no name has come into it
                clear_up(self._git_dir)
                self._tidied = os.stat(self._git_dir).st_mtime_ns
        except FileNotFoundError:
            pass
        try:
            os.unlink(self._restoring)
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            pass

    def keep(self, objects: Collection[str]) -> None:
        for oid in objects:
            if not os.path.exists(ref := f"{self._store}/git/{_REFS}/{oid}"):
                write_file(ref, f"{oid}\n".encode())

    async def keep_only(self, objects: Collection[str]) -> None:
        await self.open()
        for ref in (self._store / "git" / _REFS).iterdir():
            if ref.name not in objects:
                ref.unlink()
        await self.change(run_git, ["repack", "-a", "-d", "-q"])
        await self.change(run_git, ["prune", "--expire=now"])

    def has(self, path: str) -> bool:
        return self._inventory.covers(os.fsencode(os.path.relpath(path, self.root)))

    async def state(self) -> State:
        await self.open()
        now = time.time()
        if self._why_not:
            return edits_only(self.root, now, self._why_not)
        if self._signs is None or self._signs != self._index_signs():
            await self._catch_up()
        signs, self._signs = self._signs, None  # until the index has what is found now
        try:
            changed = await self._inventory.update()
        except TooLarge:
            self._why_not = too_large(is_repository=self._is_repository)
            self._inventory.found = Found()  # it has some of the files, and no tree has one
            return edits_only(self.root, now, self._why_not)
        if changed is not None or self._last is None:
            covers = self._inventory.covers
            there = [name for name in changed or () if covers(name)]
            tree = await self._shadow.record([name for name in changed or () if not covers(name)], there)
            self._inventory.pass_over(self._shadow.unrecorded)
            self._last = State(self.root, now, tree)
            await self._workspace.do(lambda cancel, state: self._describe(state), self._last)
            signs = self._index_signs()
            await self._workspace.do(lambda cancel, tree: self._remember(signs, tree), tree)
        self._signs = signs
        return msgspec.structs.replace(self._last, time=now, copies={})

    async def _catch_up(self) -> None:
        """Learn the files in the tree, if this process does not know them, or another one has changed them."""
        self._last = None
        with suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.msgpack.decode((self._store / "found").read_bytes(), type=_Kept)
            if kept.signs == self._index_signs() and kept.rules == self._rules():
                self._inventory.found, self._signs = kept.found, kept.signs
                self._shadow.last(kept.tree)
                return
        self._shadow.last(None)
        listed = await self.do(run_git, ["ls-files", "-z"])
        self._inventory.found = Found(files={name: NO_SIGN for name in listed.split(b"\0") if name})

    def _remember(self, signs: tuple[int, ...] | None, tree: str) -> None:
        """Save the next process the work of looking at all files."""
        kept = _Kept(signs, self._rules(), tree, self._inventory.found)
        write_file(f"{self._store}/found", msgspec.msgpack.encode(kept))

    def _rules(self) -> bytes:
        return hashlib.sha256(self._shadow.rules()).digest()

    def _describe(self, state: State) -> None:
        """Put into a state what a tree does not hold."""
        found = self._inventory.found
        state.modes = self._inventory.modes(*self.usual)
        state.folders = sorted(map(os.fsdecode, found.empty))
        state.skipped = {os.fsdecode(name): why for name, why in found.skipped.items()}
        state.files = len(found.files) - sum(name in found.files for name in found.skipped)

    def _index_signs(self) -> tuple[int, ...] | None:
        try:
            about = os.stat(self._index)
        except OSError:
            return None
        return about.st_ino, about.st_size, about.st_mtime_ns


class There(_Operations):
    """Records a folder on the far side of a pipe. If that is thrown away, its states are, too, and say so."""

    def __init__(self, workspace: Workspace, root: str, *, is_repository: bool, own: Sequence[str] = ()) -> None:
        """`own` are names in the folder that are ours: they are neither kept nor put back."""
        super().__init__(workspace, root)
        self._is_repository = is_repository
        self._own = list(own)
        self._git_dir = ""
        self._names: set[str] = set()
        """Files in the tree of the last state, if there is one."""
        self._is_known = False

    async def _place(self) -> str:
        if not self._git_dir:
            name = digest(self.root)
            self._git_dir = await self._workspace.do(git_place, name, self.root)
        return self._git_dir

    async def open(self) -> None:
        pass  # the first operation does it

    def clear_up(self) -> None:
        pass  # `take_state` does it

    def keep(self, objects: Collection[str]) -> None:
        pass  # git there throws nothing away

    async def keep_only(self, objects: Collection[str]) -> None:
        pass  # agents on other machines may work with the same directory

    def has(self, path: str) -> bool:
        return os.path.relpath(path, self.root) in self._names

    async def state(self) -> State:
        most = (MOST_FILES, MOST_BYTES) if self._is_repository else (MOST_FILES_OUTSIDE, MOST_BYTES_OUTSIDE)
        is_known, self._is_known = self._is_known, False
        if os.curdir in self._own:
            return edits_only(self.root, time.time(), OURS)
        found: dict[str, Any] = await self.do(take_state, [LARGEST, *most], is_known, self._own)
        if found["tree"] is None:
            self._names = set()
            return edits_only(self.root, time.time(), too_large(is_repository=self._is_repository))
        self._names = (self._names if is_known else set()).difference(found["gone"]).union(found["there"])
        self._is_known = True
        self.usual = tuple(found["usual"])
        about = {name: found[name] for name in ("tree", "files", "modes", "folders", "skipped")}
        return State(self.root, time.time(), **about)


def too_large(*, is_repository: bool) -> str:
    return f"more than {MOST_FILES if is_repository else MOST_FILES_OUTSIDE:,} files, or too many bytes"


def edits_only(root: str, now: float, why: str) -> State:
    """Return the state of a folder that is not covered as a whole."""
    return State(root, now, skipped={"./": f"{why}: only the tools' own edits are covered"})


def digest(text: str) -> str:
    """Return a short name for a path or a command."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def write_file(path: str, data: bytes) -> None:
    """Give a file of ours this content, in one step."""
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
        file.write(data)
    os.replace(f"{path}.new", path)
