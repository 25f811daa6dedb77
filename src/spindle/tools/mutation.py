"""One writer per file at a time, in the order they came. Different files do not wait for each other."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

__all__ = ["file_lock"]

# Agents of one process may run on different event loops, so an `asyncio.Lock` will not do: it belongs to one loop.
_queues: dict[str, deque[Future[None]]] = {}
"""For each file the turns of those that hold it (the first) or wait for it."""
_queues_guard = threading.Lock()


@asynccontextmanager
async def file_lock(path: str) -> AsyncIterator[None]:
    """Hold the file at the absolute `path`, whatever other names it has."""
    # Resolved here and not in a thread: the order of arrival is the order of the queue.
    key = os.path.realpath(path)
    turn: Future[None] = Future()
    with _queues_guard:
        queue = _queues.setdefault(key, deque())
        queue.append(turn)
        must_wait = len(queue) > 1
    try:
        if must_wait:
            await asyncio.wrap_future(turn)
        yield
    finally:
        with _queues_guard:
            was_first = queue[0] is turn
            queue.remove(turn)
            following = queue[0] if queue else None
            if following is None:
                del _queues[key]
        # A turn that was cancelled has no one to tell: its own end passes the file on.
        if was_first and following is not None and following.set_running_or_notify_cancel():
            following.set_result(None)
