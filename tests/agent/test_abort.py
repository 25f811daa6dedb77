"""Abort: the signal itself, and an abort in every phase of a run."""

import asyncio

import pytest

from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text, UserMessage
from spindle.testing import Pause
from spindle.tools.base import Tool

from .rig import Rig, kinds, run, slow_tool

SMALL = {"compaction": {"reserveTokens": 500, "keepRecentTokens": 100}}
LONG = "lorem ipsum dolor " * 100


def says(text: str = "ok", **usage: int) -> dict:
    return {"text": text, "usage": {"input": 10, "output": 5, **usage}}


# -- the signal ---------------------------------------------------------------------------------------


def test_an_abort_turns_the_cancellation_of_a_region_into_one_exception():
    async def main():
        signal = AbortSignal()

        async def work():
            with pytest.raises(Aborted), signal:
                await asyncio.sleep(30)
            assert asyncio.current_task().cancelling() == 0
            await asyncio.sleep(0)
            return "went on"

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        signal.abort()
        signal.abort()
        assert await task == "went on"
        with pytest.raises(Aborted), signal:
            pass

    run(main())


def test_a_cancellation_from_elsewhere_passes_even_if_it_comes_with_an_abort():
    async def main():
        signal = AbortSignal()

        async def work():
            with signal:
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        signal.abort()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_work_that_turned_the_cancellation_into_another_error_is_not_cancelled_later():
    async def main():
        signal = AbortSignal()

        async def work():
            with pytest.raises(ValueError), signal:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    raise ValueError from None
            return asyncio.current_task().cancelling()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        signal.abort()
        assert await task == 0

    run(main())


# -- phases -------------------------------------------------------------------------------------------


def ends_well(rig: Rig) -> None:
    """Every start has its end, and the agent says once that it has settled."""
    order = kinds(rig.frames)
    for start, end in (
        ("agent_start", "agent_end"),
        ("turn_start", "turn_end"),
        ("message_start", "message_end"),
        ("tool_execution_start", "tool_execution_end"),
        ("compaction_start", "compaction_end"),
        ("auto_retry_start", "auto_retry_end"),
    ):
        assert order.count(start) == order.count(end), order
    assert order.count("agent_settled") >= order.count("agent_start")  # a prompt may be aborted before its run began
    assert not rig.agent.busy


async def abort_twice(rig: Rig) -> None:
    """Two aborts at once: both are answered, after the end of the run."""
    answers = await asyncio.gather(rig.call("abort"), rig.call("abort"))
    assert all(answer["success"] for answer in answers)
    ends_well(rig)


async def goes_on(rig: Rig) -> None:
    frames = await rig.run("again")
    assert kinds(frames).count("agent_settled") == 1


def test_while_the_model_writes(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["par", Pause(gate="go"), "tial"]}, says()]) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            await abort_twice(rig)
            assert rig.roles() == ["user", "assistant(aborted)"]
            assert rig.of("agent_settled") == [{"type": "agent_settled", "aborted": True, "stopReason": "aborted"}]
            await goes_on(rig)

    run(main())


def test_while_tools_run(tmp_path):
    async def main():
        steps = [{"calls": [{"name": "slow"}, {"name": "slow"}]}, says()]
        async with Rig(tmp_path, steps, tools=[slow_tool()]) as rig:
            await rig.call("prompt", message="hi")
            await rig.until("tool_execution_start")
            await abort_twice(rig)
            assert rig.roles() == ["user", "assistant(toolUse)", "toolResult", "toolResult", "assistant(aborted)"]
            await goes_on(rig)

    run(main())


def test_while_a_tool_does_not_listen(tmp_path, monkeypatch):
    """A tool that ignores its cancellation is left behind, not waited for."""
    monkeypatch.setattr("spindle.base.limits.TOOL_END", 0.05)
    let_go = asyncio.Event()

    async def deaf(call_id, args, ctx):
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass
        raise ValueError("nobody hears this")

    async def main():
        tool = Tool("deaf", "deaf", {"type": "object"}, deaf)
        async with Rig(tmp_path, [{"calls": [{"name": "deaf"}]}, says()], tools=[tool]) as rig:
            await rig.call("prompt", message="hi")
            await rig.until("tool_execution_start")
            await abort_twice(rig)
            assert rig.of("tool_execution_end")[0]["result"]["content"][0]["text"] == "Operation aborted"
            await goes_on(rig)
            let_go.set()
            await asyncio.sleep(0)

    run(main())


def test_while_an_extension_looks_at_a_result(tmp_path):
    """The tool has done its work; the model must learn of it."""

    async def main():
        looking = asyncio.Event()

        def extension(agent):
            async def handler(event, ctx):
                looking.set()
                await asyncio.sleep(30)

            agent.on("tool_result", handler)

        steps = [{"calls": [{"name": "slow"}]}, says()]
        async with Rig(tmp_path, steps, tools=[slow_tool(seconds=0)], extensions=[extension]) as rig:
            await rig.call("prompt", message="hi")
            await looking.wait()
            await abort_twice(rig)
            (end,) = rig.of("tool_execution_end")
            assert (end["isError"], end["result"]["content"][0]["text"]) == (False, "slept")

    run(main())


def test_while_it_waits_for_a_retry(tmp_path):
    async def main():
        settings = {"retry": {"baseDelayMs": 60000}}
        async with Rig(tmp_path, [{"error": "503 down"}, says()], settings=settings) as rig:
            await rig.call("prompt", message="hi")
            await rig.until("auto_retry_start")
            await abort_twice(rig)
            assert rig.of("auto_retry_end")[0]["finalError"] == "Retry cancelled"
            assert [[m["role"] for m in end["messages"]] for end in rig.of("agent_end")] == [["user", "assistant"]]
            told = kinds(rig.frames)
            assert told.index("auto_retry_end") < told.index("agent_end") < told.index("agent_settled")
            await goes_on(rig)

    run(main())


def test_while_summaries_are_written_side_by_side(tmp_path):
    async def main():
        steps = [
            {"match": "<conversation>", "text": [Pause(gate="sum"), "SUMMARY"]},
            says(LONG, input=10),
            {"calls": [{"name": "slow"}], "text": LONG},
            says("big", input=99_900),
        ]
        async with Rig(tmp_path, steps, settings=SMALL, tools=[slow_tool(seconds=0)]) as rig:
            await rig.run("a " + LONG)
            await rig.call("prompt", message="b " + LONG)
            await rig.script.reached("sum")
            await abort_twice(rig)
            end = rig.of("compaction_end")[0]
            assert (end["reason"], end["aborted"], end["result"]) == ("threshold", True, None)
            assert "compactionSummary" not in rig.roles()
            await rig.call("set_auto_compaction", enabled=False)
            await goes_on(rig)

    run(main())


def test_while_the_prompt_makes_room_for_itself(tmp_path):
    """Aborted after it was accepted and before its run began: it settles, and nothing of it is in the conversation."""

    async def main():
        steps = [{"match": "<conversation>", "text": [Pause(gate="sum"), "S"]}, says(LONG), says("x", input=99_900)]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.call("set_auto_compaction", enabled=False)
            await rig.run("b " + LONG)
            await rig.call("set_auto_compaction", enabled=True)
            settled = len(rig.of("agent_settled"))
            prompt = rig.send("prompt", message="c")
            await rig.script.reached("sum")
            assert (await rig.data("get_state"))["isStreaming"] is True
            await rig.call("abort")
            assert (await rig.response(prompt))["data"] == {"disposition": "started"}
            assert rig.of("agent_settled")[settled:] == [
                {"type": "agent_settled", "aborted": True, "stopReason": "aborted"}
            ]
            assert rig.roles() == ["user", "assistant(stop)"] * 2
            ends_well(rig)

    run(main())


@pytest.mark.parametrize(
    "event", ["input", "before_agent_start", "message_start", "message_end", "tool_call", "context"]
)
def test_while_an_extension_thinks(tmp_path, event):
    async def main():
        thinking = asyncio.Event()

        def extension(agent):
            async def handler(event, ctx):
                if event.type != "message_start" or not isinstance(event.message, UserMessage):
                    thinking.set()
                    await asyncio.sleep(30)

            agent.on(event, handler)

        steps = [{"calls": [{"name": "slow"}]}, says()]
        async with Rig(tmp_path, steps, extensions=[extension], tools=[slow_tool()]) as rig:
            prompt = rig.send("prompt", message="hi")
            await thinking.wait()
            await abort_twice(rig)
            await rig.response(prompt)

    run(main())


def test_while_the_client_does_not_read(tmp_path):
    """The abort goes through, its tools are killed and it is over, although nothing can be written."""

    async def main():
        steps = [{"calls": [{"name": "slow"}, {"name": "quick"}]}, says()]
        tools = [slow_tool(), slow_tool("quick", 0.01)]
        async with Rig(tmp_path, steps, tools=tools) as rig:
            await rig.call("prompt", message="hi")
            await rig.until("tool_execution_start")
            rig.wire.stop_reading()
            await rig.until(lambda f: f["type"] == "tool_execution_end" and f["toolName"] == "quick")
            await asyncio.wait_for(abort_twice(rig), 20)
            rig.wire.read_on()
            await goes_on(rig)

    run(main())


def test_abort_and_prompt_of_two_clients_both_run(tmp_path):
    async def main():
        steps = [{"text": ["x", Pause(gate="never")]}, says()]
        async with Rig(tmp_path, steps) as rig:
            await rig.call("prompt", message="first")
            await rig.script.reached("never")
            ids = [rig.send("abort_and_prompt", message=text) for text in ("second", "third")]
            answers = [await rig.response(id) for id in ids]
            assert [answer["data"]["disposition"] for answer in answers] == ["started", "started"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 3)
            await asyncio.sleep(0)
            ends_well(rig)
            assert rig.roles()[-1] == "assistant(stop)"

    run(main())


def test_an_idle_abort_does_not_stop_what_was_sent_after_it(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x", Pause(wait=0.05), "y"]}]) as rig:
            abort, prompt = rig.send("abort"), rig.send("prompt", message="hi")
            assert (await rig.response(abort))["success"] and (await rig.response(prompt))["success"]
            await rig.until("agent_settled")
            assert rig.roles() == ["user", "assistant(stop)"]

    run(main())


# -- something else instead ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["new_session", "compact", "clone", "fork", "switch_session"])
@pytest.mark.parametrize("phase", ["streaming", "tools", "retrying"])
def test_another_job_ends_the_run_first(tmp_path, phase, name):
    async def main():
        step = {
            "streaming": {"text": ["x", Pause(gate="never")]},
            "tools": {"calls": [{"name": "slow"}]},
            "retrying": {"error": "503 down"},
        }[phase]
        settings = {"retry": {"baseDelayMs": 60000}, **SMALL}
        steps = [{"match": "<conversation>", "text": "SUMMARY"}, says(LONG), says(LONG), step]
        async with Rig(tmp_path, steps, tools=[slow_tool()], settings=settings, session=True) as rig:
            await rig.run("first")
            await rig.run("again")
            reached = {
                "streaming": lambda f: f["type"] == "message_start" and len(rig.of("message_start")) == 6,
                "tools": "tool_execution_start",
                "retrying": "auto_retry_start",
            }
            await rig.call("prompt", message="second")
            await rig.until(reached[phase])
            fields = {
                "fork": {"entryId": rig.agent.conversation.user_messages()[0][0]},
                "switch_session": {"sessionPath": str(tmp_path / "other.jsonl")},
            }
            answer = await rig.call(name, **fields.get(name, {}))
            assert answer["success"], answer
            order = kinds(rig.frames)
            assert order.count("agent_settled") == 3 and order[-1] != "agent_settled"
            ends_well(rig)

    run(main())


def test_a_failing_tool_that_calls_sys_exit_is_just_a_failing_tool(tmp_path):
    async def leave(call_id, args, ctx):
        raise SystemExit("bye")

    async def nonsense(call_id, args, ctx):
        return "not a result"

    async def unwritable(call_id, args, ctx):
        return ToolResult([Text("x")], details={"x": object()})

    async def main():
        tools = [Tool(f.__name__, "t", {"type": "object"}, f) for f in (leave, nonsense, unwritable)]
        async with Rig(tmp_path, [{"calls": [{"name": t.name} for t in tools]}, says()], tools=tools) as rig:
            await rig.run("go")
            assert [f["isError"] for f in rig.of("tool_execution_end")] == [True, True, True]
            assert rig.roles()[-1] == "assistant(stop)"

    run(main())


# -- what is sent behind an abort ---------------------------------------------------------------------


def heard(rig: Rig) -> list[str]:
    """Answers by their command, beginnings and ends of runs."""
    kinds = ("agent_start", "agent_settled")
    return [frame.get("command", frame["type"]) for frame in rig.frames if frame["type"] in ("response", *kinds)]


@pytest.mark.parametrize("behavior", [None, "steer"])
def test_a_prompt_behind_an_abort_runs_after_it(tmp_path, behavior):
    """A client that stops a run and writes anew need not wait for the end in between."""

    async def main():
        async with Rig(tmp_path, [{"text": ["Hel", Pause(gate="never")], "match": "first"}, "two"]) as rig:
            rig.send("prompt", message="first")
            await rig.script.reached("never")
            abort, prompt = rig.send("abort"), rig.send("prompt", message="second", streamingBehavior=behavior)
            assert (await rig.response(abort))["success"]
            assert (await rig.response(prompt))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert heard(rig) == [
                "prompt",
                "agent_start",
                "agent_settled",
                "abort",
                "prompt",
                *("agent_start", "agent_settled"),
            ]
            assert rig.agent.conversation.last_assistant_text() == "two"
            assert len(rig.agent.queues) == 0

    run(main())


def test_a_prompt_an_abort_and_a_prompt_in_one_piece(tmp_path):
    async def main():
        async with Rig(tmp_path, ["never", "two"]) as rig:
            ids = [rig.send(kind, **fields) for kind, fields in (
                ("prompt", {"message": "first"}), ("abort", {}), ("prompt", {"message": "second"}),
            )]  # fmt: skip
            assert all([(await rig.response(id))["success"] for id in ids])
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert [end["aborted"] for end in rig.of("agent_settled")] == [True, False]

    run(main())


def test_a_second_abort_means_the_prompt_behind_the_first(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["Hel", Pause(gate="never")], "match": "first"}, "two"]) as rig:
            rig.send("prompt", message="first")
            await rig.script.reached("never")
            ids = rig.send("abort"), rig.send("prompt", message="second"), rig.send("abort")
            assert all([(await rig.response(id))["success"] for id in ids])
            await rig.agent.finished()
            assert len(rig.of("agent_start")) == 1
            assert rig.agent.queues.texts() == ([], ["second"])  # as other messages that wait

    run(main())


def test_a_change_of_session_does_not_take_the_prompt_behind_an_abort_along(tmp_path):
    async def main():
        steps = [{"text": ["Hel", Pause(gate="never")], "match": "first"}, "two"]
        async with Rig(tmp_path, steps, session=True) as rig:
            rig.send("prompt", message="first")
            await rig.script.reached("never")
            left = rig.agent.session.path
            ids = rig.send("abort"), rig.send("prompt", message="second"), rig.send("new_session")
            assert all([(await rig.response(id))["success"] for id in ids])
            await rig.agent.finished()
            assert rig.agent.messages == [] and len(rig.of("agent_start")) == 1
            assert (await rig.call("switch_session", sessionPath=str(left)))["success"]
            assert rig.agent.queues.texts() == ([], ["second"])

    run(main())


def test_a_prompt_behind_a_compaction_that_is_stopped_runs(tmp_path):
    async def main():
        steps = [says(LONG, input=400), says(LONG, input=400), {"text": [Pause(gate="never")]}, "three"]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run(LONG)
            await rig.run(LONG)
            compact = rig.send("compact")
            await rig.script.reached("never")
            abort, prompt = rig.send("abort"), rig.send("prompt", message="on we go")
            assert (await rig.response(compact))["error"] == "Compaction cancelled"
            assert (await rig.response(abort))["success"] and (await rig.response(prompt))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 3)
            assert rig.agent.conversation.last_assistant_text() == "three"

    run(main())


def test_a_prompt_behind_a_compaction_that_ends_a_run_is_not_ended_by_it(tmp_path):
    async def main():
        stuck = {"text": [Pause(gate="never")], "match": "stuck"}
        async with Rig(tmp_path, [stuck, says(LONG, input=400)], settings=SMALL) as rig:
            await rig.run(LONG)
            await rig.run(LONG)
            rig.send("prompt", message="stuck")
            await rig.script.reached("never")
            compact, prompt = rig.send("compact"), rig.send("prompt", message="on we go")
            assert (await rig.response(compact))["success"] and (await rig.response(prompt))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 4)
            assert [end["aborted"] for end in rig.of("agent_settled")] == [False, False, True, False]

    run(main())
