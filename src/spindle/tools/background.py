"""A shell command in the background: its process, and the file that it writes to.

The command writes to the file itself: its output is on disk however we end, and costs us nothing. A look at the file
every moment keeps the file bounded, and ends waits for a pattern.
"""

import asyncio
import codecs
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from spindle.base import limits
from spindle.tools.base import ToolContext, ToolError, doing
from spindle.tools.bash import start_shell
from spindle.tools.grep import argument, run_ripgrep
from spindle.tools.truncate import MAX_BYTES, open_kept, truncate_tail

MAX_FILE_BYTES = 64 << 20
"""The file begins again when it is longer. It may be longer for a moment, and after our end if the command is kept."""
KEPT_BYTES = 1 << 20
"""How much of its end it then begins with."""
TAIL_BYTES = 4096
TAIL_LINES = 50
FIRST_LINES = 1.0
"""Seconds to wait for the first lines, at most."""
_QUIET = 0.2
"""Seconds of silence after which the first lines count as complete."""
_LOOK = 0.1
"""Seconds between two looks at the file."""


class BackgroundCommand:
    def __init__(
        self, id: str, command: str, timeout: float | None, ctx: ToolContext, on_end: Callable[[], None]
    ) -> None:
        """Start the command; `on_end` is called at its end. Raises `ToolError`."""
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
        self._dropped = 0
        """Bytes that were in the file when it began again."""
        self._size = 0
        """Size of the file at the last look."""
        self._settings = ctx.settings
        self._on_end = on_end
        self._loop = loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] = loop.create_future()
        """Done at the next change: more output, or the end."""
        self._timers: list[asyncio.TimerHandle] = []
        """The next look, and the time limit."""
        with doing("open"):
            self.path, self._file = open_kept("spindle-bash-", os.O_RDWR | os.O_APPEND)
        try:
            self._process = start_shell(command, ctx.cwd, ctx.settings, ctx.env, self._file)
        except BaseException:
            os.close(self._file)
            os.unlink(self.path)
            raise
        self._timers = [loop.call_later(_LOOK, self._look)]
        if timeout is not None:
            self._timers.append(loop.call_later(timeout, self.give_up, "timed out"))
        self._process.on_end(self._ended)

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

    # -- its output ------------------------------------------------------------------------------

    def read(self) -> str:
        """Return the output since the last call; of long output, the end."""
        with self._opened() as file:
            size = os.fstat(file).st_size
            begin = max(0, self._read - self._dropped)
            start = max(begin, size - 2 * MAX_BYTES)
            data = os.pread(file, max(0, size - start), start)
        # A character that is not whole yet is read next time.
        text, used = codecs.utf_8_decode(data, "replace", not self.running)
        skipped = start > begin or self._dropped > self._read
        self._read = self._dropped + start + used
        cut = truncate_tail(text)
        if skipped or cut.truncated:
            return f"[The beginning is left out. All output: {self.path}]\n{cut.content}"
        return cut.content

    def tail(self) -> str:
        """Return the last lines, whether they were read or not; none if the file was deleted."""
        with suppress(ToolError), self._opened() as file:
            size = os.fstat(file).st_size
            data = os.pread(file, TAIL_BYTES, max(0, size - TAIL_BYTES))
            return truncate_tail(data.decode("utf-8", "replace"), TAIL_LINES).content
        return ""

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file. Raises `ToolError` if it was deleted."""
        if self._file >= 0:
            yield self._file
            return
        with doing("open", self.path):
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)

    async def first_lines(self) -> str:
        """Return the output of the first moment."""
        end = self._loop.time() + FIRST_LINES
        while self.running and (left := end - self._loop.time()) > 0:
            done, _ = await asyncio.wait([self._changed], timeout=min(left, _QUIET if self._size else left))
            if not done:
                break
        return self.read()

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
        code, complaint = await run_ripgrep(self._settings, options, "/", lambda line: True)
        if code > 1:
            raise ToolError(complaint)
        return code == 0

    def _look(self) -> None:
        size = os.fstat(self._file).st_size
        if size > MAX_FILE_BYTES:
            size = self._begin_again(size)
        if size != self._size:
            self._size = size
            self._tell_change()
        self._timers[0] = self._loop.call_later(_LOOK, self._look)

    def _begin_again(self, size: int) -> int:
        """Drop the file's content except its end. Returns the new size.

        Lines that the command writes at this very moment come before it, or are lost: nothing can be done about that,
        since the command writes to the file itself.
        """
        end = os.pread(self._file, KEPT_BYTES, size - KEPT_BYTES)
        os.ftruncate(self._file, 0)
        with suppress(OSError):  # the disk is full
            os.write(self._file, end)
        self._dropped += size - len(end)
        return len(end)

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
        if not self._settings.keep_background_processes:
            self._process.kill()
        self.close()

    def close(self) -> None:
        """Watch the command no more."""
        self._on_end = lambda: None
        for timer in self._timers:
            timer.cancel()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
