"""The `bedrock-converse-stream` API: models of many makers behind one API of Amazon.

A request carries a bearer token or is signed. Blocks come numbered; only tool calls are announced.
"""

import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from spindle.llm.aws import EventStreamParser, arn_region, find_credentials, find_region, signed_headers
from spindle.llm.cost import effort_word, output_limit, room_to_think, take_usage
from spindle.llm.errors import ModelError, error_words, limit_body
from spindle.llm.exchange import Call, event_decoder, over_http
from spindle.llm.history import goes_on_for_another, with_results_together
from spindle.llm.live import LiveMessage, LiveText, LiveThinking, LiveToolCall, NumberedBlocks
from spindle.llm.memory import from_the_end
from spindle.llm.stream import ModelMessage, Request, StreamOptions
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResultMessage, blocks_of
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

_SERVICE = "bedrock"
_HOME = "us-east-1"
_OWN_HOST = r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?"
_INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14"
_EMPTY = "<empty>"
"""Sent instead of a blank text, which the server refuses."""
_IMAGE_FORMATS = {
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
}


@over_http
async def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    region, base_url = bedrock_address(model, await find_region(options))
    is_open = options.variable("AWS_BEDROCK_SKIP_AUTH") == "1"
    token = options.api_key or options.variable("AWS_BEARER_TOKEN_BEDROCK")

    async def sign(url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        if is_open or "authorization" in headers:
            return {}
        return signed_headers(url, headers, body, await find_credentials(options), region, _SERVICE, time.time())

    headers = {"content-type": "application/json", "accept": "application/vnd.amazon.eventstream"}
    return Call(
        url=f"{base_url}/model/{quote(model.id, safe='')}/converse-stream",
        headers=headers | ({"authorization": f"Bearer {token}"} if token and not is_open else {}),
        body=converse_body(model, request, options),
        reader=ConverseReader(live),
        error_text=_error_text,
        parser=EventStreamParser,
        sign=sign,
    )


def bedrock_address(model: Model, region: str | None) -> tuple[str, str]:
    """Return region and address; `region` is the user's choice. An address that is not Amazon's own stays as it is."""
    own = re.fullmatch(_OWN_HOST, urlsplit(model.base_url).hostname or "")
    region = arn_region(model.id) or region or (own[1] if own else _HOME)
    base_url = model.base_url.rstrip("/")
    return region, base_url.replace(f".{own[1]}.", f".{region}.", 1) if own else base_url


def converse_body(model: Model, request: Request, options: StreamOptions) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    points: list[dict[str, Any]] = []
    if _takes_cache_points(model) or options.variable("AWS_BEDROCK_FORCE_CACHE") == "1":
        points = [{"cachePoint": {"type": "default", **({"ttl": "1h"} if options.cache_retention == "long" else {})}}]
    messages = request.memory.json("bedrock", request.messages, partial(_messages, model), model)
    if (last := next(from_the_end(messages), None)) is not None and last["role"] == "user":
        last["content"] += points
    body: dict[str, Any] = {
        "messages": messages,
        "inferenceConfig": {"maxTokens": output_limit(model, request, options), **(model.sampling_params or {})},
    }
    if request.system_prompt.strip():
        body["system"] = [{"text": request.system_prompt}, *points]
    if tools := _tools(request):
        body["toolConfig"] = {"tools": tools}
    if model.reasoning and options.reasoning != "off" and (fields := _thinking(body, model, options)):
        enabled = fields.get("thinking", {}).get("type") == "enabled"
        if not (enabled and goes_on_for_another(request.messages, model)):
            body["additionalModelRequestFields"] = fields
    return body


def _names(model: Model) -> str:
    """Return id and name in one spelling; the ARN of an inference profile does not name the model, but its name may."""
    return re.sub(r"[\s_.:]+", "-", f"{model.id} {model.name}".lower())


def _is_claude(model: Model) -> bool:
    return "claude" in _names(model)


def _takes_cache_points(model: Model) -> bool:
    names = _names(model)
    old = re.search(r"claude-(?:instant|v?[12]\b|3-(?!5-haiku|7))", names)
    return "claude" in names and old is None


def _tools(request: Request) -> list[dict[str, Any]]:
    known = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
    if not known:
        # The server refuses a history with calls unless the request names their tools.
        calls = (block for message in request.messages for block in message.content if isinstance(block, ToolCall))
        known = [(name, name, {"type": "object"}) for name in dict.fromkeys(call.name for call in calls)]
    return [
        {"toolSpec": {"name": name, "description": description, "inputSchema": {"json": parameters}}}
        for name, description, parameters in known
    ]


# -- messages ------------------------------------------------------------------------------------


def _messages(model: Model, history: Sequence[ModelMessage], _: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for message in with_results_together(history):
        if isinstance(message, list):
            results = [_tool_result(model, result) for result in message]
            content = [*(result for result, _ in results), *(part for _, images in results for part in images)]
        elif isinstance(message, AssistantMessage):
            content = [part for block in message.content if (part := _answer_part(model, block)) is not None]
        else:
            content = _parts(blocks_of(message.content))
        if content:
            role = "assistant" if isinstance(message, AssistantMessage) else "user"
            messages.append({"role": role, "content": content})
    return messages


def _parts(content: list[Text | Image]) -> list[dict[str, Any]]:
    parts = [
        {"text": block.text} if isinstance(block, Text) else _image(block)
        for block in content
        if not isinstance(block, Text) or block.text.strip()
    ]
    return parts or [{"text": _EMPTY}]


def _image(block: Image) -> dict[str, Any]:
    if block.mime_type not in _IMAGE_FORMATS:
        raise ModelError(f"Bedrock takes images as jpeg, png, gif or webp, not {block.mime_type}")
    return {"image": {"format": _IMAGE_FORMATS[block.mime_type], "source": {"bytes": block.data}}}


def _tool_result(model: Model, message: ToolResultMessage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result, and parts to put behind all results: Claude takes nothing but text in an error."""
    content, separate = message.content, []
    if message.is_error and _is_claude(model):
        images = [block for block in content if isinstance(block, Image)]
        content = [block for block in content if isinstance(block, Text)]
        separate = [{"text": "Image of the failed call:"}, *map(_image, images)] if images else []
    status = "error" if message.is_error else "success"
    result = {"toolUseId": message.tool_call_id, "content": _parts(content), "status": status}
    return {"toolResult": result}, separate


def _answer_part(model: Model, block: Text | Thinking | ToolCall) -> dict[str, Any] | None:
    if isinstance(block, Text):
        return {"text": block.text} if block.text.strip() else None
    if isinstance(block, ToolCall):
        arguments = block.arguments if isinstance(block.arguments, dict) else {}
        return {"toolUse": {"toolUseId": block.id, "name": block.name, "input": arguments}}
    if block.redacted:
        return {"reasoningContent": {"redactedContent": block.thinking_signature}} if block.thinking_signature else None
    if not block.thinking.strip():
        return None
    text = {"text": block.thinking}
    if not _is_claude(model):
        return {"reasoningContent": {"reasoningText": text}}
    if not block.thinking_signature:
        return text  # the server takes back only signed thinking
    return {"reasoningContent": {"reasoningText": text | {"signature": block.thinking_signature}}}


# -- thinking ------------------------------------------------------------------------------------

_ADAPTIVE = r"(?:opus|sonnet)-4-[6-9]|(?:opus|sonnet|haiku|fable)-[5-9]"
"""Claude models that take an effort instead of a number of tokens to think."""
_BINDS_THINKING = r"opus-4-[7-9]|(?:opus|sonnet|haiku|fable)-[5-9]"
"""Claude models that refuse thinking from before a change of system prompt or tools, unless told to drop it."""
_BINDING_BETA = "thinking-binding-controls-2026-08-01"


def _thinking(body: dict[str, Any], model: Model, options: StreamOptions) -> dict[str, Any] | None:
    names, level = _names(model), options.reasoning
    word = effort_word(model, level)
    if not _is_claude(model):
        least = "low" if word in (None, "minimal") else word
        if "gpt-oss" in names:
            return {"reasoning_effort": least if least in ("low", "medium") else "high"}
        return {"reasoning": {"effort": least}} if "gpt-" in names else None
    in_government = "us-gov" in model.id or options.variable("AWS_REGION", "AWS_DEFAULT_REGION").startswith("us-gov-")
    shown = {} if in_government else {"display": "summarized"}
    if re.search(_ADAPTIVE, names):
        fields: dict[str, Any] = {
            "thinking": {"type": "adaptive", **shown},
            "output_config": {"effort": "low" if word in (None, "minimal") else word},
        }
        if shown and re.search(_BINDS_THINKING, names):
            fields["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
            fields["anthropic_beta"] = [_BINDING_BETA]
        return fields
    room = room_to_think(body["inferenceConfig"]["maxTokens"], model, options)
    if room is None:
        return None
    body["inferenceConfig"]["maxTokens"], budget = room
    return {
        "thinking": {"type": "enabled", "budget_tokens": budget, **shown},
        "anthropic_beta": [_INTERLEAVED_THINKING],
    }


# -- reading events ------------------------------------------------------------------------------

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
}
_GUARDED = "guardrail_intervened"
"""The text is complete: parts of it are masked, or it is the text that the guardrail has for refusals."""
_REDACTED = "[Reasoning redacted]"


class _ToolUse(msgspec.Struct, gc=False, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: str | None = None


class _Reasoning(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _BlockPiece(msgspec.Struct, gc=False, rename="camel"):
    """The beginning of a block, or a delta."""

    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None


class _BlockEvent(msgspec.Struct, gc=False, rename="camel"):
    content_block_index: int | None = 0
    start: _BlockPiece | None = None
    delta: _BlockPiece | None = None


class _MessageStop(msgspec.Struct, gc=False, rename="camel"):
    stop_reason: str | None = None


class _CacheDetail(msgspec.Struct, gc=False, rename="camel"):
    ttl: str | None = None
    input_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    cache_details: list[_CacheDetail] | None = None


class _Metadata(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Exception(msgspec.Struct, gc=False):
    message: str | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    content_block_start: _BlockEvent | None = None
    content_block_delta: _BlockEvent | None = None
    content_block_stop: _BlockEvent | None = None
    message_stop: _MessageStop | None = None
    metadata: _Metadata | None = None
    internal_server_exception: _Exception | None = None
    model_stream_error_exception: _Exception | None = None
    validation_exception: _Exception | None = None
    throttling_exception: _Exception | None = None
    service_unavailable_exception: _Exception | None = None
    exception: str | None = None
    """The type of the exception, known to us or not."""


_PREFIXES = {
    "internal_server_exception": "Internal server error",
    "model_stream_error_exception": "Model stream error",
    "validation_exception": "Validation error",
    "throttling_exception": "Throttling error",
    "service_unavailable_exception": "Service unavailable",
}
_STATUS_PREFIXES = {
    400: "Validation error",
    401: "Not authorized",
    403: "Access denied",
    404: "Not found",
    408: "Model timeout",
    424: "Model error",
    429: "Throttling error",
    500: "Internal server error",
    503: "Service unavailable",
}
_read_event = event_decoder(_Event)


class ConverseReader:
    """Folds events into a message."""

    def __init__(self, live: LiveMessage) -> None:
        self.done = False
        self._live = live
        self._blocks = NumberedBlocks(live)
        self._redacted: dict[int, bytes] = {}
        """Encrypted thinking, by number of its block."""
        self._stop_reason: str | None = None

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        event = _read_event(data)
        if (block := event.content_block_delta) is not None:
            if block.delta is not None:
                self._take_delta(block.content_block_index or 0, block.delta, out)
        elif (block := event.content_block_start) is not None:
            if block.start is not None and (call := block.start.tool_use) is not None:
                start = self._live.start_tool_call(call.tool_use_id or "", call.name or "")
                self._blocks.start(block.content_block_index or 0, start, out)
        elif (block := event.content_block_stop) is not None:
            self._blocks.end(block.content_block_index or 0, out)
        elif event.message_stop is not None:
            self._stop_reason = event.message_stop.stop_reason or "end_turn"
        elif event.metadata is not None:
            self._take_usage(event.metadata.usage)
        else:
            for name, prefix in _PREFIXES.items():
                if (error := getattr(event, name)) is not None:
                    raise ModelError(f"{prefix}: {error.message or 'no message'}")
            if event.exception is not None:
                raise ModelError(
                    f"{event.exception}: {error_words(encode(decode(data).get(event.exception)).decode())}"
                )

    def finish(self, out: list[StreamEvent]) -> str:
        live, reason = self._live, self._stop_reason
        if reason is None:
            raise ModelError("Stream ended without a stop reason")
        out.extend(live.end_all())
        live.raw_stop_reason = reason
        if reason in _STOP_REASONS:
            return _STOP_REASONS[reason]
        if live.calls_tools:
            return "toolUse"
        if reason == _GUARDED and any(isinstance(block, LiveText) for block in live.blocks):
            return "stop"
        raise ModelError(f"Provider stopped with: {reason}")

    def _take_delta(self, number: int, delta: _BlockPiece, out: list[StreamEvent]) -> None:
        live, blocks = self._live, self._blocks
        block, thought = blocks.get(number), delta.reasoning_content
        if delta.text:
            if not isinstance(block, LiveText):
                blocks.end(number, out)
                blocks.start(number, live.start_text(), out)
            blocks.append(number, delta.text, out)
        elif delta.tool_use is not None and isinstance(block, LiveToolCall):
            blocks.append(number, delta.tool_use.input, out)
        elif thought is not None and (thought.text or thought.signature or thought.redacted_content):
            if not isinstance(block, LiveThinking):
                blocks.end(number, out)
                blocks.start(number, live.start_thinking(), out)
            blocks.append(number, thought.text, out)
            block = blocks.get(number)
            assert isinstance(block, LiveThinking)
            self._take_seal(number, block, thought, out)

    def _take_seal(self, number: int, block: LiveThinking, thought: _Reasoning, out: list[StreamEvent]) -> None:
        """Keep a signature, or thinking that only the provider can read."""
        if thought.redacted_content:
            from base64 import b64decode, b64encode

            try:
                piece = b64decode(thought.redacted_content)
            except ValueError:
                return
            if not block.redacted:
                block.redacted = True
                self._blocks.append(number, _REDACTED, out)
            self._redacted[number] = self._redacted.get(number, b"") + piece
            block.signature = b64encode(self._redacted[number]).decode()
        elif thought.signature and not block.redacted:
            block.signature = (block.signature or "") + thought.signature

    def _take_usage(self, reported: _Usage | None) -> None:
        if reported is None:
            return
        hour = sum(detail.input_tokens or 0 for detail in reported.cache_details or [] if detail.ttl == "1h")
        if hour > 0:
            self._live.usage.cache_write_1h = hour
        read, written = reported.cache_read_input_tokens or 0, reported.cache_write_input_tokens or 0
        sent = reported.input_tokens
        take_usage(
            self._live,
            sent=None if sent is None else sent + read + written,
            cache_read=read,
            cache_write=written,
            output=reported.output_tokens,
        )


def _error_text(status: int, body: str) -> str:
    """Return `Validation error: what was wrong`."""
    try:
        value = decode(body)
    except DecodeError:
        value = None
    message = (value.get("message") or value.get("Message")) if isinstance(value, dict) else None
    text = message or limit_body(body.strip()) or f"{status} status code (no body)"
    return f"{_STATUS_PREFIXES.get(status, f'Bedrock error {status}')}: {text}"
