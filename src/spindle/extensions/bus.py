"""A board where extensions leave notes for each other: channels, any data, nothing in return."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from spindle.extensions.binding import Binding
from spindle.extensions.threads import call, end

__all__ = ["Bus", "BusView"]

Listener = Callable[[Any], Any]


class Bus:
    def __init__(self) -> None:
        self._listeners: dict[str, tuple[tuple[object, Listener], ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, channel: str, owner: object, listener: Listener) -> Callable[[], None]:
        item = (owner, listener)
        self._listeners[channel] = (*self._listeners.get(channel, ()), item)

        def remove() -> None:
            others = self._listeners.get(channel, ())
            self._listeners[channel] = tuple(other for other in others if other is not item)

        return remove

    def forget(self, owner: object) -> None:
        """Drop everything `owner` listens to."""
        self._listeners = {
            channel: tuple(item for item in items if item[0] is not owner) for channel, items in self._listeners.items()
        }

    def emit(self, channel: str, data: Any) -> None:
        """Hand `data` to every listener, soon; one that fails is only noted on stderr."""
        for _, listener in self._listeners.get(channel, ()):
            task = asyncio.get_running_loop().create_task(self._deliver(channel, listener, data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop all listeners and stop those at work."""
        self._listeners.clear()
        await end(self._tasks)

    async def _deliver(self, channel: str, listener: Listener, data: Any) -> None:
        try:
            await call(listener, data)
        except Exception as error:
            print(f"Extension error (events {channel!r}): {error or type(error).__name__}", file=sys.stderr)


class BusView:
    """The bus as one extension holds it: `agent.events`."""

    def __init__(self, bus: Bus, owner: object, binding: Binding) -> None:
        self._bus = bus
        self._owner = owner
        self._binding = binding

    def on(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Call `listener(data)` for everything on `channel`. Returns the way to stop that."""
        return self._bus.add(channel, self._owner, listener)

    def emit(self, channel: str, data: Any = None) -> None:
        """Send `data` to whoever listens to `channel`, without waiting for them."""
        self._binding.on_loop(lambda: self._bus.emit(channel, data))
