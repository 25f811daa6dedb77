"""When a failed answer is tried again, and how long to wait."""

import asyncio
from typing import Protocol

from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.base.settings import Settings
from spindle.llm.stream import Failure
from spindle.shapes.events import AutoRetryEnd, AutoRetryStart
from spindle.shapes.messages import AssistantMessage
from spindle.shapes.model import Model

_CANCELLED = "Retry cancelled"


class RetryPort(Protocol):
    """What retries need of the engine."""

    hub: Hub

    @property
    def settings(self) -> Settings:
        """Settings of the working directory; they change with it."""


class Retry:
    def __init__(self, port: RetryPort) -> None:
        self.enabled = port.settings.retry.enabled
        self._port = port
        self.attempt = 0
        """Retries made for the current answer; each answer has its own budget."""
        self._cancel: asyncio.Event | None = None
        """Set to end the wait in hand."""

    def delay_ms(self, attempt: int, failure: Failure | None = None) -> int:
        """Return how long to wait: longer each time, and as long as the server asks for."""
        settings = self._port.settings.retry
        asked = int((failure.retry_after or 0) * 1000) if failure is not None else 0
        return max(asked, min(settings.base_delay_ms << (attempt - 1), settings.max_agent_delay_ms))

    def worthwhile(self, answer: AssistantMessage, failure: Failure | None, model: Model | None, attempt: int) -> bool:
        """Say whether a failed answer may be tried again after `attempt` retries."""
        if not self.enabled or answer.stop_reason != "error" or attempt >= self.max_retries:
            return False
        from spindle.llm.errors import is_overflow, is_retryable

        facts = failure or Failure()
        return (
            not (facts.is_final or facts.stop_reason)
            and (facts.retry_after or 0) * 1000 <= self._port.settings.retry.longest_asked_ms
            and not is_overflow(answer, model.context_window if model else 0)
            and is_retryable(answer.error_message or "", facts.status)
        )

    @property
    def max_retries(self) -> int:
        return self._port.settings.retry.max_retries

    async def wait(self, answer: AssistantMessage, failure: Failure | None, signal: AbortSignal) -> bool:
        """Announce the next attempt and wait. Returns whether to make it."""
        self.attempt += 1
        delay = self.delay_ms(self.attempt, failure)
        self._cancel = asyncio.Event()  # first: a client that is told of the wait may end it at once
        try:
            await self._port.hub.emit(AutoRetryStart(self.attempt, self.max_retries, delay, answer.error_message or ""))
            with signal:
                await asyncio.wait_for(self._cancel.wait(), delay / 1000)
        except TimeoutError:
            return True
        except Aborted:
            pass
        finally:
            self._cancel = None
        await self.gave_up()
        return False

    def cancel(self) -> bool:
        """End the wait in hand. Returns whether there was one."""
        if self._cancel is None:
            return False
        self._cancel.set()
        return True

    async def succeeded(self) -> None:
        if self.attempt:
            attempt, self.attempt = self.attempt, 0
            await self._port.hub.emit(AutoRetryEnd(True, attempt))

    async def gave_up(self) -> None:
        """Tell that there will be no further attempt, because it was cancelled."""
        await self.failed(_CANCELLED)

    async def failed(self, error: str) -> None:
        if self.attempt:
            attempt, self.attempt = self.attempt, 0
            await self._port.hub.emit(AutoRetryEnd(False, attempt, error))
