"""Calls foreign code: `async def` on an event loop, plain functions in threads that can be abandoned.

The threads are daemons, so that a function that hangs for ever keeps neither an abort nor the end of the process
waiting (the threads of `asyncio.to_thread` would).
"""

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from spindle.base import limits

T = TypeVar("T")
AHEAD = 64
"""How many values a generator in another thread may be ahead of its reader."""


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether `function` is to be awaited on the loop: `async def`, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Contained(RuntimeError):
    """Foreign code tried to end more than itself."""


@contextmanager
def contained() -> Iterator[None]:
    """Turn exceptions of foreign code that would end our task, or the process, into plain errors."""
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # we ourselves are cancelled
            raise
        raise Contained("Something it waited for was cancelled") from None
    except BaseException as error:
        raise _plain(error) from None


def _plain(error: BaseException) -> Exception:
    if isinstance(error, SystemExit):
        return Contained(f"sys.exit({error.code!r}) was called")
    # A future cannot carry StopIteration. Threads are never interrupted or cancelled, so the function raised the rest.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    text = f": {error}" if str(error) else ""
    return Contained(f"{type(error).__name__} was raised{text}")


class Home:
    """Where the coroutines of foreign code run: here, on the event loop of the caller."""

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call foreign code: on its loop if it is `async def`, else in a thread."""
        with contained():
            if is_async(function):
                return await self.run(lambda: function(*args, **kwargs))
            result = await run_in_thread(lambda: function(*args, **kwargs))
            return await self.run(lambda: result) if inspect.isawaitable(result) else result

    async def run(self, begin: Callable[[], Awaitable[T]]) -> T:
        return await begin()

    def iterate(self, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        return begin()

    def back(self, function: "Callable[..., Awaitable[T]] | None") -> "Callable[..., Awaitable[T]] | None":
        """Return the function so that foreign code can call it and it runs on the current loop."""
        return function

    def close(self) -> None:
        """Take no more calls, except from work that is still going on."""


HERE = Home()


class OwnLoop(Home):
    """An event loop in its own thread, begun when needed: code that blocks there holds up nothing else.

    Each method is called on the event loop of the agent.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls = 0
        self._closed = False

    async def run(self, begin: Callable[[], Awaitable[T]]) -> T:
        here = asyncio.get_running_loop()
        done: asyncio.Future[T] = here.create_future()
        task: asyncio.Task[T] | None = None
        heard = False

        async def work() -> T:
            with contained():
                return await begin()

        def start() -> None:
            nonlocal task
            task = asyncio.create_task(work())
            task.add_done_callback(lambda task: _tell(here, _settle, done, task))

        def cancel() -> None:
            nonlocal heard
            heard = task is not None and task.cancel()

        loop = self._loop or self._begin()
        self._calls += 1
        loop.call_soon_threadsafe(start)
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            loop.call_soon_threadsafe(cancel)
            await asyncio.wait([done], timeout=limits.HANDLER_END)
            if heard and not done.done():  # the loop is not blocked: the call may clean up
                await asyncio.wait([done], timeout=limits.TOOL_END)
            if not done.done():
                raise
        finally:
            if not done.done():
                done.cancel()  # nothing waits for the result any more
            self._calls -= 1
            if self._closed:
                self.close()
        return done.result()

    async def iterate(self, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        here, news, room = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        arrived: deque[T] = deque()
        room.set()

        async def produce() -> None:
            async with aclosing(begin()) as values:
                async for value in values:
                    arrived.append(value)
                    if len(arrived) == 1:
                        _tell(here, news.set)
                    elif len(arrived) >= AHEAD:
                        room.clear()
                        _tell(here, news.set)
                        await room.wait()

        def ended(producing: "asyncio.Task[None]") -> None:
            news.set()
            if not producing.cancelled():
                producing.exception()  # looked at, so that asyncio does not complain

        producing = asyncio.create_task(self.run(produce))
        producing.add_done_callback(ended)
        try:
            while not (producing.done() and not arrived):
                await news.wait()
                news.clear()
                while arrived:
                    yield arrived.popleft()
                if not room.is_set() and self._loop is not None:
                    _tell(self._loop, room.set)
            producing.result()
        finally:
            producing.cancel()
            await asyncio.wait([producing])

    def back(self, function: "Callable[..., Awaitable[T]] | None") -> "Callable[..., Awaitable[T]] | None":
        here = asyncio.get_running_loop()

        async def there(*args: Any) -> T:
            assert function is not None
            return await function(*args)

        async def hop(*args: Any) -> T:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there(*args), here))

        return function and hop

    def close(self) -> None:
        self._closed = True
        if not self._calls and self._loop is not None:
            loop, self._loop = self._loop, None
            _tell(loop, loop.stop)

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()

        async def end() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await loop.shutdown_asyncgens()

        def live() -> None:
            loop.run_forever()
            loop.run_until_complete(end())
            loop.close()

        threading.Thread(target=live, name="spindle-extensions", daemon=True).start()
        return loop


def _tell(loop: asyncio.AbstractEventLoop, action: Callable[..., Any], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing waits any more
        loop.call_soon_threadsafe(action, *args)


def _settle(done: "asyncio.Future[Any]", task: "asyncio.Task[Any]") -> None:
    if done.done():
        return
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread and return its result. When cancelled, abandon it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(partial(_job, loop, done, contextvars.copy_context(), work))
    try:
        return await done
    finally:
        del done  # it holds its failure, which holds this frame


def _job(
    loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Any]", context: contextvars.Context, work: Callable[[], Any]
) -> None:
    result: Any = None
    failure: Exception | None = None
    try:
        result = context.run(work)
    except BaseException as error:
        failure = _plain(error)
    _tell(loop, _finish, done, result, failure)
    del done, failure  # the failure holds this frame


def _finish(done: "asyncio.Future[Any]", result: Any, failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)


class _Worker:
    """A thread that waits for jobs. A stuck thread is simply not used again."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="spindle-extension", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.jobs.get()()
            _idle.append(self)


_idle: list[_Worker] = []
