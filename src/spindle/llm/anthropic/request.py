"""Requests of the `anthropic-messages` family: headers and body."""

from typing import Any

from spindle.llm.compat import MessagesCompat
from spindle.llm.cost import effort_word, output_limit, thinking_budget
from spindle.llm.stream import Request, StreamOptions
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, text_of
from spindle.shapes.model import Model

__all__ = ["messages_body", "messages_headers"]

_VERSION = "2023-06-01"
_FINE_GRAINED_TOOLS = "fine-grained-tool-streaming-2025-05-14"
_INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14"
_MIN_ANSWER_TOKENS = 1024
_MIN_BUDGET_TOKENS = 1024


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
    if options.session_id and compat.send_session_affinity_headers and options.cache_retention != "none":
        headers["x-session-affinity"] = options.session_id
    return headers


def messages_body(model: Model, request: Request, options: StreamOptions, compat: MessagesCompat) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    cache = _cache_control(options, compat)
    body: dict[str, Any] = {
        "model": model.id,
        "max_tokens": output_limit(model, request, options),
        "messages": _messages(request, compat),
        "stream": True,
    }
    if request.system_prompt.strip():
        body["system"] = [{"type": "text", "text": request.system_prompt, **cache}]
    if request.tools:
        body["tools"] = _tools(request, compat)
        if compat.supports_cache_control_on_tools:
            body["tools"][-1] |= cache
        if options.tool_choice is not None:
            choice = options.tool_choice
            body["tool_choice"] = {"type": choice} if isinstance(choice, str) else choice
    if cache:
        _mark_last_user_block(body["messages"], cache)
    if model.reasoning:
        _add_thinking(body, model, options, compat)
    thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if options.temperature is not None and compat.supports_temperature and not thinks:
        body["temperature"] = options.temperature
    return body | (model.sampling_params or {})


def _cache_control(options: StreamOptions, compat: MessagesCompat) -> dict[str, Any]:
    if options.cache_retention == "none":
        return {}
    keep_long = options.cache_retention == "long" and compat.supports_long_cache_retention
    return {"cache_control": {"type": "ephemeral", **({"ttl": "1h"} if keep_long else {})}}


def _mark_last_user_block(messages: list[dict[str, Any]], cache: dict[str, Any]) -> None:
    for message in reversed(messages):
        if message["role"] == "user":
            if isinstance(message["content"], str):
                message["content"] = [{"type": "text", "text": message["content"]}]
            message["content"][-1] |= cache
            return


def _tools(request: Request, compat: MessagesCompat) -> list[dict[str, Any]]:
    eager = {"eager_input_streaming": True} if compat.supports_eager_tool_input_streaming else {}
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": {"properties": {}, "required": [], **tool.parameters, "type": "object"},
            **eager,
        }
        for tool in request.tools
    ]


# -- messages ------------------------------------------------------------------------------------


def _messages(request: Request, compat: MessagesCompat) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in request.messages:
        if isinstance(message, ToolResultMessage):
            if not results:
                messages.append({"role": "user", "content": results})
            results.append(_tool_result(message))
            continue
        results = []
        if isinstance(message, UserMessage):
            content = _user_content(message.content)
            if content:
                messages.append({"role": "user", "content": content})
        else:
            blocks = [part for block in message.content if (part := _answer_block(block, compat)) is not None]
            if blocks:
                messages.append({"role": "assistant", "content": blocks})
    return messages


def _user_content(content: str | list[Text | Image]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content if content.strip() else ""
    return _blocks(content)


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
    else:
        budget = thinking_budget(level, options.thinking_budgets)
        # The budget comes out of the output limit, so the limit grows by it as far as the model allows.
        limit = min(body["max_tokens"] + budget, max(model.max_tokens, body["max_tokens"]))
        budget = min(budget, limit - _MIN_ANSWER_TOKENS)
        if budget >= _MIN_BUDGET_TOKENS:
            body["max_tokens"] = limit
            body["thinking"] = {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
        else:
            body["thinking"] = {"type": "disabled"}
