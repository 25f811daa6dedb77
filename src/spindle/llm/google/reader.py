"""The stream of the `google-generative-ai` API.

Calls come whole; a block of text or thinking ends when the kind changes.
"""

import time
from itertools import count
from typing import Any

import msgspec

from spindle.llm.cost import take_usage
from spindle.llm.errors import ModelError, limit_body
from spindle.llm.exchange import event_decoder
from spindle.llm.live import LiveMessage, LiveThinking, LiveToolCall
from spindle.shapes.codec import encode
from spindle.shapes.events import StreamEvent
from spindle.shapes.model import Model

__all__ = ["GoogleReader"]

_call_numbers = count(1)


# -- what is read of a chunk ---------------------------------------------------------------------


class _FunctionCall(msgspec.Struct, gc=False):
    name: str
    args: Any = None
    id: str | None = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = False
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    response_id: str | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_read_chunk = event_decoder(_Chunk)


class GoogleReader:
    """Folds chunks into a message."""

    def __init__(self, live: LiveMessage, model: Model) -> None:
        self.done = False
        self._live = live
        self._model = model
        self._open: int | None = None
        """The block that is being written, if any."""
        self._finish_reason: str | None = None

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        chunk = _read_chunk(data)
        if chunk.error is not None:
            raise ModelError(limit_body(encode(chunk.error).decode()))
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            raise ModelError(f"Provider stopped with: {chunk.prompt_feedback.block_reason}")
        self._live.identify(chunk.response_id, chunk.model_version)
        if chunk.usage_metadata is not None:
            self._take_usage(chunk.usage_metadata)
        if not chunk.candidates:
            return
        candidate = chunk.candidates[0]
        self._finish_reason = candidate.finish_reason or self._finish_reason
        for part in (candidate.content.parts if candidate.content else None) or []:
            if part.function_call is not None:
                self._take_call(part.function_call, part.thought_signature, out)
            elif part.text is not None:
                self._take_text(part, out)

    def finish(self, out: list[StreamEvent]) -> str:
        live, reason = self._live, self._finish_reason
        if reason is None:
            raise ModelError("Stream ended without finishReason")
        out.extend(live.end_all())
        live.raw_stop_reason = reason
        if reason == "STOP":
            return "toolUse" if live.calls_tools else "stop"
        if reason == "MAX_TOKENS":
            return "length"
        raise ModelError(f"Provider stopped with: {reason}")

    def _take_text(self, part: _Part, out: list[StreamEvent]) -> None:
        live = self._live
        if self._open is not None and isinstance(live.blocks[self._open], LiveThinking) != bool(part.thought):
            self._close(out)
        if self._open is None:
            if not part.text and not part.thought_signature:
                return
            start = live.start_thinking() if part.thought else live.start_text()
            self._open = start.content_index
            out.append(start)
        if part.thought_signature:
            live.blocks[self._open].signature = part.thought_signature
        if part.text:
            out.append(live.append(self._open, part.text))

    def _take_call(self, call: _FunctionCall, signature: str | None, out: list[StreamEvent]) -> None:
        self._close(out)
        live = self._live
        known = {block.id for block in live.blocks if isinstance(block, LiveToolCall)}
        id = call.id
        if not id or id in known:
            id = f"{call.name}_{int(time.time() * 1000)}_{next(_call_numbers)}"
        start = live.start_tool_call(id, call.name)
        position = start.content_index
        live.blocks[position].signature = signature
        out += start, live.append(position, encode(call.args or {}).decode()), live.end(position)

    def _close(self, out: list[StreamEvent]) -> None:
        if self._open is not None:
            out.append(self._live.end(self._open))
            self._open = None

    def _take_usage(self, reported: _Usage) -> None:
        take_usage(
            self._live.usage,
            self._model.cost,
            sent=reported.prompt_token_count,
            cache_read=reported.cached_content_token_count,
            output=(reported.candidates_token_count or 0) + (reported.thoughts_token_count or 0),
            reasoning=reported.thoughts_token_count,
        )
