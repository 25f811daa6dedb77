"""Code of extensions beside the event loop: plain functions run in threads that can be left behind.

The threads are daemons, so that a function that hangs for ever keeps neither an abort nor the end of the process
waiting (the threads of `asyncio.to_thread` would).
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

__all__ = ["call", "is_async", "run_in_thread"]


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether `function` is to be awaited on the loop: `async def`, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call foreign code: on the loop if it is `async def`, else in a thread. A `sys.exit()` in it is just an error."""
    try:
        if is_async(function):
            return await function(*args, **kwargs)
        result = await run_in_thread(lambda: function(*args, **kwargs))
        return await result if inspect.isawaitable(result) else result
    except SystemExit as error:
        raise RuntimeError(f"sys.exit({error.code!r}) was called") from None


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread and return what it returns. When cancelled, walk away from it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def job() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = context.run(work)
        except StopIteration as error:  # a future cannot carry it
            failure = RuntimeError(f"StopIteration was raised: {error}")
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

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
