"""What goes in comes out in order; only deltas of one block may be joined, and only for a reader that is behind."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.llm.live import LiveMessage
from spindle.protocol.dialect import dialect_named
from spindle.protocol.outbox import HIGH_BYTES, HIGH_ITEMS, LOW_ITEMS, Outbox
from spindle.protocol.render import Ready, Renderer, Response
from spindle.shapes.events import AgentStart, MessageStart, MessageUpdate, Notice, QueueUpdate
from spindle.shapes.model import Model, ModelCost

MODEL = Model(
    "m1", "Mock", "openai-completions", "mock", "http://127.0.0.1", False, ["text"], ModelCost(1, 2, 0, 0), 1000, 100
)
EVERYTHING = 1 << 30


def outbox(mode: Any = "delta") -> Outbox:
    return Outbox(Renderer(update_mode=mode))


def answer() -> LiveMessage:
    live = LiveMessage(MODEL)
    live.start_text()
    live.start_thinking()
    live.start_tool_call("c1", "bash")
    return live


def frames(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def deltas(data: bytes) -> list[str]:
    return [frame["assistantMessageEvent"]["delta"] for frame in frames(data)]


def response(id: object) -> Response:
    return Response(id=id, command="get_state", success=True)


# -- runs of deltas --------------------------------------------------------------------------------

ODD = ["", "a\nb", '"\\', "größer", "\u2028|\u2029", "\ud83d", "\x00", "x" * 500]


@pytest.mark.parametrize("session", [None, "s1"])
@pytest.mark.parametrize("dialect", ["spindle", "pi-0.74", "pi-0.87"])
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(ODD)), max_size=12), st.sampled_from([1, 700, EVERYTHING]))
def test_deltas_that_leave_together_are_the_bytes_of_each_alone(dialect, session, pieces, size):
    live, box = answer(), Outbox(Renderer(dialect_named(dialect), "delta", session))
    updates = [MessageUpdate(live.append(*piece), live) for piece in pieces]
    for update in updates:
        box.put(update)
    alone = Renderer(dialect_named(dialect), "delta", session)
    taken, lines = list(iter(lambda: box.take(size), b"")), list(map(alone.render, updates))
    assert b"".join(taken) == b"".join(lines)
    if size == 1:  # a socket takes one line at a time
        assert taken == lines


def test_a_run_is_not_much_longer_than_what_was_asked_for():
    box, live = outbox(), answer()
    for _ in range(200):
        box.put(MessageUpdate(live.append(0, "x" * 1000), live))
    assert len(box.take(20_000)) < 25_000
    assert len(box) > 150


# -- order and merging ----------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("delta"), st.integers(0, 2), st.text("xyz", min_size=1, max_size=3)),
        st.tuples(st.just("other answer"), st.just(0), st.just("q")),
        st.tuples(st.just("end"), st.integers(0, 2), st.just("")),
        st.tuples(st.just("response"), st.just(0), st.just("")),
        st.tuples(st.just("take"), st.sampled_from([1, 300, 2000]), st.just("")),
        st.tuples(st.just("take merged"), st.sampled_from([1, 300, 2000]), st.just("")),
    ),
    max_size=40,
)


def told(frame: dict[str, Any]) -> tuple[Any, ...]:
    """Reduce a frame to what must not change: its kind, its block, its text."""
    piece = frame.get("assistantMessageEvent")
    if piece is None:
        return (frame["type"], frame.get("id"), "")
    return (piece["type"], piece["contentIndex"], piece.get("delta", ""))


def joined(items: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Join neighbouring deltas of one block."""
    result: list[tuple[Any, ...]] = []
    for kind, place, text in items:
        if result and kind.endswith("_delta") and result[-1][:2] == (kind, place):
            result[-1] = (kind, place, result[-1][2] + text)
        else:
            result.append((kind, place, text))
    return result


@given(steps)
def test_order_and_text_survive_any_mix(steps: list[tuple[str, int, str]]) -> None:
    box = outbox()
    live, other = answer(), answer()
    put: list[tuple[Any, ...]] = []
    data = b""
    unmerged = True
    for verb, number, text in steps:
        if verb.startswith("take"):
            merge = verb == "take merged"
            unmerged = unmerged and not merge
            data += box.take(number, merge=merge)
            continue
        if verb == "response":
            box.put(response(len(put)))
            put.append(("response", len(put), ""))
            continue
        whose = other if verb == "other answer" else live
        piece = whose.end(number) if verb == "end" else whose.append(number, text)
        box.put(MessageUpdate(piece, whose))
        put.append((piece.__struct_config__.tag, piece.content_index, text))
    data += box.take(EVERYTHING)
    seen = [told(frame) for frame in frames(data)]
    assert joined(seen) == joined(put)
    if unmerged:
        assert seen == put
    assert len(box) == 0
    assert box.take(EVERYTHING) == b""


def test_deltas_are_joined_only_for_a_reader_that_is_behind() -> None:
    live = answer()
    for merge, expected in ((False, ["a", "b", "c"]), (True, ["abc"])):
        box = outbox()
        for text in "abc":
            box.put(MessageUpdate(live.append(0, text), live))
        assert deltas(box.take(EVERYTHING, merge=merge)) == expected


def test_nothing_is_joined_across_blocks_messages_or_other_items() -> None:
    live, other = answer(), answer()
    box = outbox()
    for index in (0, 1, 1, 2, 0):
        box.put(MessageUpdate(live.append(index, str(index)), live))
    box.put(MessageUpdate(other.append(0, "x"), other))
    box.put(response("r1"))
    box.put(MessageUpdate(other.append(0, "y"), other))
    kinds = [told(frame) for frame in frames(box.take(EVERYTHING, merge=True))]
    assert kinds == [
        ("text_delta", 0, "0"),
        ("thinking_delta", 1, "11"),
        ("toolcall_delta", 2, "2"),
        ("text_delta", 0, "0"),
        ("text_delta", 0, "x"),
        ("response", "r1", ""),
        ("text_delta", 0, "y"),
    ]


def test_a_waiting_update_shows_the_newest_state() -> None:
    box = outbox("full")
    live = answer()
    box.put(MessageUpdate(live.append(0, "Hel"), live))
    box.put(MessageUpdate(live.append(0, "lo"), live))
    first = frames(box.take(1))[0]
    assert first["assistantMessageEvent"]["delta"] == "Hel"
    assert first["message"]["content"][0]["text"] == "Hello"


def test_everything_else_says_what_was_true_when_it_was_put() -> None:
    box = outbox()
    waiting = ["one"]
    live = LiveMessage(MODEL)
    box.put(MessageStart(live))
    box.put(QueueUpdate(waiting, []))
    live.start_text()
    waiting.append("two")
    start, queue = frames(box.take(EVERYTHING))
    assert start["message"]["content"] == []
    assert queue["steering"] == ["one"]


def test_the_form_of_updates_changes_where_it_was_asked_for() -> None:
    box = outbox("full")
    live = answer()
    box.put(MessageUpdate(live.append(0, "a"), live))
    box.set_update_mode("delta")
    box.put(MessageUpdate(live.append(0, "b"), live))
    box.set_update_mode("full")
    box.put(MessageUpdate(live.append(0, "c"), live))
    assert ["message" in frame for frame in frames(box.take(EVERYTHING, merge=True))] == [True, False, True]


def test_what_a_dialect_leaves_out_does_not_wait() -> None:
    box = Outbox(Renderer(dialect_named("pi-0.74")))
    rung = []
    box.on_waiting = lambda: rung.append(1)
    box.put(Ready("1"))
    assert (len(box), rung) == (0, [])


def test_take_stops_at_whole_lines() -> None:
    box = outbox()
    for _ in range(3):
        box.put(AgentStart())
    line = b'{"type":"agent_start"}\n'
    assert box.take(1) == line
    assert box.take(len(line) + 1) == line * 2
    assert box.take(1) == b""


def test_the_doorbell_rings_once_per_wait() -> None:
    box = outbox()
    rung = []
    box.on_waiting = lambda: rung.append(1)
    box.put(AgentStart())
    box.put(AgentStart())
    assert len(rung) == 1
    box.take(EVERYTHING)
    box.put(AgentStart())
    assert len(rung) == 2


# -- water marks ----------------------------------------------------------------------------------


def test_full_from_the_high_mark_to_the_low_one() -> None:
    box = outbox()
    for _ in range(HIGH_ITEMS - 1):
        box.put(AgentStart())
    assert not box.full
    box.put(AgentStart())
    assert box.full
    while len(box) > LOW_ITEMS + 1:
        box.take(1)
        assert box.full
    box.take(1)
    assert not box.full


def test_a_few_big_lines_fill_it_too() -> None:
    box = outbox()
    box.put(Response(command="export_page", success=True, data="x" * HIGH_BYTES))
    assert box.full
    box.take(1)
    assert not box.full


def test_a_client_that_only_writes_is_noticed() -> None:
    box = outbox()
    asked = 0
    while not box.flooded:
        box.put(Response(id=asked, command="export_page", success=True, data="x" * 1_000_000))
        asked += 1
    assert asked < 100
    box.take(EVERYTHING)
    assert not box.flooded


async def _room_is_given() -> list[str]:
    box = outbox()
    story: list[str] = []
    live = answer()

    async def produce() -> None:
        for _ in range(2 * HIGH_ITEMS):
            await box.room()
            box.put(MessageUpdate(live.append(0, "x"), live))
        story.append("produced")

    producer = asyncio.create_task(produce())
    await asyncio.sleep(0)
    story.append(f"waits at {len(box)}")
    # The control lane does not wait.
    box.put(response("r1"))
    text = ""
    while not producer.done():
        text += "".join(
            frame["assistantMessageEvent"]["delta"] for frame in frames(box.take(EVERYTHING)) if "id" not in frame
        )
        await asyncio.sleep(0)
    text += "".join(deltas(box.take(EVERYTHING)))
    story.append(f"{len(text)} read")
    return story


def test_a_producer_waits_for_the_reader() -> None:
    assert asyncio.run(_room_is_given()) == [f"waits at {HIGH_ITEMS}", "produced", f"{2 * HIGH_ITEMS} read"]


def test_closing_frees_whoever_waits() -> None:
    async def run() -> None:
        box = outbox()
        for _ in range(HIGH_ITEMS):
            box.put(AgentStart())
        waiting = asyncio.create_task(box.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        box.close()
        await asyncio.wait_for(waiting, 1)
        box.put(AgentStart())
        assert len(box) == 0

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["full", "delta"])
def test_memory_is_bounded_while_nobody_reads(mode: str) -> None:
    """What waits is the deltas themselves; a frame of the whole answer is made only when it leaves."""
    box = outbox(mode)
    live = answer()
    while not box.full:
        box.put(MessageUpdate(live.append(0, "x" * 100), live))
    assert len(box) == HIGH_ITEMS
    data = box.take(1, merge=True)
    assert deltas(data) == ["x" * 100 * HIGH_ITEMS]
    assert len(box) == 0


def test_a_session_says_no_more_until_its_prompt_is_kept():
    """What it put before may leave, and what others put; the rest keeps its place."""

    async def main() -> None:
        box, rung = outbox(), []
        kept = asyncio.get_running_loop().create_future()
        other = box.lane("other")
        box.put_line(b"before\n")
        box.hold(kept)
        box.put_line(b"accepted\n")
        other.put(Notice("free"))
        assert b"before" in (said := box.take(1000)) and b"free" in said and box.take(100) == b""
        box.on_waiting = lambda: rung.append(kept.done())
        box.put_line(b"after\n")
        assert rung == []
        kept.set_result(None)
        await asyncio.sleep(0)
        assert rung == [True] and box.take(100) == b"accepted\nafter\n"
        box.hold(kept)  # already
        box.put_line(b"free\n")
        assert box.take(100) == b"free\n"

    asyncio.run(main())


def test_a_second_prompt_that_comes_while_the_first_is_held_is_kept_before_it_is_answered():
    async def main() -> None:
        box = outbox()
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
        box.hold(first)
        box.put_line(b"first\n")
        first.set_result(None)
        box.hold(second)  # before the end of the first was told
        box.put_line(b"second\n")
        await asyncio.sleep(0)
        assert box.take(100) == b""
        second.set_result(None)
        await asyncio.sleep(0)
        assert box.take(100) == b"first\nsecond\n"

    asyncio.run(main())
