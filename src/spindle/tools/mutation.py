"""One writer per file at a time, in the order they came. Different files do not wait for each other."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["file_lock"]


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


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
