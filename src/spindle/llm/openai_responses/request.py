"""Requests of the `openai-responses` family, OpenAI's own and Azure's: address, headers and body."""

import os
from typing import Any

from spindle.llm.compat import ResponsesCompat
from spindle.llm.cost import effort_word, output_limit
from spindle.llm.errors import ModelError
from spindle.llm.stream import Request, StreamOptions
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

__all__ = ["AZURE", "responses_body", "responses_headers", "responses_url"]

AZURE = "azure-openai-responses"
_MIN_OUTPUT_TOKENS = 16
_MAX_CACHE_KEY = 64
_MAX_ITEM_ID = 64


def responses_url(model: Model) -> str:
    """Return where to post. Raises `ModelError` if an Azure resource is not named."""
    if model.api != AZURE:
        return f"{model.base_url.rstrip('/')}/responses"
    base = os.environ.get("AZURE_OPENAI_BASE_URL") or model.base_url
    if not base:
        resource = os.environ.get("AZURE_OPENAI_RESOURCE_NAME")
        if not resource:
            raise ModelError("Set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME to use Azure OpenAI")
        base = f"https://{resource}.openai.azure.com"
    base = base.rstrip("/").removesuffix("/v1").removesuffix("/openai")
    return f"{base}/openai/v1/responses?api-version={os.environ.get('AZURE_OPENAI_API_VERSION', 'v1')}"


def responses_headers(model: Model, options: StreamOptions, compat: ResponsesCompat) -> dict[str, str]:
    headers = {}
    if options.api_key:
        if model.api == AZURE:
            headers["api-key"] = options.api_key
        else:
            headers["authorization"] = f"Bearer {options.api_key}"
    session = options.session_id
    if session and options.cache_retention != "none":
        if compat.session_affinity_format == "openrouter":
            headers["x-session-id"] = session
        else:
            headers["x-client-request-id"] = session
            if compat.session_affinity_format == "openai":
                headers["session_id"] = session
    return headers


def responses_body(model: Model, request: Request, options: StreamOptions, compat: ResponsesCompat) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    body: dict[str, Any] = {
        "model": _deployment(model.id) if model.api == AZURE else model.id,
        "input": _items(model, request, compat),
        "stream": True,
        "store": False,
        "max_output_tokens": max(_MIN_OUTPUT_TOKENS, output_limit(model, request, options)),
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
        if options.tool_choice is not None:
            body["tool_choice"] = options.tool_choice
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.session_id and options.cache_retention != "none":
        body["prompt_cache_key"] = options.session_id[:_MAX_CACHE_KEY]
    if options.cache_retention == "long" and compat.supports_long_cache_retention:
        body["prompt_cache_retention"] = "24h"
    if model.reasoning:
        _add_reasoning(body, model, options)
    return body | (model.sampling_params or {})


def _deployment(model_id: str) -> str:
    """Return the Azure deployment of a model: `AZURE_OPENAI_DEPLOYMENT_NAME_MAP` holds `model=deployment,…`."""
    pairs = os.environ.get("AZURE_OPENAI_DEPLOYMENT_NAME_MAP", "").split(",")
    names = {model.strip(): name.strip() for model, _, name in (pair.partition("=") for pair in pairs)}
    return names.get(model_id) or model_id


def _add_reasoning(body: dict[str, Any], model: Model, options: StreamOptions) -> None:
    word = effort_word(model, options.reasoning)
    if options.reasoning != "off":
        body["reasoning"] = {"effort": word or options.reasoning, "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    elif word is not None and model.provider != "github-copilot":
        body["reasoning"] = {"effort": "none" if word == "off" else word}


# -- items ---------------------------------------------------------------------------------------


def _items(model: Model, request: Request, compat: ResponsesCompat) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if request.system_prompt:
        role = "developer" if model.reasoning and compat.supports_developer_role else "system"
        items.append({"role": role, "content": request.system_prompt})
    for message in request.messages:
        if isinstance(message, UserMessage):
            content = message.content
            blocks: list[Text | Image] = [Text(content)] if isinstance(content, str) else content
            if blocks:
                items.append({"role": "user", "content": [_input_part(block) for block in blocks]})
        elif isinstance(message, ToolResultMessage):
            items.append(_tool_output(message))
        else:
            items += _answer_items(message, len(items))
    return items


def _input_part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text}
    return {
        "type": "input_image",
        "detail": "auto",
        "image_url": f"data:{block.mime_type};base64,{block.data}",
    }


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
            item = _parsed(block.thinking_signature)
            if item:
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
    item = {
        "type": "function_call",
        "call_id": call_id,
        "name": block.name,
        "arguments": encode(block.arguments).decode(),
    }
    if item_id.startswith("fc_"):
        item["id"] = item_id
    return item


def _parsed(signature: str | None) -> dict[str, Any] | None:
    """Return what a signature of ours holds; None if it is not one."""
    try:
        value = decode(signature) if signature else None
    except DecodeError:
        return None
    return value if isinstance(value, dict) else None
