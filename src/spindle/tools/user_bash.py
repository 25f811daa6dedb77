"""Shell commands of the user (the `bash` command of the wire), not of the model: plain text, no time limit."""

import asyncio
import codecs
from collections.abc import Callable, Mapping
from typing import Protocol

from spindle.shapes.content import Wire
from spindle.tools.base import ToolSettings
from spindle.tools.output import OutputBuffer
from spindle.tools.sanitize import Sanitizer
from spindle.tools.shell import start_shell

__all__ = ["BashResult", "Pace", "run_user_bash"]


class BashResult(Wire, kw_only=True):
    output: str
    exit_code: int | None = None
    """None if it was cancelled."""
    cancelled: bool
    truncated: bool
    full_output_path: str | None = None
    total_lines: int = 0
    total_bytes: int = 0
    output_lines: int = 0
    output_bytes: int = 0


class Pace(Protocol):
    """Those who get the pieces, as far as they keep up with them."""

    @property
    def congested(self) -> bool:
        """Whether they are behind."""

    async def room(self) -> None:
        """Return when they are not (any more)."""


async def run_user_bash(
    command: str,
    cwd: str,
    settings: ToolSettings,
    on_delta: Callable[[str], None] = lambda delta: None,
    env: Mapping[str, str] | None = None,
    pace: Pace | None = None,
) -> BashResult:
    """Run `command` and return the end of its output; pieces go to `on_delta` as they come, uncut.

    The command has to wait with its output while `pace` says so. Give it a task of its own: cancelling the task kills
    the command and makes it return what came so far, marked `cancelled`. Raises `ToolError` only if the shell cannot
    be started.
    """
    buffer = OutputBuffer()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    sanitizer = Sanitizer()
    pausing: asyncio.Task[None] | None = None

    def pass_on(clean: str) -> None:
        nonlocal pausing
        if not clean:
            return
        buffer.write(clean.encode())
        on_delta(clean)
        if pace is not None and pace.congested and (pausing is None or pausing.done()):
            process.pause()
            pausing = asyncio.create_task(go_on(pace))

    async def go_on(pace: Pace) -> None:
        await pace.room()
        process.resume()

    process = start_shell(command, cwd, settings, env or {}, lambda data: pass_on(sanitizer.feed(decoder.decode(data))))
    exit_code: int | None = None
    try:
        exit_code = await process.wait()
    except asyncio.CancelledError:
        pass
    finally:
        pass_on(sanitizer.feed(decoder.decode(b"", True)) + sanitizer.flush())
        if pausing is not None:
            pausing.cancel()
        buffer.close()
    cut = buffer.snapshot()
    return BashResult(
        output=cut.content,
        exit_code=exit_code,
        cancelled=exit_code is None,
        truncated=cut.truncated,
        full_output_path=buffer.path,
        total_lines=cut.total_lines,
        total_bytes=cut.total_bytes,
        output_lines=cut.output_lines,
        output_bytes=cut.output_bytes,
    )
