"""Waits for the disk, in threads beside the event loop.

The loop is told that a wait has ended well only if somebody asks: a thread that tells it something takes the
interpreter from it, and wakes it where there is nothing to do.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

MOST_THREADS = 4
"""Files that are waited for at once. Each thread that returns takes the interpreter from the event loop for a moment,
and more threads do so more often."""


class _Threads:
    """Those of an executor cost half as much again, and hold up the exit."""

    def __init__(self) -> None:
        from queue import SimpleQueue

        self._works: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle: list[bool] = []
        """An item for each thread that has nothing to do; several threads may use a list."""
        self._count = 0

    def submit(self, work: Callable[[], None]) -> None:
        try:
            self._idle.pop()
        except IndexError:
            if self._count < MOST_THREADS:
                self._count += 1
                threading.Thread(target=self._run, name="spindle-disk", daemon=True).start()
        self._works.put(work)

    def _run(self) -> None:
        while True:
            self._works.get()()
            self._idle.append(True)


_threads = cache(_Threads)


class DiskWait:
    """A wait that has begun."""

    def __init__(self, wait: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """Call `wait` in a thread, and `failed` in the event loop with an `OSError` that it raises."""
        self.over = False
        """Whether it has ended, and `failed` was called if it has to be."""
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[None] | None = None
        _threads().submit(partial(self._work, wait))

    def ending(self) -> asyncio.Future[None]:
        """Return a future that is done when the wait is over."""
        if self._ending is None or self._ending.cancelled():  # as an abort does with what the run waits for
            self._ending = self._loop.create_future()
        if self.over and not self._ending.done():
            self._ending.set_result(None)
        return self._ending

    async def wait(self, seconds: float) -> None:
        """Return when it is over; after that many seconds it counts as failed."""
        timer = self._loop.call_later(seconds, self._give_up)
        try:
            await self.ending()
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        ending, self._ending = self._ending, None  # whoever asks from now on waits for the end itself
        self._failed(TimeoutError(errno.ETIMEDOUT, "the disk does not answer"))
        if ending is not None and not ending.done():
            ending.set_result(None)

    def _work(self, wait: Callable[[], None]) -> None:
        error = None
        try:
            wait()
            self.over = True  # before the look at who asks: whoever asks after that finds it over
        except OSError as caught:
            error = caught.with_traceback(None)  # the traceback holds this frame
        if error is not None or self._ending is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: OSError | None) -> None:
        if error is not None:
            self._failed(error)
        self.over = True
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(None)
