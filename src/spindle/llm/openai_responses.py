"""The `openai-responses` API and its Azure form.

Items that the server must get back verbatim (encrypted reasoning, message ids) travel in the signatures of blocks; the
id of a tool call is `call_id|item_id`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict

from spindle.llm.azure import azure_base, deployment
from spindle.llm.compat import ResponsesCompat, session_headers
from spindle.llm.cost import UsageDetails, effort_word, output_limit, take_usage
from spindle.llm.errors import ModelError
from spindle.llm.exchange import Call, event_decoder, over_http
from spindle.llm.live import LiveMessage, LiveText, LiveThinking, LiveToolCall, NumberedBlocks
from spindle.llm.stream import ModelMessage, Request, StreamOptions
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks_of,
    text_of,
)
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

AZURE = "azure-openai-responses"
_MIN_OUTPUT_TOKENS = 16
_MAX_CACHE_KEY = 64
_MAX_ITEM_ID = 64


@over_http
def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    compat = ResponsesCompat.of(model)
    return Call(
        url=responses_url(model, options),
        headers=responses_headers(model, options, compat),
        body=responses_body(model, request, options, compat),
        reader=ResponsesReader(live),
    )


def responses_url(model: Model, options: StreamOptions) -> str:
    """Return where to post. Raises `ModelError` if an Azure resource is not named."""
    if model.api != AZURE:
        return f"{model.base_url.rstrip('/')}/responses"
    version = options.variable("AZURE_OPENAI_API_VERSION") or "v1"
    return f"{azure_base(model, options)}/responses?api-version={version}"


def responses_headers(model: Model, options: StreamOptions, compat: ResponsesCompat) -> dict[str, str]:
    headers = {}
    if options.api_key:
        if model.api == AZURE:
            headers["api-key"] = options.api_key
        else:
            headers["authorization"] = f"Bearer {options.api_key}"
    if options.session_id:
        headers |= session_headers(options.session_id, compat.session_affinity_format)
    return headers


def responses_body(model: Model, request: Request, options: StreamOptions, compat: ResponsesCompat) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    body: dict[str, Any] = {
        "model": deployment(model.id, options) if model.api == AZURE else model.id,
        "input": _input(model, request, compat),
        "stream": True,
        "store": False,
        "max_output_tokens": max(_MIN_OUTPUT_TOKENS, output_limit(model, request, options)),
    }
    if request.tools:
        body["tools"] = [{"type": "function", "strict": False} | asdict(tool) for tool in request.tools]
    if options.session_id:
        body["prompt_cache_key"] = options.session_id[:_MAX_CACHE_KEY]
    if options.cache_retention == "long" and compat.supports_long_cache_retention:
        body["prompt_cache_retention"] = "24h"
    if model.reasoning and compat.supports_reasoning_effort:
        _add_reasoning(body, model, options)
    return body | (model.sampling_params or {})


def _add_reasoning(body: dict[str, Any], model: Model, options: StreamOptions) -> None:
    word = effort_word(model, options.reasoning)
    if options.reasoning != "off":
        body["reasoning"] = {"effort": word or options.reasoning, "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    elif word is not None and model.provider != "github-copilot":
        body["reasoning"] = {"effort": "none" if word == "off" else word}


# -- items ---------------------------------------------------------------------------------------


def _input(model: Model, request: Request, compat: ResponsesCompat) -> list[Any]:
    first = []
    if request.system_prompt:
        role = "developer" if model.reasoning and compat.supports_developer_role else "system"
        first.append({"role": role, "content": request.system_prompt})
    return [*first, *request.memory.json("responses", request.messages, partial(_items, len(first)), len(first))]


def _items(first: int, history: Sequence[ModelMessage], before: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, UserMessage):
            if blocks := blocks_of(message.content):
                items.append({"role": "user", "content": [_input_part(block) for block in blocks]})
        elif isinstance(message, ToolResultMessage):
            items.append(_tool_output(message))
        else:
            items += _answer_items(message, first + before + len(items))
    return items


def _input_part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{block.mime_type};base64,{block.data}"}


def _tool_output(message: ToolResultMessage) -> dict[str, Any]:
    output: Any = text_of(message.content, "\n") or "(no tool output)"
    if any(isinstance(block, Image) for block in message.content):
        output = [_input_part(block) for block in message.content if not isinstance(block, Text) or block.text]
    call_id, _, _ = message.tool_call_id.partition("|")
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _answer_items(message: AssistantMessage, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Thinking):
            if item := _parsed(block.thinking_signature):
                items.append(item)
        elif isinstance(block, Text):
            if block.text:
                items.append(_message_item(block, f"msg_{number + len(items)}"))
        else:
            items.append(_call_item(block))
    return items


def _message_item(block: Text, default_id: str) -> dict[str, Any]:
    signature = _parsed(block.text_signature) or {"id": block.text_signature}
    id = signature.get("id") or default_id
    item = {
        "type": "message",
        "role": "assistant",
        "id": id if len(id) <= _MAX_ITEM_ID else default_id,
        "status": "completed",
        "content": [{"type": "output_text", "text": block.text, "annotations": []}],
    }
    if signature.get("phase"):
        item["phase"] = signature["phase"]
    return item


def _call_item(block: ToolCall) -> dict[str, Any]:
    call_id, _, item_id = block.id.partition("|")
    arguments = encode(block.arguments).decode()
    item = {"type": "function_call", "call_id": call_id, "name": block.name, "arguments": arguments}
    if item_id.startswith("fc_"):
        item["id"] = item_id
    return item


def _parsed(signature: str | None) -> dict[str, Any] | None:
    """Return the content of a signature that we made; None for any other."""
    try:
        value = decode(signature) if signature else None
    except DecodeError:
        return None
    return value if isinstance(value, dict) else None


# -- reading events ------------------------------------------------------------------------------

_STOP_REASONS = {
    "max_output_tokens": "length",
    "content_filter": "error",
    "incomplete": "length",
    "failed": "error",
    "cancelled": "error",
}
"""By the reason why an answer is incomplete, else by its status."""
_TIER_FACTORS = {"flex": 0.5, "priority": 2.0}


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: UsageDetails | None = None
    output_tokens_details: UsageDetails | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Error(msgspec.Struct, gc=False):
    code: str | int | None = None
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
# Items to assume when a server forgot to announce one; a call cannot be assumed, for its name is missing.
_UNANNOUNCED = {
    "response.output_text.delta": {"type": "message"},
    "response.refusal.delta": {"type": "message"},
    "response.reasoning_summary_text.delta": {"type": "reasoning"},
    "response.reasoning_text.delta": {"type": "reasoning"},
}
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.done", "response.failed")
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

    def __init__(self, live: LiveMessage) -> None:
        self.done = False
        self._live = live
        self._blocks = NumberedBlocks(live)
        self._announced: set[int] = set()
        self._between_parts: int | None = None
        """The item whose last part of the summary has ended; a blank line comes before the next part."""
        self._response = _Response()

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            return
        event = _read_event(data)
        kind, number = event.type, event.output_index or 0
        if kind in _DELTAS:
            if number not in self._announced and event.delta:
                self._start(number, _UNANNOUNCED.get(kind, {}), out)
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
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if response.status in (None, "completed"):
            live.raw_stop_reason = response.status
            return "toolUse" if live.calls_tools else "stop"
        return live.stop_reason(reason or response.status, _STOP_REASONS, "Provider finish_reason")

    # -- items -----------------------------------------------------------------------------------

    def _start(self, number: int, item: dict[str, Any], out: list[StreamEvent]) -> None:
        live, blocks = self._live, self._blocks
        self._between_parts = None
        self._announced.add(number)
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
            texts = _texts(item.get("summary") or item.get("content"))
            block.signature = encode(item).decode()
            _settle(block, "\n\n".join(texts))
        elif block is not None:
            signature = {"v": 1, "id": item.get("id"), **({"phase": item["phase"]} if item.get("phase") else {})}
            block.signature = encode(signature).decode()
            _settle(block, "".join(_texts(item.get("content"))))
        self._blocks.end(number, out)

    def _complete_arguments(self, number: int, arguments: Any, out: list[StreamEvent]) -> None:
        """Add the arguments that the pieces left out, perhaps all of them."""
        block = self._blocks.get(number)
        if isinstance(block, LiveToolCall) and isinstance(arguments, str):
            written = block.arguments.text
            if arguments.startswith(written):
                self._blocks.append(number, arguments[len(written) :], out)

    # -- the whole response ----------------------------------------------------------------------

    def _take_response(self, kind: str, response: _Response) -> None:
        self._live.identify(response.id, response.model)
        if response.usage is not None and kind in _LAST_EVENTS:
            self._take_usage(response.usage, response.service_tier)
        if kind == "response.failed":
            raise ModelError(_error_text(response.error or _Error(None, "The response failed")))
        if kind in _LAST_EVENTS:
            self.done = True
            self._response = response

    def _take_usage(self, usage: _Usage, tier: str | None) -> None:
        details = usage.input_tokens_details or UsageDetails()
        take_usage(
            self._live,
            sent=usage.input_tokens,
            cache_read=details.cached_tokens,
            cache_write=details.cache_write_tokens,
            output=usage.output_tokens,
            reasoning=(usage.output_tokens_details or UsageDetails()).reasoning_tokens,
            factor=_TIER_FACTORS.get(tier or "", 1.0),
        )


def _texts(parts: Any) -> list[str]:
    """Return the texts of an item's parts; other parts are left out."""
    parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    texts = [part.get("text") or part.get("refusal") for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _settle(block: LiveText | LiveThinking, text: str) -> None:
    """Replace the streamed text by the item's final text if they differ."""
    if text and text != "".join(block.parts):
        block.parts = [text]


def _error_text(error: _Error) -> str:
    message = error.message or "Unknown error"
    return f"{error.code}: {message}" if error.code else message
