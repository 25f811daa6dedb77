"""An event loop in a thread of its own, for callers that have none, or whose own loop must not be used."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Does the work of coroutines while other threads wait for it. It runs until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns; an interrupt of the caller cancels it.

        Raises `RuntimeError` in the thread itself, which would wait for ever, and after `close`.
        """
        if threading.current_thread() is self._thread or self._loop.is_closed():
            work.close()
            where = "It is closed" if self._loop.is_closed() else "Its own thread cannot wait for it: use `await` there"
            raise RuntimeError(where)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread, and cancel the work that is left."""
        if self._loop.is_closed():
            return
        self.wait(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
