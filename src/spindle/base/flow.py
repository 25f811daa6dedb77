"""Helpers for async code: a mailbox between a producer and a consumer, an owner for tasks, and gates for work that
comes all at once."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from spindle.base import trace

T = TypeVar("T")
R = TypeVar("R")


def _no_doorbell() -> None:
    """Stand in until a consumer is attached."""


class Mailbox(Generic[T]):
    """Items on their way to one consumer. `put` never waits; a producer that should pause looks at `full`.

    The box is full above a high mark, until both its count and its size are below the low marks: a quarter of the
    high ones. Use it on the event loop's thread only.
    """

    def __init__(self, high_items: int, high_size: int = sys.maxsize) -> None:
        self.waiting: deque[T] = deque()
        self.size = 0
        """Bytes or characters in `waiting`, as far as `put` and `grow` were told."""
        self.on_waiting: Callable[[], None] = _no_doorbell
        """Called when an item comes into an empty box."""
        self._high_items, self._low_items = high_items, high_items // 4
        self._high_size, self._low_size = high_size, high_size // 4
        self._full = False
        self._closed = False
        self._error: Exception | None = None
        self._news = asyncio.Event()
        """Set when an item waits, or the box is closed."""
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self.waiting)

    # -- the producer's side ---------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the producer should pause."""
        return self._full

    async def room(self) -> None:
        """Wait until the box is not full."""
        while self._full:
            await self._room.wait()

    def put(self, item: T, size: int = 0) -> None:
        """Add an item. Never waits; a closed box drops it."""
        if self._closed:
            return
        self.waiting.append(item)
        self.grow(size)
        self._news.set()
        if len(self.waiting) == 1:
            self.on_waiting()

    def grow(self, size: int) -> None:
        """Count a new item, or the growth of a waiting one."""
        self.size += size
        if not self._full and (len(self.waiting) >= self._high_items or self.size >= self._high_size):
            self._full = True
            self._room.clear()

    def close(self, error: Exception | None = None) -> None:
        """Take no more items. The consumer gets the waiting ones, then the end, or `error`."""
        if not self._closed:
            self._closed, self._error = True, error
            self._news.set()

    def drop(self) -> None:
        """Close the box and drop its items: the consumer is gone."""
        self.close()
        self.waiting.clear()
        self.size = 0
        self._make_room()

    # -- the consumer's side ---------------------------------------------------------------------

    def never_full(self) -> None:
        """Keep every item from now on; the producer need not pause."""
        self._high_items = self._high_size = sys.maxsize
        self._make_room()

    def drop_through(self, is_last: Callable[[T], bool]) -> None:
        """Drop the items up to the last one for which `is_last` is true, that one included."""
        ends = [number for number, item in enumerate(self.waiting, 1) if is_last(item)]
        for _ in range(ends[-1] if ends else 0):
            self.pop()

    def pop(self, size: int = 0) -> T:
        """Return the next item. Raises `IndexError` if the box is empty."""
        item = self.waiting.popleft()
        self.shrink(size)
        return item

    def shrink(self, size: int) -> None:
        """Count an item that was taken."""
        self.size -= size
        if self._full and len(self.waiting) <= self._low_items and self.size <= self._low_size:
            self._make_room()

    async def wait(self) -> bool:
        """Wait for an item. Return false if the box is closed and empty. Raises the error of `close`."""
        while not self.waiting:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return False
            self._news.clear()
            await self._news.wait()
        return True

    def __aiter__(self) -> "Mailbox[T]":
        return self

    async def __anext__(self) -> T:
        if await self.wait():
            return self.pop()
        raise StopAsyncIteration

    def _make_room(self) -> None:
        self._full = False
        self._room.set()


class Turnstile:
    """Lets work through for `seconds` in each turn of the event loop, so that other callbacks run in between.

    Many prompts may come at once, and requests with long histories take many milliseconds to make.
    """

    def __init__(self, seconds: float = 0.01) -> None:
        self._seconds = seconds
        self._open_until: float | None = None
        """When this turn's seconds are over; None if no work came in this turn yet."""

    @property
    def is_open(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._open_until is None:
            self._open_until = loop.time() + self._seconds
            loop.call_soon(self._next)
        return loop.time() < self._open_until

    async def turn(self) -> None:
        while True:
            if self.is_open:
                return
            await asyncio.sleep(0)

    def _next(self) -> None:
        self._open_until = None


_turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, Turnstile] = WeakKeyDictionary()


def turnstile() -> Turnstile:
    """Return the turnstile of the running event loop."""
    loop = asyncio.get_running_loop()
    if (found := _turnstiles.get(loop)) is None:
        found = _turnstiles[loop] = Turnstile()
    return found


AT_ONCE = 12
"""How many prompts may begin together. Each may create a session file, which can take a millisecond."""

_beginnings: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def beginnings() -> asyncio.Semaphore:
    """Return the gate of the running event loop that prompts pass in the order they came in."""
    loop = asyncio.get_running_loop()
    if (found := _beginnings.get(loop)) is None:
        found = _beginnings[loop] = asyncio.Semaphore(AT_ONCE)
    return found


class Tasks:
    """Owns tasks: each has a name, none is forgotten, and all are ended together."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, R], name: str, *, report: bool = True) -> asyncio.Task[R]:
        """Start work. With `report`, an exception is printed to stderr; without, the caller awaits the task."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done_reported if report else self._done)
        return task

    async def join(self, timeout: float | None = None) -> None:
        """Wait until the tasks have ended by themselves, or for `timeout` seconds."""
        if running := self._others():
            await asyncio.wait(running, timeout=timeout)

    def cancel(self) -> None:
        """Cancel every task, without waiting for their ends."""
        for task in self._others():
            task.cancel()

    async def end(self, timeout: float, spared: "asyncio.Task[Any] | None" = None) -> None:
        """Cancel every task but `spared` and wait for their ends, for at most `timeout` seconds."""
        running = self._others() - {spared}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=timeout)

    def _others(self) -> set[asyncio.Task[Any]]:
        """Return the running tasks except the calling one, which cannot wait for itself."""
        return self._running - {asyncio.current_task()}

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not complain

    def _done_reported(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            trace.bug(error)
