"""One call of one handler: its context, its time, and what becomes of its failures."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

import msgspec

from spindle.extensions.backlog import Backlog
from spindle.extensions.context import CommandContext, Context
from spindle.extensions.events import EVENTS
from spindle.extensions.record import Extension, Handler
from spindle.extensions.registry import Registry
from spindle.extensions.threads import call
from spindle.extensions.ui import UI
from spindle.shapes.events import Event

__all__ = ["Apply", "Calls", "as_answer", "error_text"]

ABORTED_S = 2.0
"""For each handler of what is still told after an abort, so that an abort always comes to an end."""

Apply: TypeAlias = Callable[[dict[str, Any]], bool | None]
_own_clock: ContextVar[asyncio.Timeout | None] = ContextVar("own_clock", default=None)
"""Of the handler whose code is running."""


class Calls:
    def __init__(self, registry: Registry, backlog: Backlog) -> None:
        self._registry = registry
        self._backlog = backlog
        self._binding = registry.binding
        self._clocks: set[asyncio.Timeout] = set()
        """Of the handlers at work."""
        self._traced: set[tuple[str, str]] = set()
        """Where a traceback was already written, so that a broken handler of a frequent event does not flood stderr."""

    def context_for(self, extension: Extension) -> Context:
        return Context(self._binding, self._ui(), extension.agent)

    def command_context(self, extension: Extension | None) -> CommandContext:
        return CommandContext(self._binding, self._ui(), extension.agent if extension else None)

    def _ui(self) -> UI:
        return UI(self._binding, self._tell_prompt)

    async def _tell_prompt(self, event: str, kind: str, title: str | None) -> None:
        if event in self._registry.listening:
            await self.each(EVENTS[event](kind, title))

    async def handlers(self, event: Event) -> list[Handler]:
        """Return whom an event concerns, once they know of all that happened before it."""
        await self._backlog.caught_up()
        tool = getattr(event, "tool_name", None)
        found = self._registry.handlers.get(event.type, ())
        return [handler for handler in found if handler.tools is None or tool in handler.tools]

    async def each(self, event: Event, apply: Apply | None = None) -> None:
        """Call every handler; `apply` takes in what one returned and says whether that settles it."""
        for handler in await self.handlers(event):
            try:
                result = await self.invoke(handler, event)
                if result is not None and apply is not None and apply(as_answer(result)):
                    return
            except Exception as error:
                self.report(handler.extension.path, event.type, error)

    async def invoke(self, handler: Handler, event: Event, timeout: float | None = None) -> Any:
        """Call one handler, within its time. Raises what it raises."""
        limit = handler.timeout if timeout is None else timeout
        here = self._binding.surroundings
        if here is not None and here.is_aborting:
            limit = min(limit or ABORTED_S, ABORTED_S)
        end = None if limit is None else time.monotonic() + limit
        ctx = self.context_for(handler.extension)
        clock = asyncio.timeout(limit)
        before = _own_clock.set(clock)
        self._clocks.add(clock)
        try:
            async with clock:
                return await call(handler.function, event, ctx)
        except asyncio.CancelledError:
            ctx.cancelled.set()
            raise
        except TimeoutError:
            if not clock.expired():
                raise
            ctx.cancelled.set()
            if end is None or time.monotonic() < end:
                raise TimeoutError(f"The {event.type} handler was stopped by an abort") from None
            raise TimeoutError(f"The {event.type} handler took longer than {limit:g} s") from None
        finally:
            self._clocks.discard(clock)
            _own_clock.reset(before)

    @staticmethod
    def detach() -> None:
        """Let an abort by the current task end every handler, also the one that created the task."""
        _own_clock.set(None)

    def interrupt(self) -> None:
        """End the handlers at work and close their dialogs."""
        now = asyncio.get_running_loop().time()
        own = _own_clock.get()  # a handler that aborts the run itself goes on to its end
        for clock in self._clocks:
            if clock is not own and not clock.expired():
                clock.reschedule(now)
        if self._binding.surroundings is not None:
            self._binding.surroundings.front.withdraw()

    def report(self, path: str, event: str, error: Exception) -> None:
        """Tell the user of a failure, and stderr where it happened."""
        if (path, event) not in self._traced and error.__traceback__ is not None:
            import traceback

            self._traced.add((path, event))
            traceback.print_exception(error, file=sys.stderr)
        if self._binding.surroundings is not None:
            self._binding.surroundings.report(path, event, error_text(error))


def as_answer(result: Any) -> dict[str, Any]:
    """Return what a handler returned as a dict. Raises `TypeError` for what cannot be one."""
    if isinstance(result, Mapping):
        return dict(result)
    if isinstance(result, msgspec.Struct):
        return dict(msgspec.structs.asdict(result))
    raise TypeError(f"A handler must return None or a dict, not {type(result).__name__}")


def error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
