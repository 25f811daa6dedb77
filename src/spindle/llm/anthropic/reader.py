"""The stream of the `anthropic-messages` API. A block is closed before the next one opens."""

from typing import Any

import msgspec

from spindle.llm.cost import add_cost
from spindle.llm.errors import ModelError, limit_body
from spindle.llm.exchange import event_decoder
from spindle.llm.live import LiveMessage, LiveThinking, LiveToolCall, NumberedBlocks
from spindle.shapes.codec import encode
from spindle.shapes.events import StreamEvent
from spindle.shapes.model import Model

__all__ = ["MessagesReader"]

_STOP_REASONS = {
    "end_turn": "stop",
    "pause_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "toolUse",
}


# -- what is read of an event --------------------------------------------------------------------


class _CacheCreation(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Block(msgspec.Struct, gc=False):
    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _StopDetails(msgspec.Struct, gc=False):
    explanation: str | None = None


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_read_event = event_decoder(_Event)


class MessagesReader:
    """Folds events into a message."""

    def __init__(self, live: LiveMessage, model: Model) -> None:
        self.done = False
        self._live = live
        self._model = model
        self._blocks = NumberedBlocks(live)
        self._inputs: dict[int, Any] = {}
        """Arguments that came whole with the beginning of a call."""
        self._stop_reason: str | None = None
        self._refusal: str | None = None

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        event = _read_event(data)
        number = event.index or 0
        if event.type == "content_block_delta":
            if event.delta is not None:
                self._take_delta(number, event.delta, out)
        elif event.type == "content_block_start":
            if event.content_block is not None:
                self._start(number, event.content_block, out)
        elif event.type == "content_block_stop":
            self._stop(number, out)
        elif event.type == "message_start":
            if event.message is not None:
                self._live.identify(event.message.id, event.message.model)
                self._take_usage(event.message.usage)
        elif event.type == "message_delta":
            self._take_end(event)
        elif event.type == "message_stop":
            self.done = True
        elif event.type == "error" or event.error is not None:
            raise ModelError(limit_body(data.decode("utf-8", "replace")))

    def finish(self, out: list[StreamEvent]) -> str:
        if not self.done:
            raise ModelError("Stream ended before message_stop")
        live, reason = self._live, self._stop_reason
        for number in list(self._inputs):
            self._stop(number, out)
        out.extend(live.end_all())
        live.raw_stop_reason = reason
        if reason == "refusal":
            raise ModelError(self._refusal or "The model refused to answer")
        if reason not in _STOP_REASONS:
            raise ModelError(f"Provider stop_reason: {reason}")
        return _STOP_REASONS[reason]

    def _start(self, number: int, block: _Block, out: list[StreamEvent]) -> None:
        live, blocks = self._live, self._blocks
        self._stop(number, out)  # should the server have forgotten that
        match block.type:
            case "text":
                blocks.start(number, live.start_text(), out)
                blocks.append(number, block.text, out)
            case "thinking":
                blocks.start(number, live.start_thinking(block.signature or None), out)
                blocks.append(number, block.thinking, out)
            case "redacted_thinking":
                blocks.start(number, live.start_thinking(block.data, redacted=True), out)
            case "tool_use":
                blocks.start(number, live.start_tool_call(block.id or "", block.name or ""), out)
                self._inputs[number] = block.input

    def _take_delta(self, number: int, delta: _Delta, out: list[StreamEvent]) -> None:
        if delta.signature:
            block = self._blocks.get(number)
            if isinstance(block, LiveThinking):
                block.signature = (block.signature or "") + delta.signature
        else:
            self._blocks.append(number, delta.text or delta.thinking or delta.partial_json, out)

    def _stop(self, number: int, out: list[StreamEvent]) -> None:
        block, given = self._blocks.get(number), self._inputs.pop(number, None)
        if given and isinstance(block, LiveToolCall) and not block.arguments.text:
            self._blocks.append(number, encode(given).decode(), out)
        self._blocks.end(number, out)

    def _take_end(self, event: _Event) -> None:
        if event.delta is not None and event.delta.stop_reason:
            self._stop_reason = event.delta.stop_reason
            if event.delta.stop_details is not None:
                self._refusal = event.delta.stop_details.explanation
        self._take_usage(event.usage)

    def _take_usage(self, reported: _Usage | None) -> None:
        if reported is None:
            return
        usage = self._live.usage
        if reported.input_tokens is not None:
            usage.input = reported.input_tokens
        if reported.output_tokens is not None:
            usage.output = reported.output_tokens
        if reported.cache_read_input_tokens is not None:
            usage.cache_read = reported.cache_read_input_tokens
        if reported.cache_creation_input_tokens is not None:
            usage.cache_write = reported.cache_creation_input_tokens
        if reported.cache_creation is not None and reported.cache_creation.ephemeral_1h_input_tokens:
            usage.cache_write_1h = reported.cache_creation.ephemeral_1h_input_tokens
        add_cost(usage, self._model.cost)
