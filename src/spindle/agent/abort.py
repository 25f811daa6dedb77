"""Abort: asyncio cancellation, turned into one exception at one place."""

import asyncio
from types import TracebackType

__all__ = ["AbortSignal", "Aborted"]


class Aborted(Exception):
    """The user stopped the work in hand."""


class AbortSignal:
    """Says whether work was aborted, and stops the region that is running right now.

    A region is entered with `with signal:`. An abort from outside cancels the task inside it; what leaves the
    region is `Aborted`, never a stray `CancelledError`. A cancellation that did not come from here passes through.
    """

    def __init__(self) -> None:
        self.aborted = False
        self._inside: asyncio.Task[object] | None = None
        """The task in the region, while there is one."""

    def abort(self) -> None:
        if self.aborted:
            return
        self.aborted = True
        # Work that aborts itself is not cancelled in mid-step: it leaves at its next check.
        if self._inside is not None and self._inside is not asyncio.current_task():
            self._inside.cancel()

    def check(self) -> None:
        """Raise `Aborted` if the work was aborted."""
        if self.aborted:
            raise Aborted

    def __enter__(self) -> None:
        self.check()
        self._inside = asyncio.current_task()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._inside = self._inside, None
        if kind is asyncio.CancelledError and self.aborted and task is not None:
            task.uncancel()
            raise Aborted from None
