"""The agent's process: lines in, lines out, what it said last, how it ended."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

__all__ = ["AgentProcess"]

STDERR_KEPT = 8 << 10
# After its end a child that outlived it may still hold the pipes; nobody waits for that one.
LAST_WORDS_S = 1.0


class AgentProcess(asyncio.SubprocessProtocol):
    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        """The beginning of a line whose end has not come yet."""
        self._stderr = b""
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = asyncio.Event()
        self._silent = asyncio.Event()
        """Set when stdout and stderr are closed."""
        self._open_pipes = {1, 2}
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        on_line: Callable[[bytes], None],
        cwd: str | Path | None,
        env: Mapping[str, str] | None,
    ) -> "AgentProcess":
        """Start a command line. Raises `OSError` if there is no such program."""
        loop = asyncio.get_running_loop()
        _, process = await loop.subprocess_exec(lambda: cls(on_line), *command, cwd=cwd, env=env)
        return process

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr."""
        return self._stderr.decode("utf-8", "replace").strip()

    def write(self, line: bytes) -> None:
        """Write one line, without waiting."""
        self._stdin().write(line + b"\n")

    def post(self, line: bytes) -> None:
        """Write one line soon; this works from any thread."""
        self._loop.call_soon_threadsafe(self.write, line)

    async def drain(self) -> None:
        """Wait until it has read most of what was written, or is gone."""
        await self._writable.wait()

    async def ended(self) -> int:
        """Wait for its end and its last words; return the exit code, negative for a signal."""
        await self._exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._silent.wait()
        transport = self._transport
        assert transport is not None
        transport.close()
        code = transport.get_returncode()
        assert code is not None
        return code

    async def stop(self, grace: float) -> None:
        """Close its stdin and wait; if it does not end, terminate it, then kill it; if we are cancelled, at once."""
        transport = self._transport
        assert transport is not None
        self._stdin().close()
        try:
            for insist in (transport.terminate, transport.kill):
                try:
                    async with asyncio.timeout(grace):
                        await self._exited.wait()
                    return
                except TimeoutError:
                    with contextlib.suppress(ProcessLookupError):
                        insist()
            await self._exited.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                transport.kill()
            raise

    def _stdin(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-STDERR_KEPT:]
            return
        first, *rest = data.split(b"\n")
        self._pieces.append(first)
        for piece in rest:
            self._on_line(b"".join(self._pieces))
            self._pieces = [piece]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if fd == 0:
            self._writable.set()
        elif not self._open_pipes:
            self._silent.set()

    def process_exited(self) -> None:
        self._writable.set()
        self._exited.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
