"""Who listens to an agent, and whether they keep up."""

import sys
import traceback
from typing import Protocol

from spindle.shapes.events import Event

__all__ = ["Hub", "Listener"]


class Listener(Protocol):
    """Somebody who wants every event. An outbox of a wire is one."""

    def put(self, event: Event) -> None:
        """Take an event, at once."""

    @property
    def full(self) -> bool:
        """Whether so much is waiting that the agent should pause."""

    async def room(self) -> None:
        """Return when there is room again."""


class Hub:
    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        self._listeners += (listener,)

    def remove(self, listener: Listener) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)

    def publish(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener.put(event)
            except Exception as error:  # whoever cannot take it must not keep it from the others
                traceback.print_exception(error, file=sys.stderr)

    @property
    def congested(self) -> bool:
        return any(listener.full for listener in self._listeners)

    async def room(self) -> None:
        """Wait until every listener has room."""
        for listener in self._listeners:
            if listener.full:
                await listener.room()
