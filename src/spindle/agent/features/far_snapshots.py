"""States of a folder at the far side of a pipe. Files and objects are there; the manifests of states are here.

Git runs there, with a git directory in the cache of the user there (`base/workspace/states.py`). A far side that is
thrown away takes the objects with it: then a state cannot be put back, and says so.
"""

import asyncio
import hashlib
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spindle.base import limits
from spindle.base.differences import Differences
from spindle.base.git import GitError, Shadow
from spindle.base.inventory import LARGEST
from spindle.base.snapshots import MOST_BYTES, MOST_BYTES_OUTSIDE, MOST_FILES, MOST_FILES_OUTSIDE, Snapshots
from spindle.base.states import Change, Copy, State
from spindle.base.workspace.disk import ToolError
from spindle.base.workspace.pipe import Pipe
from spindle.base.workspace.states import git_environment, git_place, keep_file, last_line, put_files_back, take_state
from spindle.tools.base import ToolSettings
from spindle.tools.elsewhere import Far


class FarShadow(Shadow):
    """Git at the far side, for states that `take_state` has recorded."""

    def __init__(self, far: Far, root: Path, name: str) -> None:
        super().__init__(Path(), root, lambda text: None)
        self._far = far
        self._name = name
        self.place = ""
        """The git directory there."""

    async def open(self) -> str:
        """Return the git directory there, which is made if it is missing. Raises `GitError`."""
        try:
            self.place = self.place or await self._far.do(git_place, self._name)
        except (ToolError, OSError) as error:
            raise GitError(str(error)) from None
        return self.place

    async def _run(
        self,
        name: str,
        *arguments: str,
        input: bytes | None = None,
        settings: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        ok: Sequence[int] = (0,),
    ) -> bytes:
        place = await self.open()
        values = git_environment(place, place) | dict(env or {})  # what was recorded is enough for these commands
        try:
            async with asyncio.timeout(limits.GIT):
                done = await self._far.run(["git", *settings, name, *arguments], place, values, input=input)
        except TimeoutError:
            raise GitError(f"git {name} took more than {limits.GIT:g} s") from None
        except (ToolError, OSError) as error:
            raise GitError(f"git {name}: {error}") from None
        if done.code not in ok:
            raise GitError(f"git {name}: {last_line(done.errors, done.code)}")
        return done.output


class FarDifferences(Differences):
    def __init__(self, shadow: FarShadow, far: Far, root: Path) -> None:
        super().__init__(shadow, root, Path())
        self._there = shadow
        self._far = far

    async def _new_index(self) -> Path:
        return Path(await self._there.open(), f"copies-{uuid.uuid4().hex[:8]}")

    async def not_to_remove(self, changes: Sequence[Change], target: State) -> set[str]:
        """Return files that may have been ignored in the target state: all, if another file says what is ignored."""
        if not any(os.path.basename(change.path) == ".gitignore" for change in changes):
            return set()
        return {change.path for change in changes if change.after is None and not change.path.startswith("/")}

    async def put_back(self, changes: Sequence[Change], target: State) -> dict[str, str]:
        listed: list[Any] = [
            (one.path, one.before is not None, None if one.after is None else (one.after.mode, one.after.oid))
            for one in changes
        ]
        about = {"modes": target.modes, "folders": target.folders}
        try:
            place = await self._there.open()
            return await self._far.change(put_files_back, place, str(self._root), listed, about, self.usual[2])
        except ToolError as error:
            raise GitError(str(error)) from None


class FarSnapshots(Snapshots):
    def __init__(self, stores: Path, pipe: Pipe, settings: ToolSettings) -> None:
        root = Path(pipe.root)
        super().__init__(stores / _digest(pipe.command), root, is_repository=pipe.in_repository)
        far = Far(pipe, settings)
        self._far = far
        self._there = FarShadow(far, root, _digest(pipe.root))
        self.differences = FarDifferences(self._there, far, root)
        self._names: set[str] = set()
        """Files in the tree of the last state, if there is one."""
        self._is_known = False

    def _clear_up(self) -> None:
        pass  # the operations there do it

    async def _open(self) -> None:
        (self.store / "states").mkdir(parents=True, mode=0o700, exist_ok=True)

    def _keep_objects(self, state: State) -> None:
        pass  # git there throws nothing away

    async def _drop(self, states: Sequence[Path]) -> None:
        for path in states:
            path.unlink(missing_ok=True)

    async def now(self) -> State:
        await self._open()
        state = State(str(self.root), time.time())
        most = (MOST_FILES, MOST_BYTES) if self._is_repository else (MOST_FILES_OUTSIDE, MOST_BYTES_OUTSIDE)
        try:
            place = await self._there.open()
            found = await self._far.do(take_state, place, str(self.root), [LARGEST, *most], self._is_known)
        except ToolError as error:
            self._is_known = False
            raise GitError(str(error)) from None
        if found["tree"] is None:
            self._is_known = False
            return self._without_tree(state)
        self._names = (self._names if self._is_known else set()).difference(found["gone"]).union(found["there"])
        self._is_known = True
        self.differences.usual = tuple(found["usual"])
        state.tree, state.files, state.modes = found["tree"], found["files"], found["modes"]
        state.folders, state.skipped = found["folders"], found["skipped"]
        return state

    def has_in_tree(self, path: str) -> bool:
        return os.path.relpath(path, self.root) in self._names

    async def copy(self, path: str) -> Copy | None:
        try:
            found = await self._far.do(keep_file, await self._there.open(), str(self.root), path, LARGEST)
        except ToolError as error:
            raise GitError(str(error)) from None
        return None if found is None else Copy(*found)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
