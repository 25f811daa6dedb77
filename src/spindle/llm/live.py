"""The fold: pieces of an answer become a message.

Model APIs call the verbs of `LiveMessage` and yield the events they return; nothing is joined until a
message is asked for, so an answer of n pieces costs n, not n².
"""

import re
import time
from collections.abc import Mapping
from typing import TypeAlias

from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.messages import AssistantMessage, Text, Thinking, ToolCall, Usage
from spindle.shapes.model import Model
from spindle.shapes.pieces import (
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

_MAX_DEPTH = 100


class LiveText:
    __slots__ = ("open", "parts", "signature")
    delta = TextDelta
    first_signature: str | None = None

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.signature: str | None = None
        self.open = True

    def block(self) -> Text:
        return Text("".join(self.parts), self.signature)


class LiveThinking:
    __slots__ = ("first_signature", "open", "parts", "redacted", "signature")
    delta = ThinkingDelta

    def __init__(self, signature: str | None, redacted: bool) -> None:
        self.parts: list[str] = []
        self.signature = self.first_signature = signature
        self.redacted = redacted
        self.open = True

    def block(self) -> Thinking:
        return Thinking("".join(self.parts), self.signature, self.redacted)


class LiveToolCall:
    __slots__ = ("arguments", "id", "name", "open", "signature")

    def __init__(self, id: str, name: str) -> None:
        from spindle.llm.partial_json import PartialJson

        self.id = id
        self.name = name
        self.arguments = PartialJson()
        self.signature: str | None = None
        self.open = True

    def block(self) -> ToolCall:
        arguments = {} if _is_too_deep(self.arguments.text) else self.arguments.value()
        return ToolCall(self.id, self.name, arguments, self.signature)


LiveBlock: TypeAlias = LiveText | LiveThinking | LiveToolCall


class LiveMessage(LiveSource):
    """An assistant answer while it is being written."""

    def __init__(self, model: Model) -> None:
        self.api = model.api
        self.provider = model.provider
        self.model = model.id
        self.price = None if model.cost_unknown else model.cost
        self.is_billed = model.provider == "openrouter" or "openrouter.ai" in model.base_url
        """Whether the server reports what it bills."""
        self.counted: bool | None = None
        """Whether the server has reported the whole usage; None if the stream function does not say."""
        self.timestamp = int(time.time() * 1000)
        self.usage = Usage()
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.raw_stop_reason: str | None = None
        self.thinking_level: str | None = None
        self.blocks: list[LiveBlock] = []

    # -- verbs of a model API --------------------------------------------------------------------

    def identify(self, response_id: str | None, model: str | None) -> None:
        """Note the server's id of this answer, and its name for the model if that is not ours."""
        self.response_id = self.response_id or response_id
        if model and model != self.model:
            self.response_model = model

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
        if isinstance(block, LiveToolCall):
            block.arguments.feed(delta)
            return ToolCallDelta(index, delta)
        block.parts.append(delta)
        return block.delta(index, delta)

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

    # -- results ---------------------------------------------------------------------------------

    def cut_calls(self) -> frozenset[str]:
        """Return the ids of tool calls whose arguments are not complete JSON; no text at all counts as `{}`."""
        calls = (block for block in self.blocks if isinstance(block, LiveToolCall))
        return frozenset(call.id for call in calls if not _is_complete(call.arguments.text))

    @property
    def calls_tools(self) -> bool:
        return any(isinstance(block, LiveToolCall) for block in self.blocks)

    def stop_reason(self, word: str, known: Mapping[str, str], problem: str) -> str:
        """Return the stop reason for a server's word. After tool calls, an unknown word means: run them.

        Raises `ModelError` if the word stands for an error.
        """
        self.raw_stop_reason = word
        reason = known.get(word, "toolUse" if self.calls_tools else "error")
        if reason == "error":
            from spindle.llm.errors import ModelError

            raise ModelError(f"{problem}: {word}")
        return reason

    def so_far(self) -> AssistantMessage:
        return self._message("stop")

    def finish(self, stop_reason: str, error_message: str | None = None) -> AssistantMessage:
        """Return the message as it stands, with this ending."""
        if self.blocks and not self._is_cost_known():
            self.usage.cost.unknown = True
        return self._message(stop_reason, error_message)

    def _is_cost_known(self) -> bool:
        if self.price is not None and self.price.is_free:
            return True
        return self.usage.cost.total > 0 if self.counted is None else self.counted

    def _message(self, stop_reason: str, error_message: str | None = None) -> AssistantMessage:
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
            thinking_level=self.thinking_level,
        )


def _is_too_deep(text: str) -> bool:
    """Say whether arguments are nested so deeply that they could not be read back from a session file."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return False
    depth = 0
    for mark in re.sub(r'"(?:[^"\\]|\\.)*"?', "", text):
        depth += (mark in "[{") - (mark in "]}")
        if depth > _MAX_DEPTH:
            return True
    return False


def _is_complete(text: str) -> bool:
    if not text.strip():
        return True
    if _is_too_deep(text):
        return False
    try:
        decode(text)
    except DecodeError:
        return False
    return True


class NumberedBlocks:
    """Open blocks of a message by the numbers a server gives them. Pieces for an unknown number are dropped."""

    __slots__ = ("_live", "_positions")

    def __init__(self, live: LiveMessage) -> None:
        self._live = live
        self._positions: dict[int, int] = {}

    def start(self, number: int, event: TextStart | ThinkingStart | ToolCallStart, out: list[StreamEvent]) -> None:
        """Give a number to the block that `event` has opened."""
        self._positions[number] = event.content_index
        out.append(event)

    def get(self, number: int) -> LiveBlock | None:
        position = self._positions.get(number)
        return None if position is None else self._live.blocks[position]

    def append(self, number: int, piece: str | None, out: list[StreamEvent]) -> None:
        position = self._positions.get(number)
        if piece and position is not None:
            out.append(self._live.append(position, piece))

    def end(self, number: int, out: list[StreamEvent]) -> None:
        position = self._positions.pop(number, None)
        if position is not None:
            out.append(self._live.end(position))
