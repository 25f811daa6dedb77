"""The `openai-responses` API and its Azure form.

Items that the server must get back verbatim (encrypted reasoning, message ids) travel in the signatures of blocks; the
id of a tool call is `call_id|item_id`.
"""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from spindle.types.codec import DecodeError, decode, encode
from spindle.types.events import StreamEvent
from spindle.types.models import Model

from .compat import responses_compat
from .cost import add_cost
from .errors import BadEventError, ModelError, limit_body
from .exchange import Call, exchange
from .live import LiveMessage, LiveText, LiveThinking, LiveToolCall
from .openai_responses_request import AZURE, responses_body, responses_headers, responses_url
from .stream import Chunk, Request, StreamOptions
from .transform import transform_request

__all__ = ["stream"]

_TIER_FACTORS = {"flex": 0.5, "priority": 2.0}


def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Ask a responses server."""

    def error_text(status: int, body: str) -> str:
        name = "Azure OpenAI" if model.api == AZURE else model.provider
        return f"{name} API error ({status}): {limit_body(body.strip()) or 'status code (no body)'}"

    def prepare(live: LiveMessage) -> Call:
        compat = responses_compat(model)
        return Call(
            url=responses_url(model),
            headers=responses_headers(model, options, compat),
            body=responses_body(model, transform_request(request, model), options, compat),
            reader=ResponsesReader(live, model),
            error_text=error_text,
        )

    return exchange(model, options, prepare)


# -- what is read of an event --------------------------------------------------------------------


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Error(msgspec.Struct, gc=False):
    code: str | None = None
    message: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    service_tier: str | None = None
    incomplete_details: _Incomplete | None = None
    error: _Error | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = 0
    delta: str | None = None
    arguments: str | None = None
    item: dict[str, Any] | None = None
    response: _Response | None = None
    code: str | None = None
    message: str | None = None
    error: _Error | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_DELTAS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
    }
)


def _read_event(data: bytes) -> _Event:
    try:
        return _decode_event(data)
    except (DecodeError, UnicodeError):
        try:
            return msgspec.convert(decode(data), _Event, strict=False)
        except DecodeError:
            raise BadEventError(data) from None


class ResponsesReader:
    """Folds events into a message."""

    def __init__(self, live: LiveMessage, model: Model) -> None:
        self.done = False
        self._live = live
        self._model = model
        self._positions: dict[int, int] = {}
        """The server's number of an item → the position of its block."""
        self._between_parts = False
        """A part of a reasoning summary has ended; a blank line comes before the next."""
        self._response = _Response()

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            return
        event = _read_event(data)
        kind = event.type
        if kind in _DELTAS:
            position = self._positions.get(event.output_index)
            if position is not None and event.delta:
                if self._between_parts:
                    self._between_parts = False
                    out.append(self._live.append(position, "\n\n"))
                out.append(self._live.append(position, event.delta))
        elif kind == "response.output_item.added":
            self._start(event.output_index, event.item or {}, out)
        elif kind == "response.output_item.done":
            self._stop(event.output_index, event.item or {}, out)
        elif kind == "response.reasoning_summary_part.done":
            self._between_parts = True
        elif kind == "response.function_call_arguments.done":
            self._complete_arguments(self._positions.get(event.output_index), event.arguments, out)
        elif kind == "error" or event.error is not None:
            raise ModelError(_error_text(event.error or _Error(event.code, event.message)))
        elif event.response is not None:
            self._take_response(kind, event.response)

    def finish(self, out: list[StreamEvent]) -> str:
        if not self.done:
            raise ModelError("Stream ended before a terminal response event")
        live, response = self._live, self._response
        out.extend(live.end_all())
        live.raw_stop_reason = response.status
        if response.status == "completed":
            return "toolUse" if any(isinstance(block, LiveToolCall) for block in live.blocks) else "stop"
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if response.status == "incomplete" and reason == "max_output_tokens":
            return "length"
        raise ModelError(f"Provider finish_reason: {reason or response.status}")

    # -- items -----------------------------------------------------------------------------------

    def _start(self, index: int, item: dict[str, Any], out: list[StreamEvent]) -> None:
        live, kind = self._live, item.get("type")
        if kind == "reasoning":
            out.append(live.start_thinking())
        elif kind == "message":
            out.append(live.start_text())
        elif kind == "function_call":
            out.append(live.start_tool_call(f"{item.get('call_id')}|{item.get('id')}", str(item.get("name"))))
        else:
            return
        self._positions[index] = len(live.blocks) - 1
        self._between_parts = False

    def _stop(self, index: int, item: dict[str, Any], out: list[StreamEvent]) -> None:
        position = self._positions.pop(index, None)
        if position is None:
            return
        block = self._live.blocks[position]
        if isinstance(block, LiveToolCall):
            self._complete_arguments(position, item.get("arguments"), out)
        elif isinstance(block, LiveThinking):
            texts = [part.get("text", "") for part in item.get("summary") or item.get("content") or []]
            block.signature = encode(item).decode()
            _settle(block, "\n\n".join(texts))
        else:
            parts = item.get("content") or []
            signature = {"v": 1, "id": item.get("id"), **({"phase": item["phase"]} if item.get("phase") else {})}
            block.signature = encode(signature).decode()
            _settle(block, "".join(part.get("text") or part.get("refusal") or "" for part in parts))
        out.append(self._live.end(position))

    def _complete_arguments(self, position: int | None, arguments: Any, out: list[StreamEvent]) -> None:
        """Add what the pieces have left out, which may be everything."""
        block = self._live.blocks[position] if position is not None else None
        if position is not None and isinstance(block, LiveToolCall) and isinstance(arguments, str):
            written = block.arguments.text
            if len(arguments) > len(written) and arguments.startswith(written):
                out.append(self._live.append(position, arguments[len(written) :]))

    # -- the whole -------------------------------------------------------------------------------

    def _take_response(self, kind: str, response: _Response) -> None:
        live = self._live
        live.response_id = response.id or live.response_id
        if response.model and response.model != live.model:
            live.response_model = response.model
        if kind == "response.failed":
            raise ModelError(_error_text(response.error or _Error(None, "The response failed")))
        if kind in ("response.completed", "response.incomplete", "response.done"):
            self.done = True
            self._response = response
            if response.usage is not None:
                self._take_usage(response.usage, response.service_tier)

    def _take_usage(self, reported: _Usage, tier: str | None) -> None:
        details = reported.input_tokens_details or _InputDetails()
        usage = self._live.usage
        usage.cache_read = details.cached_tokens or 0
        usage.cache_write = details.cache_write_tokens or 0
        usage.input = max(0, (reported.input_tokens or 0) - usage.cache_read - usage.cache_write)
        usage.output = reported.output_tokens or 0
        if reported.output_tokens_details and reported.output_tokens_details.reasoning_tokens is not None:
            usage.reasoning = reported.output_tokens_details.reasoning_tokens
        add_cost(usage, self._model.cost, _TIER_FACTORS.get(tier or "", 1.0))


def _settle(block: LiveText | LiveThinking, text: str) -> None:
    """Replace what was streamed by the item's final text, should they differ."""
    if text and text != "".join(block.parts):
        block.parts = [text]


def _error_text(error: _Error) -> str:
    message = error.message or "Unknown error"
    return f"{error.code}: {message}" if error.code else message
