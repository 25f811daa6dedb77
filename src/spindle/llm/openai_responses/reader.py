"""The stream of the `openai-responses` API.

Items that the server must get back verbatim (encrypted reasoning, message ids) travel in the signatures of blocks; the
id of a tool call is `call_id|item_id`.
"""

from typing import Any

import msgspec

from spindle.llm.cost import take_usage
from spindle.llm.errors import ModelError
from spindle.llm.exchange import event_decoder
from spindle.llm.live import LiveMessage, LiveText, LiveThinking, LiveToolCall, NumberedBlocks
from spindle.shapes.codec import encode
from spindle.shapes.events import StreamEvent
from spindle.shapes.model import Model

__all__ = ["ResponsesReader"]

_TIER_FACTORS = {"flex": 0.5, "priority": 2.0}


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
    output_index: int | None = 0
    delta: str | None = None
    arguments: str | None = None
    item: dict[str, Any] | None = None
    response: _Response | None = None
    code: str | None = None
    message: str | None = None
    error: _Error | None = None


_read_event = event_decoder(_Event)
_DELTAS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
    }
)


class ResponsesReader:
    """Folds events into a message."""

    def __init__(self, live: LiveMessage, model: Model) -> None:
        self.done = False
        self._live = live
        self._model = model
        self._blocks = NumberedBlocks(live)
        self._between_parts: int | None = None
        """The item of which a part of the summary has ended; a blank line comes before the next."""
        self._response = _Response()

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            return
        event = _read_event(data)
        kind, number = event.type, event.output_index or 0
        if kind in _DELTAS:
            if self._between_parts == number and event.delta:
                self._between_parts = None
                self._blocks.append(number, "\n\n", out)
            self._blocks.append(number, event.delta, out)
        elif kind == "response.output_item.added":
            self._start(number, event.item or {}, out)
        elif kind == "response.output_item.done":
            self._stop(number, event.item or {}, out)
        elif kind == "response.reasoning_summary_part.done":
            self._between_parts = number
        elif kind == "response.function_call_arguments.done":
            self._complete_arguments(number, event.arguments, out)
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
            return "toolUse" if live.calls_tools else "stop"
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if response.status == "incomplete" and reason == "max_output_tokens":
            return "length"
        raise ModelError(f"Provider finish_reason: {reason or response.status}")

    # -- items -----------------------------------------------------------------------------------

    def _start(self, number: int, item: dict[str, Any], out: list[StreamEvent]) -> None:
        live, blocks = self._live, self._blocks
        self._between_parts = None
        match item.get("type"):
            case "reasoning":
                blocks.start(number, live.start_thinking(), out)
            case "message":
                blocks.start(number, live.start_text(), out)
            case "function_call":
                id = f"{item.get('call_id')}|{item.get('id')}"
                blocks.start(number, live.start_tool_call(id, str(item.get("name"))), out)

    def _stop(self, number: int, item: dict[str, Any], out: list[StreamEvent]) -> None:
        block = self._blocks.get(number)
        if isinstance(block, LiveToolCall):
            self._complete_arguments(number, item.get("arguments"), out)
        elif isinstance(block, LiveThinking):
            texts = [part.get("text") or "" for part in item.get("summary") or item.get("content") or []]
            block.signature = encode(item).decode()
            _settle(block, "\n\n".join(texts))
        elif block is not None:
            parts = item.get("content") or []
            signature = {"v": 1, "id": item.get("id"), **({"phase": item["phase"]} if item.get("phase") else {})}
            block.signature = encode(signature).decode()
            _settle(block, "".join(part.get("text") or part.get("refusal") or "" for part in parts))
        self._blocks.end(number, out)

    def _complete_arguments(self, number: int, arguments: Any, out: list[StreamEvent]) -> None:
        """Add what the pieces have left out, which may be everything."""
        block = self._blocks.get(number)
        if isinstance(block, LiveToolCall) and isinstance(arguments, str):
            written = block.arguments.text
            if arguments.startswith(written):
                self._blocks.append(number, arguments[len(written) :], out)

    # -- the whole -------------------------------------------------------------------------------

    def _take_response(self, kind: str, response: _Response) -> None:
        self._live.identify(response.id, response.model)
        if kind == "response.failed":
            raise ModelError(_error_text(response.error or _Error(None, "The response failed")))
        if kind in ("response.completed", "response.incomplete", "response.done"):
            self.done = True
            self._response = response
            if response.usage is not None:
                self._take_usage(response.usage, response.service_tier)

    def _take_usage(self, reported: _Usage, tier: str | None) -> None:
        details = reported.input_tokens_details or _InputDetails()
        take_usage(
            self._live.usage,
            self._model.cost,
            sent=reported.input_tokens,
            cache_read=details.cached_tokens,
            cache_write=details.cache_write_tokens,
            output=reported.output_tokens,
            reasoning=(reported.output_tokens_details or _OutputDetails()).reasoning_tokens,
            factor=_TIER_FACTORS.get(tier or "", 1.0),
        )


def _settle(block: LiveText | LiveThinking, text: str) -> None:
    """Replace what was streamed by the item's final text, should they differ."""
    if text and text != "".join(block.parts):
        block.parts = [text]


def _error_text(error: _Error) -> str:
    message = error.message or "Unknown error"
    return f"{error.code}: {message}" if error.code else message
