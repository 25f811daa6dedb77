"""What a session costs, added up by hand: tiers, caches, bills, and what is not known, in every place that tells it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import Step, cut, failure, raw, reply

PRICE = {
    "input": 3,
    "output": 15,
    "cacheRead": 0.3,
    "cacheWrite": 3.75,
    "tiers": [{"inputTokensAbove": 200_000, "input": 6, "output": 22.5, "cacheRead": 0.6, "cacheWrite": 7.5}],
}
BILL = {"prompt_tokens": 100, "completion_tokens": 50, "cost": 0.0042, "is_byok": False}
SIZES = {"contextWindow": 1_000_000, "maxTokens": 4096}


class Shop(AgentProcess):
    """An agent with a priced model, one without a price, and one of OpenRouter's."""

    factor = 1

    def configure(self) -> None:
        cost = {key: value * self.factor for key, value in PRICE.items() if key != "tiers"} | {"tiers": PRICE["tiers"]}
        common = {"baseUrl": self.mock.openai_url, "apiKey": "k", "api": "openai-completions"}
        providers = {
            "mock": {**common, "models": [{"id": "priced", "cost": cost, **SIZES}, {"id": "unpriced", **SIZES}]},
            "openrouter": {**common, "models": [{"id": "some/model", **SIZES}]},
        }
        (self.agent_dir / "models.json").write_text(json.dumps({"providers": providers}))

    def spend(self, provider: str, model: str) -> Any:
        """Run a prompt on a model and return its result."""
        self.data("set_model", provider=provider, modelId=model)
        self.run("hi")
        return self.data("get_run_result")["result"]


class DearerShop(Shop):
    factor = 10


def billed(usage: dict[str, Any]) -> Step:
    chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}], "usage": usage}
    return raw(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")


def stored(agent: AgentProcess) -> list[dict[str, Any]]:
    path = Path(agent.data("get_state")["sessionFile"])
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [message["usage"]["cost"] for message in messages if message["role"] == "assistant"]


def test_a_session_added_up_by_hand(tmp_path: Path) -> None:
    steps = [
        reply("a", usage=(1_000, 200, 400)),
        reply("b", usage=(250_000, 1_000, 240_000)),
        billed(BILL),
        reply("d", usage=(1_000, 10, 0)),
    ]
    first = (600 * 3 + 400 * 0.3 + 200 * 15) / 1e6
    second = (10_000 * 6 + 240_000 * 0.6 + 1_000 * 22.5) / 1e6
    known = first + second + 0.0042
    with Shop(steps, session=True, base=tmp_path, model="mock/priced") as agent:
        for cost in (first, second):
            result = agent.spend("mock", "priced")
            assert (result["cost"], result["costSource"]) == (pytest.approx(cost), "computed")
        result = agent.spend("openrouter", "some/model")
        assert (result["cost"], result["costSource"]) == (0.0042, "billed")
        stats = agent.data("get_session_stats")
        assert (stats["cost"], stats["costSource"]) == (pytest.approx(known), "computed")
        assert stats["tokens"]["cacheRead"] == 240_400

        result = agent.spend("mock", "unpriced")
        assert (result["cost"], result["costSource"]) == (None, "unknown")
        assert result["tokens"]["total"] == 1_010
        stats = agent.data("get_session_stats")
        assert (stats["costSource"], stats["cost"]) == ("unknown", pytest.approx(known))
        page = Path(agent.data("export_html")["path"]).read_text()
        assert "<dt>Cost</dt><dd>unknown, at least $0.236</dd>" in page

        costs = stored(agent)
        assert all(isinstance(cost[key], int | float) for cost in costs for key in ("input", "output", "total"))
        assert [cost["total"] for cost in costs] == pytest.approx([first, second, 0.0042, 0])
        assert [cost.get("totalFromProvider") for cost in costs] == [None, None, True, None]
        assert [cost.get("unknown") for cost in costs] == [None, None, None, True]
        path = agent.data("get_state")["sessionFile"]
    with DearerShop(session=True, base=tmp_path, model="mock/priced", args=["--session", path]) as agent:
        assert agent.data("get_session_stats") == stats, "what was paid stays what was paid"


def test_what_openrouter_bills(tmp_path: Path) -> None:
    details = {"upstream_inference_prompt_cost": 0.01, "upstream_inference_completions_cost": 0.02}
    steps = [
        billed({**BILL, "cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}),
        billed({**BILL, "cost": 0.001, "is_byok": True, "cost_details": details}),
        billed({**BILL, "cost": 0.001, "is_byok": True}),
        billed({**BILL, "cost": "free"}),
        billed(BILL),
    ]
    with Shop(steps, model="mock/priced", base=tmp_path) as agent:
        results = [agent.spend("openrouter", "some/model") for _ in steps[:-1]]
        other = agent.spend("mock", "priced")
    assert [result["cost"] for result in results] == [pytest.approx(0.501), pytest.approx(0.031), None, None]
    assert [result["costSource"] for result in results] == ["billed", "billed", "unknown", "unknown"]
    # Elsewhere a `cost` may mean anything.
    assert (other["cost"], other["costSource"]) == (pytest.approx((100 * 3 + 50 * 15) / 1e6), "computed")


def test_an_answer_that_is_cut_has_an_unknown_cost_and_one_that_never_began_has_none(tmp_path: Path) -> None:
    steps = [failure(400, "no"), reply("half", cut()), reply("ok", usage=(100, 10, 0))]
    with Shop(steps, model="mock/priced", base=tmp_path, session=True) as agent:
        agent.run("hi")
        stats = agent.data("get_session_stats")
        assert (stats["cost"], stats["costSource"]) == (0, "computed")
        agent.run("hi")
        stats = agent.data("get_session_stats")
        assert stats["costSource"] == "unknown"
        assert stats["cost"] == pytest.approx((100 * 3 + 10 * 15) / 1e6)


def test_a_limit_of_money_ends_a_run_whose_cost_does_not_come(tmp_path: Path) -> None:
    chunk = {"index": 0, "id": "c1", "function": {"name": "ls", "arguments": "{}"}}
    event = {"choices": [{"index": 0, "delta": {"tool_calls": [chunk]}, "finish_reason": "tool_calls"}]}
    steps = [raw(b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n")]
    with Shop(steps, model="mock/priced", base=tmp_path) as agent:
        agent.call("prompt", message="go", maxCost=1)
        assert agent.wait("agent_settled")["stopReason"] == "maxCost"
        assert len(agent.mock.requests) == 1
        result = agent.data("get_run_result")["result"]
        assert (result["cost"], result["costSource"]) == (None, "unknown")
        refused = agent.call("set_model", provider="mock", modelId="unpriced")
        assert refused["success"]
        refused = agent.call("prompt", message="go", maxCost=1)
        assert "the price of mock/unpriced is unknown" in refused["error"]
