"""Blocking work in threads, with two ways to be cancelled: walk away, or wait until it is done."""

import asyncio
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from spindle.tools.base import ToolError

__all__ = ["Cancel", "run_abandonable", "run_to_end"]

T = TypeVar("T")


class Cancel:
    """Told to work in a thread; the work asks now and then."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise `ToolError` if nobody wants the result any more."""
        if self._event.is_set():
            raise ToolError("Operation aborted")


async def run_abandonable(work: Callable[[Cancel], T]) -> T:
    """Run work that only looks. When cancelled, return at once; the thread ends at its next `check`."""
    cancel = Cancel()
    try:
        return await asyncio.to_thread(work, cancel)
    except asyncio.CancelledError:
        cancel.set()
        raise


async def run_to_end(work: Callable[[Cancel], T]) -> T:
    """Run work that changes something. When cancelled, tell it, but return only when it has ended."""
    cancel = Cancel()
    running = asyncio.ensure_future(asyncio.to_thread(work, cancel))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancel.set()
            cancelled = error
    if cancelled:
        running.exception()  # Looked at, so that asyncio does not complain.
        raise cancelled
    return running.result()
