"""The workspace at the far side of a pipe: files and commands are there, the agent and its keys are here.

Operations are carried out by the helper there (`base/workspace/helper.py`). Where it cannot run, because there is no
Python, only shell commands work, each through a pipe of its own.
"""

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from spindle.base import limits
from spindle.base.process import Completed
from spindle.base.workspace import CommandOutput, Kept, P, Running, Sink, Work
from spindle.base.workspace.disk import ToolError, read_for_edit, real_paths
from spindle.base.workspace.pipe import Pipe, waited
from spindle.base.workspace.replacing import write_again
from spindle.base.workspace.texts import read_part
from spindle.tools.bare_shell import BareCommand
from spindle.tools.base import ToolSettings
from spindle.tools.files import run_abandonable
from spindle.tools.workspace import MARKS, shell_text

T = TypeVar("T")

_LINKS = """
command -v readlink >/dev/null || exit 1
for path; do readlink -f -- "$path" 2>/dev/null || printf '%s\\n' "$path"; done
"""
_STAYS_HERE = ("PI_SESSION_FILE",)
"""Variables of a session that mean nothing elsewhere."""


class Far:
    def __init__(self, pipe: Pipe, settings: ToolSettings) -> None:
        self._pipe = pipe
        self._settings = settings

    @property
    def home(self) -> str:
        return self._pipe.facts.home

    # -- files -----------------------------------------------------------------------------------

    async def do(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        id, result = await self._begin(work, args)
        try:
            return await result  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self._pipe.order(id, b"X")
            raise

    async def change(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        id, result = await self._begin(work, args)
        return await waited(result, lambda: self._pipe.order(id, b"X"))  # type: ignore[no-any-return]

    async def _begin(self, work: Callable[..., Any], args: Sequence[Any]) -> "tuple[int, asyncio.Future[Any]]":
        return await self._pipe.begin(b"C", {"name": work.__name__, "args": list(args)})

    async def edit(self, path: str, shown: str, cwd: str, largest: int, new: Callable[[bytes], tuple[bytes, T]]) -> T:
        data = await self.do(read_for_edit, path, shown, cwd, largest)
        changed, result = await run_abandonable(lambda cancel: new(data))
        await self.change(write_again, path, changed)
        return result

    async def real_paths(self, paths: list[str]) -> list[str]:
        """Return where paths lead, by whatever links. Raises `ToolError`."""
        await self._pipe.open()
        if self._pipe.facts.python:
            return await self.do(real_paths, paths)
        output = bytearray()
        command = f"set -- {' '.join(map(shlex.quote, paths))}\n{_LINKS}"
        code = await BareCommand(self._pipe, command, "/", {}, output.extend).wait()
        found = os.fsdecode(bytes(output)).splitlines()
        if code or len(found) != len(paths):
            raise ToolError("The far side does not tell where links lead, which permission rules have to know")
        return found

    def hides(self, path: str) -> bool:
        return False  # no process there has secrets of ours

    # -- programs --------------------------------------------------------------------------------

    async def ripgrep(self, options: Sequence[str], cwd: str, on_output: Sink, on_errors: Sink) -> Running:
        process = FarProcess(self._pipe, on_output, on_errors)
        return await process.begin({"argv": ["rg", *options], "cwd": cwd, "errors": True})

    async def run(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], *, only: bool = False, input: bytes | None = None
    ) -> Completed:
        """Run a program until it and its output have ended; with `only`, it gets no other variables.

        Raises `OSError`, `ToolError`.
        """
        output, errors = bytearray(), bytearray()
        process = FarProcess(self._pipe, output.extend, errors.extend)
        about = {"argv": list(argv), "cwd": cwd, "env": dict(env), "only": only, "input": input}
        await process.begin({**about, "errors": True, "untilClosed": True})
        await process.wait()
        return Completed(process.returncode, bytes(output), bytes(errors), False)

    def kept(self) -> "FarKept":
        return FarKept()

    async def shell(self, command: str, cwd: str, env: Mapping[str, str], on_output: Sink, kept: Kept) -> Running:
        await self._pipe.open()
        text = shell_text(command, self._settings)
        if not self._pipe.facts.python:
            return BareCommand(self._pipe, text, cwd, self._env(env), on_output)
        assert isinstance(kept, FarKept)
        process = FarProcess(self._pipe, on_output, news=kept.learn)
        return await process.begin({**self._request(text, cwd, env), "spool": True})

    async def background(
        self, command: str, cwd: str, env: Mapping[str, str], on_change: Callable[[], None]
    ) -> tuple[Running, CommandOutput]:
        output = FarOutput(self, on_change)
        process = FarProcess(self._pipe, lambda data: None, news=output.learn)
        request = self._request(shell_text(command, self._settings), cwd, env)
        await process.begin({**request, "file": True})
        output.path = str(process.about.get("path"))
        return process, output

    def _request(self, text: str, cwd: str, env: Mapping[str, str]) -> dict[str, Any]:
        keep = self._settings.keep_background_processes
        return {"command": text, "shell": self._settings.shell_path, "cwd": cwd, "env": self._env(env), "keep": keep}

    def _env(self, env: Mapping[str, str]) -> dict[str, str]:
        return MARKS | {name: value for name, value in env.items() if name not in _STAYS_HERE}


class FarProcess:
    """A program that the helper runs."""

    def __init__(
        self,
        pipe: Pipe,
        on_output: Sink,
        on_errors: Sink | None = None,
        news: Callable[[Any], None] = lambda value: None,
    ) -> None:
        self._pipe = pipe
        self._on_output = on_output
        self._on_errors = on_errors
        self._news = news
        self._id = 0
        self._result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.about: dict[str, Any] = {}
        self._early: list[tuple[bytes, bytes]] | None = []
        """Output that came before the caller has the process, and may not be ready for it."""
        self._silent = False

    async def begin(self, request: dict[str, Any]) -> "FarProcess":
        """Raises `ToolError`, `OSError`."""
        request = {"quiet": limits.CHILD_QUIET, "linger": limits.CHILD_LINGER, **request}
        self._id, self._result = await self._pipe.begin(b"S", request, self._take)
        try:
            await asyncio.wait([self._result, self._begun], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait([self._result], timeout=limits.CHILD_KILLED)
            self._pass_early()
            raise
        if not self._begun.done():
            self._result.result()
        asyncio.get_running_loop().call_soon(self._pass_early)
        return self

    def _take(self, kind: bytes, content: bytes) -> None:
        if kind == b"B":
            self.about = msgspec.json.decode(content, type=dict[str, Any])
            if not self._begun.done():
                self._begun.set_result(None)
        elif kind == b"N":
            self._news(msgspec.json.decode(content))
        elif self._early is not None:
            self._early.append((kind, content))
        elif not self._silent:
            self._pass_on(kind, content)

    def _pass_on(self, kind: bytes, content: bytes) -> None:
        sink = self._on_output if kind == b"O" or self._on_errors is None else self._on_errors
        sink(content)

    def _pass_early(self) -> None:
        early, self._early = self._early or [], None
        for kind, content in early:
            self._pass_on(kind, content)

    @property
    def pid(self) -> int:
        return int(self.about.get("pid", 0))

    @property
    def returncode(self) -> int:
        if not self._result.done() or self._result.cancelled() or self._result.exception() is not None:
            return -signal.SIGKILL
        return int(self._result.result()["code"])

    async def wait(self) -> int:
        """Return the exit code, 128 + n after signal n. Raises `ToolError` if the pipe breaks."""
        self._pass_early()
        try:
            await asyncio.wait([self._result])
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait([self._result], timeout=limits.CHILD_KILLED)
            raise
        finally:
            self._silent = True
        self._result.result()
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    async def stop(self, grace: float) -> None:
        if not self._result.done():
            self._pipe.order(self._id, b"T")
            await asyncio.wait([self._result], timeout=grace)
        self.kill()
        await asyncio.wait([self._result], timeout=limits.CHILD_KILLED)

    def on_end(self, call: Callable[[], None]) -> None:
        self._result.add_done_callback(lambda _: call())

    def pause(self) -> None:
        self._pipe.order(self._id, b"P")

    def resume(self) -> None:
        self._pipe.order(self._id, b"G")

    def kill(self) -> None:
        if not self._result.done():
            self._pipe.order(self._id, b"X")

    def kill_rest(self) -> None:
        self._pipe.order(self._id, b"X")


class FarKept:
    """The file with a whole output at the far side; the helper writes it."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.error: str | None = "the far side keeps no files"

    def learn(self, news: dict[str, Any]) -> None:
        self.path, self.error = news.get("path"), news.get("error")

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class FarOutput:
    """The file of a background command at the far side."""

    def __init__(self, far: Far, on_change: Callable[[], None]) -> None:
        self.path = ""
        self.size = 0
        self.dropped = 0
        self._far = far
        self._on_change = on_change

    def learn(self, news: dict[str, Any]) -> None:
        self.size, self.dropped = int(news["size"]), int(news["dropped"])
        self._on_change()

    async def part(self, begin: int, most: int) -> tuple[int, bytes]:
        start, data = await self._far.do(read_part, self.path, begin, most)
        return start, data

    def close(self) -> None:
        self._on_change = lambda: None
