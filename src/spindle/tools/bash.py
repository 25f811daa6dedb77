"""The `bash` tool: run a shell command, report its output while it runs, keep the end of it."""

import asyncio
import math
import os
import re
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from spindle.shapes.builtin_tools import OUTPUT_TOOL
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import (
    Tool,
    ToolContext,
    ToolError,
    arguments,
    format_size,
    renamed,
    text_result,
)
from spindle.tools.truncate import HEAD_LINES, MAX_BYTES, MAX_LINES, OutputBuffer, TruncationResult
from spindle.workspace import Running
from spindle.workspace.disk import may_run
from spindle.workspace.unfenced import NO_SANDBOX

_UPDATE_INTERVAL = 0.1
_MAX_TIMEOUT = 2147483.647


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    timeout = check_timeout(args.get("timeout"))
    sandbox = ctx.settings.sandbox
    if ctx.terminals is not None and sandbox.level == "off":
        from spindle.tools.terminal import run_in_terminal

        return await run_in_terminal(ctx.terminals, call_id, args["command"], timeout, ctx)
    buffer = OutputBuffer(ctx.workspace.kept())
    progress = _OutputProgress(buffer, ctx.update)
    process: Running | None = None
    code: int | None = None
    ending = ""
    try:
        async with asyncio.timeout(timeout):
            process = await ctx.workspace.shell(args["command"], ctx.cwd, ctx.env, progress.write, buffer.kept)
            progress.begin()
            code = await process.wait()
    except TimeoutError:
        ending = timed_out(timeout)
    except asyncio.CancelledError:
        ending = ABORTED
    except ToolError as error:  # there is no shell, or the pipe to the far side broke
        ending = str(error)
    finally:
        buffer.close()
        progress.finish()
    if code and process is not None and await sandbox.may_run_outside(process):
        outside = replace(ctx, settings=replace(ctx.settings, sandbox=NO_SANDBOX))
        return await _execute(call_id, args, outside)
    hint = await _script_here(args["command"], buffer, ctx) if code == NOT_FOUND else ""
    return ended(buffer, code, ending, hint)


NOT_FOUND = 127
_MISSING = r"(?m)^.*?(?:line \d+: |: )?([\w.-]+): (?:command )?not found$"


_INTERPRETERS = {".py": "python3 ", ".sh": "sh ", ".bash": "bash ", ".js": "node ", ".rb": "ruby ", ".pl": "perl "}
"""For files that may not be executed."""


async def _script_here(command: str, buffer: OutputBuffer, ctx: ToolContext) -> str:
    """Return what helps if the program that was not found is a file of the folder in which it was looked for."""
    names = re.findall(_MISSING, buffer.truncated().content)
    entered = re.findall(r"\bcd +([\w./-]+) *(?:&&|;|\n)", command)
    folders = [os.path.join(ctx.cwd, *entered), ctx.cwd] if entered else [ctx.cwd]
    for folder in folders if names else ():
        name = names[-1]
        if (runs := await ctx.workspace.do(may_run, os.path.join(folder, name))) is not None:
            by = "" if runs else _INTERPRETERS.get(os.path.splitext(name)[1], "")
            where = "in the working directory" if folder == ctx.cwd else f"in {entered[-1]}"
            return f"{name} is a file {where}: run it as {by}./{name}"
    return ""


ABORTED = "Command aborted"


def timed_out(timeout: float | None) -> str:
    from spindle.tools.json_schema import format_number

    return f"Command timed out after {format_number(timeout or 0)} seconds"


def ended(buffer: OutputBuffer, code: int | None, ending: str, hint: str = "") -> ToolResult:
    """Return the result of a command; `code` is None if it was ended, and `ending` says why. `hint` helps on.

    Raises `ToolError`, with the same text, unless the exit code is 0.
    """
    cut = buffer.truncated()
    text = _head_and_tail(cut, buffer) if cut.truncated else cut.content
    if code is not None:
        ending = f"{_EXITED}{code}" if code else ""
        if code and not text:
            ending += _in_words(code)
        text = text or "(no output)"
    if ending:
        raise ToolError("\n\n".join(filter(None, (text, hint, ending))))
    return text_result(text, _details(cut, buffer))


_EXITED = "Command exited with code "


def exit_code(text: str) -> int | None:
    """Return the exit code that the text of an error result tells; None if the command was ended, or never ran."""
    found = re.search(rf"^{_EXITED}(\d+)(?: \(.*\))?\Z", text, re.MULTILINE)
    return int(found[1]) if found else None


_EXIT_WORDS = {
    1: "many programs mean an error by that; grep, diff and test mean no",
    2: "usually wrong arguments",
    124: "usually a time-out",
    126: "the program may not be executed",
    127: "the program was not found",
}


def _in_words(code: int) -> str:
    """Return what the exit code of a command without output tells."""
    if 128 < code < 128 + signal.NSIG:
        with suppress(ValueError):
            return f" (ended by {signal.Signals(code - 128).name})"
    return f" ({_EXIT_WORDS[code]})" if code in _EXIT_WORDS else ""


async def _execute_either(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    if args.get("background") and ctx.start_background is not None:
        return await ctx.start_background(args, ctx)
    return await _execute(call_id, args, ctx)


_OTHER_NAMES = {"run_in_background": "background", "is_background": "background"}
_WITHOUT = ("stdin", "input", "env", "environment", "shell", "user", "interactive", "max_output_tokens")
"""Options of other programs without which a command may do something else."""
_OTHER_FOLDERS = ("workdir", "cwd", "directory", "dir_path")
_SHELLS = ("sh", "bash", "zsh", "/bin/sh", "/bin/bash", "/bin/zsh")


def _prepare(args: Any) -> Any:
    """Take what models of other programs send. Raises `ToolError` for a folder that would not be used."""
    if not isinstance(args, dict):
        return args
    args = dict(renamed(args, _OTHER_NAMES))
    for name in _OTHER_FOLDERS:
        if args.pop(name, None) not in (None, "", ".", "./"):
            raise ToolError(f"bash has no option {name}. Begin the command with cd, as in: cd folder && command")
    if (milliseconds := args.pop("timeout_ms", None)) is not None and isinstance(milliseconds, int | float):
        args.setdefault("timeout", milliseconds / 1000)
    words = args.get("command")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        in_shell = len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc")
        args["command"] = words[2] if in_shell else shlex.join(words)
    return args


_LIKE_MILLISECONDS = 10_000


def _doubt(args: dict[str, Any]) -> str:
    """Tell models that count in milliseconds elsewhere what their time-out is here, and what they sent in vain."""
    told = [f"bash has no option {name}: the command ran without it." for name in _WITHOUT if args.get(name)]
    timeout = args.get("timeout")
    if isinstance(timeout, int | float) and timeout >= _LIKE_MILLISECONDS:
        told.append(f"The timeout of bash is in seconds: {timeout:.0f} are {timeout / 3600:.1f} hours.")
    return " ".join(told)


class _OutputProgress:
    """Passes output on: the first piece at once, then the whole output so far, at most every 100 ms."""

    def __init__(self, buffer: OutputBuffer, update: Callable[[ToolResult], None]) -> None:
        self._buffer = buffer
        self._update = update
        self._loop = asyncio.get_running_loop()
        self._last = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        """Set while there is output that has not been passed on."""

    def begin(self) -> None:
        """Say that the command runs, in the same shape as later updates: clients look at the first block."""
        self._update(ToolResult([Text("")], _details(self._buffer.truncated(), self._buffer)))

    def write(self, data: bytes) -> None:
        self._buffer.write(data)
        if self._timer is None:
            wait = self._last + _UPDATE_INTERVAL - self._loop.time()
            if wait <= 0:
                self._send()
            else:
                self._timer = self._loop.call_later(wait, self._send)

    def finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._send()

    def _send(self) -> None:
        self._timer = None
        self._last = self._loop.time()
        cut = self._buffer.truncated()
        self._update(ToolResult([Text(cut.content)], _details(cut, self._buffer)))


def check_timeout(timeout: float | None) -> float | None:
    if not timeout:  # 0 is what models send for "no limit"
        return None
    if not math.isfinite(timeout) or timeout < 0:
        raise ToolError("Invalid timeout: must be a finite number of seconds")
    if timeout > _MAX_TIMEOUT:
        raise ToolError(f"Invalid timeout: maximum is {_MAX_TIMEOUT} seconds")
    return timeout


def _details(cut: TruncationResult, buffer: OutputBuffer) -> dict[str, Any]:
    """Return the keys that clients look for; null where nothing was cut."""
    if not cut.truncated:
        return {"truncation": None, "fullOutputPath": None}
    return {"truncation": cut, "fullOutputPath": buffer.path or None}


def _head_and_tail(cut: TruncationResult, buffer: OutputBuffer) -> str:
    """Return the beginning of a long output, its end, and where the whole is."""
    last = cut.total_lines
    first = last - cut.output_lines + 1
    if cut.last_line_partial:
        whole = format_size(buffer.last_line_bytes)
        shown = f"last {format_size(cut.output_bytes)} of line {last} (line is {whole})"
    else:
        shown = f"lines {first}-{last} of {last}"
        if cut.truncated_by == "bytes":
            shown += f" ({format_size(MAX_BYTES)} limit)"
    head = buffer.head(min(HEAD_LINES, max(first - 1, int(cut.last_line_partial))))
    begin = f"{head}\n\n[… The middle is left out. The end of the output is: …]\n\n" if head else ""
    return f"{begin}{cut.content}\n\n[Showing {shown}. Full output: {buffer.location}]"


TOOL = Tool(
    name="bash",
    description=(
        "Run a shell command in the working directory and return its stdout and stderr: of long output the beginning, "
        f"the last {MAX_LINES} lines or {MAX_BYTES // 1024}KB, and the path of a temporary file with all of it."
    ),
    parameters=arguments(
        "command",
        command="Command line for bash",
        timeout=("number", "Seconds after which the command is killed; default: never"),
    ),
    execute=_execute,
    snippet="Run shell commands (ls, grep, find, builds, tests)",
    prepare=_prepare,
    doubt=_doubt,
)
_BACKGROUND = {"type": "boolean", "description": "Do not wait for its end"}
_EITHER = replace(
    TOOL,
    parameters={**TOOL.parameters, "properties": {**TOOL.parameters["properties"], "background": _BACKGROUND}},
    execute=_execute_either,
)
TOOL = replace(TOOL, beside={OUTPUT_TOOL: _EITHER})
