"""The real stdin and stdout: their owner, and how bytes pass without ever stopping the event loop.

`StdioWire.claim` takes both descriptors away from the rest of the process: output of a library, an extension or a
child goes to stderr. The meaning of lines is not known here.
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

from spindle.programs.children import kill_all
from spindle.programs.stop_signals import on_stop
from spindle.protocol.outbox import Outbox
from spindle.wires.pipe.descriptors import Source, Target, open_source, open_target
from spindle.wires.pipe.framing import LineReader, LineTooLong

# Small lines go out together up to this size; a bigger line goes alone and is not copied again.
BATCH_BYTES: Final = 128 << 10
# After so many bytes other tasks get a turn, however fast the reader is.
TURN_BYTES: Final = 8 << 20
# Lines that came together begin in one turn of the loop, up to this time: none waits for answers to earlier lines.
TURN_S: Final = 0.02


class Exit:
    """The end of a process that serves a client on stdio. The first exit code counts."""

    def __init__(self) -> None:
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def catch_signals(self) -> None:
        numbers = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
        if _shares_terminal():
            numbers.remove(signal.SIGINT)
            signal.signal(signal.SIGINT, lambda *_: None)  # no SIG_IGN: children would inherit that
        on_stop(numbers, self._by_signal)

    def end(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)

    def lost(self, error: OSError) -> None:
        """End with code 1: the client cannot be written to. Print why, unless it has just left."""
        if error.errno not in (errno.EPIPE, errno.ECONNRESET) and not self.code.done():
            print(f"Error: Cannot write to stdout: {error.strerror}", file=sys.stderr)
        self.end(1)

    def _by_signal(self, number: int) -> None:
        if self.code.done():  # the second signal: the process is ending already, but too slowly
            kill_all()
            os._exit(128 + number)
        self.end(128 + number)


def _shares_terminal() -> bool:
    """Say whether Ctrl-C on a terminal goes to our client, too: it then sends `abort`, or ends and so closes stdin."""
    if os.getpgrp() == os.getpid():
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class StdioWire:
    """Bytes of one client, in and out."""

    def __init__(self, stdin: int | None, stdout: int | None) -> None:
        """Take over two descriptors; None stands for one that is closed."""
        self._stdin = stdin
        self._stdout = stdout
        self._source: Source | None = None
        self._target: Target | None = None
        self._outbox: Outbox | None = None
        self._on_broken: Callable[[OSError], None] = lambda error: None
        self._scheduled: asyncio.Handle | None = None
        """Calls `flush`."""
        self._behind = False
        """Whether the reader let the last bytes wait, so that waiting deltas may be joined."""
        self._idle = asyncio.Event()
        """Set while no frame waits or is being written."""
        self._idle.set()

    @classmethod
    def claim(cls) -> "StdioWire":
        """Take the process's stdin and stdout. From here on `print` writes to stderr and `input` sees the end."""
        closed = [number for number in (0, 1, 2) if not _is_open(number)]
        for _ in closed:
            # The system gives the lowest free numbers, which are these: no duplicate below can get one of them.
            os.open(os.devnull, os.O_RDWR)
        stdin = None if 0 in closed else os.dup(0)
        stdout = None if 1 in closed else os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        os.dup2(2, 1)
        if sys.stdout is not None:
            # Only now: text that was printed before and not flushed must not get out either.
            sys.stdout.flush()
        sys.stdout = sys.stderr
        return cls(stdin, stdout)

    # -- in --------------------------------------------------------------------------------------

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the client's bytes as they come, up to its end of file."""
        if self._stdin is None:
            return
        self._source = open_source(self._stdin)
        while chunk := await self._source.read():
            yield chunk

    async def lines(self) -> AsyncIterator[bytes | LineTooLong]:
        """Yield the client's lines, each when the output for the one before is on its way."""
        reader = LineReader()
        clock = asyncio.get_running_loop().time
        async for chunk in self.chunks():
            begin = clock()
            for line in reader.receive(chunk):
                if clock() > begin + TURN_S:
                    await asyncio.sleep(0)
                    begin = clock()
                if self._outbox is not None and self._outbox.flooded:
                    await self._outbox.room()
                if self._scheduled:
                    self.flush()  # a prompt would hold up output that waits
                yield line
                if self._scheduled:
                    self.flush()
        if (last := reader.close()) is not None:
            yield last

    # -- out -------------------------------------------------------------------------------------

    def attach(self, outbox: Outbox, on_broken: Callable[[OSError], None] = lambda error: None) -> None:
        """Send the frames of `outbox`. `on_broken` is called once, when the reader is gone."""
        self._outbox = outbox
        self._on_broken = on_broken
        if self._stdout is None:
            asyncio.get_running_loop().call_soon(self._broken, OSError(errno.EBADF, "it is closed"))
            return
        self._target = open_target(self._stdout, self.flush, self._broken)
        outbox.on_waiting = self._wake
        self._wake()

    async def drain(self, timeout: float) -> bool:
        """Wait until everything is written; return False if the reader does not take it in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Close both descriptors. Output that has not been written is lost."""
        if self._outbox is not None:
            self._outbox.close()
        if self._target is not None:
            self._target.close()
        if self._source is not None:
            self._source.close()
        for descriptor in (self._stdin, self._stdout):
            if descriptor is not None:
                os.close(descriptor)
        self._stdin = self._stdout = self._source = self._target = None

    def _wake(self) -> None:
        self._idle.clear()
        if self._scheduled is None and self._target is not None and not self._target.busy:
            # Not at once: frames of the same turn of the loop go out together.
            self._scheduled = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write until no frame waits, the reader is behind, or it is the turn of other tasks."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        outbox, target = self._outbox, self._target
        if outbox is None or target is None or target.busy:
            return
        turn = TURN_BYTES
        while data := outbox.take(BATCH_BYTES, merge=self._behind):
            if not target.write(data):
                self._behind = True
                return
            turn -= len(data)
            if turn <= 0:
                self._wake()
                return
        self._behind = False
        if not len(outbox):
            self._idle.set()

    def _broken(self, error: OSError) -> None:
        if self._outbox is not None:
            self._outbox.close()
        self._idle.set()
        self._on_broken(error)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
