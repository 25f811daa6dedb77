"""Failed answers that are tried again: counters, promises, switches."""

import asyncio

import pytest

from spindle.shapes.events import AutoRetryStart, Event
from spindle.testing import Pause

from .rig import Rig, run

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


def test_the_promise_at_the_end_of_a_run_is_kept(tmp_path):
    """What `agent_end` said holds, even if somebody switches retries off while it is being told."""

    async def main():
        def extension(agent):
            async def off(event, ctx):
                rig.agent._engine.retry.enabled = False

            agent.on("agent_end", off)

        async with Rig(tmp_path, [DOWN, "done"], extensions=[extension]) as rig:
            frames = await rig.run("go")
            ends = [f["willRetry"] for f in frames if f["type"] == "agent_end"]
            assert ends == [True, False]
            assert retries(rig) == [(1,), (True, 1, None)]

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
            assert [f["willRetry"] for f in rig.of("agent_end")] == [True, False]
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
            order = [f["type"] for f in rig.frames][-3:]
            assert order == ["auto_retry_end", "agent_settled", "response"]
            assert rig.of("agent_settled") == [
                {"type": "agent_settled", "aborted": False, "stopReason": "error", "errorMessage": "503 down"}
            ]

    run(main())
