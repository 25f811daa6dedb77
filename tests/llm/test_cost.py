"""What answers cost."""

import pytest

from spindle.llm.cost import add_cost
from spindle.shapes.messages import Usage
from spindle.shapes.model import ModelCost

TIERED = ModelCost(
    1,
    2,
    0.1,
    1.25,
    [
        {"inputTokensAbove": 1000, "input": 10, "output": 20, "cacheRead": 1, "cacheWrite": 12},
        {"inputTokensAbove": 100, "input": 4, "output": 8},
    ],
)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input=50, output=10, cache_read=20, cache_write=30), 50 + 20 + 2 + 37.5),
        (Usage(input=100, output=1000), 100 + 2000),
        (Usage(input=100, output=1, cache_read=1), 400 + 8 + 0.1),
        (Usage(input=400, output=10, cache_read=301, cache_write=300), 4000 + 200 + 301 + 3600),
        (Usage(input=10, cache_write=10, cache_write_1h=4), 10 + 6 * 1.25 + 4 * 2),
        (Usage(), 0),
    ],
    ids=["plain", "at a threshold", "first tier", "highest tier", "kept for an hour", "nothing"],
)
def test_cost(usage, cost):
    add_cost(usage, TIERED)
    assert usage.cost.total == pytest.approx(cost / 1e6)
    parts = usage.cost.input + usage.cost.output + usage.cost.cache_read + usage.cost.cache_write
    assert usage.cost.total == pytest.approx(parts)
    assert usage.total_tokens == usage.input + usage.output + usage.cache_read + usage.cache_write


def test_a_service_tier_multiplies():
    usage = Usage(input=100, output=100)
    add_cost(usage, ModelCost(1, 2, 0, 0), 0.5)
    assert usage.cost.total == pytest.approx(150 / 1e6)
