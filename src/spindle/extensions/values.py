"""What extensions hand over, made into our shapes; what JSON cannot hold is refused here, before it gets anywhere."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from spindle.shapes.codec import encode
from spindle.shapes.content import Image, Text
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import AgentMessage, CustomMessage, KnownMessage, OpaqueMessage, message_from_value
from spindle.tools.base import text_result

__all__ = ["as_content", "as_custom_message", "as_message", "as_messages", "as_tool_result", "require_json"]

_Block = Text | Image


def require_json(value: Any, what: str) -> Any:
    """Return `value`. Raises `TypeError` if it cannot be written as JSON."""
    try:
        encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise TypeError(f"{what} cannot be written as JSON: {error}") from None
    return value


def as_content(value: Any) -> list[Text | Image]:
    """Return content blocks: of a text, of blocks, or of their JSON forms."""
    if isinstance(value, str):
        return [Text(value)]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [item if isinstance(item, _Block) else msgspec.convert(item, _Block) for item in value]
    raise TypeError(f"Content must be a text or a list of blocks, not {type(value).__name__}")


def as_tool_result(value: Any, tool: str) -> ToolResult:
    """Return what a tool function returned as a result."""
    if isinstance(value, str):
        return text_result(value)
    if value is None:
        return ToolResult([])
    if isinstance(value, Mapping) and "content" in value:
        value = ToolResult(as_content(value["content"]), value.get("details"), bool(value.get("terminate", False)))
    if not isinstance(value, ToolResult):
        raise TypeError(
            f'Tool "{tool}" returned {type(value).__name__}; it should return a str, agent.result(...) '
            'or a dict with "content"'
        )
    require_json(value, f'The result of tool "{tool}"')
    return value


def as_custom_message(value: Any) -> CustomMessage:
    """Return a message of an extension from its wire form, or as it is."""
    if isinstance(value, CustomMessage):
        message = value
    elif isinstance(value, Mapping) and isinstance(value.get("customType"), str):
        content = value.get("content", "")
        message = CustomMessage(
            custom_type=value["customType"],
            content=content if isinstance(content, str) else as_content(content),
            display=bool(value.get("display", True)),
            details=value.get("details"),
            timestamp=int(time.time() * 1000),
        )
    else:
        raise TypeError('A message must be a dict with "customType" and "content"')
    require_json(message, "The message")
    return message


def as_message(value: Any) -> AgentMessage:
    """Return a message of any role from its wire form, or as it is."""
    message = message_from_value(dict(value)) if isinstance(value, Mapping) else value
    if not isinstance(message, KnownMessage | OpaqueMessage):
        raise TypeError(f"A message was expected, not {type(value).__name__}")
    require_json(message, "The message")
    return message


def as_messages(values: Any) -> list[AgentMessage]:
    if not isinstance(values, list | tuple):
        raise TypeError(f'"messages" must be a list, not {type(values).__name__}')
    return [as_message(value) for value in values]
