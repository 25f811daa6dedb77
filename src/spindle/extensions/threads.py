"""Calls of foreign code: `async def` on the event loop, plain functions in threads that can be abandoned.

The threads are daemons, so that a function that hangs for ever keeps neither an abort nor the end of the process
waiting (the threads of `asyncio.to_thread` would).
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether `function` is to be awaited on the loop: `async def`, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Contained(RuntimeError):
    """Foreign code tried to end more than itself."""


@contextmanager
def contained() -> Iterator[None]:
    """Make plain errors of what foreign code raises and what would end our task, or the process, in its place."""
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # it is us who are cancelled
            raise
        raise Contained("Something it waited for was cancelled") from None
    except BaseException as error:
        raise _plain(error) from None


def _plain(error: BaseException) -> Exception:
    if isinstance(error, SystemExit):
        return Contained(f"sys.exit({error.code!r}) was called")
    # A future cannot carry StopIteration, and no thread is interrupted or cancelled: that is the function's own doing.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    text = f": {error}" if str(error) else ""
    return Contained(f"{type(error).__name__} was raised{text}")


async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call foreign code: on the loop if it is `async def`, else in a thread."""
    with contained():
        if is_async(function):
            return await function(*args, **kwargs)
        result = await run_in_thread(lambda: function(*args, **kwargs))
        return await result if inspect.isawaitable(result) else result


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread and return what it returns. When cancelled, walk away from it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def job() -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = context.run(work)
        except BaseException as error:
            failure = _plain(error)
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop is closed: nothing waits any more

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(job)
    return await done


class _Worker:
    """A thread that waits for jobs. One that is stuck is simply not used again."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="spindle-extension", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.jobs.get()()
            _idle.append(self)


_idle: list[_Worker] = []
