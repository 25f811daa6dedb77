"""The workspace of this machine: operations in threads and children, behind the sandbox if there is one."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from spindle.programs.children import Keep, environment
from spindle.programs.search_path import find_ripgrep
from spindle.workspace import NO_FINDINGS, CommandOutput, Findings, KeptOutput, P, Running, Sink, Work
from spindle.workspace.disk import (
    Cancel,
    ToolError,
    doing,
    find_shell,
    holds_secrets,
    read_for_edit,
)
from spindle.workspace.replacing import write_again
from spindle.workspace.settings import SESSION_VARIABLES, ToolSettings
from spindle.workspace.texts import OutputFile, Spool, read_output, well_formed
from spindle.workspace.threads import run_abandonable, run_to_end

if TYPE_CHECKING:  # loaded with the first child
    from spindle.programs.process import Process

T = TypeVar("T")

_LOOK = 0.1
"""Seconds between two looks at the file of a background command."""


class Local:
    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings

    @property
    def home(self) -> str:
        return os.path.expanduser("~")

    async def do(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_abandonable(lambda cancel: work(cancel, *args, **kwargs), self._settings)

    async def change(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_to_end(lambda cancel: work(cancel, *args, **kwargs), self._settings)

    async def edit(self, path: str, shown: str, cwd: str, largest: int, new: Callable[[bytes], tuple[bytes, T]]) -> T:
        def carry_out(cancel: Cancel) -> T:
            data, result = new(read_for_edit(cancel, path, shown, cwd, largest))
            write_again(cancel, path, data)
            return result

        return await run_to_end(carry_out, self._settings)

    async def real_paths(self, paths: list[str]) -> list[str]:
        return [os.path.realpath(path) for path in paths]

    def hides(self, path: str) -> bool:
        return holds_secrets(path)

    async def ripgrep(self, options: Sequence[str], cwd: str, on_output: Sink, on_errors: Sink) -> Running:
        from spindle.programs.process import Process

        settings = self._settings
        rg = find_ripgrep(settings.bin_dir)
        if rg is None:
            raise ToolError("ripgrep (rg) is not available")
        return Process(
            [rg, *options],
            cwd=cwd,
            env=environment(settings.withheld_variables),
            on_output=on_output,
            on_errors=on_errors,
            owner=settings.owner,
            fence=settings.sandbox.inner,
        )

    async def look_at(self, path: str, words: Sequence[str], cwd: str, seconds: float) -> Findings:
        from spindle.programs.process import run

        if not os.path.isfile(path):
            return NO_FINDINGS
        settings, sandbox = self._settings, self._settings.sandbox
        env = environment(settings.withheld_variables, settings.variables)
        remarks = sandbox.begin()
        try:
            ended = await run(
                words,
                cwd=cwd,
                env=sandbox.environment(env),
                owner=settings.owner,
                timeout=seconds,
                grace=0,
                fence=sandbox.fence,
            )
        except (OSError, ValueError):
            return NO_FINDINGS._replace(remarks=remarks)
        finally:
            remarks += sandbox.finish()
        return Findings(ended.timed_out or ended.code == 0, ended.output + ended.errors, remarks)

    def kept(self) -> KeptOutput:
        return Spool()

    async def shell(
        self, command: str, cwd: str, env: Mapping[str, str], on_output: Sink, kept: KeptOutput | None = None
    ) -> Running:
        return self._shell(command, cwd, env, on_output, self._settings.keep_background_processes)

    async def background(
        self, command: str, cwd: str, env: Mapping[str, str], on_change: Callable[[], None]
    ) -> tuple[Running, CommandOutput]:
        with doing("open"):
            output = OutputFile()
        try:
            keep: Keep = "program" if self._settings.keep_background_processes else False
            process = self._shell(command, cwd, env, output.file, keep)
        except BaseException:
            output.remove()
            raise
        return process, _LocalOutput(output, on_change)

    def _shell(self, command: str, cwd: str, env: Mapping[str, str], on_output: Sink | int, keep: Keep) -> "Process":
        settings = self._settings
        argv = shell_line(command, cwd, settings)
        with doing("spawn", argv[0]):
            return settings.sandbox.start(
                command,
                argv,
                cwd=cwd,
                env=_child_env(settings, env),
                on_output=on_output,
                owner=settings.owner,
                keep=keep,
            )


class _LocalOutput:
    """The file of a background command, which is looked at now and then."""

    def __init__(self, output: OutputFile, on_change: Callable[[], None]) -> None:
        self._output = output
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_LOOK, self._look)

    @property
    def path(self) -> str:
        return self._output.path

    @property
    def size(self) -> int:
        return self._output.size

    @property
    def dropped(self) -> int:
        return self._output.dropped

    async def part(self, begin: int, most: int) -> tuple[int, bytes]:
        with doing("open", self.path):
            return read_output(self.path, begin, most, self._output.file)

    def close(self) -> None:
        self._timer.cancel()
        self._output.close()

    def _look(self) -> None:
        if self._output.look():
            self._on_change()
        self._timer = self._loop.call_later(_LOOK, self._look)


def shell_line(command: str, cwd: str, settings: ToolSettings) -> list[str]:
    """Return the program and the arguments that run a command in a directory. Raises `ToolError`."""
    text = shell_text(command, settings)
    return [find_shell(cwd, settings.shell_path), "-c", text]


def shell_text(command: str, settings: ToolSettings) -> str:
    """Return a command as the user's shell gets it. Raises `ToolError`."""
    if settings.shell_command_prefix:
        command = f"{settings.shell_command_prefix}\n{command}"
    if "\0" in command:
        raise ToolError("Command must not contain null bytes")
    return well_formed(command)


def _child_env(settings: ToolSettings, extra: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with our own programs on PATH, the marks of an agent, and `extra`."""
    env = environment(withheld(settings))
    path = env.get("PATH", "")
    if settings.bin_dir and settings.bin_dir not in path.split(os.pathsep):
        env["PATH"] = f"{settings.bin_dir}{os.pathsep}{path}" if path else settings.bin_dir
    return {**env, **MARKS, **extra}


MARKS = {"PI_CODING_AGENT": "true", "AI_AGENT": "pi"}


def withheld(settings: ToolSettings) -> set[str]:
    """Return the names of variables that a shell does not get from us."""
    # Session variables in our environment belong to an agent that started us.
    return {*SESSION_VARIABLES, *settings.withheld_variables}
