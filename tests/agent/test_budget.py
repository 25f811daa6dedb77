"""What a run may use up, and where one ends that would not end by itself."""

import asyncio

import pytest

from spindle.agent import AgentError
from spindle.agent.run.options import RunOptions
from spindle.shapes.model import ModelCost
from spindle.shapes.run_limits import RunLimits
from spindle.testing import Pause

from .rig import Rig, run, slow_tool

CALL = {"calls": [{"name": "slow"}], "usage": {"input": 100, "output": 10}}
PRICE = {"cost": ModelCost(1, 0, 0, 0)}
"""A hundred tokens cost 0.0001 dollars."""


async def settled(rig: Rig, **limits) -> dict:
    await rig.agent.submit("go", options=RunOptions(limits=RunLimits(**limits)))
    return await rig.until("agent_settled")


@pytest.mark.parametrize(
    ("limits", "reason", "calls"),
    [
        ({"max_turns": 3}, "maxTurns", 3),
        ({"max_total_tokens": 150}, "maxTotalTokens", 2),
        ({"max_cost": 0.00025}, "maxCost", 3),
    ],
)
def test_a_limit_ends_the_run_before_the_next_call(tmp_path, limits, reason, calls):
    async def main():
        steps = [*[CALL] * calls, "going on"]
        async with Rig(tmp_path, steps, tools=[slow_tool(seconds=0)], model=PRICE) as rig:
            end = await settled(rig, **limits)
            assert end == {"type": "agent_settled", "aborted": False, "stopReason": reason}
            assert len(rig.script.requests) == calls
            assert rig.roles()[-1] == "toolResult"
            await rig.run("and on")
            assert rig.roles()[-1] == "assistant(stop)"

    run(main())


def test_a_run_that_is_done_within_its_limits_ends_as_always(tmp_path):
    async def main():
        async with Rig(tmp_path, [CALL, "done"], tools=[slow_tool(seconds=0)]) as rig:
            assert (await settled(rig, max_turns=2))["stopReason"] == "end"

    run(main())


def test_time_ends_a_call_in_the_middle(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["half", Pause(gate="never")]}, "next"]) as rig:
            end = await asyncio.wait_for(settled(rig, max_time=0.05), 10)
            assert end == {"type": "agent_settled", "aborted": False, "stopReason": "maxTime"}
            assert rig.roles() == ["user", "assistant(aborted)"]
            await rig.run("and on")

    run(main())


def test_a_limit_on_cost_needs_a_price(tmp_path):
    async def main():
        async with Rig(tmp_path, model={"cost_unknown": True}) as rig:
            with pytest.raises(AgentError, match="price of scripted/script is unknown"):
                await rig.agent.submit("go", options=RunOptions(limits=RunLimits(max_cost=1)))
            with pytest.raises(AgentError, match="maxTurns must be above 0"):
                await rig.agent.submit("go", options=RunOptions(limits=RunLimits(max_turns=0)))
            assert rig.roles() == []

    run(main())


def test_a_model_that_never_stops_calling_is_stopped(tmp_path):
    async def main():
        settings = {"runaway": {"maxModelCalls": 7}}
        async with Rig(tmp_path, [CALL] * 20, tools=[slow_tool(seconds=0)], settings=settings) as rig:
            assert (await settled(rig))["stopReason"] == "maxTurns"
            assert len(rig.script.requests) == 7

    run(main())


@pytest.mark.parametrize("kind", ["fails", "cut"])
def test_the_same_failure_again_and_again_ends_the_run(tmp_path, kind):
    step = {"calls": [{"name": "nothing", "arguments": {"a": 1}}]} if kind == "fails" else {**CALL, "stop": "length"}

    async def main():
        async with Rig(tmp_path, [step] * 20, tools=[slow_tool(seconds=0)]) as rig:
            assert (await settled(rig))["stopReason"] == "repeated"
            assert len(rig.script.requests) == 5

    run(main())


def test_a_tool_that_never_ends_is_stopped(tmp_path):
    async def main():
        settings = {"runaway": {"toolSeconds": 0.05}}
        async with Rig(tmp_path, [CALL, "ok"], tools=[slow_tool(seconds=60)], settings=settings) as rig:
            assert (await settled(rig))["stopReason"] == "end"
            (end,) = rig.of("tool_execution_end")
            assert end["isError"] and "took longer than 0.05 s" in end["result"]["content"][0]["text"]

    run(main())
