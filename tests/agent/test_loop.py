"""The loop: order of events, queues, abort in every phase, steering, tools."""

import asyncio

import pytest

from spindle.agent import loop
from spindle.agent.hooks import Hooks
from spindle.agent.lifecycle import AbortSignal
from spindle.agent.run.meter import Meter
from spindle.base.settings import Runaway
from spindle.shapes.events import MessageUpdate, ToolExecutionEnd, ToolExecutionStart, TurnStart
from spindle.shapes.messages import AssistantMessage, CustomMessage, ToolResultMessage, UserMessage, text_of
from spindle.shapes.run_limits import RunLimits

from .port import World, calls, fails, says, tool, user


def run(world: World, *prompt: UserMessage) -> AssistantMessage:
    return asyncio.run(loop.run(prompt, world.chain, world, AbortSignal()))


def results(world: World) -> dict[str, str]:
    return {m.tool_call_id: text_of(m.content) for m in world.messages if isinstance(m, ToolResultMessage)}


async def echo(args, ctx):
    return "ok"


def test_one_answer_tells_every_step_in_order():
    world = World([says("Hel", "lo")])
    answer = run(world, user("hi"))
    assert world.names() == [
        "agent_start", "turn_start", "message_start", "message_end user",
        "message_start", "message_end assistant", "turn_end",
    ]  # fmt: skip
    assert text_of(answer.content) == "Hello"


def test_tools_lead_to_another_turn():
    world = World([calls(("c1", "echo", "{}"), ("c2", "echo", "{}")), says("done")], [tool("echo", echo)])
    run(world, user("go"))
    names = world.names()
    assert names.index("tool_execution_start c1") < names.index("tool_execution_start c2")
    assert names.index("tool_execution_end c2") < names.index("message_end toolResult")
    assert [m.tool_call_id for m in world.messages if isinstance(m, ToolResultMessage)] == ["c1", "c2"]
    assert len(world.seen) == 2


def test_results_stand_in_call_order_whatever_ends_first():
    async def main():
        first_done = asyncio.Event()

        async def slow(args, ctx):
            await first_done.wait()
            return "slow"

        async def fast(args, ctx):
            first_done.set()
            return "fast"

        world = World(
            [calls(("c1", "slow", "{}"), ("c2", "fast", "{}")), says("x")], [tool("slow", slow), tool("fast", fast)]
        )
        await loop.run([user("go")], world.chain, world, AbortSignal())
        ends = [e.tool_call_id for e in world.events if isinstance(e, ToolExecutionEnd)]
        assert ends == ["c2", "c1"]
        assert list(results(world)) == ["c1", "c2"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "call, text",
    [
        (("c1", "nope", "{}"), "Tool nope not found. The tools are: broken"),
        (("c1", "Brokn", "{}"), "Tool Brokn not found. Did you mean broken? The tools are: broken"),
        (("c1", "broken", "{}"), "kaputt"),
    ],
)
def test_failures_become_error_results(call, text):
    async def broken(args, ctx):
        raise ValueError("kaputt")

    world = World([calls(call), says("sorry")], [tool("broken", broken)])
    run(world, user("go"))
    assert results(world) == {"c1": text}
    assert next(e for e in world.events if isinstance(e, ToolExecutionEnd)).is_error


def test_the_second_same_result_of_the_same_call_gets_a_word_outside_of_the_result():
    world = World([calls((f"c{n}", "echo", '{"n": 1}')) for n in range(3)] + [says("done")], [tool("echo", echo)])
    run(world, user("go"))
    assert list(results(world).values()) == ["ok"] * 3
    said = ["ok" if isinstance(one, ToolResultMessage) else one.custom_type for one in world.messages[1:]
            if isinstance(one, ToolResultMessage | CustomMessage)]  # fmt: skip
    assert said == ["ok", "ok", "remark", "ok", "remark"]
    assert "The call of echo gave the same result as before" in str(world.seen[2][-1])


def test_after_a_change_the_same_call_is_no_repetition():
    answers = [calls(("c0", "echo", "{}")), calls(("c1", "write", '{"path": "f"}')), calls(("c2", "echo", "{}"))]
    world = World([*answers, says("done")], [tool("echo", echo), tool("write", echo)])
    run(world, user("go"))
    assert not [one for one in world.messages if isinstance(one, CustomMessage)]


def test_the_model_is_told_what_is_left_of_its_limits_when_a_half_is_used_up():
    meter = Meter(RunLimits(max_turns=4, max_cost=2.5), Runaway())
    told = []
    for turns in range(4):
        meter.turns, meter.cost = turns, turns / 2
        told.append(meter.remarks("echo", turns, []))
    assert told == [
        [],
        [],
        ["Left for this work: 2 of 4 model calls, 1.50 of 2.50 US dollars."],
        ["Left for this work: 1 of 4 model calls, 1 of 2.50 US dollars."],
    ]
    assert Meter(RunLimits(), Runaway()).remarks("echo", 1, []) == []


def test_calls_cut_off_by_the_output_limit_are_not_run():
    world = World([calls(("c1", "echo", '{"a'), stop="length"), says("x")], [tool("echo", echo)])
    run(world, user("go"))
    assert results(world)["c1"].startswith('Tool call "echo" was not executed: the response hit the output token limit')


def test_terminate_ends_the_run_only_if_all_calls_say_so():
    end = tool("end", echo, terminate=True)
    world = World([calls(("c1", "end", "{}"))], [end])
    run(world, user("go"))
    assert len(world.seen) == 1
    world = World([calls(("c1", "end", "{}"), ("c2", "echo", "{}")), says("more")], [end, tool("echo", echo)])
    run(world, user("go"))
    assert len(world.seen) == 2


def test_steering_comes_before_follow_ups_one_per_turn():
    world = World([says("1"), says("2"), says("3"), says("4")])
    world.queues.put(user("f1"), "followUp")
    world.queues.put(user("s1"), "steer")
    world.queues.put(user("s2"), "steer")
    run(world, user("go"))
    texts = [text_of(m.content) for m in world.messages if isinstance(m, UserMessage)]
    assert texts == ["go", "s1", "s2", "f1"]
    assert len(world.seen) == 3, "the first steering message joins the prompt's own turn"


def test_mode_all_delivers_everything_in_one_turn():
    world = World([says("1"), says("2")])
    world.queues.steering.mode = "all"
    for text in ("s1", "s2"):
        world.queues.put(user(text), "steer")
    run(world, user("go"))
    assert len(world.seen) == 1


def test_an_error_ends_the_run_and_keeps_the_queue():
    world = World([fails("boom")])
    world.queues.put(user("later"), "followUp")
    answer = run(world, user("go"))
    assert (answer.stop_reason, answer.error_message) == ("error", "boom")
    assert world.queues.follow_up.texts() == ["later"]
    assert world.names()[-1] == "turn_end"


def test_abort_in_mid_answer_keeps_what_came():
    async def main():
        world, signal = World([says("w0 ", "never", gate=asyncio.Event())]), AbortSignal()
        task = asyncio.create_task(loop.run([user("go")], world.chain, world, signal))
        await world.until(MessageUpdate, lambda e: getattr(e.assistant_message_event, "delta", "") == "w0 ")
        signal.abort()
        answer = await asyncio.wait_for(task, 20)
        assert (answer.stop_reason, answer.error_message) == ("aborted", "Request was aborted")
        assert text_of(answer.content) == "w0 "
        pieces = [e.assistant_message_event for e in world.events if isinstance(e, MessageUpdate)]
        assert [type(piece).__struct_config__.tag for piece in pieces][-2:] == ["text_end", "error"]
        assert pieces[-1].reason == "aborted"

    asyncio.run(main())


def test_abort_among_tools_stops_them_and_adds_one_empty_answer():
    async def main():
        async def hang(args, ctx):
            await asyncio.Event().wait()

        world = World([calls(("c1", "hang", "{}"), ("c2", "echo", "{}"))], [tool("hang", hang), tool("echo", echo)])
        signal = AbortSignal()
        task = asyncio.create_task(loop.run([user("go")], world.chain, world, signal))
        await world.until(ToolExecutionEnd, lambda e: e.tool_call_id == "c2")
        signal.abort()
        answer = await asyncio.wait_for(task, 20)
        assert results(world) == {"c1": "Operation aborted", "c2": "ok"}
        assert answer.stop_reason == "aborted" and answer.content == []
        assert sum(isinstance(e, TurnStart) for e in world.events) == 2

    asyncio.run(main())


def test_immediate_steering_cuts_running_tools_but_not_those_that_must_finish():
    async def main():
        finish = asyncio.Event()

        async def hang(args, ctx):
            await asyncio.Event().wait()

        async def careful(args, ctx):
            await finish.wait()
            return "written"

        async def fast(args, ctx):
            world.queues.put(user("STEER"), "steer")
            asyncio.get_running_loop().call_later(0.01, finish.set)
            return "fast"

        tools = [tool("fast", fast), tool("hang", hang), tool("careful", careful, interruptible=False)]
        world = World([calls(("c1", "fast", "{}"), ("c2", "hang", "{}"), ("c3", "careful", "{}")), says("x")], tools)
        await asyncio.wait_for(loop.run([user("go")], world.chain, world, AbortSignal()), 20)
        assert results(world) == {"c1": "fast", "c2": "Skipped due to queued user message.", "c3": "written"}

    asyncio.run(main())


def test_steering_does_not_skip_a_call_whose_result_hooks_still_look_at():
    async def main():
        looking, go = asyncio.Event(), asyncio.Event()

        class Slow(Hooks):
            async def tool_result(self, call_id, tool, args, result, failed):
                if call_id == "c1":
                    looking.set()
                    await go.wait()
                return result, failed

        async def steering(args, ctx):
            await looking.wait()
            world.queues.put(user("STEER"), "steer")
            return "second"

        async def hang(args, ctx):
            await asyncio.Event().wait()

        tools = [tool("echo", echo), tool("steering", steering), tool("hang", hang)]
        world = World([calls(("c1", "echo", "{}"), ("c2", "steering", "{}"), ("c3", "hang", "{}")), says("x")], tools)
        world.hub.hooks.add(Slow())
        ended = asyncio.create_task(world.until(ToolExecutionEnd, lambda event: event.tool_call_id == "c3"))
        running = asyncio.create_task(loop.run([user("go")], world.chain, world, AbortSignal()))
        await ended
        go.set()
        await asyncio.wait_for(running, 20)
        assert results(world) == {"c1": "ok", "c2": "second", "c3": "Skipped due to queued user message."}

    asyncio.run(main())


def test_a_sequential_batch_skips_the_rest_when_steered():
    async def steering(args, ctx):
        world.queues.put(user("STEER"), "steer")
        return "first"

    world = World(
        [calls(("c1", "one", "{}"), ("c2", "echo", "{}")), says("x")],
        [tool("one", steering, sequential=True), tool("echo", echo)],
    )
    run(world, user("go"))
    assert results(world) == {"c1": "first", "c2": "Skipped due to queued user message."}
    skipped = next(e for e in world.events if isinstance(e, ToolExecutionEnd) and e.tool_call_id == "c2")
    assert skipped.duration_ms is None and any(
        isinstance(e, ToolExecutionStart) and e.tool_call_id == "c2" for e in world.events
    )


def test_waiting_mode_lets_the_batch_finish():
    async def steering(args, ctx):
        world.queues.put(user("STEER"), "steer")
        await asyncio.sleep(0)
        return "first"

    world = World(
        [calls(("c1", "one", "{}"), ("c2", "echo", "{}")), says("x")],
        [tool("one", steering), tool("echo", echo)],
        interrupt=False,
    )
    run(world, user("go"))
    assert results(world) == {"c1": "first", "c2": "ok"}


def test_a_broken_adapter_ends_in_an_error_message():
    async def explode(live):
        raise RuntimeError("adapter broke")
        yield

    answer = run(World([explode]), user("go"))
    assert (answer.stop_reason, answer.error_message) == ("error", "adapter broke")
