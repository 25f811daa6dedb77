"""What follows a run: each row of the table, and the cells that other tests do not come by."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from spindle.agent.following import FOLLOWING, End, Finding, NextStep, decide, end_of
from spindle.agent.run.options import RunOptions
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import Tool

from .port import MODEL, LiveMessage
from .rig import Rig, run

THINGS = [found for found in Finding if found is not Finding.NOTHING]
FULL = (Finding.OVERFLOW, Finding.THRESHOLD)
RUNS = (Finding.QUEUED, Finding.HOOK, Finding.MESSAGES)


class _After:
    """A run that has ended: what is there, what was looked for, for what there was a compaction, what the next has."""

    def __init__(self, there: Collection[Finding], recovers: bool) -> None:
        self.asked: list[Finding] = []
        self.compacted: list[tuple[Finding, NextStep]] = []
        self.messages: Sequence[object] = []
        self.ended_at: int | None = None
        """How many things had been looked for when the end of the run was told."""
        self._there = there
        self._recovers = recovers

    async def look(self, found: Finding) -> list | None:
        self.asked.append(found)
        return [found] if found in self._there else None

    async def compact(self, found: Finding, step: NextStep) -> bool:
        self.compacted.append((found, step))
        return self._recovers and step is NextStep.RECOVER

    async def end_run(self) -> None:
        if self.ended_at is None:
            self.ended_at = len(self.asked)


def after(end: End, *there: Finding, recovers: bool = False) -> tuple[NextStep, _After]:
    world = _After(there, recovers)
    step, world.messages = asyncio.run(decide(end, world.look, world.compact, world.end_run))
    return step, world


@pytest.mark.parametrize(
    ("end", "there", "step"),
    [
        (End.STOPPED, THINGS, NextStep.SETTLE),
        (End.CUT, [], NextStep.SETTLE),
        (End.CUT, [Finding.HOOK], NextStep.GO_ON),
        (End.CUT, [found for found in THINGS if found is not Finding.HOOK], NextStep.SETTLE),
        (End.TRANSIENT, [], NextStep.RETRY),
        (End.TRANSIENT, THINGS, NextStep.RETRY),
        (End.FAILED, [], NextStep.SETTLE),
        (End.FAILED, [Finding.SPARE, Finding.THRESHOLD, *RUNS], NextStep.FALL_BACK),
        (End.FAILED, [Finding.MISSING], NextStep.SETTLE),
        (End.FAILED, [Finding.OVERDUE, Finding.QUEUED], NextStep.GO_ON),
        (End.FAILED, [Finding.RESULT, *RUNS], NextStep.SETTLE),
        (End.TRUNCATED, [], NextStep.SETTLE),
        (End.TRUNCATED, [Finding.MISSING, *RUNS], NextStep.FAIL),
        (End.TRUNCATED, [Finding.OVERDUE, *RUNS], NextStep.FAIL),
        (End.TRUNCATED, [Finding.RESULT, *RUNS], NextStep.SETTLE),
        (End.TRUNCATED, [Finding.HOOK], NextStep.GO_ON),
        (End.BY_TOOLS, [], NextStep.SETTLE),
        (End.BY_TOOLS, [Finding.MISSING, *RUNS], NextStep.FAIL),
        (End.BY_TOOLS, [Finding.OVERDUE, *RUNS], NextStep.FAIL),
        (End.BY_TOOLS, [Finding.RESULT, *RUNS], NextStep.SETTLE),
        (End.BY_TOOLS, [Finding.QUEUED], NextStep.GO_ON),
        (End.DONE, [], NextStep.SETTLE),
        (End.DONE, [Finding.MISSING, *RUNS], NextStep.REMIND),
        (End.DONE, [Finding.OVERDUE, *RUNS], NextStep.FAIL),
        (End.DONE, [Finding.RESULT, *RUNS], NextStep.SETTLE),
        (End.DONE, [Finding.MESSAGES], NextStep.GO_ON),
    ],
    ids=str,
)
def test_what_follows(end, there, step):
    assert after(end, *there)[0] is step


@pytest.mark.parametrize("end", End)
def test_the_run_is_over_before_any_step_but_another_try(end):
    recovering = end in (End.FAILED, End.TRUNCATED)
    first = 2 if end is End.DONE else 0  # whether the answer is empty is looked at before
    looked = 2 if end is End.FAILED else 1 if recovering else first  # whether another model may do better, too
    assert after(end)[1].ended_at == (None if end is End.TRANSIENT else looked)
    again = recovering or end is End.TRANSIENT
    assert after(end, Finding.OVERFLOW, recovers=True)[1].ended_at == (None if again else first)


@pytest.mark.parametrize("end", [End.FAILED, End.TRUNCATED, End.BY_TOOLS, End.DONE])
@pytest.mark.parametrize("found", RUNS)
def test_an_extension_is_asked_only_if_nothing_else_follows(end, found):
    step, world = after(end, found)
    assert step is NextStep.GO_ON and world.messages == [found]
    assert world.asked[-1] is found and not set(world.asked) & set(RUNS[RUNS.index(found) + 1 :])


@pytest.mark.parametrize("end", [End.FAILED, End.TRUNCATED])
def test_an_answer_that_had_no_room_is_tried_again_once_there_is_room(end):
    step, world = after(end, Finding.OVERFLOW, *RUNS, recovers=True)
    assert step is NextStep.RECOVER and world.compacted == [(Finding.OVERFLOW, NextStep.RECOVER)]
    step, world = after(end, Finding.OVERFLOW, Finding.QUEUED)
    assert step is NextStep.GO_ON and world.compacted == [(Finding.OVERFLOW, NextStep.RECOVER)]


@pytest.mark.parametrize(
    ("end", "full"),
    [(End.FAILED, Finding.THRESHOLD), (End.TRUNCATED, Finding.THRESHOLD)]
    + [(end, full) for end in (End.BY_TOOLS, End.DONE) for full in FULL],
)
def test_any_other_compaction_only_makes_room(end, full):
    for recovers in (False, True):
        step, world = after(end, full, recovers=recovers)
        assert step is NextStep.SETTLE and world.compacted == [(full, NextStep.COMPACT)]
    assert after(end, full, Finding.QUEUED)[0] is NextStep.GO_ON


def test_every_row_ends_with_a_step_for_nothing():
    assert set(FOLLOWING) == set(End)
    for end, row in FOLLOWING.items():
        assert list(row)[-1] is Finding.NOTHING
        assert row[Finding.NOTHING] is (NextStep.RETRY if end is End.TRANSIENT else NextStep.SETTLE)


@pytest.mark.parametrize(
    ("stop_reason", "flags", "end"),
    [
        ("stop", {}, End.DONE),
        ("toolUse", {}, End.BY_TOOLS),
        ("length", {}, End.TRUNCATED),
        ("error", {}, End.FAILED),
        ("aborted", {}, End.CUT),
        ("error", {"will_retry": True}, End.TRANSIENT),
        ("error", {"will_retry": True, "stopped": True}, End.STOPPED),
        ("stop", {"stopped": True}, End.STOPPED),
    ],
)
def test_how_a_run_ended(stop_reason, flags, end):
    answer = LiveMessage(MODEL).finish(stop_reason)
    assert end_of(answer, **{"stopped": False, "will_retry": False, **flags}) is end


async def _ends(call_id, arguments, ctx) -> ToolResult:
    return ToolResult([Text("that was it")], terminate=True)


ENDS = Tool("ends", "ends the run", {"type": "object", "properties": {}}, _ends)


def test_a_cut_answer_is_not_done(tmp_path):
    async def main():
        async with Rig(tmp_path, [{"text": "half", "stop": "length"}, "whole"]) as rig:
            await rig.call("prompt", message="go")
            settled = await rig.until("agent_settled")
            assert settled["stopReason"] == "length" and "Ask for a shorter answer" in settled["errorMessage"]
            result = (await rig.data("get_run_result"))["result"]
            assert (result["status"], result["stopReason"], result["text"]) == ("error", "length", "half")
            await rig.run("go on")
            assert (await rig.data("get_run_result"))["result"]["status"] == "ok"

    run(main())


@pytest.mark.parametrize(
    ("first", "stop_reason"),
    [
        ({"text": "thr", "stop": "length"}, "schema"),
        ({"calls": [{"name": "ends"}]}, "schema"),
        ({"error": "no such model"}, "error"),
    ],
    ids=["truncated", "ended by a tool", "failed"],
)
def test_only_a_model_that_is_done_is_told_to_hand_in_its_result(tmp_path, first, stop_reason):
    async def main():
        async with Rig(tmp_path, [first, "more"], tools=[ENDS]) as rig:
            await rig.agent.submit("count", options=RunOptions(schema={"type": "object", "properties": {}}))
            assert (await rig.until("agent_settled"))["stopReason"] == stop_reason
            assert len(rig.script.requests) == 1

    run(main())
