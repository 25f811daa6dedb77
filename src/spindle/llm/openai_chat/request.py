"""Requests of the `openai-completions` family: headers and body, bent to what the server takes."""

from typing import Any

from spindle.llm.compat import ChatCompat
from spindle.llm.cost import effort_word, output_limit, thinking_budget
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
    text_of,
)
from spindle.shapes.model import Model

__all__ = ["REASONING_FIELDS", "chat_body", "chat_headers"]

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
"""Where servers put thinking, in order of preference. It goes back in the field it came in."""
_MAX_CACHE_KEY = 64


def chat_headers(options: StreamOptions, compat: ChatCompat) -> dict[str, str]:
    headers = {}
    if options.api_key:
        headers["authorization"] = f"Bearer {options.api_key}"
    session = options.session_id
    if session and compat.send_session_affinity_headers and options.cache_retention != "none":
        if compat.session_affinity_format == "openrouter":
            headers["x-session-id"] = session
        else:
            headers |= {"x-client-request-id": session, "x-session-affinity": session}
            if compat.session_affinity_format == "openai":
                headers["session_id"] = session
    return headers


def chat_body(model: Model, request: Request, options: StreamOptions, compat: ChatCompat) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    body: dict[str, Any] = {"model": model.id, "messages": _messages(model, request, compat), "stream": True}
    if compat.supports_usage_in_streaming:
        body["stream_options"] = {"include_usage": True}
    if compat.supports_store:
        body["store"] = False
    body[compat.max_tokens_field] = output_limit(model, request, options)
    if request.tools:
        body["tools"] = _tools(request, compat)
        if compat.zai_tool_stream:
            body["tool_stream"] = True
        if options.tool_choice is not None:
            body["tool_choice"] = options.tool_choice
    elif any(_has_calls(message) for message in request.messages):
        body["tools"] = []  # some proxies refuse a history with calls unless the key is there
    if options.temperature is not None:
        body["temperature"] = options.temperature
    _add_caching(body, model, options, compat)
    if model.reasoning:
        _add_thinking(body, model, options, compat)
    if compat.open_router_routing:
        body["provider"] = compat.open_router_routing
    if compat.vercel_gateway_routing:
        body["providerOptions"] = {"gateway": compat.vercel_gateway_routing}
    if compat.vllm_priority is not None:
        body["priority"] = compat.vllm_priority
    return body | (model.sampling_params or {})


def _has_calls(message: ModelMessage) -> bool:
    if isinstance(message, ToolResultMessage):
        return True
    return isinstance(message, AssistantMessage) and any(isinstance(block, ToolCall) for block in message.content)


def _tools(request: Request, compat: ChatCompat) -> list[dict[str, Any]]:
    strict = {"strict": False} if compat.supports_strict_mode else {}
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                **strict,
            },
        }
        for tool in request.tools
    ]


# -- messages ------------------------------------------------------------------------------------


def _messages(model: Model, request: Request, compat: ChatCompat) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system_prompt:
        role = "developer" if model.reasoning and compat.supports_developer_role else "system"
        messages.append({"role": role, "content": request.system_prompt})
    images: list[dict[str, Any]] = []
    for message in request.messages:
        if isinstance(message, ToolResultMessage):
            messages.append(_tool_result(message, compat))
            images += _images(message.content)
            continue
        if images:
            _add_user(messages, [{"type": "text", "text": "Attached image(s) from tool result:"}, *images], compat)
            images = []
        if isinstance(message, UserMessage):
            if message.content:
                _add_user(messages, _user_content(message.content), compat)
        elif answer := _assistant(message, model, compat):
            messages.append(answer)
    if images:
        _add_user(messages, [{"type": "text", "text": "Attached image(s) from tool result:"}, *images], compat)
    return messages


def _add_user(messages: list[dict[str, Any]], content: Any, compat: ChatCompat) -> None:
    if compat.requires_assistant_after_tool_result and messages and messages[-1]["role"] == "tool":
        messages.append({"role": "assistant", "content": "I have processed the tool results."})
    messages.append({"role": "user", "content": content})


def _user_content(content: str | list[Text | Image]) -> Any:
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": block.text} if isinstance(block, Text) else _image(block) for block in content]


def _image(block: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _images(content: list[Text | Image]) -> list[dict[str, Any]]:
    return [_image(block) for block in content if isinstance(block, Image)]


def _tool_result(message: ToolResultMessage, compat: ChatCompat) -> dict[str, Any]:
    text = text_of(message.content, "\n")
    if not text:
        has_image = any(isinstance(block, Image) for block in message.content)
        text = "(see attached image)" if has_image else "(no tool output)"
    result = {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if compat.requires_tool_result_name:
        result["name"] = message.tool_name
    return result


def _assistant(message: AssistantMessage, model: Model, compat: ChatCompat) -> dict[str, Any] | None:
    text = text_of(message.content)
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    thinking = [block for block in message.content if isinstance(block, Thinking) and block.thinking.strip()]
    result: dict[str, Any] = {"role": "assistant"}
    if thinking and compat.requires_thinking_as_text:
        text = "\n\n".join([*(block.thinking for block in thinking), *([text] if text else [])])
    elif thinking and (field := thinking[0].thinking_signature) in REASONING_FIELDS:
        result[field] = "\n".join(block.thinking for block in thinking)
    if not text and not calls:
        return None
    result["content"] = text or ("" if compat.requires_assistant_after_tool_result else None)
    if calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": encode(call.arguments).decode()},
            }
            for call in calls
        ]
        details = [detail for call in calls if (detail := _reasoning_detail(call)) is not None]
        if details:
            result["reasoning_details"] = details
    if compat.requires_reasoning_content_on_assistant_messages and model.reasoning:
        result.setdefault("reasoning_content", "")
    return result


def _reasoning_detail(call: ToolCall) -> Any:
    try:
        return decode(call.thought_signature) if call.thought_signature else None
    except DecodeError:
        return None


# -- caching -------------------------------------------------------------------------------------


def _add_caching(body: dict[str, Any], model: Model, options: StreamOptions, compat: ChatCompat) -> None:
    if options.cache_retention == "none":
        return
    keep_long = options.cache_retention == "long" and compat.supports_long_cache_retention
    if options.session_id and ("api.openai.com" in model.base_url or keep_long):
        body["prompt_cache_key"] = options.session_id[:_MAX_CACHE_KEY]
    if keep_long:
        body["prompt_cache_retention"] = "24h"
    if compat.cache_control_format == "anthropic":
        mark: dict[str, Any] = {"type": "ephemeral"} | ({"ttl": "1h"} if keep_long else {})
        if body.get("tools"):
            body["tools"][-1]["cache_control"] = mark
        messages = body["messages"]
        if messages and messages[0]["role"] in ("system", "developer"):
            _mark_text(messages[0], mark)
        for message in reversed(messages):
            if message["role"] in ("user", "assistant", "tool") and _mark_text(message, mark):
                break


def _mark_text(message: dict[str, Any], mark: dict[str, Any]) -> bool:
    """Put a cache mark on the last text of a message, if it has one."""
    content = message["content"]
    if isinstance(content, str) and content:
        message["content"] = [{"type": "text", "text": content, "cache_control": mark}]
        return True
    for part in reversed(content or []):
        if part["type"] == "text":
            part["cache_control"] = mark
            return True
    return False


# -- thinking ------------------------------------------------------------------------------------


def _add_thinking(body: dict[str, Any], model: Model, options: StreamOptions, compat: ChatCompat) -> None:
    level = options.reasoning
    on = level != "off"
    word = effort_word(model, level)
    if not on and word is None:
        return  # this model cannot be told not to think
    if not on and word == "off":
        word = None  # the level's own name is no word of the provider
    budget = thinking_budget(level, options.thinking_budgets) if on else 0
    effort = {"reasoning_effort": word} if word and compat.supports_reasoning_effort else {}
    variables = {"thinking.enabled": on, "thinking.effort": word, "thinking.budget": budget}
    match compat.thinking_format:
        case "openai":
            body |= effort
        case "openrouter":
            body["reasoning"] = {"effort": word or "none"}
        case "deepseek" | "zai":
            body["thinking"] = {"type": "enabled" if on else "disabled"}
            body |= effort if on else {}
        case "together":
            body["reasoning"] = {"enabled": on}
            body |= effort if on else {}
        case "qwen":
            body["enable_thinking"] = on
        case "qwen-chat-template":
            body["chat_template_kwargs"] = {"enable_thinking": on, "preserve_thinking": True}
        case "chat-template":
            body["chat_template_kwargs"] = _filled(compat.chat_template_kwargs, variables)
        case "baseten":
            body["chat_template_args"] = _filled(compat.chat_template_args, variables)
            body |= effort if on else {}
        case "string-thinking":
            body["thinking"] = word or "none"
        case "ant-ling":
            if word and level in (model.thinking_level_map or {}):
                body["reasoning"] = {"effort": word}
    if on and compat.thinking_token_budget_field:
        body[compat.thinking_token_budget_field] = budget


def _filled(values: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    """Return chat template arguments with their placeholders filled in."""
    filled = {}
    for key, value in values.items():
        if isinstance(value, dict) and "$var" in value:
            if value.get("omitWhenOff") and not variables["thinking.enabled"]:
                continue
            value = variables.get(value["$var"])
        filled[key] = value
    return filled
