"""A shell command in the background: its process, and the file that it writes to.

The command writes to the file itself: its output is on disk however we end, and costs us nothing. A look at the file
every moment keeps the file bounded, and ends waits for a pattern.
"""

import asyncio
import codecs
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from spindle.base import limits
from spindle.tools.base import ToolContext, ToolError
from spindle.tools.grep import argument, run_ripgrep
from spindle.tools.truncate import MAX_BYTES, truncate_tail
from spindle.workspace import CommandOutput, Running
from spindle.workspace.unfenced import NO_SANDBOX

TAIL_BYTES = 4096
TAIL_LINES = 50
FIRST_LINES = 1.0
"""Seconds to wait for the first lines, at most."""
_QUIET = 0.2
"""Seconds of silence after which the first lines count as complete."""


class BackgroundCommand:
    def __init__(self, id: str, command: str, ctx: ToolContext, on_end: Callable[[], None]) -> None:
        """`on_end` is called at the end of the command; `start` starts it."""
        self.id = id
        self.command = command
        self.running = True
        self.seconds = 0.0
        """How long it ran; known at its end."""
        self._began = time.monotonic()
        self._stopped = ""
        """Why it was ended, if it did not end by itself."""
        self._read = 0
        """Bytes of output that were read."""
        self._ctx = ctx
        self._on_end = on_end
        self._loop = loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] = loop.create_future()
        """Done at the next change: more output, or the end."""
        self._timer: asyncio.TimerHandle | None = None
        """The time limit."""
        self._process: Running
        self._output: CommandOutput

    async def start(self, timeout: float | None) -> None:
        """Raises `ToolError`."""
        ctx = self._ctx
        started = ctx.workspace.background(self.command, ctx.cwd, ctx.env, self._tell_change)
        self._process, self._output = await started
        if timeout is not None:
            self._timer = self._loop.call_later(timeout, self.give_up, "timed out")
        self._process.on_end(self._ended)

    @property
    def path(self) -> str:
        return self._output.path

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 + n after signal n; None while it runs."""
        code = self._process.returncode
        return None if self.running else code if code >= 0 else 128 - code

    def status(self) -> str:
        """Say in words how it stands."""
        if self.running:
            return f"{self.id} is running"
        return f"{self.id} {self._stopped or f'exited with code {self.exit_code}'} after {self.seconds:.1f} s"

    async def may_run_outside(self) -> bool:
        """Ask whether it may run again without the sandbox, if that has stopped it."""
        return bool(self.exit_code) and await self._ctx.settings.sandbox.may_run_outside(self._process)

    def outside(self) -> ToolContext:
        """Return what it was started with, without the sandbox."""
        return replace(self._ctx, settings=replace(self._ctx.settings, sandbox=NO_SANDBOX))

    # -- its output ------------------------------------------------------------------------------

    async def read(self) -> str:
        """Return the output since the last call; of long output, the end."""
        output, running = self._output, self.running
        begin = max(0, self._read - output.dropped)
        start, data = await output.part(begin, 2 * MAX_BYTES)
        # A character that is not whole yet is read next time.
        text, used = codecs.utf_8_decode(data, "replace", not running)
        skipped = start > begin or output.dropped > self._read
        self._read = output.dropped + start + used
        cut = truncate_tail(text)
        if skipped or cut.truncated:
            return f"[The beginning is left out. All output: {self.path}]\n{cut.content}"
        return cut.content

    async def since(self, byte: int) -> tuple[str, int]:
        """Return the output from a byte on (of very much output, less of it), and the byte after it. What `read`
        returns does not depend on this. Raises `ToolError`."""
        output, running = self._output, self.running
        start, data = await output.part(max(0, byte - output.dropped), 2 * MAX_BYTES)
        text, used = codecs.utf_8_decode(data, "replace", not running)
        return text, output.dropped + start + used

    async def tail(self) -> str:
        """Return the last lines, whether they were read or not; none if the file was deleted."""
        with suppress(ToolError):
            _, data = await self._output.part(-TAIL_BYTES, TAIL_BYTES)
            return truncate_tail(data.decode("utf-8", "replace"), TAIL_LINES).content
        return ""

    async def first_lines(self) -> str:
        """Return the output of the first moment."""
        end = self._loop.time() + FIRST_LINES
        while self.running and (left := end - self._loop.time()) > 0:
            done, _ = await asyncio.wait([self._changed], timeout=min(left, _QUIET if self._output.size else left))
            if not done:
                break
        return await self.read()

    async def wait(self, seconds: float, pattern: str | None) -> bool:
        """Wait for its end, or for a line that matches the pattern; at most so long. Returns whether it was found.

        Lines that were read before count, too. Raises `ToolError` if it is no pattern.
        """
        end = self._loop.time() + seconds
        while True:
            running, changed, left = self.running, self._changed, end - self._loop.time()
            if pattern is not None and await self._has(pattern):
                return True
            if not running or left <= 0:
                return False
            await asyncio.wait([changed], timeout=left)

    async def _has(self, pattern: str) -> bool:
        # ripgrep, because a pattern may keep Python's own matcher busy for ever.
        options = ["--quiet", "--text", "-e", argument(pattern), "--", self.path]
        code, complaint = await run_ripgrep(self._ctx.settings, options, "/", lambda line: True)
        if code > 1:
            raise ToolError(complaint)
        return code == 0

    def _tell_change(self) -> None:
        before, self._changed = self._changed, self._loop.create_future()
        before.set_result(None)

    # -- its end ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End all its processes, also those that it has left running."""
        if not self.running:
            self._process.kill_rest()
            return
        self._stopped = self._stopped or "was ended"
        await self._process.stop(limits.CHILD_GRACE)

    def give_up(self, why: str) -> None:
        """Kill it at once. `why` is for its status."""
        self._stopped = why
        self._process.kill()

    def _ended(self) -> None:
        self.running = False
        self.seconds = time.monotonic() - self._began
        on_end = self._on_end
        self.close()
        self._tell_change()
        on_end()

    def leave(self) -> None:
        """Kill the command, or let it go on without us if it is kept."""
        if not self._ctx.settings.keep_background_processes:
            self._process.kill()
        self.close()

    def close(self) -> None:
        """Watch the command no more."""
        self._on_end = lambda: None
        if self._timer is not None:
            self._timer.cancel()
        self._output.close()
