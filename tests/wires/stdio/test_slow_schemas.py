"""A tool whose schema takes for ever to check: the agent answers, and everything that ends a run ends it."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

SLOW = {
    "name": "slow",
    "description": "d",
    "parameters": {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}},
}
STEPS = [reply(call("slow", {"x": "a" * 60 + "!"})), reply("done")]


def _checking(agent: AgentProcess) -> None:
    """Return when the arguments are being checked."""
    assert agent.call("set_host_tools", tools=[SLOW])["success"]
    assert agent.prompt("go")["success"]
    agent.wait("tool_execution_start")


def test_commands_are_answered_and_the_call_is_refused_in_the_end() -> None:
    with AgentProcess(STEPS) as agent:
        _checking(agent)
        for _ in range(20):
            begin = time.monotonic()
            assert agent.data("get_state")["isStreaming"]
            assert time.monotonic() - begin < 1
        end = agent.wait("tool_execution_end")
        assert end["isError"]
        assert "could not be checked: that takes more than 5 s" in end["result"]["content"][0]["text"]
        agent.wait("agent_settled")


ENDINGS: dict[str, Callable[[AgentProcess], object]] = {
    "abort": lambda agent: agent.call("abort"),
    "end of input": lambda agent: agent.close_stdin(),
    "SIGTERM": lambda agent: agent.kill(signal.SIGTERM),
    "time limit": lambda agent: None,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_whatever_ends_a_run_ends_the_check(ending: str) -> None:
    with AgentProcess(STEPS, args=["--max-time", "1"] if ending == "time limit" else []) as agent:
        begin = time.monotonic()
        _checking(agent)
        ENDINGS[ending](agent)
        if ending in ("abort", "time limit"):
            agent.wait("agent_settled")
            assert agent.data("get_state")["isStreaming"] is False
        assert time.monotonic() - begin < 4.5
        end = agent.wait("tool_execution_end")
        assert end["result"]["content"][0]["text"] == "Operation aborted"


def test_a_result_that_a_client_wants_is_checked_in_the_same_way() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(x+x+)+y"}}}
    steps = [reply(call("final_result", {"x": "x" * 60}))]
    with AgentProcess(steps) as agent:
        assert agent.prompt("go", jsonSchema=schema)["success"]
        agent.wait("tool_execution_start")
        assert agent.data("get_state")["isStreaming"]
        assert agent.call("abort")["success"]
        assert agent.wait("tool_execution_end")["result"]["content"][0]["text"] == "Operation aborted"
