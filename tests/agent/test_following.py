"""What follows a run: each row of the table, and the cells that other tests do not come by."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from spindle.agent.following import FOLLOWING, End, Found, Step, decide, end_of
from spindle.agent.run.options import RunOptions
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import Tool

from .port import MODEL, LiveMessage
from .rig import Rig, run

THINGS = [found for found in Found if found is not Found.NOTHING]
FULL = (Found.OVERFLOW, Found.THRESHOLD)
RUNS = (Found.QUEUED, Found.HOOK, Found.MESSAGES)


class _After:
    """A run that has ended: what is there, what was looked for, for what there was a compaction, what the next has."""

    def __init__(self, there: Collection[Found], recovers: bool) -> None:
        self.asked: list[Found] = []
        self.compacted: list[tuple[Found, Step]] = []
        self.messages: Sequence[object] = []
        self.ended_at: int | None = None
        """How many things had been looked for when the end of the run was told."""
        self._there = there
        self._recovers = recovers

    async def look(self, found: Found) -> list | None:
        self.asked.append(found)
        return [found] if found in self._there else None

    async def compact(self, found: Found, step: Step) -> bool:
        self.compacted.append((found, step))
        return self._recovers and step is Step.RECOVER

    async def end_run(self) -> None:
        if self.ended_at is None:
            self.ended_at = len(self.asked)


def after(end: End, *there: Found, recovers: bool = False) -> tuple[Step, _After]:
    world = _After(there, recovers)
    step, world.messages = asyncio.run(decide(end, world.look, world.compact, world.end_run))
    return step, world


@pytest.mark.parametrize(
    ("end", "there", "step"),
    [
        (End.STOPPED, THINGS, Step.SETTLE),
        (End.CUT, [], Step.SETTLE),
        (End.CUT, [Found.HOOK], Step.GO_ON),
        (End.CUT, [found for found in THINGS if found is not Found.HOOK], Step.SETTLE),
        (End.TRANSIENT, [], Step.RETRY),
        (End.TRANSIENT, THINGS, Step.RETRY),
        (End.FAILED, [], Step.SETTLE),
        (End.FAILED, [Found.MISSING], Step.SETTLE),
        (End.FAILED, [Found.OVERDUE, Found.QUEUED], Step.GO_ON),
        (End.FAILED, [Found.RESULT, *RUNS], Step.SETTLE),
        (End.TRUNCATED, [], Step.SETTLE),
        (End.TRUNCATED, [Found.MISSING, *RUNS], Step.FAIL),
        (End.TRUNCATED, [Found.OVERDUE, *RUNS], Step.FAIL),
        (End.TRUNCATED, [Found.RESULT, *RUNS], Step.SETTLE),
        (End.TRUNCATED, [Found.HOOK], Step.GO_ON),
        (End.BY_TOOLS, [], Step.SETTLE),
        (End.BY_TOOLS, [Found.MISSING, *RUNS], Step.FAIL),
        (End.BY_TOOLS, [Found.OVERDUE, *RUNS], Step.FAIL),
        (End.BY_TOOLS, [Found.RESULT, *RUNS], Step.SETTLE),
        (End.BY_TOOLS, [Found.QUEUED], Step.GO_ON),
        (End.DONE, [], Step.SETTLE),
        (End.DONE, [Found.MISSING, *RUNS], Step.REMIND),
        (End.DONE, [Found.OVERDUE, *RUNS], Step.FAIL),
        (End.DONE, [Found.RESULT, *RUNS], Step.SETTLE),
        (End.DONE, [Found.MESSAGES], Step.GO_ON),
    ],
    ids=str,
)
def test_what_follows(end, there, step):
    assert after(end, *there)[0] is step


@pytest.mark.parametrize("end", End)
def test_the_run_is_over_before_any_step_but_another_try(end):
    recovering = end in (End.FAILED, End.TRUNCATED)
    first = 2 if end is End.DONE else 0  # whether the answer is empty is looked at before
    assert after(end)[1].ended_at == (None if end is End.TRANSIENT else 1 if recovering else first)
    again = recovering or end is End.TRANSIENT
    assert after(end, Found.OVERFLOW, recovers=True)[1].ended_at == (None if again else first)


@pytest.mark.parametrize("end", [End.FAILED, End.TRUNCATED, End.BY_TOOLS, End.DONE])
@pytest.mark.parametrize("found", RUNS)
def test_an_extension_is_asked_only_if_nothing_else_follows(end, found):
    step, world = after(end, found)
    assert step is Step.GO_ON and world.messages == [found]
    assert world.asked[-1] is found and not set(world.asked) & set(RUNS[RUNS.index(found) + 1 :])


@pytest.mark.parametrize("end", [End.FAILED, End.TRUNCATED])
def test_an_answer_that_had_no_room_is_tried_again_once_there_is_room(end):
    step, world = after(end, Found.OVERFLOW, *RUNS, recovers=True)
    assert step is Step.RECOVER and world.compacted == [(Found.OVERFLOW, Step.RECOVER)]
    step, world = after(end, Found.OVERFLOW, Found.QUEUED)
    assert step is Step.GO_ON and world.compacted == [(Found.OVERFLOW, Step.RECOVER)]


@pytest.mark.parametrize(
    ("end", "full"),
    [(End.FAILED, Found.THRESHOLD), (End.TRUNCATED, Found.THRESHOLD)]
    + [(end, full) for end in (End.BY_TOOLS, End.DONE) for full in FULL],
)
def test_any_other_compaction_only_makes_room(end, full):
    for recovers in (False, True):
        step, world = after(end, full, recovers=recovers)
        assert step is Step.SETTLE and world.compacted == [(full, Step.COMPACT)]
    assert after(end, full, Found.QUEUED)[0] is Step.GO_ON


def test_every_row_ends_with_a_step_for_nothing():
    assert set(FOLLOWING) == set(End)
    for end, row in FOLLOWING.items():
        assert list(row)[-1] is Found.NOTHING
        assert row[Found.NOTHING] is (Step.RETRY if end is End.TRANSIENT else Step.SETTLE)


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
