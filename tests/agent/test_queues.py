"""Steering and follow-ups: what is delivered when, and what a client is told of it."""

import asyncio
import threading

import pytest

from spindle.agent.queues import Queues
from spindle.shapes.messages import CustomMessage, Text, UserMessage, text_of
from spindle.testing import Pause
from tests.support import images

from .rig import Rig, kinds, run, until_true

PIXEL = {"type": "image", "data": images.PIXEL, "mimeType": "image/png"}


def user(text: str) -> UserMessage:
    return UserMessage(content=[Text(text)], timestamp=1)


def texts_sent(request) -> list[str]:
    return [text_of(message.content) for message in request.messages if isinstance(message, UserMessage)]


# -- the queues themselves ----------------------------------------------------------------------------


def test_what_is_on_its_way_is_shown_but_cannot_be_cleared():
    told = []
    queues = Queues(lambda: told.append(queues.steering.texts()), "all", "one-at-a-time")
    for text in ("a", "b"):
        queues.put(user(text), "steer")
    first, second = queues.steering.batch()
    queues.put(user("c"), "steer")
    assert queues.steering.texts() == ["a", "b", "c"] and len(queues) == 3
    queues.deliver(first)
    assert queues.clear() == (["c"], [])
    assert queues.steering.texts() == ["b"]
    queues.requeue()
    assert queues.steering.batch() == [second]
    assert told == [["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"], ["b"]]


def test_equal_texts_are_different_messages():
    queues = Queues(lambda: None, "one-at-a-time", "one-at-a-time")
    queues.put(user("same"), "steer")
    queues.put(user("same"), "steer")
    queues.deliver(queues.steering.batch()[0])
    assert queues.steering.texts() == ["same"]


def test_messages_of_extensions_count_but_are_not_shown():
    queues = Queues(lambda: None, "all", "all")
    queues.put(CustomMessage(custom_type="x", content="hidden", display=False, timestamp=1), "followUp")
    assert len(queues) == 1 and queues.follow_up.texts() == []
    assert queues.clear() == ([], []) and len(queues) == 0


# -- in a run -----------------------------------------------------------------------------------------


def test_a_retry_answers_the_prompt_before_any_follow_up(tmp_path):
    async def main():
        steps = [{"error": "503 down"}, "first", "second"]
        async with Rig(tmp_path, steps, settings={"retry": {"baseDelayMs": 30}}) as rig:
            await rig.call("prompt", message="question")
            await rig.until("auto_retry_start")
            await rig.call("follow_up", message="later")
            await rig.until("agent_settled")
            assert [texts_sent(request) for request in rig.script.requests] == [
                ["question"],
                ["question"],
                ["question", "later"],
            ]

    run(main())


def test_overflow_recovery_answers_the_prompt_before_any_follow_up(tmp_path):
    async def main():
        long = "lorem ipsum dolor " * 100
        steps = [
            {"match": "<conversation>", "text": [Pause(gate="sum"), "SUMMARY"]},
            long,
            {"error": "prompt is too long"},
            "first",
            "second",
        ]
        settings = {"compaction": {"reserveTokens": 500, "keepRecentTokens": 100}}
        async with Rig(tmp_path, steps, settings=settings) as rig:
            await rig.run("a " + long)
            await rig.call("prompt", message="question")
            await rig.script.reached("sum")
            await rig.call("follow_up", message="later")
            rig.script.release("sum")
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert [texts_sent(request)[-1] for request in rig.script.requests[-2:]] == ["question", "later"]

    run(main())


@pytest.mark.parametrize("kind", ["steer", "follow_up"])
def test_a_message_on_its_way_is_delivered_although_the_queue_is_cleared(tmp_path, kind):
    """Between the decision for another turn and the message stands a hook that takes its time."""

    async def main():
        in_turn, go = asyncio.Event(), asyncio.Event()

        def extension(agent):
            async def turn_start(event, ctx):
                if event.turn_index == 1:
                    in_turn.set()
                    await go.wait()

            agent.on("turn_start", turn_start)

        steps = [{"text": ["x", Pause(gate="go"), "y"]}, "answer"]
        async with Rig(tmp_path, steps, extensions=[extension]) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            await rig.call(kind, message="on its way")
            rig.script.release("go")
            await in_turn.wait()
            assert await rig.data("clear_queue") == {"steering": [], "followUp": []}
            go.set()
            await rig.until("agent_settled")
            assert texts_sent(rig.script.requests[1]) == ["hi", "on its way"]
            assert rig.of("queue_update")[-1] == {"type": "queue_update", "steering": [], "followUp": []}

    run(main())


@pytest.mark.parametrize("kind", ["steer", "follow_up"])
@pytest.mark.parametrize("moment", ["agent_end", "agent_before_settle"])
def test_a_message_that_comes_in_the_last_moment_is_delivered_before_the_end(tmp_path, kind, moment):
    async def main():
        there, go = threading.Event(), threading.Event()

        def hold(*_):
            there.set()
            assert go.wait(10)

        def extension(agent):
            agent.on(moment, hold)

        async with Rig(tmp_path, ["first", "second"], extensions=[extension]) as rig:
            await rig.call("prompt", message="hi")
            await until_true(there.is_set)
            await rig.call(kind, message="just in time")
            go.set()
            await rig.until("agent_settled")
            assert texts_sent(rig.script.requests[1]) == ["hi", "just in time"]
            assert kinds(rig.frames).count("agent_settled") == 1

    run(main())


def test_modes_count_when_messages_are_delivered(tmp_path):
    async def main():
        steps = [{"text": ["x", Pause(gate="go")]}, "answer"]
        async with Rig(tmp_path, steps) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            for text in ("one", "two"):
                await rig.call("steer", message=text)
            await rig.call("set_steering_mode", mode="all")
            rig.script.release("go")
            await rig.until("agent_settled")
            assert texts_sent(rig.script.requests[1]) == ["hi", "one", "two"]

    run(main())


def test_images_wait_with_their_message(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x", Pause(gate="go")]}, "answer"]) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            await rig.call("steer", message="look", images=[PIXEL])
            rig.script.release("go")
            await rig.until("agent_settled")
            assert rig.script.requests[1].messages[-1].content[1].data == images.PIXEL

    run(main())


def test_queues_survive_an_abort_and_go_out_with_the_next_prompt(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x", Pause(gate="never")]}, "one", "two"]) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("never")
            await rig.call("steer", message="s")
            await rig.call("follow_up", message="f")
            await rig.call("abort")
            assert (await rig.data("get_state"))["pendingMessageCount"] == 2
            await rig.run("again")
            assert texts_sent(rig.script.requests[1]) == ["hi", "again", "s"]
            assert texts_sent(rig.script.requests[2])[-1] == "f"

    run(main())


def holding_late(seen, go):
    """Return an extension whose input hook notes what it sees, and keeps "late" until `go`."""

    def extension(agent):
        async def handler(event, ctx):
            seen.append(event.text)
            if event.text == "late":
                await go.wait()

        agent.on("input", handler)

    return extension


def test_input_hooks_see_a_message_once_even_if_the_run_ends_meanwhile(tmp_path):
    async def main():
        seen, go = [], asyncio.Event()
        steps = [{"text": ["x", Pause(gate="go")]}, "answer"]
        async with Rig(tmp_path, steps, extensions=[holding_late(seen, go)]) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            late = rig.send("prompt", message="late", streamingBehavior="steer")
            await until_true(lambda: "late" in seen)
            rig.script.release("go")
            await rig.until("agent_settled")
            assert (await rig.response(late))["data"] == {"disposition": "queued"}
            go.set()
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert seen == ["hi", "late"]
            assert rig.roles() == ["user", "assistant(stop)"] * 2

    run(main())


def test_a_prompt_that_hooks_have_looked_at_waits_for_a_compaction_that_began_meanwhile(tmp_path):
    async def main():
        seen, go = [], asyncio.Event()
        steps = ["x" * 4000, {"text": ["y", Pause(gate="run")]}, {"text": ["sum", Pause(gate="summary")]}, "answer"]
        settings = {"compaction": {"keepRecentTokens": 10}}
        async with Rig(tmp_path, steps, extensions=[holding_late(seen, go)], settings=settings) as rig:
            await rig.run("first")
            await rig.call("prompt", message="hi")
            await rig.script.reached("run")
            late = rig.send("prompt", message="late", streamingBehavior="followUp")
            await until_true(lambda: "late" in seen)
            rig.script.release("run")
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            compact = rig.send("compact")
            await rig.script.reached("summary")
            go.set()
            await until_true(lambda: not rig.agent.queues.items() and len(seen) == 3)
            await asyncio.sleep(0.05)  # nothing can be seen of what must not happen
            rig.script.release("summary")
            assert (await rig.response(late))["success"] and (await rig.response(compact))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 3)
            assert rig.roles()[-2:] == ["user", "assistant(stop)"] and "late" in str(rig.agent.messages[-2])
            assert not (await rig.data("get_state"))["queueItems"]

    run(main())


def test_a_queued_message_is_not_sent_during_a_compaction(tmp_path):
    async def main():
        steps = ["x" * 4000, "y", {"text": ["sum", Pause(gate="summary")]}]
        async with Rig(tmp_path, steps, settings={"compaction": {"keepRecentTokens": 10}}) as rig:
            await rig.run("first")
            await rig.run("second")
            await rig.call("follow_up", message="soon")
            compact = rig.send("compact")
            await rig.script.reached("summary")
            item = (await rig.data("get_state"))["queueItems"][0]["id"]
            assert "while compaction is in progress" in (await rig.call("send_queued", queuedId=item))["error"]
            rig.script.release("summary")
            assert (await rig.response(compact))["success"]
            assert (await rig.call("send_queued", queuedId=item))["success"]
            await rig.until(lambda _: len(rig.of("agent_settled")) == 3)

    run(main())
