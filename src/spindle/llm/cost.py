"""What an answer costs."""

from typing import Any

from msgspec import UNSET

from spindle.types.messages import Cost, Usage
from spindle.types.models import ModelCost

__all__ = ["add_cost"]


def add_cost(usage: Usage, price: ModelCost, factor: float = 1.0) -> None:
    """Fill in the total of a usage and its cost in US dollars."""
    sent = usage.input + usage.cache_read + usage.cache_write
    rates: dict[str, Any] = {
        "input": price.input,
        "output": price.output,
        "cacheRead": price.cache_read,
        "cacheWrite": price.cache_write,
    }
    passed = [tier for tier in price.tiers or [] if _threshold(tier) < sent]
    if passed:
        highest = max(passed, key=_threshold)
        rates.update(highest)
    # Writes that are kept for an hour cost twice the input rate, whatever the catalogue says of writes.
    hour = 0 if usage.cache_write_1h is UNSET else usage.cache_write_1h
    per_token = factor / 1e6
    cost = Cost(
        input=rates["input"] * usage.input * per_token,
        output=rates["output"] * usage.output * per_token,
        cache_read=rates["cacheRead"] * usage.cache_read * per_token,
        cache_write=(rates["cacheWrite"] * (usage.cache_write - hour) + 2 * rates["input"] * hour) * per_token,
    )
    cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write
    usage.total_tokens = sent + usage.output
    usage.cost = cost


def _threshold(tier: dict[str, Any]) -> float:
    return float(tier.get("inputTokensAbove", 0))
