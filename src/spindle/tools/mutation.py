"""One writer per file at a time, in the order they came. Different files do not wait for each other."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["file_lock"]


class _Queue:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        """Who holds the lock or waits for it."""


_queues: dict[str, _Queue] = {}


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """Hold the file at the absolute `path`, whatever other names it has."""
    # Resolved here and not in a thread: the order of arrival is the order of the queue.
    key = os.path.realpath(path)
    queue = _queues.setdefault(key, _Queue())
    queue.users += 1
    try:
        async with queue.lock:
            yield
    finally:
        queue.users -= 1
        if not queue.users:
            del _queues[key]
