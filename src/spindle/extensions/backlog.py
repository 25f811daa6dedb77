"""Events that nothing waits for, on their way to handlers: one after the other, in the order in which they happened.

What handlers are asked or told later waits for them (`caught_up`), so that an extension never hears of a fork
before it hears that the run before it has settled.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from msgspec import Struct

from spindle import limits
from spindle.flow import Tasks
from spindle.shapes.events import Event, ToolExecutionUpdate

__all__ = ["Backlog"]


_part_of: ContextVar[asyncio.Task[None] | None] = ContextVar("part_of", default=None)
"""The delivery whose handlers the running code belongs to."""


class _Item(Struct):
    event: Event
    told: asyncio.Future[None]


class Backlog:
    def __init__(self, tell: Callable[[Event], Awaitable[None]]) -> None:
        self._tell = tell
        self._waiting: deque[_Item] = deque()
        """The first of them is being told."""
        self._last: asyncio.Future[None] | None = None
        """Done when the newest event was told."""
        self._worker: asyncio.Task[None] | None = None
        self._deliveries = Tasks()
        """At work, also those that took too long to be waited for."""

    def add(self, event: Event) -> None:
        if len(self._waiting) > 1 and _replaces(event, self._waiting[-1].event):
            self._waiting[-1].event = event
            return
        self._last = asyncio.get_running_loop().create_future()
        self._waiting.append(_Item(event, self._last))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work_off())

    async def caught_up(self, limit: float | None = None) -> None:
        """Return when everything so far was told, or after `limit` seconds. Handlers do not wait for themselves."""
        inside = _part_of.get()
        if self._last is not None and not self._last.done() and (inside is None or inside.done()):
            await asyncio.wait([self._last], timeout=limit)

    @staticmethod
    def detach() -> None:
        """Let the current task wait like any other, whoever created it."""
        _part_of.set(None)

    async def close(self) -> None:
        """Drop what was not told and stop the handlers at work."""
        own = _part_of.get()
        if self._worker is not None:
            self._worker.cancel()
        await self._deliveries.end(limits.TASKS_END, own)
        self._stop()

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                delivery = self._deliveries.spawn(self._deliver(self._waiting[0].event), "spindle-handlers")
                _, late = await asyncio.wait([delivery], timeout=limits.EVENT_HANDLERS)
                if late:
                    name = self._waiting[0].event.type
                    print(
                        f"Handlers of {name} take longer than {limits.EVENT_HANDLERS:g} s; what comes next does not wait for them",
                        file=sys.stderr,
                    )
                self._waiting.popleft().told.set_result(None)
        finally:
            self._stop()

    def _stop(self) -> None:
        self._worker = None
        while self._waiting:
            self._waiting.popleft().told.cancel()

    async def _deliver(self, event: Event) -> None:
        _part_of.set(asyncio.current_task())
        await self._tell(event)


def _replaces(event: Event, before: Event) -> bool:
    """Say whether nothing is lost if only the later one is told: progress is the whole result so far."""
    return (
        isinstance(event, ToolExecutionUpdate)
        and isinstance(before, ToolExecutionUpdate)
        and event.tool_call_id == before.tool_call_id
    )
