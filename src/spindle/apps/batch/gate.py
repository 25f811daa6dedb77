"""One gate per provider: after "too many requests" all tasks wait, not only the one that was refused.

After the wait one request goes first. If it is served, the gate is open for all; if not, all wait longer. So a provider
that refuses for a minute sees a handful of requests, not one from each task each second.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from spindle.base import limits
from spindle.llm.exchange import retry_after

_TOO_MANY = (429, 529)
_UNAVAILABLE = 503
_LONGER = 1.0
"""Seconds by which a hold has to grow to be reported again."""


class ProviderGate:
    def __init__(self, on_hold: Callable[[float], None] = lambda seconds: None) -> None:
        self._on_hold = on_hold
        """Called with the seconds for which the gate closes."""
        self._opens = 0.0
        """When the next request may go, on the clock of `time.monotonic`."""
        self._refusals = 0
        """Refusals in a row; 0: the gate is open."""
        self._line = asyncio.Lock()
        """Requests wait in line for this lock; the one that holds it is the next to go."""
        self._first: object = None
        """The sender of the request that went first, until it is answered. The line waits for it."""

    async def enter(self, who: object) -> None:
        """Wait until a request may be sent."""
        if not self._refusals or self._first == who:
            return
        await self._line.acquire()
        try:
            while self._refusals and (left := self._opens - time.monotonic()) > 0:  # noqa: ASYNC110 - it may grow
                await asyncio.sleep(left)
        except BaseException:
            self._line.release()
            raise
        if self._refusals:
            self._first = who
        else:
            self._line.release()

    def answered(self, who: object, status: int, headers: Mapping[str, str]) -> None:
        """Learn how the server answered a request."""
        asked = retry_after(headers)
        if status in _TOO_MANY or (status == _UNAVAILABLE and asked is not None):
            # Requests that were under way together are refused together; that is one refusal.
            before = self._opens
            is_news = self._first == who or time.monotonic() >= before
            self._refusals += is_news
            longest = limits.GATE_LONGEST if asked is None else limits.GATE_LONGEST_ASKED
            self.hold(max(asked or 0.0, min(2.0 ** (self._refusals - 1), longest)))
            if is_news or self._opens > before + _LONGER:
                self._on_hold(self._opens - time.monotonic())
        elif self._first == who and 200 <= status < 300:
            self._refusals = 0
        self.leave(who)

    def hold(self, seconds: float) -> None:
        self._refusals = self._refusals or 1
        self._opens = max(self._opens, time.monotonic() + seconds)

    def leave(self, who: object) -> None:
        """Learn that a request has ended, with or without an answer; the next in line may go."""
        if self._first == who:
            self._first = None
            self._line.release()


class Gates:
    """The gates, by provider."""

    def __init__(self, on_hold: Callable[[str, float], None] = lambda provider, seconds: None) -> None:
        self._on_hold = on_hold
        self._by_provider: dict[str, ProviderGate] = {}

    def of(self, provider: str) -> ProviderGate:
        if provider not in self._by_provider:
            self._by_provider[provider] = ProviderGate(lambda seconds: self._on_hold(provider, seconds))
        return self._by_provider[provider]
