"""Child processes in groups of their own, read as they write, killed as a whole.

`subprocess.Popen` starts the child (it forks without copying memory and knows `cwd`, which `posix_spawn` does
not); reading and waiting are callbacks of the event loop. That is half the cost of asyncio's own subprocesses.
POSIX only.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

__all__ = ["Process", "kill_all"]

_CHUNK = 64 * 1024
_QUIET = 0.1
"""Seconds without output, after the child has gone, before pipes that its own children hold are given up."""
_LINGER = 1.0
"""And the longest to listen to them, should they never be quiet."""
_KILL_WAIT = 5.0
"""Seconds to wait for the end of a killed child; one stuck in the kernel may take for ever."""

_live: set["Process"] = set()


def kill_all() -> None:
    """Kill every group that is still running. For shutdown; needs no event loop."""
    for process in list(_live):
        process.kill()


class Process:
    """A running child. Output arrives through callbacks from the start; `wait` gives the exit code."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        on_output: Callable[[bytes], None],
        on_errors: Callable[[bytes], None] | None = None,
    ) -> None:
        """Start `argv` with empty stdin. Without `on_errors`, stderr goes into the same pipe as stdout.

        Raises `OSError` if it cannot be started.
        """
        import subprocess

        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._pipes: dict[int, Callable[[bytes], None]] = {}
        """Read ends that are still open, and who gets what comes out of them."""
        self._gone = False
        """The child itself has ended; its own children may still write."""
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._linger_until = 0.0
        ends = [os.pipe() for _ in range(1 if on_errors is None else 2)]
        try:
            self._child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=ends[0][1],
                stderr=ends[-1][1],
                start_new_session=True,
            )
        except BaseException:
            for read_end, _ in ends:
                os.close(read_end)
            raise
        finally:
            for _, write_end in ends:
                os.close(write_end)
        _live.add(self)
        for (read_end, _), sink in zip(ends, (on_output, on_errors), strict=False):
            assert sink is not None
            os.set_blocking(read_end, False)
            self._pipes[read_end] = sink
            self._loop.add_reader(read_end, self._read, read_end)
        self._watch_exit()

    @property
    def pid(self) -> int:
        return self._child.pid

    async def wait(self) -> int:
        """Return the exit code, 128 + n for a child that died of signal n.

        It returns when the child has gone and its output has ended, or has been silent for a moment because a
        background process holds the pipe. Cancelling kills the group first. No callback is called afterwards.
        """
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.kill()
            await asyncio.wait((self._ended,), timeout=_KILL_WAIT)
            raise
        finally:
            self._close_pipes()

    def pause(self) -> None:
        """Read no more for now, so that a child that writes on has to wait; `resume` goes on."""
        for pipe in self._pipes:
            self._loop.remove_reader(pipe)

    def resume(self) -> None:
        for pipe in self._pipes:
            self._loop.add_reader(pipe, self._read, pipe)

    def kill(self) -> None:
        """Kill the whole group. Does nothing once it has ended."""
        if self._ended.done():
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # The latter: macOS, for a group of zombies.
            self._child.kill()

    def _watch_exit(self) -> None:
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # Not Linux, or no descriptors left.
            import threading

            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(pidfd, self._on_pidfd, pidfd)

    def _on_pidfd(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._child.wait()
        self._on_exit()

    def _wait_in_thread(self) -> None:
        self._child.wait()
        with suppress(RuntimeError):  # The loop is closed, nobody asks any more.
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self._gone = True
        self._linger_until = self._loop.time() + _LINGER
        self._check_end()

    def _read(self, pipe: int) -> bool:
        """Pass on one chunk; return whether there was one. One at a time, so that a flood leaves others their turn."""
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._pipes[pipe](data)
        else:
            self._close_pipe(pipe)
        if self._gone:
            self._check_end()
        return bool(data)

    def _check_end(self) -> None:
        if self._quiet_timer:
            self._quiet_timer.cancel()
        if not self._pipes:
            self._finish()
        else:
            delay = max(0.0, min(_QUIET, self._linger_until - self._loop.time()))
            self._quiet_timer = self._loop.call_later(delay, self._give_up)

    def _give_up(self) -> None:
        for pipe in list(self._pipes):
            # What was written before this moment still counts; a pipe holds 64 KiB, seldom more.
            for _ in range(16):
                if not self._read(pipe):
                    break
        self._finish()

    def _finish(self) -> None:
        if self._quiet_timer:
            self._quiet_timer.cancel()
        self._close_pipes()
        _live.discard(self)
        if not self._ended.done():
            code = self._child.returncode
            self._ended.set_result(code if code >= 0 else 128 - code)

    def _close_pipe(self, pipe: int) -> None:
        del self._pipes[pipe]
        self._loop.remove_reader(pipe)
        os.close(pipe)

    def _close_pipes(self) -> None:
        for pipe in list(self._pipes):
            self._close_pipe(pipe)
