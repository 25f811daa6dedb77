"""The workspace of an attempt at the far side of a pipe: started, worked in, compared, stopped.

`start` and `stop` are shell commands of the user that run here, around all other steps; what they begin and end is a
container, mostly. `{id}` in the command that gives the pipe stands for the name of the task's folder.
"""

import asyncio
import os
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from spindle.apps.batch.folder import Turns, WorkspaceError
from spindle.programs.search_path import on_path
from spindle.workspace.disk import ToolError
from spindle.workspace.far import Far
from spindle.workspace.pipe import Pipe
from spindle.workspace.replacing import write_all
from spindle.workspace.settings import ToolSettings

_TREE: Final = """
cd {cwd} && top=$(git rev-parse --show-toplevel 2>/dev/null) && cd "$top" || exit 1
GIT_INDEX_FILE=$(mktemp "$(git rev-parse --absolute-git-dir)/index.XXXXXX") || exit 1
export GIT_INDEX_FILE && rm -f "$GIT_INDEX_FILE"
exec 2>/dev/null
git read-tree HEAD; git -c core.safecrlf=false add -A .; git write-tree; rm -f "$GIT_INDEX_FILE"
"""
_COMMIT: Final = "cd {cwd} && git rev-parse --verify -q HEAD 2>/dev/null"
_PATCH: Final = """
cd {cwd} && exec git diff-tree -p --binary --full-index --no-ext-diff --no-textconv --no-renames {a} {b} -- 2>/dev/null
"""
_PLAIN: Final = {"LC_ALL": "C"}
"""Shells warn of a locale that they do not know, in the midst of the output."""

Command = Callable[[str, str], Awaitable[int]]
"""Runs a shell command here; takes its name for the log, and the command. Returns its exit code."""


class FarTask(Struct, frozen=True):
    """Where a task works, if it does not work here."""

    command: str
    cwd: str | None = None
    start: str | None = None
    stop: str | None = None


def far_task(
    folder: str, command: str | None, cwd: str | None, start: str | None, stop: str | None, image: str | None
) -> FarTask | None:
    """Return where a task works; None: here. Raises `WorkspaceError`.

    `image`: it works in a new container of this image.
    """
    if image is not None:
        if command is not None:
            raise WorkspaceError("A task works in a container, or where exec leads, not both")
        program = next((name for name in ("docker", "podman") if on_path(name)), None)
        if program is None:
            raise WorkspaceError("A container needs docker or podman, and there is neither on PATH")
        name = f"spindle-{folder[:40]}-{secrets.token_hex(4)}"
        begin = f"{program} run -d --rm --init --name {name} {shlex.quote(image)} sleep infinity"
        start = begin if start is None else f"{begin} && {{ {start}\n}}"
        end = f"{program} rm -f {name}"
        return FarTask(f"{program} exec -i {name}", cwd, start, end if stop is None else f"{{ {stop}\n}}; {end}")
    if command:
        return FarTask(command.replace("{id}", folder), cwd, start, stop)
    if start is not None or stop is not None:
        raise WorkspaceError("start and stop are for tasks that work elsewhere: name a container, or exec")
    return None


class FarSpace:
    """The workspace; it has the steps of `AttemptFolder`."""

    kind = "far"

    def __init__(self, task: FarTask, folder: Path, turns: Turns, env: Mapping[str, str], here: Command) -> None:
        self.task = task
        self.commit: str | None = None
        self.is_ready = False
        self.cwd = folder
        """The directory that the session belongs to, here."""
        self._turns = turns
        self._held: asyncio.Lock | None = None
        self._here = here
        self.pipe = Pipe(task.command, env)
        self._before = ""
        """The tree of the files at the beginning, if they are in a repository."""

    async def take_turn(self) -> None:
        """Wait until no other task works there."""
        lock = self._turns[f"at {self.task.command} {self.task.cwd}"]
        await lock.acquire()
        self._held = lock

    async def make(self) -> None:
        """Start the far side, and open the pipe to it. Raises `WorkspaceError`."""
        if self.task.start is not None and (code := await self._here("start", self.task.start)):
            raise WorkspaceError(f"start ended with {code}, see the log")
        try:
            await self.pipe.open()
        except ToolError as error:
            raise WorkspaceError(str(error)) from None
        self.commit = (await self._said(_COMMIT)).strip() or None

    def check(self) -> None:
        pass  # a link there leads nowhere here

    @property
    def workdir(self) -> str:
        facts = self.pipe.facts
        return facts.cwd if self.task.cwd is None else str(Path(facts.cwd, self.task.cwd))

    async def _shell(self, script: str, on_output: Callable[[bytes], None]) -> int:
        try:
            running = await Far(self.pipe, ToolSettings()).shell(script, self.workdir, _PLAIN, on_output)
            return await running.wait()
        except ToolError as error:
            raise WorkspaceError(str(error)) from None

    async def _said(self, script: str, **words: str) -> str:
        output = bytearray()
        text = script.format(cwd=shlex.quote(self.workdir), **words)
        code = await self._shell(text, output.extend)
        return "" if code else output.decode("utf-8", "replace")

    async def baseline(self, *, is_fresh: bool) -> None:
        self._before = (await self._said(_TREE)).strip()
        self.is_ready = True

    async def changes(self, patch: Path) -> int | None:
        """Write the changes since `baseline` to a file; return its size, or None if there is no baseline."""
        after = (await self._said(_TREE)).strip() if self._before else ""
        if not after:
            return None
        command = _PATCH.format(cwd=shlex.quote(self.workdir), a=self._before, b=after)
        file = os.open(patch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            await self._shell(command, lambda data: write_all(file, data))
        finally:
            os.close(file)
        return patch.stat().st_size

    async def leave(self, *, keep: bool) -> None:
        """Stop the far side, whatever has happened."""
        try:
            await self.pipe.close()
            if self.task.stop is not None:
                with suppress(OSError):
                    await self._here("stop", self.task.stop)
        finally:
            if self._held is not None:
                self._held.release()
                self._held = None
