"""The cost of an answer, and its bounds: prices, output limits, thinking budgets."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import UNSET, Struct, to_builtins

from spindle.llm.history import estimate_tokens
from spindle.llm.live import LiveMessage
from spindle.llm.stream import ModelMessage, Request, StreamOptions
from spindle.shapes.codec import encode
from spindle.shapes.messages import Cost, Usage
from spindle.shapes.model import Model, ModelCost


class UsageDetails(Struct, gc=False):
    """Details that OpenAI's two APIs report about the tokens of a request or an answer."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Bill(Struct, gc=False):
    """The money that a request cost: OpenRouter adds it to its usage objects."""

    cost: Any = None
    is_byok: Any = None
    """Whether the request used the user's own key, so that the provider behind OpenRouter bills too."""
    cost_details: Any = None

    def total(self, live: LiveMessage) -> float | None:
        """Return the amount billed for the request; None if the server does not report it."""
        own = _dollars(self.cost)
        if not live.is_billed or own is None or not self.is_byok:
            return own if live.is_billed else None
        details = self.cost_details if isinstance(self.cost_details, dict) else {}
        behind = _dollars(details.get("upstream_inference_cost"))
        if behind is None:
            parts = [_dollars(details.get(f"upstream_inference_{part}_cost")) for part in ("prompt", "completions")]
            behind = None if None in parts else sum(filter(None, parts))
        return None if behind is None else own + behind


def _dollars(value: Any) -> float | None:
    return value if type(value) in (int, float) and isfinite(value) and value >= 0 else None


def take_usage(
    live: LiveMessage,
    *,
    sent: int | None,
    cache_read: int | None,
    cache_write: int | None = None,
    output: int | None,
    reasoning: int | None = None,
    factor: float = 1.0,
    billed: float | None = None,
) -> None:
    """Fill in the usage that a server reported. `sent` counts the whole request, cached or not; None: not reported.

    Negative numbers are ignored: nothing may lower the cost of a run.
    """
    usage = live.usage
    sent, cache_read, cache_write = _count(sent), _count(cache_read), _count(cache_write)
    output, reasoning = _count(output), _count(reasoning)
    usage.cache_read = cache_read or 0
    usage.cache_write = cache_write or 0
    usage.input = max(0, (sent or 0) - usage.cache_read - usage.cache_write)
    usage.output = output or 0
    if reasoning is not None:
        usage.reasoning = reasoning
    live.counted = bool(sent) and output is not None  # no prompt is empty, so 0 is not a count
    add_cost(usage, live.price, factor, billed)


def _count(number: int | None) -> int | None:
    return number if number is not None and number >= 0 else None


def add_cost(usage: Usage, price: ModelCost | None, factor: float = 1.0, billed: float | None = None) -> None:
    """Fill in the total of a usage and its cost in US dollars; an amount billed by the provider replaces ours.

    Without a price the cost is unknown.
    """
    usage.total_tokens = usage.input + usage.cache_read + usage.cache_write + usage.output
    usage.cost = _computed(usage, price, factor) if price else Cost()
    if billed is not None:
        usage.cost.total, usage.cost.total_from_provider = billed, True
    elif price is None:
        usage.cost.unknown = True


def _computed(usage: Usage, price: ModelCost, factor: float) -> Cost:
    sent = usage.input + usage.cache_read + usage.cache_write
    passed = [tier for tier in price.tiers or [] if _threshold(tier) < sent]
    rates: dict[str, Any] = to_builtins(price) | max(passed, key=_threshold, default={})
    # Cache writes for an hour cost twice the input rate, whatever the catalogue says about writes.
    hour = 0 if usage.cache_write_1h is UNSET else max(0, min(usage.cache_write_1h, usage.cache_write))
    per_token = factor / 1e6
    cost = Cost(
        input=rates["input"] * usage.input * per_token,
        output=rates["output"] * usage.output * per_token,
        cache_read=rates["cacheRead"] * usage.cache_read * per_token,
        cache_write=(rates["cacheWrite"] * (usage.cache_write - hour) + 2 * rates["input"] * hour) * per_token,
    )
    cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write
    return cost


def _threshold(tier: dict[str, Any]) -> float:
    return float(tier.get("inputTokensAbove", 0))


# -- limits ----------------------------------------------------------------------------------------

_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
_RESERVE_TOKENS = 4096
_MIN_ANSWER_TOKENS = _MIN_BUDGET_TOKENS = 1024


def thinking_budget(level: str, budgets: Mapping[str, int]) -> int:
    """Return the tokens a thinking level may take; the user's numbers come first."""
    level = level if level in _BUDGETS else "high"
    return budgets.get(level, _BUDGETS[level])


def room_to_think(limit: int, model: Model, options: StreamOptions) -> tuple[int, int] | None:
    """Return the output limit to ask for and how much of it is for thinking, where thinking counts as output.

    The limit grows by the budget as far as the model allows. None: there is too little room.
    """
    budget = thinking_budget(options.reasoning, options.thinking_budgets)
    limit = min(limit + budget, max(model.max_tokens, limit))
    budget = min(budget, limit - _MIN_ANSWER_TOKENS)
    return (limit, budget) if budget >= _MIN_BUDGET_TOKENS else None


def effort_word(model: Model, level: str) -> str | None:
    """Return the provider's word for a thinking level; None if the provider has none."""
    return (model.thinking_level_map or {}).get(level, level)


def output_limit(model: Model, request: Request, options: StreamOptions) -> int:
    """Return how many tokens to ask for at most: no more than the request leaves free in the context window."""
    limit = options.max_tokens or model.max_tokens
    if model.context_window <= 0:
        return limit
    return max(1, min(limit, model.context_window - estimate_request(request) - _RESERVE_TOKENS))


def estimate_request(request: Request) -> int:
    """Estimate the tokens of a request by its length."""

    def count() -> int:
        return sum(len(tool.name) + len(tool.description) + len(encode(tool.parameters)) for tool in request.tools)

    chars = len(request.system_prompt) + request.memory.same("estimate", count, request.tools)
    return chars // 4 + estimate_messages(request)


def estimate_messages(request: Request) -> int:
    """Estimate the tokens of the messages in a request."""

    def count(messages: Sequence[ModelMessage], _: int) -> list[int]:
        return [sum(map(estimate_tokens, messages))]

    return sum(request.memory.parts("estimate", request.messages, count))
