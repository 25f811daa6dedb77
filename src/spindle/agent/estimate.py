"""How many tokens a conversation costs: the provider's own figures where known, else an estimate by length."""

from collections.abc import Sequence

from msgspec import Struct

from spindle.llm.history import estimate_tokens
from spindle.shapes.messages import AgentMessage, AssistantMessage, Usage

__all__ = ["ContextEstimate", "context_tokens", "estimate_context", "estimate_tokens"]


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
