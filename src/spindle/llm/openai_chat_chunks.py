"""Chunks of the `openai-completions` stream: the keys that are read, and nothing else.

Many servers claim to speak it, so a chunk that is not quite what it should be is read key by key.
"""

from typing import Any

import msgspec

from spindle.llm.decoding import event_decoder
from spindle.shapes.codec import DecodeError, encode

__all__ = [
    "ChatChunk",
    "ChatUsage",
    "Choice",
    "Delta",
    "FunctionPiece",
    "OutputDetails",
    "PromptDetails",
    "ToolCallPiece",
    "decode_chunk",
]


class FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    tool_calls: list[ToolCallPiece] | None = None
    reasoning_details: list[dict[str, Any]] | None = None


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class ChatUsage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    finish_reason: str | None = None
    usage: ChatUsage | None = None


class ChatChunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: ChatUsage | None = None
    error: Any = None


def _read_loosely(value: object) -> ChatChunk:
    if not isinstance(value, dict):
        raise DecodeError("not an object")
    choices = [
        Choice(_delta(_dict(choice.get("delta"))), _text(choice.get("finish_reason")), _usage(choice.get("usage")))
        for choice in _dicts(value.get("choices"))
    ]
    return ChatChunk(
        _text(value.get("id")), _text(value.get("model")), choices, _usage(value.get("usage")), value.get("error")
    )


def _delta(value: dict[str, Any]) -> Delta:
    return Delta(
        content=_text(value.get("content")),
        reasoning_content=_text(value.get("reasoning_content")),
        reasoning=_text(value.get("reasoning")),
        reasoning_text=_text(value.get("reasoning_text")),
        tool_calls=[_tool_call(call) for call in _dicts(value.get("tool_calls"))],
        reasoning_details=_dicts(value.get("reasoning_details")),
    )


def _tool_call(value: dict[str, Any]) -> ToolCallPiece:
    function = _dict(value.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = encode(arguments).decode()  # sent as a value instead of its text
    index = value.get("index")
    return ToolCallPiece(
        index=index if isinstance(index, int) else None,
        id=_text(value.get("id")),
        function=FunctionPiece(_text(function.get("name")), _text(arguments)),
    )


def _usage(value: Any) -> ChatUsage | None:
    try:
        return msgspec.convert(value, ChatUsage | None, strict=False)
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


decode_chunk = event_decoder(ChatChunk, _read_loosely)
"""Read one chunk. Raises `BadEventError`."""
