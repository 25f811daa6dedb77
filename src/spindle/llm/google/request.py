"""Requests of the `google-generative-ai` API."""

import re
from typing import Any

from spindle.llm.cost import effort_word, output_limit
from spindle.llm.stream import Request, StreamOptions
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

__all__ = ["google_body"]

_LEVELS = ("minimal", "low", "medium", "high")
_BUDGETS = (
    # part of the id → tokens per level, and the least that can be asked for
    ("2.5-flash-lite", (512, 2048, 8192, 24576), 0),
    ("2.5-flash", (128, 2048, 8192, 24576), 0),
    ("2.5-pro", (128, 2048, 8192, 32768), 128),
)


def google_body(model: Model, request: Request, options: StreamOptions) -> dict[str, Any]:
    """Return the body; the history must be clean (`transform_messages`)."""
    config: dict[str, Any] = {"maxOutputTokens": output_limit(model, request, options)}
    if options.temperature is not None:
        config["temperature"] = options.temperature
    if model.reasoning and (thinking := _thinking_config(model, options)):
        config["thinkingConfig"] = thinking
    body: dict[str, Any] = {
        "contents": _contents(model, request),
        "generationConfig": config | (model.sampling_params or {}),
    }
    if request.system_prompt:
        body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
    if request.tools:
        declarations = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declarations}]
        if isinstance(options.tool_choice, str):
            body["toolConfig"] = {"functionCallingConfig": {"mode": options.tool_choice.upper()}}
    return body


def _is_new(model: Model) -> bool:
    """Whether the model takes call ids, images in results and thinking levels."""
    return re.search(r"gemini-(?:[3-9]|\d\d)|gemini-.*-latest", model.id) is not None


# -- contents ------------------------------------------------------------------------------------


def _contents(model: Model, request: Request) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for message in [*request.messages, None]:
        if isinstance(message, ToolResultMessage):
            if not results:
                contents.append({"role": "user", "parts": results})
            part, separate = _result_part(model, message)
            results.append(part)
            images += separate
            continue
        results = []
        if images:
            contents.append({"role": "user", "parts": [{"text": "Tool result image:"}, *images]})
            images = []
        if message is None:
            break
        role = "user" if isinstance(message, UserMessage) else "model"
        parts = _user_parts(message.content) if isinstance(message, UserMessage) else _answer_parts(model, message)
        if parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _user_parts(content: str | list[Text | Image]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [{"text": block.text} if isinstance(block, Text) else _image(block) for block in content]


def _image(block: Image) -> dict[str, Any]:
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _answer_parts(model: Model, message: AssistantMessage) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Text):
            if block.text.strip():
                parts.append({"text": block.text, **_signature(block.text_signature)})
        elif isinstance(block, Thinking):
            if block.thinking.strip():
                parts.append({"thought": True, "text": block.thinking, **_signature(block.thinking_signature)})
        else:
            parts.append({"functionCall": _call(model, block), **_signature(block.thought_signature)})
    return parts


def _call(model: Model, block: ToolCall) -> dict[str, Any]:
    arguments = block.arguments if isinstance(block.arguments, dict) else {}
    return {"name": block.name, "args": arguments, **_call_id(model, block.id)}


def _call_id(model: Model, id: str) -> dict[str, str]:
    return {"id": id} if _is_new(model) or model.id.startswith(("claude-", "gpt-oss-")) else {}


def _signature(signature: str | None) -> dict[str, str]:
    """Return a signature if it can be one: others stem from another API and are refused."""
    valid = signature and len(signature) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", signature)
    return {"thoughtSignature": signature} if signature and valid else {}


def _result_part(model: Model, message: ToolResultMessage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the part of a tool result, and images that must follow elsewhere."""
    images = [_image(block) for block in message.content if isinstance(block, Image)]
    text = text_of(message.content, "\n") or ("(see attached image)" if images else "")
    response: dict[str, Any] = {
        "name": message.tool_name,
        "response": {"error" if message.is_error else "output": text},
        **_call_id(model, message.tool_call_id),
    }
    if images and _is_new(model):
        response["parts"] = images
        images = []
    return {"functionResponse": response}, images


# -- thinking ------------------------------------------------------------------------------------


def _thinking_config(model: Model, options: StreamOptions) -> dict[str, Any] | None:
    level = options.reasoning
    word = effort_word(model, level)
    if level == "off" and word is None:
        return None
    if _is_new(model) or "gemma-4" in model.id:
        if level != "off":
            return {"includeThoughts": True, "thinkingLevel": (word if word in _LEVELS else "high").upper()}
        # These cannot be told not to think; the least they can do is not to show it.
        return {"thinkingLevel": "LOW" if "pro" in model.id else "MINIMAL"}
    budgets, least = next(((b, low) for part, b, low in _BUDGETS if part in model.id), (None, 0))
    if level == "off":
        return {"thinkingBudget": least}
    named = level if level in _LEVELS else "high"
    budget = options.thinking_budgets.get(named) or (budgets[_LEVELS.index(named)] if budgets else -1)
    return {"includeThoughts": True, "thinkingBudget": budget}
