"""A time limit that can be paused."""

import asyncio
from collections.abc import Callable

__all__ = ["Countdown"]


class Countdown:
    """Calls back once when its seconds are used up; they only pass between `go_on` and `pause`."""

    def __init__(self, seconds: float, callback: Callable[[str], None], why: str) -> None:
        """`why` is given to the callback. No seconds: it never calls."""
        self._seconds = self._left = seconds
        self._callback = callback
        self._why = f"{why} (limit: {seconds:g} s)"
        self._timer: asyncio.TimerHandle | None = None

    def go_on(self) -> None:
        if self._timer is None and self._seconds:
            self._timer = asyncio.get_running_loop().call_later(self._left, self._callback, self._why)

    def pause(self) -> None:
        if self._timer is not None:
            self._left = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Pause, with all the seconds given back."""
        self.pause()
        self._left = self._seconds
