"""Folders that attempts work in, made and removed by us, and the changes in them.

The user's repository is only read, except for the entry that a worktree has in it while it exists: no hook runs, no
branch, index, stash or configuration is touched, and the objects for `patch.diff` are kept in a store of their own.
Once the agent has begun, git reads nothing of the workspace but its files (`Shadow`).
"""

import asyncio
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from spindle.agent import AgentError
from spindle.apps.batch.tasks import Task, is_address
from spindle.states.git import GitError, Shadow, git
from spindle.workspace.states import OFFLINE

KINDS = ("none", "copy", "worktree", "clone")


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


_Git: TypeAlias = Callable[..., Awaitable[bytes]]
"""The user's git, without the keys."""
Turns: TypeAlias = defaultdict[str, asyncio.Lock]
"""Locks by name: one change of the worktrees of a repository at a time, one task at a time in a directory."""


@contextmanager
def _told() -> Iterator[None]:
    """Raise `WorkspaceError` for what git says."""
    try:
        yield
    except GitError as error:
        raise WorkspaceError(str(error)) from None


async def locate(task: Task, base: str, withheld: Collection[str]) -> Place:
    """Find the place that a task works on; git gets no variable in `withheld`. Raises `WorkspaceError`."""
    if task.repo is not None and is_address(task, base):
        return Place(task.repo, task.cwd or ".", is_remote=True)
    given = task.repo if task.repo is not None else task.cwd
    start = os.path.realpath(os.path.join(base, given)) if given is not None else os.getcwd()
    if not os.path.isdir(start):
        raise WorkspaceError(f"Not a directory: {start}")
    above = (start, *map(str, Path(start).parents))
    if task.repo is None and not any(os.path.exists(os.path.join(folder, ".git")) for folder in above):
        return Place(start)  # without asking git a thousand times
    with _told():
        return await _in_repository(task, start, partial(git, withheld=withheld, env=OFFLINE))


async def _in_repository(task: Task, start: str, git: _Git) -> Place:
    said = os.fsdecode(await git("rev-parse", "--show-toplevel", "--git-common-dir", cwd=start, ok=(0, 128)))
    top, _, common = said.rstrip("\n").rpartition("\n")
    repository = os.path.realpath(os.path.join(start, common))
    if task.repo is not None and not top:
        if await git("rev-parse", "--is-bare-repository", cwd=start, ok=(0, 128)) == b"true\n":
            return Place(start, task.cwd or ".", start)
        raise WorkspaceError(f"Not a git repository: {start}")
    if task.repo is not None and task.cwd is not None:
        start = os.path.normpath(os.path.join(start, task.cwd))
    inside = os.path.relpath(start, top or start)
    if inside.startswith(".."):
        raise WorkspaceError(f"{task.cwd} is outside of {task.repo}")
    # Without a commit there is nothing to check out.
    if not top or not await git("rev-parse", "--verify", "-q", "HEAD", cwd=top, ok=(0, 1, 128)):
        return Place(start) if task.repo is None else Place(top, inside)
    return Place(top, inside, repository)


async def obeyed(place: Place, withheld: Collection[str]) -> bytes:
    """Return what git obeys when it checks a place out: settings, but those of branches, and attributes.

    Raises `WorkspaceError`.
    """
    with _told():
        said = await git("config", "--list", "-z", cwd=place.source, withheld=withheld, env=OFFLINE)
    settings = [setting for setting in said.split(b"\0") if not setting.startswith(b"branch.")]
    attributes = Path(place.repository or place.source, "info", "attributes")
    return b"\0".join([*settings, attributes.read_bytes() if attributes.is_file() else b""])


class AttemptFolder:
    """The directory of one attempt. `make`, then `baseline`, then `changes`, then `leave`."""

    pipe = None

    def __init__(
        self,
        place: Place,
        kind: str,
        folder: Path,
        ref: str | None,
        turns: Turns,
        warn: Callable[[str], None],
        withheld: Collection[str] = (),
    ) -> None:
        """`kind` is one of `KINDS`, `folder` the place for the files of the attempt, inside that of all results.

        `warn` is called if something cannot be compared. Git gets no variable in `withheld`.
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
        self._withheld = withheld
        self._git: _Git = partial(git, withheld=withheld)
        self._is_git = place.is_remote or place.repository is not None
        self._store = folder / "objects"
        """Git puts the objects to compare there, and not into the user's repository."""
        self._held: asyncio.Lock | None = None
        self._shadows: dict[Path, tuple[Shadow, str]] = {}
        """Every repository in the workspace: what records its states, and its tree at the beginning."""
        self.root = Path(os.path.realpath(place.source if kind == "none" else folder / "work"))
        self.cwd = self.root / place.inside

    @property
    def workdir(self) -> str:
        """Where commands of the task begin."""
        return str(self.cwd)

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
                with _told():
                    await self._part_from(Path(place.source))
            elif self.kind != "none":
                with _told():
                    await self._check_out()
        except OSError as error:
            raise WorkspaceError(f"Cannot make {self.root}: {error.strerror or error}") from None
        if self._is_git:
            with _told():
                asked = ("rev-parse", "--verify", "-q", "HEAD")
                head = await self._git(*asked, cwd=str(self.root), env=OFFLINE, ok=(0, 1, 128))
            self.commit = head.decode().strip() or None
        if not self.cwd.is_dir():
            raise WorkspaceError(f"There is no directory {place.inside} in {place.source}")
        self.check()

    def check(self) -> None:
        """Raise `WorkspaceError` if a link leads from the directory to work in out of the workspace."""
        real = Path(os.path.realpath(self.root / self._place.inside))
        if not real.is_relative_to(self.root):
            raise WorkspaceError(f"{self._place.inside} leads out of {self._place.source}, to {real}")
        self.cwd = real

    async def _check_out(self) -> None:
        place, root, git = self._place, str(self.root), self._git
        if place.is_remote:
            await git("clone", "--no-checkout", "--", place.source, root)
            wanted = self._ref or "HEAD"
            commit = await self._commit(f"origin/{wanted}", root, ok=(0, 128)) or await self._commit(wanted, root)
            await git("checkout", "--detach", commit, cwd=root)
            await git("submodule", "update", "--init", "--recursive", cwd=root)
            return
        if place.repository is None:
            raise WorkspaceError(f"{place.source} is no git repository with a commit: use another --workspace")
        commit = await self._commit(self._ref or "HEAD", place.source)
        if self.kind == "worktree":
            async with self._turns[place.repository]:
                await git("worktree", "add", "--detach", root, commit, cwd=place.source)
        else:
            await _clone_beside(git, place.source, root, commit)
        await self._add_submodules(Path(place.source), self.root)

    async def _commit(self, name: str, repository: str, ok: Sequence[int] = (0,)) -> str:
        """Return the hash of a commit; if `ok` has the code of a failure, nothing if there is no such commit."""
        asked = ("--verify", "--end-of-options", f"{name}^{{commit}}")
        found = os.fsdecode(await self._git("rev-parse", *asked, cwd=repository, ok=ok))
        return next((word for word in found.split() if not word.startswith("-")), "")

    async def _part_from(self, source: Path) -> None:
        """Give a copy repositories of its own where it would share those of the user: a `.git` that is a file.

        Their indexes then know the new files, so that no file has to be read again.
        """
        if not self._is_git:
            return
        git = self._git
        for path in await _repositories(git, self.root):
            link = path / ".git"
            if link.is_file():
                own = Path(path, link.read_text().removeprefix("gitdir:").strip()).resolve()
                if not own.is_relative_to(self.root):
                    original = source / path.relative_to(self.root)
                    commit = (await git("rev-parse", "HEAD", cwd=str(original))).decode().strip()
                    index = os.fsdecode(await git("rev-parse", "--git-path", "index", cwd=str(original))).rstrip("\n")
                    await _clone_beside(git, str(original), str(path / ".git-own"), commit, checkout=False)
                    shutil.copy2(original / index, path / ".git-own" / ".git" / "index")
                    link.unlink()
                    (path / ".git-own" / ".git").rename(link)
                    (path / ".git-own").rmdir()
            await git("update-index", "-q", "--refresh", cwd=str(path), ok=(0, 1))

    async def _add_submodules(self, source: Path, root: Path) -> None:
        """Check out the submodules that the user has checked out, from their copies; `git submodule` would fetch them,
        and write to the user's configuration."""
        for name, commit in await _submodules(self._git, root):
            if (source / name / ".git").exists():
                await _clone_beside(self._git, str(source / name), str(root / name), commit)
                await self._add_submodules(source / name, root / name)

    # -- changes ---------------------------------------------------------------------------------

    async def baseline(self, *, is_fresh: bool) -> None:
        """Record the current state. `is_fresh`: nothing has run in the workspace since it was made."""
        self.check()
        if self._is_git:
            is_clean = is_fresh and self.kind in ("worktree", "clone")
            with _told():
                for path in await _repositories(self._git, self.root):
                    shadow = await self._shadow(path, is_clean=is_clean)
                    head = await self._git("rev-parse", "HEAD^{tree}", cwd=str(path)) if is_clean else b""
                    self._shadows[path] = shadow, head.decode().strip() or await shadow.tree()
        elif self.kind == "copy":
            with suppress(GitError):  # it has files that git cannot store
                shadow = await self._shadow(self.root, is_clean=False)
                self._shadows[self.root] = shadow, await shadow.tree()
        self.is_ready = True

    async def _shadow(self, path: Path, *, is_clean: bool) -> Shadow:
        shadow = Shadow(self._store / str(len(self._shadows)), path, self._warn)
        await shadow.adopt(
            self._withheld, is_repository=self._is_git, is_clean=is_clean, has_only_copy=self._place.is_remote
        )
        return shadow

    async def changes(self, patch: Path) -> int | None:
        """Write the changes since `baseline` to a file; return its size, or None if there is no baseline."""
        if not self._shadows:
            return None
        patch.write_bytes(b"")
        for path, (shadow, before) in self._shadows.items():
            if path.is_dir() and os.path.realpath(path) == str(path):  # a link would show files of another place
                inside = "" if path == self.root else f"{path.relative_to(self.root)}/"
                part = self._store / "part.diff"
                with _told():
                    await shadow.write_diff(before, await shadow.tree(), part, inside)
                await asyncio.to_thread(_append, part, patch)
        return patch.stat().st_size

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


async def _clone_beside(git: _Git, source: str, target: str, commit: str, *, checkout: bool = True) -> None:
    """Clone a repository on this disk without copying its objects. The clone has the same origin."""
    await git("clone", "--shared", "--no-checkout", "--", source, target)
    url = os.fsdecode(await git("config", "--get", "remote.origin.url", cwd=source, ok=(0, 1))).rstrip("\n")
    if url:
        await git("remote", "set-url", "origin", url, cwd=target)
    else:
        await git("remote", "remove", "origin", cwd=target)  # a push must not end up in the user's repository
    if checkout:
        await git("checkout", "--detach", commit, cwd=target)
    else:
        await git("update-ref", "--no-deref", "HEAD", commit, cwd=target)


async def _submodules(git: _Git, root: Path) -> list[tuple[str, str]]:
    """Return path and commit of the submodules of a checkout."""
    found = []
    for line in (await git("ls-files", "-s", "-z", cwd=str(root), env=OFFLINE)).split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if facts.startswith(b"160000 "):
            found.append((os.fsdecode(name), facts.split()[1].decode()))
    return found


async def _repositories(git: _Git, root: Path) -> list[Path]:
    """Return a checkout and the submodules that are checked out in it, at any depth."""
    found = [root]
    for name, _ in await _submodules(git, root):
        if (root / name / ".git").exists():
            found += await _repositories(git, root / name)
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
