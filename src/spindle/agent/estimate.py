"""How many tokens a conversation costs: the provider's own figures where known, else characters over four."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from spindle.types.codec import encode
from spindle.types.content import Image, Text, Thinking, ToolCall
from spindle.types.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
)

__all__ = ["ContextEstimate", "context_tokens", "estimate_context", "estimate_tokens"]

IMAGE_CHARACTERS = 4800


def _length(text: str) -> int:
    """UTF-16 units, which is what other programs on the same session file count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _content_length(content: str | Sequence[Any]) -> int:
    if isinstance(content, str):
        return _length(content)
    return sum(
        _length(block.text) if isinstance(block, Text) else IMAGE_CHARACTERS if isinstance(block, Image) else 0
        for block in content
    )


def estimate_tokens(message: AgentMessage) -> int:
    """Estimate one message by its length."""
    characters = 0
    if isinstance(message, UserMessage | CustomMessage | ToolResultMessage):
        characters = _content_length(message.content)
    elif isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, Text):
                characters += _length(block.text)
            elif isinstance(block, Thinking):
                characters += _length(block.thinking)
            elif isinstance(block, ToolCall):
                characters += _length(block.name) + _length(encode(block.arguments).decode())
    elif isinstance(message, BashExecutionMessage):
        characters = _length(message.command) + _length(message.output)
    elif isinstance(message, BranchSummaryMessage | CompactionSummaryMessage):
        characters = _length(message.summary)
    return -(-characters // 4)


def context_tokens(usage: Usage) -> int:
    """Return how full the context was when this usage was reported."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


class ContextEstimate(Struct, frozen=True):
    tokens: int
    usage_tokens: int
    """What the last good answer reported."""
    trailing_tokens: int
    """The estimate of what came after it."""
    last_usage_index: int | None


def estimate_context(messages: Sequence[AgentMessage]) -> ContextEstimate:
    """Estimate a conversation: the last reported usage plus the length of later messages."""
    trailing = 0
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            used = context_tokens(message.usage)
            if used:
                return ContextEstimate(used + trailing, used, trailing, index)
        trailing += estimate_tokens(message)
    return ContextEstimate(trailing, 0, trailing, None)
