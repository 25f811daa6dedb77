"""The stream of the `openai-completions` API.

Blocks stay open until the stream ends, because text, thinking and calls may take turns in it. Many servers claim to
speak this API, so a chunk that is not quite what it should be is read key by key.
"""

from typing import Any
from uuid import uuid4

import msgspec

from spindle.llm.compat import ChatCompat
from spindle.llm.cost import take_usage
from spindle.llm.errors import ModelError
from spindle.llm.exchange import event_decoder
from spindle.llm.live import LiveMessage, LiveToolCall
from spindle.shapes.codec import DecodeError, encode
from spindle.shapes.events import StreamEvent
from spindle.shapes.model import Model

__all__ = ["ChatReader"]

_STOP_REASONS = {
    "stop": "stop",
    "end": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


# -- what is read of a chunk ---------------------------------------------------------------------


class _FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    tool_calls: list[_ToolCallPiece] | None = None
    reasoning_details: list[dict[str, Any]] | None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


def _read_loosely(value: object) -> _Chunk:
    if not isinstance(value, dict):
        raise DecodeError("not an object")
    choices = [
        _Choice(_delta(_dict(choice.get("delta"))), _text(choice.get("finish_reason")), _usage_of(choice.get("usage")))
        for choice in _dicts(value.get("choices"))
    ]
    return _Chunk(
        _text(value.get("id")), _text(value.get("model")), choices, _usage_of(value.get("usage")), value.get("error")
    )


def _delta(value: dict[str, Any]) -> _Delta:
    return _Delta(
        content=_text(value.get("content")),
        reasoning_content=_text(value.get("reasoning_content")),
        reasoning=_text(value.get("reasoning")),
        reasoning_text=_text(value.get("reasoning_text")),
        tool_calls=[_tool_call(call) for call in _dicts(value.get("tool_calls"))],
        reasoning_details=_dicts(value.get("reasoning_details")),
    )


def _tool_call(value: dict[str, Any]) -> _ToolCallPiece:
    function = _dict(value.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = encode(arguments).decode()  # sent as a value instead of its text
    index = value.get("index")
    return _ToolCallPiece(
        index=index if isinstance(index, int) else None,
        id=_text(value.get("id")),
        function=_FunctionPiece(_text(function.get("name")), _text(arguments)),
    )


def _usage_of(value: Any) -> _Usage | None:
    try:
        return msgspec.convert(value, _Usage | None, strict=False)
    except msgspec.ValidationError:
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, list):  # content as a list of parts
        return "".join(part["text"] for part in _dicts(value) if isinstance(part.get("text"), str))
    return value if isinstance(value, str) else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_read_chunk = event_decoder(_Chunk, _read_loosely)


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
        chunk = _read_chunk(data)
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

    def _take_call(self, piece: _ToolCallPiece, out: list[StreamEvent]) -> None:
        function = piece.function or _FunctionPiece()
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

    def _find_call(self, piece: _ToolCallPiece, function: _FunctionPiece) -> "_OpenCall | None":
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

    def _take_usage(self, reported: _Usage) -> None:
        details = reported.prompt_tokens_details or _PromptDetails()
        take_usage(
            self._live.usage,
            self._model.cost,
            sent=reported.prompt_tokens,
            cache_read=details.cached_tokens or reported.prompt_cache_hit_tokens or reported.cached_tokens,
            cache_write=details.cache_write_tokens,
            output=reported.completion_tokens,
            reasoning=(reported.completion_tokens_details or _OutputDetails()).reasoning_tokens,
        )


class _OpenCall(msgspec.Struct):
    index: int | None
    position: int
    """Of its block in the message."""
    block: LiveToolCall


def _field_of_thinking(delta: _Delta) -> str:
    if delta.reasoning_content:
        return "reasoning_content"
    return "reasoning" if delta.reasoning else "reasoning_text"


def _error_message(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str) and error["message"]:
        return str(error["message"])
    return error if isinstance(error, str) else encode(error).decode()
