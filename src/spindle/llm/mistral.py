"""The `mistral-conversations` API: Mistral's chat completions.

Like OpenAI's, except that thinking is part of the content, in requests and in answers, and that the id of a tool call
is always nine letters and digits. Its chunks are brought to the common form and then read like those of other servers.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from spindle.llm.compat import ChatCompat
from spindle.llm.cost import output_limit
from spindle.llm.exchange import Call, over_http
from spindle.llm.live import LiveMessage
from spindle.llm.openai_chat import ChatReader, thinking_part
from spindle.llm.stream import ModelMessage, Request, StreamOptions
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import AssistantMessage, Image, Text, Thinking, ToolResultMessage, text_of
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

_ID_CHARS = 9


@over_http
def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    if options.session_id:
        headers["x-affinity"] = options.session_id
    return Call(
        url=f"{model.base_url.rstrip('/').removesuffix('/v1')}/v1/chat/completions",
        headers=headers,
        body=mistral_body(model, request, options),
        reader=MistralReader(live),
    )


def mistral_body(model: Model, request: Request, options: StreamOptions) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    messages = request.memory.json("mistral", request.messages, _messages)
    if request.system_prompt:
        messages.insert(0, {"role": "system", "content": request.system_prompt})
    body: dict[str, Any] = {
        "model": model.id,
        "messages": messages,
        "stream": True,
        "max_tokens": output_limit(model, request, options),
    }
    if request.tools:
        body["tools"] = [{"type": "function", "function": asdict(tool) | {"strict": False}} for tool in request.tools]
    if options.session_id:
        body["prompt_cache_key"] = options.session_id
    if model.reasoning:
        _add_thinking(body, model, options.reasoning)
    return body | (model.sampling_params or {})


def _add_thinking(body: dict[str, Any], model: Model, level: str) -> None:
    """Ask for the thinking level; a model without a map of levels can only think or not think."""
    if (words := model.thinking_level_map) is not None:
        if word := words.get(level) or ("high" if level != "off" else None):
            body["reasoning_effort"] = word
    elif level != "off":
        body["prompt_mode"] = "reasoning"


# -- messages ------------------------------------------------------------------------------------


def _messages(history: Sequence[ModelMessage], _: int) -> list[dict[str, Any]]:
    return [found for message in history if (found := _message(message)) is not None]


def _message(message: ModelMessage) -> dict[str, Any] | None:
    if isinstance(message, AssistantMessage):
        return _answer(message)
    if isinstance(message, ToolResultMessage):
        return _tool_result(message)
    content = message.content if isinstance(message.content, str) else [*map(_part, message.content)]
    return {"role": "user", "content": content} if content else None


def _part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": f"data:{block.mime_type};base64,{block.data}"}


def _tool_result(message: ToolResultMessage) -> dict[str, Any]:
    images = [block for block in message.content if isinstance(block, Image)]
    text = text_of(message.content, "\n").strip() or ("(see attached image)" if images else "(no tool output)")
    if message.is_error:
        text = f"[tool error] {text}"
    return {
        "role": "tool",
        "tool_call_id": call_id(message.tool_call_id),
        "name": message.tool_name,
        "content": [{"type": "text", "text": text}, *map(_part, images)],
    }


def _answer(message: AssistantMessage) -> dict[str, Any] | None:
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Text):
            if block.text.strip():
                content.append({"type": "text", "text": block.text})
        elif isinstance(block, Thinking):
            if block.thinking.strip():
                content.append(thinking_part(block))
        else:
            function = {"name": block.name, "arguments": encode(block.arguments).decode()}
            calls.append({"id": call_id(block.id), "type": "function", "function": function})
    if not content and not calls:
        return None
    result: dict[str, Any] = {"role": "assistant", "prefix": False}
    return result | ({"content": content} if content else {}) | ({"tool_calls": calls} if calls else {})


def call_id(id: str) -> str:
    """Return an id that Mistral takes: its own unchanged, others as a hash of nine letters and digits."""
    if re.fullmatch(rf"[A-Za-z0-9]{{{_ID_CHARS}}}", id):
        return id
    from hashlib import blake2s

    return blake2s(id.encode("utf-8", "replace")).hexdigest()[:_ID_CHARS]


# -- chunks --------------------------------------------------------------------------------------

_ODD = re.compile(rb'"null"|cached|model_length|"finish_reason": ?"error"')
"""Found in chunks that must be brought to the common form."""


class MistralReader(ChatReader):
    """Folds chunks into a message."""

    def __init__(self, live: LiveMessage) -> None:
        super().__init__(live, ChatCompat())

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        super().take(_common_form(data) if _ODD.search(data) else data, out)


def _common_form(data: bytes) -> bytes:
    """Return a chunk as OpenAI would send it; a chunk that is not understood stays as it is."""
    try:
        chunk = decode(data)
        for choice in chunk.get("choices") or []:
            reason = choice.get("finish_reason")
            choice["finish_reason"] = {"model_length": "length", "error": "server_error"}.get(reason, reason)
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                if call.get("id") == "null":
                    del call["id"]
        if usage := chunk.get("usage"):
            details = usage.get("prompt_tokens_details") or usage.get("prompt_token_details") or {}
            usage["cached_tokens"] = details.get("cached_tokens") or usage.get("num_cached_tokens")
        return encode(chunk)
    except (DecodeError, AttributeError, KeyError, TypeError):
        return data
