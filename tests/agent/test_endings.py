"""Whatever breaks, a run has an end: the client hears of it, and the next prompt works."""

import asyncio
import threading

import pytest

from spindle.agent.lifecycle import Lifecycle, Phase
from spindle.testing import Pause

from .rig import Rig, kinds, run, slow_tool, until_true


def breaks(*_):
    raise ZeroDivisionError("a bug")


async def breaks_later(*_):
    breaks()


@pytest.mark.parametrize(
    "where",
    ["commit", "run_tools", "committed", "will_retry", "store"],
)
def test_a_bug_inside_a_run_ends_it_with_an_error(tmp_path, caplog, where):
    async def main():
        async with Rig(tmp_path, [{"calls": [{"name": "slow"}]}, "fine"], tools=[slow_tool(seconds=0)]) as rig:
            engine = rig.agent._engine
            patch = pytest.MonkeyPatch()
            if where == "committed":
                patch.setattr(rig.agent.todos, "committed", breaks)
            elif where == "store":
                patch.setattr(rig.agent.session, "append_message", breaks)
            else:
                patch.setattr(engine, where, breaks_later, raising=True)
            frames = await rig.run("go")
            order = kinds(frames)
            assert order[-1] == "agent_settled" and order.count("agent_settled") == 1
            assert order.count("agent_start") == order.count("agent_end") == 1
            if where != "will_retry":
                assert order.count("turn_start") == order.count("turn_end")
                told = [f["message"] for f in frames if f["type"] == "message_end"][-1]
                assert (told["stopReason"], told["errorMessage"]) == ("error", "ZeroDivisionError: a bug")
            assert "a bug" in next(f for f in frames if f["type"] == "extension_error")["error"]
            patch.undo()
            assert not rig.agent.busy
            await rig.run("again")
            assert rig.roles()[-1] == "assistant(stop)"

    run(main())
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("where", ["reason", "go_on"])
def test_a_bug_after_a_run_still_settles(tmp_path, caplog, where):
    async def main():
        async with Rig(tmp_path, ["fine"]) as rig:
            if where == "go_on":
                rig.agent.todos.go_on = breaks_later
            else:
                rig.agent._engine.compactor.reason = breaks
            frames = await rig.run("go")
            assert kinds(frames)[-3:] == ["agent_end", "extension_error", "agent_settled"]
            assert not rig.agent.busy

    run(main())


class _Held:
    """An extension that holds up the end of the first run."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()

    def __call__(self, agent) -> None:
        agent.on("agent_before_settle", self._hold)

    def _hold(self, *_) -> None:
        self.there.set()
        assert self.go.wait(10)


def test_a_prompt_right_after_agent_end_is_queued_for_its_turn(tmp_path):
    """Clients older than `agent_settled` go on at `agent_end`, whatever the agent still has to do."""

    async def main():
        held = _Held()
        async with Rig(tmp_path, ["first", "second"], extensions=[held]) as rig:
            await rig.call("prompt", message="hi")
            await rig.until("agent_end")
            await until_true(held.there.is_set)
            start = len(rig.frames)
            assert (await rig.data("prompt", message="more"))["disposition"] == "queued"
            update, _ = rig.frames[start:]
            (item,) = update.pop("items")
            assert (item["kind"], item["text"], item["images"]) == ("followUp", "more", 0)
            assert update == {"type": "queue_update", "steering": [], "followUp": ["more"]}
            assert (await rig.data("get_state"))["isStreaming"] is True
            held.go.set()
            await rig.until("agent_settled")
            assert rig.roles() == ["user", "assistant(stop)"] * 2
            order = [f["type"] for f in rig.frames if f["type"] in ("agent_settled", "agent_start")]
            assert order == ["agent_start", "agent_start", "agent_settled"]

    run(main())


def test_an_abort_leaves_a_prompt_that_waits_for_the_end_in_its_queue(tmp_path):
    async def main():
        held = _Held()
        async with Rig(tmp_path, ["first", "second"], extensions=[held]) as rig:
            await rig.call("prompt", message="hi")
            await until_true(held.there.is_set)
            assert (await rig.data("prompt", message="more"))["disposition"] == "queued"
            stop = rig.send("abort")
            held.go.set()
            assert (await rig.response(stop))["success"]
            assert rig.roles() == ["user", "assistant(stop)"]
            assert (await rig.data("clear_queue"))["followUp"] == ["more"]
            assert (await rig.call("prompt", message="again"))["success"]

    run(main())


def test_a_listener_that_raises_does_not_disturb_the_run(home, caplog):
    from spindle import Agent
    from spindle.testing import Script

    async def main():
        async with await Agent.create(cwd=home, model=Script(["fine"]).model(), persist=False) as agent:
            agent.subscribe(breaks)
            assert await agent.ask("go") == "fine"

    run(main())
    assert "ZeroDivisionError" in caplog.text


def test_whoever_stops_listening_does_not_stop_the_agent(home):
    """A program that leaves the loop over events early: the run goes on without it."""
    from spindle import Agent
    from spindle.agent.run.handle import EVENTS_WAITING
    from spindle.testing import Script

    async def main():
        text = ["x"] * (3 * EVENTS_WAITING)
        script = Script([{"text": text}, "next"])
        async with await Agent.create(cwd=home, model=script.model(), persist=False) as agent:
            events = agent.prompt("go")
            async for _ in events:
                break
            await until_true(lambda: agent.session._engine.hub.congested)
            await asyncio.sleep(0.01)  # now it waits for us
            await events.aclose()
            await asyncio.wait_for(agent.session.wait_idle(), 20)
            assert await agent.ask("more") == "next"

    run(main())


def test_a_move_that_is_not_in_the_table_is_a_bug():
    lifecycle = Lifecycle()
    lifecycle.move(Phase.IDLE)
    with pytest.raises(RuntimeError, match="idle cannot become tools"):
        lifecycle.move(Phase.TOOLS)


def test_closing_in_mid_run_keeps_what_came(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["half an ", Pause(gate="never"), "answer"]}], session=True) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("never")
            rig.wire.stop_reading()
            await asyncio.wait_for(rig.agent.close(), 20)
            assert rig.roles() == ["user", "assistant(aborted)"]
            assert b"half an" in next((tmp_path / "agent" / "sessions").glob("*.jsonl")).read_bytes()

    run(main())
