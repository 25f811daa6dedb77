"""Failed answers that are tried again: counters, promises, switches."""

import asyncio

import pytest

from spindle.shapes.events import AutoRetryStart, Event
from spindle.testing import Pause
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import gate, reply, think

from .rig import Rig, kinds, run

DOWN = {"error": "503 down"}


def retries(rig: Rig) -> list[tuple]:
    return [
        (f["attempt"],) if f["type"] == "auto_retry_start" else (f["success"], f["attempt"], f.get("finalError"))
        for f in rig.frames
        if f["type"].startswith("auto_retry")
    ]


def test_each_answer_has_a_budget_of_its_own(tmp_path):
    async def main():
        call = {"calls": [{"name": "read", "arguments": {"path": "x"}}]}
        async with Rig(tmp_path, [DOWN, call, DOWN, DOWN, "done"]) as rig:
            await rig.run("go")
            assert retries(rig) == [(1,), (True, 1, None), (1,), (2,), (True, 2, None)]

    run(main())


def test_all_tries_are_one_run(tmp_path):
    """Clients written from the protocol's documents take the first `agent_end` for the end of the work."""

    async def main():
        call = {"calls": [{"name": "read", "arguments": {"path": "x"}}]}
        seen: list[str] = []

        def extension(agent):
            for name in ("agent_start", "agent_end"):
                agent.on(name, lambda event, ctx: seen.append(event.type))

        async with Rig(tmp_path, [DOWN, call, DOWN, "done"], extensions=[extension]) as rig:
            turn, again = ["turn_start", "turn_end"], ["auto_retry_start", "turn_start", "auto_retry_end", "turn_end"]
            told = [kind for kind in kinds(await rig.run("go")) if kind.startswith(("agent", "turn", "auto"))]
            assert told == ["agent_start", *turn, *again, *turn, *again, "agent_end", "agent_settled"]
            (end,) = rig.of("agent_end")
            assert [m.get("stopReason", m["role"]) for m in end["messages"]] == [
                "user", "error", "toolUse", "toolResult", "error", "stop",
            ]  # fmt: skip
            assert end["willRetry"] is False
            assert seen == ["agent_start", "agent_end"]

    run(main())


@pytest.mark.parametrize("steps", [[DOWN], [DOWN, {"error": "400 no"}]], ids=["exhausted", "fatal"])
def test_a_run_that_fails_in_the_end_tells_so_before_it_ends(tmp_path, steps):
    async def main():
        async with Rig(tmp_path, steps, settings={"retry": {"baseDelayMs": 1, "maxRetries": 1}}) as rig:
            told = kinds(await rig.run("go"))
            assert told[-3:] == ["auto_retry_end", "agent_end", "agent_settled"]
            assert told.count("agent_start") == told.count("agent_end") == 1

    run(main())


class SlowReader:
    """A client that falls behind when it hears of a retry."""

    def __init__(self) -> None:
        self._reading = asyncio.Event()
        self._reading.set()

    def put(self, event: Event) -> None:
        if isinstance(event, AutoRetryStart):
            self._reading.clear()

    @property
    def full(self) -> bool:
        return not self._reading.is_set()

    async def room(self) -> None:
        await self._reading.wait()

    def read_on(self) -> None:
        self._reading.set()


def test_a_wait_can_be_ended_as_soon_as_it_was_told_of(tmp_path):
    """Also if another client is behind, so that the wait has not even begun."""

    async def main():
        async with Rig(tmp_path, [DOWN, "done"], settings={"retry": {"baseDelayMs": 600_000}}) as rig:
            slow = SlowReader()
            rig.agent.subscribe(slow)
            await rig.call("prompt", message="go")
            await rig.until("auto_retry_start")
            stop = rig.send("abort_retry")
            await rig.data("get_state")  # commands begin in the order in which they come
            slow.read_on()
            assert (await rig.response(stop))["success"]
            await rig.until("agent_settled")
            assert retries(rig) == [(1,), (False, 1, "Retry cancelled")]

    run(main())


def test_switched_off_during_the_wait_it_counts_from_the_next_failure_on(tmp_path):
    async def main():
        async with Rig(tmp_path, [DOWN], settings={"retry": {"baseDelayMs": 20}}) as rig:
            await rig.call("prompt", message="go")
            await rig.until("auto_retry_start")
            await rig.call("set_auto_retry", enabled=False)
            await rig.until("agent_settled")
            assert len(rig.of("agent_end")) == 1
            assert retries(rig) == [(1,), (False, 1, "503 down")]
            assert rig.roles() == ["user", "assistant(error)"]

    run(main())


@pytest.mark.parametrize(
    ("last", "error"), [({"error": "400 no"}, "400 no"), ({"text": ["x", Pause(gate="never")]}, "Retry cancelled")]
)
def test_an_attempt_that_ends_otherwise_leaves_no_count_behind(tmp_path, last, error):
    async def main():
        async with Rig(tmp_path, [DOWN, last, DOWN, "fine"]) as rig:
            await rig.call("prompt", message="go")
            if "text" in last:
                await rig.script.reached("never")
                await rig.call("abort")
            await rig.until("agent_settled")
            await rig.run("again")
            assert retries(rig) == [(1,), (False, 1, error), (1,), (True, 1, None)]

    run(main())


def test_a_user_who_does_not_want_to_go_on_ends_the_count_too(tmp_path):
    async def main():
        async with Rig(tmp_path, [DOWN, "never asked for"]) as rig:
            await rig.call("set_approval", maxTurns=1)
            await rig.call("prompt", message="go")
            dialog = await rig.until("extension_ui_request")
            rig.dispatcher.receive_value({"type": "extension_ui_response", "id": dialog["id"], "confirmed": False})
            await rig.until("agent_settled")
            assert retries(rig) == [(1,), (False, 1, "Retry cancelled")]
            assert rig.agent._engine.retry.attempt == 0

    run(main())


def test_abort_retry_ends_only_the_wait(tmp_path):
    async def main():
        async with Rig(tmp_path, [DOWN, "fine"], settings={"retry": {"baseDelayMs": 60000}}) as rig:
            assert (await rig.call("abort_retry"))["success"]
            await rig.call("prompt", message="go")
            await rig.until("auto_retry_start")
            await rig.call("abort_retry")
            order = [f["type"] for f in rig.frames][-4:]
            assert order == ["auto_retry_end", "agent_end", "agent_settled", "response"]
            assert rig.of("agent_settled") == [
                {"type": "agent_settled", "aborted": False, "stopReason": "error", "errorMessage": "503 down"}
            ]

    run(main())


# -- an empty answer -------------------------------------------------------------------------------


def test_an_empty_answer_is_asked_for_once_more_within_the_run():
    with AgentProcess([reply(think("Hm.")), reply("There you are.")]) as agent:
        agent.run("go")
        kinds = [frame["type"] for frame in agent.frames]
        assert kinds.count("agent_start") == kinds.count("agent_end") == 1
        end = next(frame for frame in agent.frames if frame["type"] == "agent_end")
        assert end["messages"][-1]["content"][0]["text"] == "There you are."
        assert "empty" in agent.mock.requests[1].body["messages"][-1]["content"][0]["text"]
        assert agent.data("get_run_result")["result"]["status"] == "ok"


def test_an_answer_that_stays_empty_is_an_error():
    with AgentProcess([reply()]) as agent:
        agent.run("go")
        assert len(agent.mock.requests) == 2
        result = agent.data("get_run_result")["result"]
        assert (result["status"], result["stopReason"]) == ("error", "error") and "empty answer" in result["error"]
        assert [frame["type"] for frame in agent.frames].count("agent_end") == 1


def test_a_message_in_the_queue_comes_before_the_question():
    with AgentProcess([reply(gate("wait")), reply("Yes.")]) as agent:
        agent.prompt("go")
        agent.mock.wait_gate("wait")
        agent.call("follow_up", message="and this")
        agent.mock.release("wait")
        agent.wait("agent_settled")
        assert "and this" in str(agent.mock.requests[1].body["messages"][-1]["content"])
