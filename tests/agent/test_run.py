"""A run as its sender holds it: where the prompt went, when it is kept, its events, what came of it, and who waits."""

import asyncio
import json
from concurrent.futures import Future

import pytest

from spindle.agent import AgentError
from spindle.agent.hooks import Hooks
from spindle.agent.run.handle import EVENTS_WAITING
from spindle.agent.run.options import RunOptions
from spindle.base import flow
from spindle.inprocess import Agent
from spindle.testing import Pause
from spindle.tools.base import Tool
from tests.agent.rig import Rig, run

SMALL = {"compaction": {"keepRecentTokens": 10, "reserveTokens": 500}}
SUMMARY = {"match": "<conversation>", "text": [Pause(gate="summary"), "SUMMARY"]}
MANUAL = "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."


def test_it_tells_its_events_and_its_result(tmp_path):
    async def main():
        async with Rig(tmp_path, ["one", "two"]) as rig:
            first = await rig.agent.submit("hi")
            assert first.disposition == "started" and not first.over
            told = [event.type async for event in first.events()]
            assert (told[0], told[-1]) == ("agent_start", "agent_settled")
            assert (await first.result()).text == "one" and first.over
            assert [event async for event in first.events()] == []
            assert (await (await rig.agent.submit("again")).result()).text == "two"
            assert (await first.result()).text == "one"

    run(main())


def test_a_prompt_that_joins_a_run_ends_with_it(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}, "steered"]) as rig:
            first = await rig.agent.submit("hi")
            await rig.script.reached("go")
            second = await rig.agent.submit("and this", behavior="steer")
            assert second.disposition == "queued" and second.kept.done()
            rig.script.release("go")
            assert (await second.result()) is (await first.result())
            assert (await first.result()).text == "steered"

    run(main())


def test_a_prompt_behind_an_abort_has_an_end_of_its_own(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}, "after"]) as rig:
            first = await rig.agent.submit("hi")
            await rig.script.reached("go")
            rig.agent.stop()
            second = await rig.agent.submit("next")
            assert (await first.result()).status == "aborted"
            result = await second.result()
            assert (result.status, result.text) == ("ok", "after")

    run(main())


@pytest.mark.parametrize("way", ["abort", "take back"])
def test_a_prompt_that_starts_nothing_after_all_is_refused(tmp_path, way):
    """It waits for the end of the run before it, and something else comes first."""

    async def main():
        ending, go = asyncio.Event(), asyncio.Event()

        async def hold(answer, context):
            ending.set()
            await go.wait()

        async with Rig(tmp_path, ["one"]) as rig:
            rig.agent.hooks.add(type("Held", (Hooks,), {"before_settle": staticmethod(hold)})())
            first = await rig.agent.submit("hi")
            await ending.wait()
            second = await rig.agent.submit("next", source="sdk")
            assert second.disposition == "queued" and not second.over
            if way == "abort":
                rig.agent.stop()
            else:
                await second.stop()
            with pytest.raises(AgentError, match="Aborted before it began" if way == "abort" else "taken back"):
                await second.result()
            go.set()
            assert (await first.result()).status == ("aborted" if way == "abort" else "ok")

    run(main())


def test_it_ends_with_its_session(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}], session=True) as rig:
            first = await rig.agent.submit("hi")
            await rig.script.reached("go")
            second = await rig.agent.submit("more", behavior="followUp")
            ends = asyncio.gather(first.result(), second.result())
            await rig.agent.close()
            assert [end.status for end in await ends] == ["aborted", "aborted"]

    run(main())


@pytest.mark.parametrize("source", ["rpc", "sdk"])
def test_during_a_manual_compaction_a_prompt_is_refused_or_waits(tmp_path, source):
    """One policy: what ACP and the chat send waits, what others send is refused, with the same words."""

    async def main():
        async with Rig(tmp_path, [SUMMARY, "one", "two", "after"], settings=SMALL) as rig:
            for _ in range(2):
                await rig.run("hello " * 50)
            compacting = asyncio.create_task(rig.agent.compact())
            await rig.script.reached("summary")
            with pytest.raises(AgentError, match=MANUAL):
                await rig.agent.submit("refused", source=source)
            waiting = asyncio.create_task(rig.agent.submit("waits", source=source, wait=True))
            await asyncio.sleep(0)
            assert not waiting.done()
            rig.script.release("summary")
            await compacting
            accepted = await waiting
            assert accepted.disposition == "started" and (await accepted.result()).text == "after"

    run(main())


def test_one_that_waits_is_refused_when_the_session_ends(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}]) as rig:
            await rig.agent.submit("hi")
            await rig.script.reached("go")
            waiting = asyncio.create_task(rig.agent.submit("waits", wait=True))
            await asyncio.sleep(0)
            await rig.agent.close()
            with pytest.raises(AgentError, match="The session has ended"):
                await waiting

    run(main())


def test_the_prompt_is_in_a_file_when_it_is_said_to_be_kept(tmp_path):
    async def main():
        async with Rig(tmp_path, ["one"], session=True) as rig:
            accepted = await rig.agent.submit("keep me")
            assert not accepted.kept.done() and not rig.agent.session.path.exists()
            await accepted.kept
            assert "keep me" in rig.agent.session.path.read_text()
            await accepted.result()

    run(main())


def test_a_prompt_that_an_extension_holds_up_is_kept_beside_the_session(tmp_path):
    async def main():
        passed: Future[None] = Future()

        def extension(agent):
            @agent.on("input")
            async def hold(event, ctx):
                await asyncio.wrap_future(passed)

        async with Rig(tmp_path, ["one"], session=True, extensions=[extension]) as rig:
            await rig.agent.begin()
            accepted = await rig.agent.submit("held up")
            await accepted.kept
            assert "held up" not in rig.agent.session.path.read_text()
            (beside,) = [file for file in rig.agent.session.path.parent.iterdir() if file.name.endswith("queue")]
            assert "held up" in json.dumps(json.loads(beside.read_text()))
            passed.set_result(None)
            assert (await accepted.result()).text == "one"

    run(main())


def test_no_more_begin_at_once_than_the_gate_lets_through_and_all_in_order(tmp_path):
    async def main():
        rigs = [Rig(tmp_path / str(number), ["answer"], session=True) for number in range(2 * flow.AT_ONCE)]
        for rig in rigs:
            await rig.__aenter__()
        runs = [await rig.agent.submit("hi") for rig in rigs]
        order = []
        for number, accepted in enumerate(runs):
            accepted.kept.add_done_callback(lambda _, number=number: order.append(number))
        await asyncio.sleep(0)
        assert sum(accepted.kept.done() for accepted in runs) == flow.AT_ONCE
        assert [(await accepted.result()).text for accepted in runs] == ["answer"] * len(runs)
        assert order == list(range(len(runs)))
        for rig in rigs:
            await rig.agent.close()

    run(main())


def test_a_prompt_that_waited_at_the_gate_when_its_agent_was_closed_is_in_the_session(tmp_path):
    async def main():
        async with Rig(tmp_path, ["one"], session=True) as rig:
            gate = flow.beginnings()
            for _ in range(flow.AT_ONCE):
                await gate.acquire()
            await rig.agent.submit("not begun")
            await asyncio.sleep(0)
            path = rig.agent.session.path
        async with Rig(tmp_path, ["one"], open=str(path)) as rig:
            assert rig.roles() == ["user", "assistant(aborted)"]

    run(main())


# -- moments at which a prompt could get lost, or end with somebody else's run ---------------------


class Held(Hooks):
    """Holds a run in its ending until it is told to go on."""

    def __init__(self):
        self.ending, self.go = asyncio.Event(), asyncio.Event()

    async def before_settle(self, answer, context):
        self.ending.set()
        await self.go.wait()


def test_a_prompt_and_an_abort_in_one_piece_leave_the_message_in_the_session(tmp_path):
    async def main():
        async with Rig(tmp_path, ["never"], session=True) as rig:
            accepted, stopped = rig.send("prompt", message="keep me"), rig.send("abort")
            assert (await rig.response(accepted))["success"] and (await rig.response(stopped))["success"]
            assert rig.roles() == ["user", "assistant(aborted)"]
            assert len(rig.of("agent_start")) == len(rig.of("agent_end")) == len(rig.of("agent_settled")) == 1
            assert "keep me" in rig.agent.session.path.read_text()

    run(main())


def test_two_prompts_of_programs_at_the_end_of_a_run_have_runs_of_their_own(tmp_path):
    schema = {"type": "object", "properties": {"v": {"type": "integer"}}}
    result = {"calls": [{"name": "final_result", "arguments": {"v": 1}}]}

    async def main():
        async with Rig(tmp_path, ["one", {"text": ["a", Pause(gate="go"), "b"]}, result, "end"]) as rig:
            agent, held = Agent(rig.agent), Held()
            rig.agent.hooks.add(held)
            first = asyncio.create_task(agent.run("hi"))
            await held.ending.wait()
            second = asyncio.create_task(agent.run("a"))
            third = asyncio.create_task(agent.run("b", schema=schema))
            fourth = asyncio.create_task(agent.run("c"))
            await asyncio.sleep(0)
            held.go.set()
            await rig.script.reached("go")
            fourth.cancel()  # it has not begun, so that this ends nothing else
            await asyncio.wait([fourth])
            rig.script.release("go")
            assert [(await task).text for task in (first, second)] == ["one", "ab"]
            assert (await third).value == {"v": 1}
            assert [message.role for message in rig.agent.messages].count("user") == 3

    run(main())


def test_a_prompt_behind_an_abort_that_is_cancelled_does_not_run(tmp_path):
    async def main():
        go = asyncio.Event()

        async def execute(call_id, args, ctx):
            try:
                await asyncio.sleep(30)
            finally:
                await go.wait()

        tool = Tool("slow", "slow", {"type": "object", "properties": {}}, execute)
        calls = {"calls": [{"name": "slow", "arguments": {}}]}
        async with Rig(tmp_path, [calls, "never"], tools=[tool]) as rig:
            agent = Agent(rig.agent)
            first = asyncio.create_task(agent.run("hi"))
            await rig.until("tool_execution_start")
            rig.agent.stop()
            second = asyncio.create_task(agent.run("cancelled"))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
            go.set()
            assert (await first).status == "aborted"
            await rig.agent.finished()
            assert [message.role for message in rig.agent.messages].count("user") == 1

    run(main())


@pytest.mark.parametrize("way", ["remove_queued", "clear_queue"])
def test_a_prompt_that_is_taken_out_of_its_queue_has_no_result(tmp_path, way):
    async def main():
        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}]) as rig:
            first = await rig.agent.submit("hi")
            await rig.script.reached("go")
            second = await rig.agent.submit("removed", behavior="followUp")
            fields = {"queuedId": rig.of("queue_update")[-1]["items"][0]["id"]} if way == "remove_queued" else {}
            await rig.data(way, **fields)
            rig.script.release("go")
            assert (await first.result()).text == "ab"
            with pytest.raises(AgentError, match="Taken out of the queue"):
                await second.result()

    run(main())


def test_a_prompt_that_hooks_look_at_ends_with_its_session_or_when_it_is_taken_back(tmp_path):
    async def main():
        looked, go = asyncio.Event(), asyncio.Event()

        class Looks(Hooks):
            wants_input = True

            async def input(self, text, images, source, behavior):
                if "look" in text:
                    looked.set()
                    await go.wait()
                return text, images

        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}], session=True) as rig:
            rig.agent.hooks.add(Looks())
            await rig.agent.submit("hi")
            await rig.script.reached("go")
            back = await rig.agent.submit("look, then take back", behavior="followUp")
            await looked.wait()
            await back.stop()
            ended = await rig.agent.submit("look", behavior="followUp")
            await rig.agent.close()
            for held, why in ((back, "taken back"), (ended, "The session has ended")):
                with pytest.raises(AgentError, match=why):
                    await held.result()

    run(main())


def test_a_command_that_is_sent_during_a_change_of_session_has_an_end(tmp_path):
    async def main():
        changing, go, done = asyncio.Event(), asyncio.Event(), []

        class Slow(Hooks):
            async def ask(self, event, fields):
                changing.set()
                await go.wait()
                return {}

        def extension(agent):
            @agent.command("hi")
            async def hi(args, ctx):
                done.append(args)

        async with Rig(tmp_path, ["one"], session=True, extensions=[extension]) as rig:
            await rig.agent.begin()
            rig.agent.hooks.add(Slow())
            change = asyncio.create_task(rig.agent.new_session())
            await changing.wait()
            sent = await rig.agent.submit("/hi there")
            assert sent.disposition == "queued"
            go.set()
            await change
            assert (await sent.result()).stop_reason == "handled" and done == ["there"]

    run(main())


def test_events_that_are_dropped_hold_up_nothing(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x "] * 3 * EVENTS_WAITING}]) as rig:
            accepted = await rig.agent.submit("hi")
            closed = accepted.events()
            await closed.aclose()
            accepted.events()  # and this one is forgotten
            assert (await accepted.result()).status == "ok"

    run(main())


def test_a_schema_that_is_none_leaves_the_agent_free(tmp_path):
    async def main():
        async with Rig(tmp_path, ["one"]) as rig:
            with pytest.raises(AgentError):
                await rig.agent.submit("hi", options=RunOptions(schema=[]))
            assert (await (await rig.agent.submit("hi")).result()).text == "one"

    run(main())


def test_a_prompt_that_comes_to_its_queue_during_a_change_that_is_vetoed_is_delivered(tmp_path):
    async def main():
        go, seen = asyncio.Event(), asyncio.Event()

        class Holds(Hooks):
            wants_input = True

            async def input(self, text, images, source, behavior):
                if text == "held":
                    await go.wait()
                return text, images

            async def ask(self, event, fields):
                go.set()
                await seen.wait()
                return {"cancel": True}

        async with Rig(tmp_path, [{"text": ["o", Pause(gate="go"), "ne"]}, "two"], session=True) as rig:
            rig.agent.hooks.add(Holds())
            first = await rig.agent.submit("hi")
            await rig.script.reached("go")
            held = await rig.agent.submit("held", behavior="followUp")
            rig.script.release("go")
            await first.result()
            change = asyncio.create_task(rig.agent.new_session())
            await rig.until(lambda frame: frame["type"] == "queue_update" and frame["followUp"] == ["held"])
            seen.set()
            assert await change is True
            assert (await held.result()).text == "two"

    run(main())


def test_a_prompt_that_is_taken_back_while_hooks_look_at_it_is_not_delivered(tmp_path):
    async def main():
        looked, go = asyncio.Event(), asyncio.Event()

        class Looks(Hooks):
            wants_input = True

            async def input(self, text, images, source, behavior):
                if text == "look":
                    looked.set()
                    await go.wait()
                return text, images

        async with Rig(tmp_path, [{"text": ["a", Pause(gate="go"), "b"]}, "never"]) as rig:
            rig.agent.hooks.add(Looks())
            first = await rig.agent.submit("hi")
            await rig.script.reached("go")
            back = await rig.agent.submit("look", behavior="followUp")
            await looked.wait()
            await back.stop()
            go.set()
            behind = await rig.agent.submit("behind it", behavior="steer")  # goes through the same hooks, after it
            rig.script.release("go")
            await first.result()
            await behind.result()
            assert [message.role for message in rig.agent.messages].count("user") == 2

    run(main())
