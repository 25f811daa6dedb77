"""Shell commands of the model in a terminal of another program: see `Terminals` in `tools/base.py`."""

import asyncio
from contextlib import suppress

from spindle.shapes.events import ToolResult
from spindle.tools.base import Terminals, ToolContext, ToolError
from spindle.tools.bash import ABORTED, ended, timed_out
from spindle.tools.truncate import OutputBuffer
from spindle.tools.user_bash import Sanitizer
from spindle.workspace.local import MARKS, shell_line, withheld

_CUT = "[The beginning is left out: the terminal keeps only the end.]\n"


async def run_in_terminal(
    terminals: Terminals, call_id: str, command: str, timeout: float | None, ctx: ToolContext
) -> ToolResult:
    """Run a command and return its output as `bash` does. Raises `ToolError`."""
    # The other program has its own environment, so it has to be told which variables the command must not see.
    added = {**MARKS, **ctx.env}
    unset = [word for name in sorted(withheld(ctx.settings) - added.keys()) for word in ("-u", name)]
    argv = ["/usr/bin/env", *unset, *shell_line(command, ctx.cwd, ctx.settings)]
    terminal = await terminals.open(call_id, argv, ctx.cwd, added)
    code, ending = None, ""
    try:
        try:
            async with asyncio.timeout(timeout):
                code = await terminal.wait()
        except TimeoutError:
            ending = timed_out(timeout)
        except asyncio.CancelledError:
            ending = ABORTED
        if code is None:
            await terminal.kill()
        text, cut = await terminal.output()
    finally:
        with suppress(ToolError):
            await terminal.release()
    buffer = OutputBuffer()
    plain = Sanitizer()
    buffer.write(((_CUT if cut else "") + plain.feed(text) + plain.flush()).encode("utf-8", "replace"))
    buffer.close()
    return ended(buffer, code, ending)
