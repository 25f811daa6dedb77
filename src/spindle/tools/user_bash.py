"""Shell commands of the user (the `bash` command of the wire), not of the model: plain text, no time limit."""

import asyncio
import codecs
from collections.abc import Callable, Mapping

from spindle.types.content import Wire

from .base import ToolSettings
from .output import OutputBuffer
from .sanitize import Sanitizer
from .shell import start_shell

__all__ = ["BashResult", "run_user_bash"]


class BashResult(Wire, kw_only=True):
    output: str
    exit_code: int | None = None
    """None if it was cancelled."""
    cancelled: bool
    truncated: bool
    full_output_path: str | None = None


async def run_user_bash(
    command: str,
    cwd: str,
    settings: ToolSettings,
    on_delta: Callable[[str], None] = lambda delta: None,
    env: Mapping[str, str] | None = None,
) -> BashResult:
    """Run `command` and return the end of its output; pieces go to `on_delta` as they come, uncut.

    Give it a task of its own: cancelling the task kills the command and makes it return what came so far, marked
    `cancelled`. Raises `ToolError` only if the shell cannot be started.
    """
    buffer = OutputBuffer()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    sanitizer = Sanitizer()

    def pass_on(clean: str) -> None:
        if clean:
            buffer.write(clean.encode())
            on_delta(clean)

    process = start_shell(command, cwd, settings, env or {}, lambda data: pass_on(sanitizer.feed(decoder.decode(data))))
    exit_code: int | None = None
    try:
        exit_code = await process.wait()
    except asyncio.CancelledError:
        pass
    finally:
        pass_on(sanitizer.feed(decoder.decode(b"", True)) + sanitizer.flush())
        buffer.close()
    cut = buffer.snapshot()
    return BashResult(
        output=cut.content,
        exit_code=exit_code,
        cancelled=exit_code is None,
        truncated=cut.truncated,
        full_output_path=buffer.path,
    )
