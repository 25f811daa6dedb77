"""Work in a thread, behind the sandbox if there is one."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from spindle.workspace.disk import Cancel
from spindle.workspace.settings import ToolSettings

T = TypeVar("T")
_DEFAULTS = ToolSettings()


def _run(work: Callable[[Cancel], T], cancel: Cancel, settings: ToolSettings, *, changes: bool = False) -> T:
    # The kernel checks paths as they are at this moment, whatever links a program makes meanwhile.
    run = settings.sandbox.change if changes else settings.sandbox.look
    return run(lambda: work(cancel))


async def run_abandonable(work: Callable[[Cancel], T], settings: ToolSettings = _DEFAULTS) -> T:
    """Run work that only reads. When cancelled, return at once; the thread ends at its next `check`."""
    cancel = Cancel()
    try:
        return await asyncio.to_thread(_run, work, cancel, settings)
    except asyncio.CancelledError:
        cancel.set()
        raise


async def run_to_end(work: Callable[[Cancel], T], settings: ToolSettings = _DEFAULTS) -> T:
    """Run work that changes something. When cancelled, tell the work, but return only when it has ended."""
    cancel = Cancel()
    running = asyncio.ensure_future(asyncio.to_thread(_run, work, cancel, settings, changes=True))
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
