"""Automatic compaction: when it happens, that it converges, and what becomes of the rest meanwhile."""

import asyncio
import time

import pytest

from spindle.agent.compaction import bounds_for
from spindle.agent.run.options import RunOptions
from spindle.base.settings import Compaction, decode_settings
from spindle.shapes.messages import text_of
from spindle.shapes.run_limits import RunLimits
from spindle.testing import Pause, Script

from .rig import Rig, kinds, run, slow_tool

LONG = "lorem ipsum dolor " * 100
"""450 tokens."""
SMALL = {"compaction": {"reserveTokens": 2000, "keepRecentTokens": 300}}
SUMMARY = {"match": "<conversation>", "text": "SUMMARY", "usage": {"input": 500, "output": 40}}
TOO_LONG = {"error": "prompt is too long: 120000 tokens > 100000 maximum"}


def says(text: str = LONG, **usage: int) -> dict:
    return {"text": text, "usage": {"input": 10, "output": 5, **usage}}


def compactions(rig: Rig) -> list[tuple]:
    return [(f["reason"], bool(f["result"]), f["willRetry"], f.get("errorMessage")) for f in rig.of("compaction_end")]


# -- limits -------------------------------------------------------------------------------------------


def test_limits_of_a_usual_model_are_the_users():
    limits = bounds_for(Compaction(), Script(["x"]).model(context_window=200_000))
    assert (limits.reserve_tokens, limits.keep_recent_tokens, limits.threshold) == (16384, 20000, 200_000 - 16384)


@pytest.mark.parametrize("window", [2048, 8192, 16384, 32768, 50_000])
def test_a_small_window_keeps_less_than_makes_it_compact_again(window):
    limits = bounds_for(Compaction(), Script(["x"]).model(context_window=window))
    assert 0 < limits.keep_recent_tokens <= limits.threshold / 2
    assert 0 < limits.threshold < window


def test_a_window_of_unknown_size_is_never_full():
    assert bounds_for(Compaction(), Script(["x"]).model(context_window=0)).threshold == float("inf")


def test_overrides_hold_for_their_model_only():
    raw = {"compaction": {"reserveTokens": 1000, "modelOverrides": {"p/m": {"reserveTokens": 5000, "enabled": False}}}}
    settings, problems = decode_settings(raw)
    assert not problems
    own = bounds_for(settings.compaction, Script(["x"]).model(provider="p", id="m"))
    other = bounds_for(settings.compaction, Script(["x"]).model(provider="p", id="n"))
    assert (own.reserve_tokens, own.automatic, other.reserve_tokens, other.automatic) == (5000, False, 1000, True)


def test_an_override_that_makes_no_sense_does_not_count():
    settings = Compaction(model_overrides={"p/m": {"reserveTokens": "many"}})
    assert bounds_for(settings, Script(["x"]).model(provider="p", id="m")).reserve_tokens == 16384


def test_a_prompt_that_comes_while_the_last_run_is_summarised_waits(tmp_path):
    async def main():
        steps = [says(), says(input=99_000), {**SUMMARY, "text": [Pause(gate="go"), "summary"]}, "third"]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.call("prompt", message="b " + LONG)
            await rig.script.reached("go")
            assert rig.of("agent_end")
            asked = rig.send("prompt", message="c")
            rig.script.release("go")
            assert (await rig.response(asked))["success"]
            await rig.until("agent_settled", rig.frames.index(await rig.response(asked)))
            assert rig.roles()[0] == "compactionSummary" and rig.roles()[-2:] == ["user", "assistant(stop)"]

    run(main())


def test_overrides_work_in_a_run(tmp_path):
    async def main():
        override = {**SMALL["compaction"], "modelOverrides": {"scripted/script": {"reserveTokens": 90_000}}}
        steps = [SUMMARY, says(), says(input=20_000)]
        async with Rig(tmp_path, steps, settings={"compaction": override}) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            assert compactions(rig) == [("threshold", True, False, None)]

    run(main())


def test_a_small_local_model_recovers_with_the_default_settings(tmp_path):
    """The defaults reserve more than such a window has; a compaction must still find something to do."""

    async def main():
        steps = [SUMMARY, says(), says(), says(), says(), TOO_LONG, says("recovered")]
        async with Rig(tmp_path, steps, model={"context_window": 4096, "max_tokens": 512}) as rig:
            for text in "abcd":
                await rig.run(text + LONG)
            await rig.run("e " + LONG)
            assert rig.roles()[0] == "compactionSummary" and rig.roles()[-1] == "assistant(stop)"

    run(main())


# -- convergence --------------------------------------------------------------------------------------


def test_usage_from_before_a_compaction_does_not_cause_the_next(tmp_path):
    """The kept answer still reports 99,000 tokens; an error after the compaction must not believe it."""

    async def main():
        steps = [SUMMARY, says(), says(input=99_000), {"error": "400 no"}]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            await rig.run("c " + LONG)
            await rig.run("d " + LONG)
            assert compactions(rig) == [("threshold", True, False, None)]

    run(main())


@pytest.mark.parametrize("shift", [0, -3_600_000, 3_600_000])
def test_the_clock_does_not_decide_what_is_stale(tmp_path, monkeypatch, shift):
    """A clock that stands still or jumps must neither hide a full context nor compact a fresh one."""

    async def main():
        now = time.time()
        steps = [SUMMARY, says(), says(input=99_000), says("small"), says("big", input=99_000)]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            monkeypatch.setattr(time, "time", lambda: now)
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            monkeypatch.setattr(time, "time", lambda: now + shift / 1000)
            await rig.run("c")
            assert len(compactions(rig)) == 1
            assert (await rig.data("get_session_stats"))["contextUsage"]["tokens"] is not None
            await rig.run("d " + LONG)
            assert len(compactions(rig)) == 2

    run(main())


def test_usage_is_unknown_after_a_compaction_also_when_resumed(tmp_path):
    async def main():
        async with Rig(tmp_path, [SUMMARY, says(), says(input=99_000)], settings=SMALL, session=True) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            file = (await rig.data("get_state"))["sessionFile"]
            unknown = {"tokens": None, "contextWindow": 100_000, "percent": None}
            assert (await rig.data("get_session_stats"))["contextUsage"] == unknown
            await rig.call("new_session")
            await rig.call("switch_session", sessionPath=file)
            assert (await rig.data("get_session_stats"))["contextUsage"] == unknown

    run(main())


# -- overflow -----------------------------------------------------------------------------------------


def test_recovery_is_tried_once_per_user_message_not_once_per_chain(tmp_path):
    async def main():
        steps = [SUMMARY, says(), TOO_LONG, says(), TOO_LONG, says("end")]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            rig.send("follow_up", message="c " + LONG)
            await rig.run("b " + LONG)
            assert compactions(rig) == [("overflow", True, True, None)] * 2
            assert rig.roles()[-1] == "assistant(stop)"

    run(main())


def test_a_long_run_recovers_as_often_as_it_gets_on(tmp_path):
    async def main():
        work = {"text": LONG, "calls": [{"name": "bash", "arguments": {"command": "true"}}]}
        steps = [SUMMARY, says(), TOO_LONG, work, TOO_LONG, work, TOO_LONG, says("end")]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            assert compactions(rig) == [("overflow", True, True, None)] * 3
            assert rig.roles()[-1] == "assistant(stop)"

    run(main())


def test_a_second_overflow_in_a_row_is_final(tmp_path):
    async def main():
        async with Rig(tmp_path, [SUMMARY, says(), TOO_LONG], settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            assert [(ok, again) for _, ok, again, _ in compactions(rig)] == [(True, True), (False, False)]
            assert rig.of("compaction_end")[-1]["errorMessage"].startswith("Context overflow recovery failed after one")
            assert len(rig.of("compaction_start")) == 1

    run(main())


def test_an_answer_cut_for_want_of_room_is_tried_again_after_a_compaction(tmp_path):
    async def main():
        cut = {"text": "half", "stop": "length", "usage": {"input": 99_500, "output": 300}}
        async with Rig(tmp_path, [SUMMARY, says(), cut, says("whole")], settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            assert compactions(rig) == [("overflow", True, True, None)]
            assert (await rig.data("get_last_assistant_text"))["text"] == "whole"
            assert "assistant(length)" not in rig.roles()

    run(main())


def test_an_answer_cut_by_the_models_own_limit_is_an_answer(tmp_path):
    async def main():
        cut = {"text": "half", "stop": "length", "usage": {"input": 99_500, "output": 4096}}
        async with Rig(tmp_path, [SUMMARY, says(), cut, says("whole")], settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            assert compactions(rig) == [("threshold", True, False, None)]
            assert (await rig.data("get_last_assistant_text"))["text"] == "half"

    run(main())


# -- limits of a run ----------------------------------------------------------------------------------


async def within(rig: Rig, text: str, **limits) -> dict:
    await rig.agent.submit(text, options=RunOptions(limits=RunLimits(**limits)))
    return await rig.until("agent_settled", len(rig.frames))


def summaries(rig: Rig) -> int:
    return sum("<conversation>" in str(request.messages) for request in rig.script.requests)


def test_a_run_that_has_used_up_its_tokens_is_not_summarised(tmp_path):
    async def main():
        async with Rig(tmp_path, [SUMMARY, says(), says(input=99_000)], settings=SMALL) as rig:
            await rig.run("a " + LONG)
            end = await within(rig, "b " + LONG, max_total_tokens=50_000)
            assert end["stopReason"] == "end"  # nothing more was to be asked
            assert compactions(rig) == [] and summaries(rig) == 0

    run(main())


def test_an_overflow_without_tokens_left_ends_with_the_limit(tmp_path):
    async def main():
        cut = {"text": "half", "stop": "length", "usage": {"input": 99_500, "output": 300}}
        async with Rig(tmp_path, [SUMMARY, says(), cut, says("whole")], settings=SMALL) as rig:
            await rig.run("a " + LONG)
            assert (await within(rig, "b " + LONG, max_total_tokens=50_000))["stopReason"] == "maxTotalTokens"
            assert summaries(rig) == 0 and len(rig.script.requests) == 2

    run(main())


def test_a_summary_before_the_prompt_that_uses_up_the_tokens_is_the_only_call(tmp_path):
    async def main():
        async with Rig(tmp_path, [SUMMARY, says(), says(input=99_000), says()], settings=SMALL) as rig:
            await rig.call("set_auto_compaction", enabled=False)
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            await rig.call("set_auto_compaction", enabled=True)
            end = await within(rig, "c", max_total_tokens=400)
            assert end["stopReason"] == "maxTotalTokens" and "used up maxTotalTokens" in end["errorMessage"]
            assert summaries(rig) == 1 and len(rig.script.requests) == 3

    run(main())


def test_with_a_limit_the_two_summaries_of_a_split_turn_are_made_one_by_one(tmp_path):
    async def main():
        call = {"text": LONG, "calls": [{"name": "slow"}], "usage": {"input": 10, "output": 5}}
        full = {**call, "usage": {"input": 99_000, "output": 5}}
        steps = [SUMMARY, says(), call, call, {**full, "calls": []}, says()]
        async with Rig(tmp_path, steps, settings=SMALL, tools=[slow_tool(seconds=0)]) as rig:
            await rig.call("set_auto_compaction", enabled=False)
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            await rig.call("set_auto_compaction", enabled=True)
            end = await within(rig, "c", max_total_tokens=400)
            assert end["stopReason"] == "maxTotalTokens"
            assert summaries(rig) == 1
            assert "maxTotalTokens is reached" in rig.of("compaction_end")[-1]["errorMessage"]

    run(main())


# -- others meanwhile ---------------------------------------------------------------------------------


def test_the_new_model_writes_the_summary_if_it_was_switched_in_time(tmp_path):
    async def main():
        last = {**says(input=99_000), "text": [Pause(gate="go"), LONG]}
        async with Rig(tmp_path, [SUMMARY, says(), last], settings=SMALL) as rig:
            other = Script([{"text": "OTHER SUMMARY"}])
            await rig.run("a " + LONG)
            await rig.call("prompt", message="b " + LONG)
            await rig.script.reached("go")
            await rig.agent.models.use(other.model(context_window=50_000), None, "set")
            rig.script.release("go")
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert rig.of("compaction_end")[0]["result"]["summary"].startswith("OTHER SUMMARY")

    run(main())


def test_an_extension_that_cancels_a_compaction_does_not_refuse_the_prompt(tmp_path):
    async def main():
        def extension(agent):
            agent.on("session_before_compact", lambda event, ctx: {"cancel": True})

        steps = [SUMMARY, says(), says(input=99_000), says("fine")]
        async with Rig(tmp_path, steps, settings=SMALL, extensions=[extension]) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            await rig.run("c")
            assert (await rig.data("get_last_assistant_text"))["text"] == "fine"
            assert {end["aborted"] for end in rig.of("compaction_end")} == {True}

    run(main())


def test_an_abort_after_the_summary_was_stored_does_not_deny_it(tmp_path):
    async def main():
        stored = asyncio.Event()

        def extension(agent):
            async def slow(event, ctx):
                stored.set()
                await asyncio.sleep(30)

            agent.on("session_compact", slow)

        async with Rig(tmp_path, [SUMMARY, says(), says()], settings=SMALL, extensions=[extension]) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            compact = rig.send("compact")
            await stored.wait()
            await rig.call("abort")
            assert (await rig.response(compact))["success"]
            assert rig.of("compaction_end")[0]["aborted"] is False
            assert rig.roles()[0] == "compactionSummary"

    run(main())


def test_many_compactions_at_once_come_one_after_the_other(tmp_path):
    async def main():
        steps = [{**SUMMARY, "text": [Pause(gate="sum"), "SUMMARY"]}, says(), says()]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            first = rig.send("compact")
            await rig.script.reached("sum")
            others = [rig.send("compact") for _ in range(3)]
            rig.script.release("sum")
            answers = [await rig.response(id) for id in (first, *others)]
            assert all(a["success"] or a["error"] in ("Compaction cancelled", "Already compacted") for a in answers)
            depth = 0
            for kind in kinds(rig.frames):
                depth += {"compaction_start": 1, "compaction_end": -1}.get(kind, 0)
                assert depth in (0, 1)
            assert rig.roles().count("compactionSummary") == 1

    run(main())


def test_whoever_asked_for_a_compaction_and_left_does_not_leave_the_others_waiting(tmp_path):
    async def main():
        steps = [{**SUMMARY, "text": [Pause(gate="never"), "S"]}, says(), says()]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            asking = asyncio.create_task(rig.agent.compact())
            await rig.script.reached("never")
            asking.cancel()
            await asyncio.wait([asking])
            assert rig.of("compaction_end") == [
                {"type": "compaction_end", "reason": "manual", "result": None, "aborted": True, "willRetry": False}
            ]
            await rig.run("c")

    run(main())


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_summary_does_not_replace_the_conversation(tmp_path, text):
    async def main():
        steps = [{"match": "<conversation>", "text": [text]}, says(), says()]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            before = rig.roles()
            assert "empty summary" in (await rig.call("compact"))["error"]
            assert rig.roles() == before

    run(main())


def test_a_queued_message_follows_a_threshold_compaction(tmp_path):
    async def main():
        steps = [{**SUMMARY, "text": [Pause(gate="sum"), "S"]}, says(), says(input=99_000), says("next")]
        async with Rig(tmp_path, steps, settings=SMALL) as rig:
            await rig.run("a " + LONG)
            await rig.call("prompt", message="b " + LONG)
            await rig.script.reached("sum")
            await rig.call("follow_up", message="queued")
            rig.script.release("sum")
            await rig.until(lambda _: len(rig.of("agent_settled")) == 2)
            assert text_of(rig.script.requests[-1].messages[-1].content) == "queued"
            assert len(rig.of("agent_end")) == 3

    run(main())


def test_answers_without_usage_are_measured_by_their_length(tmp_path):
    """Some servers never report usage; the context must not grow without end because of that."""

    async def main():
        quiet = {"text": "x" * 300_000, "usage": {}}
        steps = [SUMMARY, says(), quiet]
        async with Rig(tmp_path, steps, settings=SMALL, model={"context_window": 70_000}) as rig:
            await rig.run("a " + LONG)
            await rig.run("b " + LONG)
            assert compactions(rig) == [("threshold", True, False, None)]

    run(main())


def test_nothing_to_compact_does_not_touch_the_run(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": ["x", Pause(gate="go"), "y"]}]) as rig:
            await rig.call("prompt", message="hi")
            await rig.script.reached("go")
            refused = await rig.call("compact")
            assert refused["error"] == "Nothing to compact (session too small)"
            assert kinds(rig.frames)[-3:] == ["compaction_start", "compaction_end", "response"]
            rig.script.release("go")
            await rig.until("agent_settled")
            assert rig.roles() == ["user", "assistant(stop)"]

    run(main())
