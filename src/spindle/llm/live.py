"""The fold: pieces of an answer become a message.

Model APIs call the verbs of `LiveMessage` and yield the events they return; nothing is joined until somebody
asks for a snapshot, so an answer of n pieces costs n, not n².
"""

import time

from spindle.types.content import Text, Thinking, ToolCall
from spindle.types.events import (
    LiveSource,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from spindle.types.messages import AssistantMessage, Usage
from spindle.types.models import Model

from .partial_json import PartialJson

__all__ = ["LiveMessage", "LiveText", "LiveThinking", "LiveToolCall"]


class LiveText:
    __slots__ = ("open", "parts", "signature")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.signature: str | None = None
        self.open = True

    def block(self) -> Text:
        return Text("".join(self.parts), self.signature)


class LiveThinking:
    __slots__ = ("open", "parts", "redacted", "signature")

    def __init__(self, signature: str | None, redacted: bool) -> None:
        self.parts: list[str] = []
        self.signature = signature
        self.redacted = redacted
        self.open = True

    def block(self) -> Thinking:
        return Thinking("".join(self.parts), self.signature, self.redacted)


class LiveToolCall:
    __slots__ = ("arguments", "id", "name", "open", "signature")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.arguments = PartialJson()
        self.signature: str | None = None
        self.open = True

    def block(self) -> ToolCall:
        return ToolCall(self.id, self.name, self.arguments.value(), self.signature)


class LiveMessage(LiveSource):
    """An assistant answer while it is being written."""

    __slots__ = (
        "api",
        "blocks",
        "model",
        "provider",
        "raw_stop_reason",
        "response_id",
        "response_model",
        "timestamp",
        "usage",
    )

    def __init__(self, model: Model) -> None:
        self.api = model.api
        self.provider = model.provider
        self.model = model.id
        self.timestamp = int(time.time() * 1000)
        self.usage = Usage()
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.raw_stop_reason: str | None = None
        self.blocks: list[LiveText | LiveThinking | LiveToolCall] = []

    # -- verbs of a model API --------------------------------------------------------------------

    def start_text(self) -> TextStart:
        self.blocks.append(LiveText())
        return TextStart(len(self.blocks) - 1)

    def start_thinking(self, signature: str | None = None, redacted: bool = False) -> ThinkingStart:
        self.blocks.append(LiveThinking(signature, redacted))
        return ThinkingStart(len(self.blocks) - 1)

    def start_tool_call(self, id: str, name: str) -> ToolCallStart:
        self.blocks.append(LiveToolCall(id, name))
        return ToolCallStart(len(self.blocks) - 1, id, name)

    def append(self, index: int, delta: str) -> StreamEvent:
        """Add a piece to block `index`."""
        block = self.blocks[index]
        if isinstance(block, LiveText):
            block.parts.append(delta)
            return TextDelta(index, delta)
        if isinstance(block, LiveThinking):
            block.parts.append(delta)
            return ThinkingDelta(index, delta)
        block.arguments.feed(delta)
        return ToolCallDelta(index, delta)

    def end(self, index: int) -> StreamEvent:
        """Close block `index`."""
        block = self.blocks[index]
        block.open = False
        if isinstance(block, LiveText):
            return TextEnd(index, "".join(block.parts))
        if isinstance(block, LiveThinking):
            return ThinkingEnd(index, "".join(block.parts))
        return ToolCallEnd(index, block.block())

    def end_all(self) -> list[StreamEvent]:
        """Close every block that is still open, in order."""
        return [self.end(index) for index, block in enumerate(self.blocks) if block.open]

    # -- what came of it -------------------------------------------------------------------------

    def snapshot(self) -> AssistantMessage:
        return self.finish("stop")

    def finish(self, stop_reason: str, error_message: str | None = None) -> AssistantMessage:
        """Return the message as it stands, with this ending."""
        return AssistantMessage(
            content=[block.block() for block in self.blocks],
            api=self.api,
            provider=self.provider,
            model=self.model,
            usage=self.usage,
            stop_reason=stop_reason,
            timestamp=self.timestamp,
            error_message=error_message,
            response_id=self.response_id,
            response_model=self.response_model,
            raw_stop_reason=self.raw_stop_reason,
        )
