"""What answers cost."""

import pytest

from spindle.agent.compaction import add_usage
from spindle.llm.cost import add_cost
from spindle.llm.live import LiveMessage
from spindle.shapes.messages import Cost, Usage, joint_source
from spindle.shapes.model import ModelCost

from .helpers import make_model

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
        (Usage(input=10, cache_write=10, cache_write_1h=400), 10 + 10 * 2),
        (Usage(input=10, cache_write=10, cache_write_1h=-4), 10 + 10 * 1.25),
        (Usage(), 0),
    ],
    ids=[
        "plain",
        "at a threshold",
        "first tier",
        "highest tier",
        "kept for an hour",
        "kept more than written",
        "kept less than nothing",
        "nothing",
    ],
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


# -- what is known ---------------------------------------------------------------------------------


def test_a_cost_without_a_price_is_unknown_unless_it_is_billed():
    usage = Usage(input=100, output=100)
    add_cost(usage, None)
    assert (usage.cost.total, usage.cost.source, usage.total_tokens) == (0, "unknown", 200)
    add_cost(usage, None, billed=0.5)
    assert (usage.cost.total, usage.cost.source) == (0.5, "billed")


def test_a_sum_is_as_good_as_its_worst_part():
    assert joint_source([]) == "computed"
    assert joint_source(["billed", "billed"]) == "billed"
    assert joint_source(["billed", "computed"]) == "computed"
    assert joint_source(["billed", "unknown", "computed"]) == "unknown"
    known, unknown = Usage(input=1, cost=Cost(total=2)), Usage(input=1, cost=Cost(total=1, unknown=True))
    both = add_usage(known, unknown)
    assert (both.cost.total, both.cost.source) == (3, "unknown")


@pytest.mark.parametrize(
    ("price", "usage", "source"),
    [
        (ModelCost(0, 0, 0, 0), Usage(), "computed"),
        (ModelCost(1, 1, 0, 0), Usage(input=5, cost=Cost(total=0.1)), "computed"),
        (ModelCost(1, 1, 0, 0), Usage(input=5), "unknown"),
        (None, Usage(input=5), "unknown"),
    ],
    ids=["a free model", "told by an extension", "forgotten by an extension", "no price"],
)
def test_a_stream_function_that_does_not_say_whether_it_counts(price, usage, source):
    live = LiveMessage(make_model(cost=price or ModelCost(0, 0, 0, 0), cost_unknown=price is None))
    assert live.finish("error").usage.cost.source == "computed", "nothing came, so nothing was spent"
    live.start_text()
    live.usage = usage
    assert live.so_far().usage.cost.source == "computed", "there may be more to come"
    assert live.finish("stop").usage.cost.source == source
