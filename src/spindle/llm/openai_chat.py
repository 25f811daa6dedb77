"""The `openai-completions` API: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and many more.

Blocks stay open until the stream ends, because text, thinking and calls may take turns in it.
"""

from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import msgspec

from spindle.llm.compat import ChatCompat, chat_compat
from spindle.llm.cost import take_usage
from spindle.llm.errors import ModelError
from spindle.llm.exchange import Call, exchange
from spindle.llm.live import LiveMessage, LiveToolCall
from spindle.llm.openai_chat_chunks import (
    ChatUsage,
    Delta,
    FunctionPiece,
    OutputDetails,
    PromptDetails,
    ToolCallPiece,
    decode_chunk,
)
from spindle.llm.openai_chat_request import chat_body, chat_headers
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.llm.transform import transform_request
from spindle.shapes.codec import encode
from spindle.shapes.events import StreamEvent
from spindle.shapes.models import Model

__all__ = ["stream"]

_STOP_REASONS = {
    "stop": "stop",
    "end": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask a chat-completions server."""

    def prepare(live: LiveMessage) -> Call:
        compat = chat_compat(model)
        return Call(
            url=f"{model.base_url.rstrip('/')}/chat/completions",
            headers=chat_headers(options, compat),
            body=chat_body(model, transform_request(request, model), options, compat),
            reader=ChatReader(live, model, compat),
        )

    return exchange(model, options, prepare)


class ChatReader:
    """Folds chunks into a message."""

    def __init__(self, live: LiveMessage, model: Model, compat: ChatCompat) -> None:
        self.done = False
        self._live = live
        self._model = model
        self._compat = compat
        self._text: int | None = None
        """Index of the block of text, of which there is at most one; so with thinking."""
        self._thinking: int | None = None
        self._calls: list[_OpenCall] = []
        self._details: dict[str, str] = {}
        """Encrypted thinking by the id of the call it belongs to."""
        self._finish_reason: str | None = None

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk = decode_chunk(data)
        if chunk.error is not None:
            raise ModelError(_error_message(chunk.error))
        live = self._live
        live.identify(chunk.id, chunk.model)
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason
        if choice.usage is not None and chunk.usage is None:
            self._take_usage(choice.usage)
        delta = choice.delta
        if delta is None:
            return
        if delta.content:
            if self._text is None:
                out.append(start := live.start_text())
                self._text = start.content_index
            out.append(live.append(self._text, delta.content))
        thinking = delta.reasoning_content or delta.reasoning or delta.reasoning_text
        if thinking:
            if self._thinking is None:
                out.append(opening := live.start_thinking(_field_of_thinking(delta)))
                self._thinking = opening.content_index
            out.append(live.append(self._thinking, thinking))
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._take_call(call, out)
        if delta.reasoning_details:
            for detail in delta.reasoning_details:
                if detail.get("type") == "reasoning.encrypted" and detail.get("data") and detail.get("id"):
                    self._details[detail["id"]] = encode(detail).decode()

    def finish(self, out: list[StreamEvent]) -> str:
        live = self._live
        reason = self._finish_reason
        if reason is None and self._compat.supports_finish_reason:
            raise ModelError("Stream ended without finish_reason")
        for call in self._calls:
            call.block.signature = self._details.get(call.block.id)
        out.extend(live.end_all())
        if reason is None:
            return "toolUse" if self._calls else "stop"
        live.raw_stop_reason = reason
        if reason not in _STOP_REASONS:
            raise ModelError(f"Provider finish_reason: {reason}")
        return _STOP_REASONS[reason]

    def _take_call(self, piece: ToolCallPiece, out: list[StreamEvent]) -> None:
        function = piece.function or FunctionPiece()
        call = self._find_call(piece, function)
        if call is None:
            id = piece.id or f"call_{uuid4().hex[:24]}"
            out.append(self._live.start_tool_call(id, function.name or ""))
            block = self._live.blocks[-1]
            assert isinstance(block, LiveToolCall)
            call = _OpenCall(piece.index, len(self._live.blocks) - 1, block)
            self._calls.append(call)
        elif function.name and not call.block.name:
            call.block.name = function.name
        if function.arguments:
            out.append(self._live.append(call.position, function.arguments))

    def _find_call(self, piece: ToolCallPiece, function: FunctionPiece) -> "_OpenCall | None":
        """Return the call a piece continues. Servers forget the index, the id, or repeat either of them."""
        for call in reversed(self._calls):
            if piece.index is not None:
                if piece.index == call.index:
                    is_new = piece.id and function.name and piece.id != call.block.id
                    return None if is_new else call
            elif piece.id:
                if piece.id == call.block.id:
                    return call
            elif not function.name:
                return call
        return None

    def _take_usage(self, reported: ChatUsage) -> None:
        details = reported.prompt_tokens_details or PromptDetails()
        take_usage(
            self._live.usage,
            self._model.cost,
            sent=reported.prompt_tokens,
            cache_read=details.cached_tokens or reported.prompt_cache_hit_tokens or reported.cached_tokens,
            cache_write=details.cache_write_tokens,
            output=reported.completion_tokens,
            reasoning=(reported.completion_tokens_details or OutputDetails()).reasoning_tokens,
        )


class _OpenCall(msgspec.Struct):
    index: int | None
    position: int
    """Of its block in the message."""
    block: LiveToolCall


def _field_of_thinking(delta: Delta) -> str:
    if delta.reasoning_content:
        return "reasoning_content"
    return "reasoning" if delta.reasoning else "reasoning_text"


def _error_message(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str) and error["message"]:
        return str(error["message"])
    return error if isinstance(error, str) else encode(error).decode()
