"""The tie between what extensions hold and the agent they hold it of.

While extensions load there is no agent yet; after a reload or a change of session the old objects are stale. Both are
decided here, once, for the facade and every context of one generation of extensions.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

from spindle.extensions.runtime import Runtime, Surroundings

__all__ = ["Binding", "StaleExtensionError"]

T = TypeVar("T")

NOT_YET = "Extension runtime not initialized. Action methods cannot be called during extension loading."
STALE = (
    "This object belongs to extensions that were reloaded or to a session that was left. "
    "Use the ctx of the current event, or the one given to with_session."
)


class StaleExtensionError(RuntimeError):
    """An `agent` or `ctx` was used after its generation of extensions had ended."""


class Binding:
    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self.surroundings: Surroundings | None = None
        """Kept when this generation has ended, too: for telling what went wrong in it."""
        self._stale = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def bind(self, runtime: Runtime) -> None:
        """Give access to the agent, from the loop that runs now."""
        self._runtime = runtime
        self.place(runtime)

    def place(self, surroundings: Surroundings) -> None:
        """Give access to what there is before the agent."""
        self.surroundings = surroundings
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def retire(self) -> None:
        self._stale = True

    @property
    def bound(self) -> bool:
        return self._runtime is not None and not self._stale

    @property
    def runtime(self) -> Runtime:
        """The agent. Raises `StaleExtensionError`, or `RuntimeError` while extensions load."""
        return self._valid(self._runtime)

    @property
    def here(self) -> Surroundings:
        """What there is of an agent so far. Raises like `runtime`."""
        return self._valid(self.surroundings)

    def _valid(self, held: T | None) -> T:
        if self._stale:
            raise StaleExtensionError(STALE)
        if held is None:
            raise RuntimeError(NOT_YET)
        return held

    def do(self, action: Callable[[Runtime], T]) -> T:
        """Let `action` change the agent, on the loop's thread wherever the caller is."""
        runtime = self.runtime
        return self.on_loop(lambda: action(runtime))

    def on_loop(self, action: Callable[[], T]) -> T:
        """Do something on the loop's thread wherever the caller is; extensions that load are there already."""
        if self._stale:
            raise StaleExtensionError(STALE)
        if self._loop is None or threading.get_ident() == self._thread:
            return action()
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def perform() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(perform)
        return done.result()
