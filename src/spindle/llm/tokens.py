"""How many tokens a message costs, estimated by its length: characters over four."""

from collections.abc import Sequence
from typing import Any

from spindle.shapes.codec import encode
from spindle.shapes.content import Image, Text, Thinking, ToolCall
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    UserMessage,
)

__all__ = ["estimate_tokens"]

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
