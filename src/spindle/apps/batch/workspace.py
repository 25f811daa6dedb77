"""Workspaces: the directory that an attempt works in, made and removed by us, and the changes in it.

The user's repository is only read, except for the entry that a worktree has in it while it exists: no hook runs, no
branch, index, stash or configuration is touched, and the objects for `patch.diff` are kept in a store of their own.
"""

import asyncio
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from spindle.agent import AgentError
from spindle.apps.batch.tasks import Task, is_address
from spindle.base import limits, process
from spindle.base.children import environment

KINDS = ("none", "copy", "worktree", "clone")
_SETTINGS = (
    "advice.detachedHead=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.safecrlf=false",
    "core.splitIndex=false",
    "gc.auto=0",
    "worktree.useRelativePaths=false",
)
"""These replace settings of the user, which are meant for their own use of git: they would run programs, fail, or
confuse us."""
_PLAIN = [word for setting in _SETTINGS for word in ("-c", setting)]
_DIFF = ("diff-tree", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames")
_GIT_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
)
"""If a git hook started us, these name the hook's repository; we work on another one."""


class WorkspaceError(AgentError):
    """A workspace cannot be made."""


class Place(NamedTuple):
    """The directory or repository that a task works on."""

    source: str
    """A directory, or the address of a repository."""
    inside: str = "."
    """The directory below it to work in."""
    repository: str | None = None
    """The directory with git's own files, if the source is a checkout with a commit."""
    is_remote: bool = False
    is_scratch: bool = False
    """Whether the source is an empty directory, made for this attempt."""


Turns: TypeAlias = defaultdict[str, asyncio.Lock]
"""Locks by name: one change of the worktrees of a repository at a time, one task at a time in a directory."""


async def git(
    *arguments: str,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
    warn: Callable[[str], None] | None = None,
) -> bytes:
    """Run git and return its output; `warn` gets its messages if the exit code is ok but not 0.

    Raises `WorkspaceError` with the last line of its messages.
    """
    variables = environment(_GIT_VARIABLES, {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(env or {})})
    try:
        done = await process.run(["git", *_PLAIN, *arguments], cwd=cwd, env=variables, timeout=limits.GIT)
    except OSError as error:
        raise WorkspaceError(f"Cannot run git in {cwd or '.'}: {error.strerror}") from None
    if done.timed_out:
        raise WorkspaceError(f"git {arguments[0]} took more than {limits.GIT:g} s")
    if done.code not in ok:
        words = done.errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.code}"]
        raise WorkspaceError(f"git {arguments[0]}: {words[-1]}")
    if done.code and warn is not None:
        warn(f"git {arguments[0]}: {done.errors.decode('utf-8', 'replace').strip()}")
    return done.output


async def locate(task: Task, base: str) -> Place:
    """Find the place that a task works on. Raises `WorkspaceError`."""
    if task.repo is not None and is_address(task, base):
        return Place(task.repo, task.cwd or ".", is_remote=True)
    given = task.repo if task.repo is not None else task.cwd
    start = os.path.realpath(os.path.join(base, given)) if given is not None else os.getcwd()
    if not os.path.isdir(start):
        raise WorkspaceError(f"Not a directory: {start}")
    above = (start, *map(str, Path(start).parents))
    if task.repo is None and not any(os.path.exists(os.path.join(folder, ".git")) for folder in above):
        return Place(start)  # without asking git a thousand times
    said = (await git("rev-parse", "--show-toplevel", "--git-common-dir", cwd=start, ok=(0, 128))).decode()
    top, _, common = said.rstrip("\n").rpartition("\n")
    repository = os.path.realpath(os.path.join(start, common))
    if task.repo is not None and not top:
        if await git("rev-parse", "--is-bare-repository", cwd=start, ok=(0, 128)) == b"true\n":
            return Place(start, task.cwd or ".", start)
        raise WorkspaceError(f"Not a git repository: {start}")
    if task.repo is not None and task.cwd is not None:
        start = os.path.normpath(os.path.join(start, task.cwd))
    # Without a commit there is nothing to check out.
    if not top or not await git("rev-parse", "--verify", "-q", "HEAD", cwd=top, ok=(0, 1, 128)):
        return Place(start)
    inside = os.path.relpath(start, top)
    if inside.startswith(".."):
        raise WorkspaceError(f"{task.cwd} is outside of {task.repo}")
    return Place(top, inside, repository)


class Workspace:
    """The directory of one attempt. `make`, then `baseline`, then `changes`, then `leave`."""

    def __init__(
        self, place: Place, kind: str, folder: Path, ref: str | None, turns: Turns, warn: Callable[[str], None]
    ) -> None:
        """`kind` is one of `KINDS`, `folder` the place for the files of the attempt, inside that of all results.

        `warn` is called if something cannot be compared.
        """
        self.kind = kind
        self.commit: str | None = None
        self.is_ready = False
        """Whether it is made, and its state at the beginning is recorded."""
        self._place = place
        self._ref = ref
        self._results = folder.parent
        self._turns = turns
        self._warn = warn
        self._is_git = place.is_remote or place.repository is not None
        self._store = folder / "objects"
        """Git puts the objects to compare there, and not into the user's repository."""
        self._held: asyncio.Lock | None = None
        self._trees: dict[Path, str] = {}
        """The tree of each repository in the workspace at the beginning."""
        self.root = Path(place.source) if kind == "none" else folder / "work"
        self.cwd = self.root / place.inside

    async def take_turn(self) -> None:
        """Wait until no other task works in the directory itself."""
        lock = self._turns[f"in {self._place.repository or self._place.source}"]
        await lock.acquire()
        self._held = lock

    async def make(self) -> None:
        """Make the directory. Raises `WorkspaceError`."""
        place = self._place
        try:
            await asyncio.to_thread(_remove, self._store)
            await self._clear()
            if self.kind == "copy":
                given_up = threading.Event()
                try:
                    await asyncio.to_thread(_copy, Path(place.source), self.root, self._results, given_up)
                finally:
                    given_up.set()  # a thread cannot be cancelled
                await self._part_from(Path(place.source))
            elif self.kind != "none":
                await self._check_out()
        except OSError as error:
            raise WorkspaceError(f"Cannot make {self.root}: {error.strerror or error}") from None
        if self._is_git:
            head = await git("rev-parse", "--verify", "-q", "HEAD", cwd=str(self.root), ok=(0, 1, 128))
            self.commit = head.decode().strip() or None
        if not self.cwd.is_dir():
            raise WorkspaceError(f"There is no directory {place.inside} in {place.source}")

    async def _check_out(self) -> None:
        place, root = self._place, str(self.root)
        if place.is_remote:
            await git("clone", "--no-checkout", "--", place.source, root)
            wanted = self._ref or "HEAD"
            found = await git("rev-parse", "--verify", "-q", f"origin/{wanted}", cwd=root, ok=(0, 1, 128))
            await git("checkout", "--detach", found.decode().strip() or wanted, cwd=root)
            await git("submodule", "update", "--init", "--recursive", cwd=root)
            return
        if place.repository is None:
            raise WorkspaceError(f"{place.source} is no git repository with a commit: use another --workspace")
        where = f"{self._ref or 'HEAD'}^{{commit}}"
        found = await git("rev-parse", "--verify", "--end-of-options", where, cwd=place.source)
        commit = found.decode().split()[-1]
        if self.kind == "worktree":
            async with self._turns[place.repository]:
                await git("worktree", "add", "--detach", root, commit, cwd=place.source)
        else:
            await _clone_beside(place.source, root, commit)
        await self._add_submodules(Path(place.source), self.root)

    async def _part_from(self, source: Path) -> None:
        """Give a copy repositories of its own where it would share those of the user: a `.git` that is a file."""
        if not self._is_git:
            return
        for path in await _repositories(self.root):
            link = path / ".git"
            if link.is_file():
                own = Path(path, link.read_text().removeprefix("gitdir:").strip()).resolve()
                if not own.is_relative_to(self.root):
                    original = source / path.relative_to(self.root)
                    commit = (await git("rev-parse", "HEAD", cwd=str(original))).decode().strip()
                    index = (await git("rev-parse", "--git-path", "index", cwd=str(original))).decode().rstrip("\n")
                    await _clone_beside(str(original), str(path / ".git-own"), commit, checkout=False)
                    shutil.copy2(original / index, path / ".git-own" / ".git" / "index")
                    link.unlink()
                    (path / ".git-own" / ".git").rename(link)
                    (path / ".git-own").rmdir()

    async def _add_submodules(self, source: Path, root: Path) -> None:
        """Check out the submodules that the user has checked out, from their copies; `git submodule` would fetch them,
        and write to the user's configuration."""
        for name, commit in await _submodules(root):
            if (source / name / ".git").exists():
                await _clone_beside(str(source / name), str(root / name), commit)
                await self._add_submodules(source / name, root / name)

    # -- changes ---------------------------------------------------------------------------------

    async def baseline(self, *, is_fresh: bool) -> None:
        """Record the current state. `is_fresh`: nothing has run in the workspace since it was made."""
        if self._is_git:
            is_clean = is_fresh and self.kind in ("worktree", "clone")
            for path in await _repositories(self.root):
                head = await git("rev-parse", "HEAD^{tree}", cwd=str(path)) if is_clean else b""
                self._trees[path] = head.decode().strip() or await self._tree(path)
        elif self.kind == "copy":
            with suppress(WorkspaceError):  # it has files that git cannot store
                await git("init", "-q", cwd=str(self.root), env=await self._private(self.root))
                self._trees[self.root] = await self._tree(self.root)
        self.is_ready = True

    async def changes(self, patch: Path) -> int | None:
        """Write the changes since `baseline` to a file; return its size, or None if there is no baseline."""
        if not self._trees:
            return None
        patch.write_bytes(b"")
        for path, before in self._trees.items():
            if path.is_dir() and (not self._is_git or (path / ".git").exists()):
                inside = "" if path == self.root else f"{path.relative_to(self.root)}/"
                part = self._store / "part.diff"  # the diff may be larger than our memory
                how = (f"--output={part}", f"--src-prefix=a/{inside}", f"--dst-prefix=b/{inside}")
                after = await self._tree(path)
                await git(*_DIFF, *how, before, after, cwd=str(path), env=await self._private(path))
                await asyncio.to_thread(_append, part, patch)
        return patch.stat().st_size

    async def _tree(self, path: Path) -> str:
        """Put everything in a repository that git does not ignore into a tree, and return its name."""
        env = await self._private(path)
        index = Path(env["GIT_INDEX_FILE"])
        if self._is_git:
            own = (await git("rev-parse", "--git-path", "index", cwd=str(path))).decode().rstrip("\n")
            index.unlink(missing_ok=True)
            if (path / own).exists():
                # With the index git need not read every file; by its time git knows which files may have changed since.
                shutil.copy2(path / own, index)
        # Files that cannot be added are not in the patch: those we must not read, a repository without a commit.
        await git("add", "-A", "--ignore-errors", cwd=str(path), env=env, ok=(0, 1), warn=self._warn)
        return (await git("write-tree", cwd=str(path), env=env)).decode().strip()

    async def _private(self, path: Path) -> dict[str, str]:
        """Return variables that make git write to our store."""
        self._store.mkdir(parents=True, exist_ok=True)
        env = {"GIT_INDEX_FILE": str(self._store / "index")}
        if not self._is_git:
            return env | {"GIT_DIR": str(self._store / "git"), "GIT_WORK_TREE": str(path)}
        objects = (await git("rev-parse", "--git-path", "objects", cwd=str(path))).decode().rstrip("\n")
        known = str((path / objects).resolve()).replace("\\", "\\\\").replace('"', '\\"')
        return env | {"GIT_OBJECT_DIRECTORY": str(self._store), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{known}"'}

    # -- the end ---------------------------------------------------------------------------------

    async def leave(self, *, keep: bool) -> None:
        """Release the directory, and remove it unless `keep` is set."""
        if self._held is not None:
            self._held.release()
            self._held = None
        await asyncio.to_thread(shutil.rmtree, self._store, True)
        if not keep:
            await self._clear()

    async def _clear(self) -> None:
        """Remove the directory of this attempt, or of one that was killed."""
        if self.kind == "none":
            return
        if self._place.repository is not None:
            async with self._turns[self._place.repository]:
                await asyncio.to_thread(_forget_worktree, Path(self._place.repository, "worktrees"), self.root)
        await asyncio.to_thread(_remove, self.root)


async def _clone_beside(source: str, target: str, commit: str, *, checkout: bool = True) -> None:
    """Clone a repository on this disk without copying its objects. The clone has the same origin."""
    await git("clone", "--shared", "--no-checkout", "--", source, target)
    url = (await git("config", "--get", "remote.origin.url", cwd=source, ok=(0, 1))).decode().rstrip("\n")
    if url:
        await git("remote", "set-url", "origin", url, cwd=target)
    else:
        await git("remote", "remove", "origin", cwd=target)  # a push must not end up in the user's repository
    if checkout:
        await git("checkout", "--detach", commit, cwd=target)
    else:
        await git("update-ref", "--no-deref", "HEAD", commit, cwd=target)


async def _submodules(root: Path) -> list[tuple[str, str]]:
    """Return path and commit of the submodules of a checkout."""
    found = []
    for line in (await git("ls-files", "-s", "-z", cwd=str(root))).split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if facts.startswith(b"160000 "):
            found.append((os.fsdecode(name), facts.split()[1].decode()))
    return found


async def _repositories(root: Path) -> list[Path]:
    """Return a checkout and the submodules that are checked out in it, at any depth."""
    found = [root]
    for name, _ in await _submodules(root):
        if (root / name / ".git").exists():
            found += await _repositories(root / name)
    return found


class _GivenUp(Exception):
    """The caller no longer waits for the copy."""


def _append(part: Path, whole: Path) -> None:
    with open(part, "rb") as one, open(whole, "ab") as other:
        shutil.copyfileobj(one, other)


def _copy(source: Path, target: Path, out: Path, given_up: threading.Event) -> None:
    """Copy a directory, but not the results in it, nor sockets and the like, until `given_up` is set."""
    if out == source:
        raise WorkspaceError(f"The results are in {source} itself, which is to be copied: let them go elsewhere")

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name) == out]

    def copy_file(one: str, other: str) -> None:
        if given_up.is_set():
            raise _GivenUp
        with suppress(FileNotFoundError):  # the file was removed meanwhile
            if os.path.isfile(one):
                shutil.copy2(one, other)

    try:
        shutil.copytree(source, target, symlinks=True, ignore=left_out, copy_function=copy_file)
    except shutil.Error as errors:
        raise WorkspaceError(f"Cannot copy {source}: {errors.args[0][0][2]}") from None


def _forget_worktree(admin: Path, root: Path) -> None:
    """Remove the entry that a repository has of a worktree, even of one that was never finished."""
    try:
        entries = list(admin.iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            if Path((entry / "gitdir").read_text().strip()) == root / ".git":
                shutil.rmtree(entry)
        except FileNotFoundError:
            pass  # of another process, just being made or removed
    try:
        admin.rmdir()  # as git does with the last one
    except OSError:
        pass


def _remove(path: Path) -> None:
    """Remove a tree, also one with directories that were made read-only."""

    def allow(function: object, name: str, error: object) -> None:
        parent = os.path.dirname(name)
        os.chmod(parent, 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            os.chmod(name, 0o700)
            shutil.rmtree(name)
        else:
            os.unlink(name)

    if path.is_symlink() or path.exists():
        shutil.rmtree(path, onerror=allow)
