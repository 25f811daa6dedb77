"""A limit on how fast a client is read: a bucket of credit that fills with time."""

__all__ = ["Throttle"]

BURST_SECONDS = 5


class Throttle:
    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._credit = self._most = per_second * BURST_SECONDS
        self._last: float | None = None
        """When the last frame came."""

    def delay(self, now: float) -> float:
        """Count a frame that came at `now`; return how many seconds the next one should wait."""
        if self._last is not None:
            self._credit = min(self._most, self._credit + (now - self._last) * self._rate)
        self._last = now
        self._credit -= 1
        return max(0.0, -self._credit / self._rate)
