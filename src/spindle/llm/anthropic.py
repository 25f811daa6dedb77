"""The `anthropic-messages` API. In its stream a block is closed before the next one opens."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from spindle.llm.compat import MessagesCompat
from spindle.llm.cost import Bill, add_cost, effort_word, output_limit, room_to_think
from spindle.llm.errors import ModelError, error_words
from spindle.llm.exchange import Call, event_decoder, over_http
from spindle.llm.history import goes_on_for_another, with_results_together
from spindle.llm.live import LiveMessage, LiveThinking, LiveToolCall, NumberedBlocks
from spindle.llm.memory import from_the_end
from spindle.llm.stream import ModelMessage, Request, StreamOptions
from spindle.shapes.codec import encode
from spindle.shapes.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    blocks_of,
    text_of,
)
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

_VERSION = "2023-06-01"
_FINE_GRAINED_TOOLS = "fine-grained-tool-streaming-2025-05-14"
_INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14"


@over_http
def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    compat = MessagesCompat.of(model)
    body = messages_body(model, request, options, compat)
    return Call(
        url=f"{model.base_url.rstrip('/').removesuffix('/v1')}/v1/messages",
        headers=messages_headers(options, compat, body),
        body=body,
        reader=MessagesReader(live),
    )


def messages_headers(options: StreamOptions, compat: MessagesCompat, body: dict[str, Any]) -> dict[str, str]:
    """Return the headers that belong to a body."""
    headers = {"anthropic-version": _VERSION}
    given = {name.lower() for name in options.headers}
    if options.api_key and "authorization" not in given:
        if options.api_key.startswith("sk-ant-oat"):
            headers["authorization"] = f"Bearer {options.api_key}"
        else:
            headers["x-api-key"] = options.api_key
    betas = []
    if body.get("tools") and not compat.supports_eager_tool_input_streaming:
        betas.append(_FINE_GRAINED_TOOLS)
    if body.get("thinking", {}).get("type") == "enabled":
        betas.append(_INTERLEAVED_THINKING)
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    if options.session_id and compat.send_session_affinity_headers:
        is_openrouter = compat.session_affinity_format == "openrouter"
        headers["x-session-id" if is_openrouter else "x-session-affinity"] = options.session_id
    return headers


def messages_body(model: Model, request: Request, options: StreamOptions, compat: MessagesCompat) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    keep_long = options.cache_retention == "long" and compat.supports_long_cache_retention
    cache = {"cache_control": {"type": "ephemeral", **({"ttl": "1h"} if keep_long else {})}}
    body: dict[str, Any] = {
        "model": model.id,
        "max_tokens": output_limit(model, request, options),
        "messages": request.memory.json("anthropic", request.messages, partial(_messages, compat), compat),
        "stream": True,
    }
    if request.system_prompt.strip():
        body["system"] = [{"type": "text", "text": request.system_prompt, **cache}]
    if request.tools:
        eager = {"eager_input_streaming": True} if compat.supports_eager_tool_input_streaming else {}
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": {"properties": {}, "required": [], **tool.parameters, "type": "object"},
                **eager,
            }
            for tool in request.tools
        ]
        if compat.supports_cache_control_on_tools:
            body["tools"][-1] |= cache
    _mark_last_user_block(body["messages"], cache)
    if model.reasoning:
        _add_thinking(body, model, options, compat)
        if body.get("thinking", {}).get("type") == "enabled" and goes_on_for_another(request.messages, model):
            body["thinking"] = {"type": "disabled"}
    return body | (model.sampling_params or {})


def _mark_last_user_block(messages: list[Any], cache: dict[str, Any]) -> None:
    for message in from_the_end(messages):
        if message["role"] == "user":
            message["content"][-1] |= cache
            return


# -- messages ------------------------------------------------------------------------------------


def _messages(compat: MessagesCompat, history: Sequence[ModelMessage], _: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for message in with_results_together(history):
        if isinstance(message, list):
            content = [_tool_result(result) for result in message]
        elif isinstance(message, AssistantMessage):
            content = [part for block in message.content if (part := _answer_block(block, compat)) is not None]
        else:
            # Always as blocks: a message must look the same with a cache mark and after the mark has moved on.
            content = _blocks(blocks_of(message.content))
        if content:
            role = "assistant" if isinstance(message, AssistantMessage) else "user"
            messages.append({"role": role, "content": content})
    return messages


def _blocks(content: list[Text | Image]) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, Text)
        else {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}
        for block in content
        if not isinstance(block, Text) or block.text.strip()
    ]


def _tool_result(message: ToolResultMessage) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = text_of(message.content, "\n")
    if any(isinstance(block, Image) for block in message.content):
        blocks = _blocks(message.content)
        has_text = any(block["type"] == "text" for block in blocks)
        content = blocks if has_text else [{"type": "text", "text": "(see attached image)"}, *blocks]
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": content,
        "is_error": message.is_error,
    }


def _answer_block(block: Text | Thinking | ToolCall, compat: MessagesCompat) -> dict[str, Any] | None:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text} if block.text.strip() else None
    if isinstance(block, ToolCall):
        arguments = block.arguments if isinstance(block.arguments, dict) else {}
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": arguments}
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.thinking_signature or ""}
    if block.thinking_signature or compat.allow_empty_signature:
        return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature or ""}
    return {"type": "text", "text": block.thinking} if block.thinking.strip() else None


# -- thinking ------------------------------------------------------------------------------------


def _add_thinking(body: dict[str, Any], model: Model, options: StreamOptions, compat: MessagesCompat) -> None:
    level = options.reasoning
    word = effort_word(model, level)
    if level == "off":
        if word is not None:
            body["thinking"] = {"type": "disabled"}
    elif compat.force_adaptive_thinking:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        body["output_config"] = {"effort": "low" if word in (None, "minimal") else word}
    elif (room := room_to_think(body["max_tokens"], model, options)) is not None:
        body["max_tokens"], budget = room
        body["thinking"] = {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
    else:
        body["thinking"] = {"type": "disabled"}


# -- reading events ------------------------------------------------------------------------------

_STOP_REASONS = {
    "end_turn": "stop",
    "pause_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "toolUse",
    "model_context_window_exceeded": "error",
    "sensitive": "error",
}


class _CacheCreation(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: int | None = None


class _Usage(Bill, gc=False):
    input: int | None = msgspec.field(default=None, name="input_tokens")
    output: int | None = msgspec.field(default=None, name="output_tokens")
    cache_read: int | None = msgspec.field(default=None, name="cache_read_input_tokens")
    cache_write: int | None = msgspec.field(default=None, name="cache_creation_input_tokens")
    cache_creation: _CacheCreation | None = None


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Block(msgspec.Struct, gc=False):
    type: str | None = None
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

    def __init__(self, live: LiveMessage) -> None:
        self.done = False
        self._live = live
        self._blocks = NumberedBlocks(live)
        self._inputs: dict[int, Any] = {}
        """Arguments that came whole with the beginning of a call."""
        self._end = _Delta()
        """Why the answer has ended."""

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":  # belongs to another API, but servers that speak both send it
            return
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
            if event.delta is not None and event.delta.stop_reason:
                self._end = event.delta
            self._take_usage(event.usage)
            if event.usage is not None and event.usage.output is not None and event.usage.output >= 0:
                usage = self._live.usage
                # No prompt is empty, so 0 means that the server did not count.
                self._live.counted = usage.input + usage.cache_read + usage.cache_write > 0
        elif event.type == "message_stop":
            self.done = True
        elif event.type == "error" or event.error is not None:
            raise ModelError(error_words(data.decode("utf-8", "replace")))

    def finish(self, out: list[StreamEvent]) -> str:
        if not self.done:
            raise ModelError("Stream ended before message_stop")
        live, reason, details = self._live, self._end.stop_reason, self._end.stop_details
        for number in list(self._inputs):
            self._stop(number, out)
        out.extend(live.end_all())
        if reason == "refusal":
            live.raw_stop_reason = reason
            raise ModelError((details and details.explanation) or "The model refused to answer")
        if reason is None:  # the server has said that the answer is complete, but not why
            return "toolUse" if live.calls_tools else "stop"
        return live.stop_reason(reason, _STOP_REASONS, "Provider stop_reason")

    def _start(self, number: int, block: _Block, out: list[StreamEvent]) -> None:
        live, blocks = self._live, self._blocks
        self._stop(number, out)  # in case the server forgot to close a block of this number
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

    def _take_usage(self, reported: _Usage | None) -> None:
        if reported is None:
            return
        usage = self._live.usage
        for name in ("input", "output", "cache_read", "cache_write"):
            if (tokens := getattr(reported, name)) is not None and tokens >= 0:  # a negative number is not a count
                setattr(usage, name, tokens)
        kept = reported.cache_creation
        if kept is not None and (hour := kept.ephemeral_1h_input_tokens) is not None and hour > 0:
            usage.cache_write_1h = hour
        add_cost(usage, self._live.price, billed=reported.total(self._live))
