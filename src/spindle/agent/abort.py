"""Abort: asyncio cancellation, turned into one exception at one place."""

import asyncio
from types import TracebackType

__all__ = ["AbortSignal", "Aborted"]


class Aborted(Exception):
    """The user stopped the work in hand."""


class AbortSignal:
    """Says whether work was aborted, and stops the region that is running right now.

    A region is entered with `with signal:`; regions do not nest. An abort from outside cancels the task inside it;
    what leaves the region is `Aborted`, never a stray `CancelledError`. A cancellation that did not come from here
    passes through, also if it comes together with an abort.
    """

    def __init__(self) -> None:
        self.aborted = False
        self._told = asyncio.Event()
        self._inside: asyncio.Task[object] | None = None
        """The task in the region, while there is one."""
        self._cancelled = False
        """Whether that task was cancelled from here."""
        self._cancelled_before = 0
        """Cancellations the task had been asked for when it entered the region."""

    def abort(self) -> None:
        if self.aborted:
            return
        self.aborted = True
        self._told.set()
        # Work that aborts itself is not cancelled in mid-step: it leaves at its next check.
        if self._inside is not None and self._inside is not asyncio.current_task():
            self._cancelled = self._inside.cancel()

    def check(self) -> None:
        """Raise `Aborted` if the work was aborted."""
        if self.aborted:
            raise Aborted

    async def wait(self) -> None:
        """Return when the work is aborted."""
        await self._told.wait()

    def __enter__(self) -> None:
        self.check()
        self._inside = asyncio.current_task()
        self._cancelled_before = self._inside.cancelling() if self._inside else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._inside = self._inside, None
        if task is None or not self._cancelled:
            return
        self._cancelled = False
        only_ours = task.uncancel() <= self._cancelled_before
        if kind is asyncio.CancelledError and only_ours:
            raise Aborted from None
