"""How many tokens an answer and its thinking may take, and what a provider calls a thinking level."""

from collections.abc import Mapping

from spindle.llm.stream import Request, StreamOptions
from spindle.llm.tokens import estimate_tokens
from spindle.shapes.codec import encode
from spindle.shapes.models import Model

__all__ = ["effort_word", "output_limit", "thinking_budget"]

_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
_RESERVE_TOKENS = 4096


def thinking_budget(level: str, budgets: Mapping[str, int]) -> int:
    """Return the tokens a thinking level may take; the user's numbers come first."""
    level = level if level in _BUDGETS else "high"
    return budgets.get(level, _BUDGETS[level])


def effort_word(model: Model, level: str) -> str | None:
    """Return the provider's word for a thinking level; None if it has none."""
    mapped = model.thinking_level_map or {}
    return mapped.get(level, level)


def output_limit(model: Model, request: Request, options: StreamOptions) -> int:
    """Return the most tokens to ask for: no more than what the request leaves of the context window."""
    limit = options.max_tokens or model.max_tokens
    if model.context_window <= 0:
        return limit
    chars = len(request.system_prompt)
    chars += sum(len(tool.name) + len(tool.description) + len(encode(tool.parameters)) for tool in request.tools)
    sent = chars // 4 + sum(map(estimate_tokens, request.messages))
    return max(1, min(limit, model.context_window - sent - _RESERVE_TOKENS))
