"""The workspace at the far side of a pipe: files and commands are there, the agent and its keys are here.

Operations are carried out by the helper there (`workspace/helper.py`). Where it cannot run, because there is no
Python, only shell commands work, each through a pipe of its own.
"""

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_type_hints

from msgspec import Struct

from spindle.base import limits
from spindle.base.strangers import MAX_BYTES, StrangerError, read_json, shaped
from spindle.workspace import NO_FINDINGS, CommandOutput, Findings, KeptOutput, P, Running, Sink, Work
from spindle.workspace.bare_shell import BareCommand
from spindle.workspace.disk import ToolError, read_for_edit, real_paths
from spindle.workspace.local import MARKS, shell_text
from spindle.workspace.pipe import FarError, Pipe, waited
from spindle.workspace.replacing import write_again
from spindle.workspace.settings import ToolSettings
from spindle.workspace.texts import read_part
from spindle.workspace.threads import run_abandonable

T = TypeVar("T")

_LINKS = """
command -v readlink >/dev/null || exit 1
for path; do readlink -f -- "$path" 2>/dev/null || printf '%s\\n' "$path"; done
"""
_NOT_RUN = (126, 127)
"""What a shell says of a program that it cannot run."""
_STAYS_HERE = ("PI_SESSION_FILE", "SPINDLE_TASK_DIR")
"""Variables with paths of this machine, which mean nothing elsewhere."""


class _Begun(Struct):
    """A program that has begun there."""

    pid: int
    path: str | None = None


class _Ended(Struct):
    code: int


class _KeptNews(Struct):
    """News of the file with a whole output."""

    path: str | None
    error: str | None


class _OutputNews(Struct):
    """News of the file of a background command."""

    size: int
    dropped: int


@cache
def _result_of(work: Callable[..., Any]) -> Any:
    return get_type_hints(work)["return"]


def _slow(work: Callable[..., Any]) -> FarError:
    return FarError(f"The far side did not answer within {limits.FAR_CALL:g} s ({work.__name__})")


class _Held(bytearray):
    """Output that is wanted as a whole."""

    def take(self, data: bytes) -> None:
        if len(self) + len(data) > MAX_BYTES:
            raise StrangerError(f"more than {MAX_BYTES >> 20} MB of output")
        self.extend(data)


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
            async with asyncio.timeout(limits.FAR_CALL):
                return await result  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self._pipe.give_up(id)
            raise
        except TimeoutError:
            self._pipe.give_up(id)
            raise _slow(work) from None

    async def change(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        id, result = await self._begin(work, args)
        try:
            return await waited(result, lambda: self._pipe.order(id, b"X"))  # type: ignore[no-any-return]
        except TimeoutError:
            self._pipe.give_up(id)
            raise _slow(work) from None

    async def _begin(self, work: Callable[..., Any], args: Sequence[Any]) -> "tuple[int, asyncio.Future[Any]]":
        return await self._pipe.begin(b"C", {"name": work.__name__, "args": list(args)}, _result_of(work))

    async def edit(self, path: str, shown: str, cwd: str, largest: int, new: Callable[[bytes], tuple[bytes, T]]) -> T:
        data = await self.do(read_for_edit, path, shown, cwd, min(largest, MAX_BYTES))
        changed, result = await run_abandonable(lambda cancel: new(data))
        await self.change(write_again, path, changed)
        return result

    async def real_paths(self, paths: list[str]) -> list[str]:
        await self._pipe.open()
        if self._pipe.facts.python:
            return await self.do(real_paths, paths)
        output = _Held()
        command = f"set -- {' '.join(map(shlex.quote, paths))}\n{_LINKS}"
        code = await BareCommand(self._pipe, command, "/", {}, output.take).wait()
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

    async def look_at(self, path: str, words: Sequence[str], cwd: str, seconds: float) -> Findings:
        output = bytearray()
        line = f"test ! -f {shlex.quote(path)} || {shlex.join(words)}"
        try:
            async with asyncio.timeout(seconds):
                running = await self.shell(line, cwd, self._settings.variables, output.extend)
                code = await running.wait()
        except (ToolError, TimeoutError):
            return NO_FINDINGS
        return Findings(code in (0, *_NOT_RUN), bytes(output))

    def kept(self) -> "FarKept":
        return FarKept()

    async def shell(
        self, command: str, cwd: str, env: Mapping[str, str], on_output: Sink, kept: KeptOutput | None = None
    ) -> Running:
        await self._pipe.open()
        text = shell_text(command, self._settings)
        if not self._pipe.facts.python:
            return BareCommand(self._pipe, text, cwd, self._env(env), on_output)
        news = kept.learn if isinstance(kept, FarKept) else self._pipe.unwanted
        process = FarProcess(self._pipe, on_output, news=news)
        return await process.begin({**self._request(text, cwd, env), "spool": kept is not None})

    async def background(
        self, command: str, cwd: str, env: Mapping[str, str], on_change: Callable[[], None]
    ) -> tuple[Running, CommandOutput]:
        output = FarOutput(self, on_change)
        process = FarProcess(self._pipe, self._pipe.unwanted, news=output.learn)
        request = self._request(shell_text(command, self._settings), cwd, env)
        await process.begin({**request, "file": True})
        output.path = process.about.path or ""
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
        news: Callable[[bytes], None] = lambda content: None,
    ) -> None:
        self._pipe = pipe
        self._on_output = on_output
        self._on_errors = on_errors
        self._news = news
        self._id = 0
        self._result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.about = _Begun(0)
        self._early: list[tuple[bytes, bytes]] | None = []
        """Output that came before the caller has the process, and may not be ready for it."""
        self._silent = False

    async def begin(self, request: dict[str, Any]) -> "FarProcess":
        """Raises `ToolError`, `OSError`."""
        request = {"quiet": limits.CHILD_QUIET, "linger": limits.CHILD_LINGER, **request}
        self._id, self._result = await self._pipe.begin(b"S", request, _Ended, self._take)
        try:
            waiting = [self._result, self._begun]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=limits.FAR_CALL)
        except asyncio.CancelledError:
            await self._killed()
            self._pass_early()
            raise
        if not self._begun.done():
            if not self._result.done():
                self._pipe.give_up(self._id)
                raise FarError(f"The far side did not begin the program within {limits.FAR_CALL:g} s")
            self._result.result()
        asyncio.get_running_loop().call_soon(self._pass_early)
        return self

    def _take(self, kind: bytes, content: bytes) -> None:
        """Raises `StrangerError`."""
        if kind == b"B":
            self.about = shaped(read_json(content), _Begun)
            if not self._begun.done():
                self._begun.set_result(None)
        elif kind == b"N":
            self._news(content)
        elif kind not in (b"O", b"E") or not self._begun.done():
            self._pipe.unwanted(content)
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
        return self.about.pid

    @property
    def returncode(self) -> int:
        if not self._result.done() or self._result.cancelled() or self._result.exception() is not None:
            return -signal.SIGKILL
        return int(self._result.result().code)

    async def wait(self) -> int:
        """Return the exit code, 128 + n after signal n. Raises `ToolError` if the pipe breaks."""
        self._pass_early()
        try:
            await asyncio.wait([self._result])
        except asyncio.CancelledError:
            await self._killed()
            raise
        finally:
            self._silent = True
        self._result.result()
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    async def stop(self, grace: float) -> None:
        if not self._result.done():
            self._pipe.order(self._id, b"T")
            await asyncio.wait([self._result], timeout=grace)
        await self._killed()

    async def _killed(self) -> None:
        self.kill()
        await asyncio.wait([self._result], timeout=limits.CHILD_KILLED)
        if not self._result.done():
            self._pipe.give_up(self._id, 0)

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

    def learn(self, content: bytes) -> None:
        news = shaped(read_json(content), _KeptNews)
        self.path, self.error = news.path, news.error

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

    def learn(self, content: bytes) -> None:
        news = shaped(read_json(content), _OutputNews)
        self.size, self.dropped = news.size, news.dropped
        self._on_change()

    async def part(self, begin: int, most: int) -> tuple[int, bytes]:
        start, data = await self._far.do(read_part, self.path, begin, most)
        return start, data

    def close(self) -> None:
        self._on_change = lambda: None
