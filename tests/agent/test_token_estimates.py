"""`--max-total-tokens` counts our own estimate where a server reports no usage, or nonsense."""

from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

NONSENSE: dict[str, Any] = {
    "nothing": None,
    "null": {"prompt_tokens": None, "completion_tokens": None},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "negative": {"prompt_tokens": -900, "completion_tokens": -1},
    "one": {"prompt_tokens": 1, "completion_tokens": 1},
    "no output": {"prompt_tokens": 10, "completion_tokens": 0},
    "texts": {"prompt_tokens": "many", "completion_tokens": "more"},
    "too much": {"prompt_tokens": 10**15, "completion_tokens": 5},
}


@pytest.mark.parametrize("usage", NONSENSE.values(), ids=NONSENSE)
def test_a_run_ends_though_no_usage_is_told(usage: Any) -> None:
    """Each answer is about 1,000 tokens long, so a limit of 20,000 ends the run before it has 20 of them."""
    words = "word " * 800
    steps = [reply(call("bash", {"command": f"echo {number}; : {words}"}, f"call_{number}")) for number in range(40)]
    for step in steps:
        step.said = {"usage": usage}
    with AgentProcess(steps, args=["--max-total-tokens", "20000", "--max-turns", "30"]) as agent:
        agent.prompt("go")
        end = agent.wait("agent_settled", 60)
        assert end["stopReason"] == "maxTotalTokens", end
        assert 2 <= len(agent.mock.requests) <= 20


def test_a_count_that_makes_sense_is_believed() -> None:
    steps = [
        reply(call("bash", {"command": f"echo {number}"}, f"call_{number}"), usage=(100, 5, 0)) for number in range(9)
    ]
    with AgentProcess([*steps, reply("done")], args=["--max-total-tokens", "2000"]) as agent:
        agent.prompt("go")
        assert agent.wait("agent_settled", 60)["stopReason"] == "end"
