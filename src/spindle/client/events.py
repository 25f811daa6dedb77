"""Events as a client sees them: plain JSON objects, in order, nothing lost while nobody looks."""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

from spindle.shapes import codec

__all__ = ["Event", "EventStream", "Run", "read_frame"]

log = logging.getLogger(__name__)


def read_frame(data: bytes | str) -> dict[str, Any] | None:
    """Read what came over a wire; None for whatever is no JSON object."""
    try:
        frame = codec.decode(data)
    except codec.DecodeError:
        frame = None
    if isinstance(frame, dict):
        return frame
    log.debug("not a frame: %r", data[:200])
    return None


class Event(dict[str, Any]):
    """One event, the object as the agent wrote it: `event["toolName"]`. Unknown types come through as they are."""

    __slots__ = ()

    @property
    def type(self) -> str:
        return str(self.get("type"))

    @property
    def text_delta(self) -> str:
        """The new piece of the answer's text; empty for every other event."""
        piece = self.get("assistantMessageEvent") if self.type == "message_update" else None
        return str(piece.get("delta", "")) if isinstance(piece, dict) and piece.get("type") == "text_delta" else ""


class EventStream:
    """`async for event in stream`. Collects from the moment it is made until it is closed or forgotten."""

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque()
        self._error: Exception | None = None
        self._ended = False
        self._news = asyncio.Event()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        while not self.waiting:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self.waiting.popleft()

    def put(self, event: Event) -> None:
        if not self._ended:
            self.waiting.append(event)
            self._news.set()

    def forget_through(self, *types: str) -> None:
        """Drop what waits, up to the last event of these types."""
        ends = [number for number, event in enumerate(self.waiting, 1) if event.type in types]
        for _ in range(ends[-1] if ends else 0):
            self.waiting.popleft()

    def close(self, error: Exception | None = None) -> None:
        """End the stream behind what waits; with `error`, whoever iterates gets to see it."""
        if not self._ended:
            self._ended, self._error = True, error
            self._news.set()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a prompt."""

    messages: list[dict[str, Any]]
    """Every message it added, the prompt included."""
    aborted: bool

    @property
    def answer(self) -> dict[str, Any] | None:
        """The last message of the model."""
        answers = [message for message in self.messages if message.get("role") == "assistant"]
        return answers[-1] if answers else None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        content = self.answer["content"] if self.answer else []
        return "".join(block.get("text", "") for block in content if block.get("type") == "text")

    @property
    def error(self) -> str | None:
        """Why the last answer failed; None if it did not."""
        if self.answer is None or self.answer.get("stopReason") != "error":
            return None
        return str(self.answer.get("errorMessage", "unknown error"))
