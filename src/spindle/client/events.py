"""Events as a client sees them: plain JSON objects, in order; a stream keeps them until they are read."""

import logging
import sys
from dataclasses import dataclass
from typing import Any

from spindle.flow import Mailbox
from spindle.shapes import codec

__all__ = ["Event", "EventStream", "Run", "read_frame"]

log = logging.getLogger(__name__)


def read_frame(data: bytes | str) -> dict[str, Any] | None:
    """Read a line from an agent. Returns None if it is not a JSON object."""
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
        """Its name, such as `agent_end`."""
        return str(self.get("type"))

    @property
    def text_delta(self) -> str:
        """The new piece of the answer's text; empty for every other event."""
        piece = self.get("assistantMessageEvent") if self.type == "message_update" else None
        return str(piece.get("delta", "")) if isinstance(piece, dict) and piece.get("type") == "text_delta" else ""


class EventStream(Mailbox[Event]):
    """`async for event in stream`. Collects from the moment it is made until it is closed or forgotten.

    It ends with the client. If the agent ended by itself, that is raised behind the last event.
    """

    def __init__(self) -> None:
        super().__init__(sys.maxsize)

    def forget_through(self, *types: str) -> None:
        """Drop what waits, up to the last event of these types."""
        ends = [number for number, event in enumerate(self.waiting, 1) if event.type in types]
        for _ in range(ends[-1] if ends else 0):
            self.pop()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a prompt."""

    messages: list[dict[str, Any]]
    """Every message it added, the prompt included."""
    aborted: bool
    """Whether the last answer was stopped."""

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
