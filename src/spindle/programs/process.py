"""Child processes in groups of their own, read as they write, ended as a whole.

`children` starts the child and knows all processes below it; reading, writing and waiting are callbacks of the event
loop. That is half the cost of asyncio's own subprocesses. POSIX only.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from spindle.base import limits
from spindle.programs import children

_CHUNK = 64 * 1024


class Completed(NamedTuple):
    """A child that has ended."""

    code: int
    """Negative: the signal that ended it."""
    output: bytes
    errors: bytes
    timed_out: bool


async def all_gone(owner: Any, timeout: float) -> None:
    """Wait until no process of an owner is left but those that are kept, for at most `timeout` seconds."""
    end = asyncio.get_running_loop().time() + timeout
    while any(child.owner is owner and not child.kept for child in children.remaining()):
        if asyncio.get_running_loop().time() > end:
            return
        await asyncio.sleep(0.01)


async def run(
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    owner: Any = None,
    input: bytes | None = None,
    timeout: float | None = None,
    grace: float = limits.CHILD_GRACE,
    fence: children.Confinement | None = None,
) -> Completed:
    """Run a program until it and its output have ended, and return its output.

    After `timeout` seconds the program is stopped, with `grace`. Cancelling kills it. Raises what `children.start`
    raises.
    """
    output, errors = bytearray(), bytearray()
    process = Process(
        argv,
        cwd=cwd,
        env=env,
        owner=owner,
        input=input,
        on_output=output.extend,
        on_errors=errors.extend,
        until_closed=True,
        fence=fence,
    )
    try:
        ended = await process.ended(timeout)
        if not ended:
            await process.stop(grace)
    except asyncio.CancelledError:
        process.kill()
        process.give_up()
        raise
    return Completed(process.returncode, bytes(output), bytes(errors), not ended)


class Process:
    """A running child. Output arrives through callbacks from the start; `wait` gives the exit code."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[bytes], None] | int,
        on_errors: Callable[[bytes], None] | None = None,
        input: bytes | None = None,
        hold_input: bool = False,
        until_closed: bool = False,
        on_hangup: Callable[[], None] | None = None,
        owner: Any = None,
        keep: children.Keep = False,
        tied: bool = False,
        fence: children.Confinement | None = None,
    ) -> None:
        """Start `argv`. Without `on_errors`, stderr goes where stdout goes; `on_output` may be an open file.

        The child's stdin is empty, or `input`; with `hold_input` it stays open for `write` until `close_input`.
        With `until_closed` the child counts as ended only when no process holds its pipes any more; by default, pipes
        that only its own children hold are given up when they are silent. `on_hangup` is called when the child closes
        its stdin or stdout. For `owner`, `keep`, `tied`, `fence` and the errors see `children.start`.
        """
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        """What `wait` awaits: cancelling that must not cancel `_ended`."""
        self._pipes: dict[int, Callable[[bytes], None]] = {}
        """Read ends that are still open, each with the callback for its output."""
        self._gone = False
        """The child itself has ended; its own children may still write."""
        self._until_closed = until_closed
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._linger_until = 0.0
        self._stdin = -1
        self._input = bytearray(input or b"")
        """Bytes that are still to be written to stdin."""
        self._hold_input = hold_input
        self._on_hangup = on_hangup
        sinks = [sink for sink in (on_output, on_errors) if callable(sink)]
        with ExitStack() as theirs, ExitStack() as ours:  # a descriptor may be refused at any of these steps
            ends = []
            for _ in sinks:
                ends.append(os.pipe())
                ours.callback(os.close, ends[-1][0])
                theirs.callback(os.close, ends[-1][1])
            if input is None:
                stdin = os.open(os.devnull, os.O_RDONLY)
            else:
                stdin, self._stdin = os.pipe()
                ours.callback(os.close, self._stdin)
            theirs.callback(os.close, stdin)
            files = (stdin, on_output, on_output) if isinstance(on_output, int) else (stdin, ends[0][1], ends[-1][1])
            self._child = children.start(
                argv, cwd=cwd, env=env, files=files, owner=owner, keep=keep, tied=tied, fence=fence
            )
            ours.pop_all()
        self._stdout = ends[0][0] if ends else -1
        for (read_end, _), sink in zip(ends, sinks, strict=True):
            os.set_blocking(read_end, False)
            self._pipes[read_end] = sink
            self._loop.add_reader(read_end, self._read, read_end)
        if input is not None:
            os.set_blocking(self._stdin, False)
            self._loop.add_writer(self._stdin, self._write)
        self._watch_exit()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int:
        """The exit code, negative for a signal. A child that has not ended counts as killed."""
        code = self._child.returncode
        return -signal.SIGKILL if code is None else code

    def write(self, data: bytes) -> None:
        """Write to a stdin that is held open. Never waits; data for a child that has closed its stdin is dropped."""
        if self._stdin >= 0:
            self._input += data
            self._loop.add_writer(self._stdin, self._write)

    @property
    def unread(self) -> int:
        """How many bytes the child could not be given yet."""
        return len(self._input)

    def on_end(self, call: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: call())

    def close_input(self) -> None:
        """Close stdin after the data written so far."""
        self._hold_input = False
        if not self._input:
            self._close_stdin()

    async def wait(self) -> int:
        """Return the exit code, 128 + n for a child that died of signal n.

        Wait until the child and its output have ended, or the output is silent for a moment because a background
        process holds the pipe. Cancelling kills all processes first. No callback is called afterwards.
        """
        try:
            if not self._ended.done():
                self._waiter = self._loop.create_future()
                await self._waiter
        except asyncio.CancelledError:
            self.kill()
            await self.ended(limits.CHILD_KILLED)
            raise
        finally:
            self._close_pipes()
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    async def ended(self, timeout: float | None) -> bool:
        """Wait for the end, at most `timeout` seconds; return whether the child has ended. Kills nothing."""
        await asyncio.wait((self._ended,), timeout=timeout)
        return self._ended.done()

    async def stop(self, grace: float) -> None:
        """Ask all processes of the child to end (SIGTERM); kill the rest after `grace` seconds, at most.

        The child counts as ended afterwards.
        """
        self._child.terminate()
        ended = await self.ended(grace)
        self._child.kill()
        if not ended:
            # A process that cannot be killed may hold the pipes for ever.
            await self.ended(limits.CHILD_LINGER)
            self.give_up()

    def pause(self) -> None:
        """Stop reading, so that a child that writes on has to wait; `resume` starts again."""
        for pipe in self._pipes:
            self._loop.remove_reader(pipe)

    def resume(self) -> None:
        for pipe in self._pipes:
            self._loop.add_reader(pipe, self._read, pipe)

    def kill(self) -> None:
        """Kill the child and all processes below it, unless it has ended: processes that it left may go on."""
        if not self._ended.done():
            self._child.kill()

    def kill_rest(self) -> None:
        """Kill the processes that the child left running."""
        self._child.kill()

    def give_up(self) -> None:
        """Read the output written so far, and count the child as ended."""
        for pipe in list(self._pipes):
            # A pipe holds 64 KiB, seldom more.
            for _ in range(16):
                if pipe not in self._pipes or not self._read(pipe):
                    break
        self._finish()

    def _watch_exit(self) -> None:
        watched = self._child.fileno()
        if self._child.returncode is not None:
            self._loop.call_soon(self._on_exit)
        elif watched < 0:
            import threading

            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._child.watch(self._loop)
            self._loop.add_reader(watched, self._look, watched)

    def _look(self, watched: int) -> None:
        if self._child.poll() is not None:
            self._loop.remove_reader(watched)
            self._child.unwatch()
            self._on_exit()

    def _wait_in_thread(self) -> None:
        self._child.wait()
        with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self._gone = True
        self._linger_until = self._loop.time() + limits.CHILD_LINGER
        self._check_end()

    def _read(self, pipe: int) -> bool:
        """Pass on one chunk; return whether there was one. No more, so that a flood of output leaves others a turn."""
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._pipes[pipe](data)
        else:
            self._close_pipe(pipe)
            if pipe == self._stdout:
                self._hung_up()
        if self._gone:
            self._check_end()
        return bool(data)

    def _write(self) -> None:
        try:
            del self._input[: os.write(self._stdin, self._input[:_CHUNK])]
        except BlockingIOError:
            return
        except BrokenPipeError:  # The child has closed its stdin.
            self._input.clear()
            self._hold_input = False
            self._hung_up()
        if self._input:
            return
        if self._hold_input:
            self._loop.remove_writer(self._stdin)
        else:
            self._close_stdin()

    def _hung_up(self) -> None:
        if self._on_hangup is not None and not self._gone:
            self._on_hangup()

    def _check_end(self) -> None:
        if self._quiet_timer:
            self._quiet_timer.cancel()
        if not self._pipes:
            self._finish()
        elif not self._until_closed:
            delay = max(0.0, min(limits.CHILD_QUIET, self._linger_until - self._loop.time()))
            self._quiet_timer = self._loop.call_later(delay, self.give_up)

    def _finish(self) -> None:
        if self._quiet_timer:
            self._quiet_timer.cancel()
        self._close_pipes()
        if not self._ended.done():
            self._ended.set_result(None)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _close_pipe(self, pipe: int) -> None:
        del self._pipes[pipe]
        self._loop.remove_reader(pipe)
        os.close(pipe)

    def _close_pipes(self) -> None:
        for pipe in list(self._pipes):
            self._close_pipe(pipe)
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
