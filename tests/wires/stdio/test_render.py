"""Frames are what plain encoding of the same values gives, in every dialect and form."""

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spindle.llm.live import LiveMessage, LiveText, LiveThinking, LiveToolCall
from spindle.protocol.dialect import DIALECTS, dialect_named, shaped
from spindle.protocol.render import Ready, Renderer, Response
from spindle.shapes import codec
from spindle.shapes.events import (
    AgentEnd,
    AgentSettled,
    Event,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolResult,
)
from spindle.shapes.messages import Cost, Text, Usage, UserMessage
from spindle.shapes.model import Model, ModelCost
from spindle.shapes.pieces import DELTAS, STARTS, StreamEvent

MODEL = Model(
    "m1", "Mock", "openai-completions", "mock", "http://127.0.0.1", False, ["text"], ModelCost(1, 2, 0, 0), 1000, 100
)

texts = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from('"\\/\n\r\t\b\f\x00\x1f\x7f\u2028\u2029\u00e9\U0001f600\ud83d\ude00'),
    ),
    max_size=8,
)
argument_pieces = st.sampled_from(
    ['{"', "path", '": "', "a\\", "n", '"', ", ", '"n": 1', "2", "}", "[", "nul", "\u2028"]
)


class Told:
    """Answers as far as their pieces were told. A block that has ended is shown as it is."""

    def __init__(self) -> None:
        self._live: LiveMessage | None = None
        self._blocks: list[Any] = []

    def tell(self, piece: StreamEvent, live: LiveMessage) -> LiveMessage:
        if live is not self._live:
            self._live, self._blocks = live, []
        index = piece.content_index
        block = live.blocks[index]
        if isinstance(piece, STARTS):
            empty: Any = LiveText()
            if isinstance(block, LiveThinking):
                empty = LiveThinking(block.first_signature, block.redacted)
            elif isinstance(block, LiveToolCall):
                empty = LiveToolCall(block.id, block.name)
            self._blocks.append(empty)
        elif not isinstance(piece, DELTAS):
            self._blocks[index] = block
        elif self._blocks[index] is not block and isinstance(block, LiveToolCall):
            self._blocks[index].arguments.feed(piece.delta)
        elif self._blocks[index] is not block:
            self._blocks[index].parts.append(piece.delta)
        told = copy.copy(live)
        told.blocks, told.raw_stop_reason = list(self._blocks), None
        return told


def reference(dialect: str, mode: str, piece: StreamEvent, told: LiveMessage) -> bytes:
    """One update, encoded from scratch."""
    event = codec.decode(codec.encode(piece))
    frame: dict[str, Any] = {"type": "message_update", "assistantMessageEvent": event, "usage": told.usage}
    if mode == "full":
        event["partial"] = told.so_far()
        frame["message"] = told.so_far()
    wanted = dialect_named(dialect).shape_of("message_update")
    if wanted is not None:
        event_shape = wanted.keys["assistantMessageEvent"]
        assert event_shape is not None
        partial = replace(event_shape, keys={**event_shape.keys, "partial": wanted.keys["message"]})
        wanted = replace(wanted, keys={**wanted.keys, "assistantMessageEvent": partial})
    return shaped(codec.encode(frame), wanted) + b"\n"


@st.composite
def answers(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Verbs of a model API, and the facts that trickle in beside them."""
    verb = st.one_of(
        st.tuples(st.just("text"), st.none()),
        st.tuples(st.just("thinking"), st.tuples(st.one_of(st.none(), texts), st.booleans())),
        st.tuples(st.just("call"), texts),
        st.tuples(st.just("append"), st.tuples(st.integers(0, 9), texts, argument_pieces)),
        st.tuples(st.just("append"), st.tuples(st.integers(0, 9), texts, argument_pieces)),
        st.tuples(st.just("silent append"), st.tuples(st.integers(0, 9), texts, argument_pieces)),
        st.tuples(st.just("sign"), st.tuples(st.integers(0, 9), texts)),
        st.tuples(st.just("correct"), st.tuples(st.integers(0, 9), texts)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("usage"), st.tuples(st.integers(0, 10**12), st.sampled_from([0, 1, 0.25, 12.5]))),
        st.tuples(st.just("count"), st.integers(0, 99)),
        st.tuples(st.just("response"), texts),
        st.tuples(st.just("new"), st.none()),
    )
    return draw(st.lists(verb, max_size=30))


def play(verbs: list[tuple[str, Any]]) -> Any:
    """Perform the verbs; yield every event with the message as it stands then."""
    live = LiveMessage(MODEL)
    for verb, value in verbs:
        blocks = live.blocks
        piece: StreamEvent | None = None
        if verb == "text":
            piece = live.start_text()
        elif verb == "thinking":
            piece = live.start_thinking(*value)
        elif verb == "call":
            piece = live.start_tool_call("call_1", value)
        elif verb == "new":
            live = LiveMessage(MODEL)
        elif verb == "usage":
            live.usage = Usage(input=value[0], reasoning=7, cost=Cost(total=value[1]))
        elif verb == "count":
            live.usage.output += value
            live.usage.cost.output += value
        elif verb == "response":
            live.response_id = live.raw_stop_reason = value
        elif blocks and verb == "end":
            piece = live.end(value % len(blocks))
        elif blocks and verb == "sign":
            blocks[value[0] % len(blocks)].signature = value[1]
        elif blocks and verb == "correct":
            block = blocks[value[0] % len(blocks)]
            if not isinstance(block, LiveToolCall):
                block.parts = [value[1]]
        elif blocks and blocks[value[0] % len(blocks)].open:
            index = value[0] % len(blocks)
            piece = live.append(index, value[2] if isinstance(blocks[index], LiveToolCall) else value[1])
            if verb == "silent append":
                piece = None
        if piece is not None:
            yield piece, live


@settings(max_examples=300)
@given(dialect=st.sampled_from(list(DIALECTS)), mode=st.sampled_from(["full", "delta"]), verbs=answers())
def test_updates_are_what_encoding_a_snapshot_gives(dialect: str, mode: Any, verbs: list[tuple[str, Any]]) -> None:
    renderer, told = Renderer(dialect_named(dialect), mode), Told()
    for piece, live in play(verbs):
        so_far = told.tell(piece, live)
        assert renderer.render(MessageUpdate(piece, live)) == reference(dialect, mode, piece, so_far)


@given(verbs=answers())
def test_in_a_burst_no_frame_is_ahead_of_its_piece(verbs: list[tuple[str, Any]]) -> None:
    """All pieces are there before the first is rendered, as after one big read from a server."""
    renderer, told = Renderer(), Told()
    for piece, live in list(play(verbs)):
        partial = json.loads(renderer.render(MessageUpdate(piece, live)))["assistantMessageEvent"]["partial"]
        assert partial["content"] == codec.decode(codec.encode(told.tell(piece, live).so_far()))["content"]


@given(st.lists(answers(), min_size=2, max_size=2), st.lists(st.booleans(), min_size=30))
def test_the_form_may_change_at_any_time(answers: list[list[tuple[str, Any]]], switches: list[bool]) -> None:
    """A client that is told of an answer from its middle on gets it as it stands."""
    renderer = Renderer()
    for verbs in answers:
        for (piece, live), switch in zip(play(verbs), switches, strict=False):
            if switch:
                renderer.set_update_mode("delta" if renderer.update_mode == "full" else "full")
            frame = json.loads(renderer.render(MessageUpdate(piece, live)))
            assert ("message" in frame) is (renderer.update_mode == "full")
            if switch and "message" in frame and piece.content_index:
                assert frame["message"]["content"] == codec.decode(codec.encode(live.so_far()))["content"]


def test_the_event_stands_before_the_message() -> None:
    live = LiveMessage(MODEL)
    live.start_text()
    frame = Renderer().render(MessageUpdate(live.append(0, "Hi"), live))  # from the middle on
    assert frame.startswith(
        b'{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Hi","partial":{'
    )
    assert list(json.loads(frame)) == ["type", "assistantMessageEvent", "usage", "message"]


def test_a_delta_frame_is_small() -> None:
    live = LiveMessage(MODEL)
    live.start_text()
    frame = Renderer(update_mode="delta").render(MessageUpdate(live.append(0, "seven +"), live))
    assert json.loads(frame)["usage"]["cost"]["total"] == 0
    assert len(frame) <= 283


@pytest.mark.parametrize("text", ["\u2028\u2029", "\ud800", "a\udfff\u2028b"])
@pytest.mark.parametrize("mode", ["full", "delta"])
def test_separators_and_lone_surrogates_leave_as_escapes(text: str, mode: Any) -> None:
    live = LiveMessage(MODEL)
    live.start_text()
    frame = Renderer(update_mode=mode).render(MessageUpdate(live.append(0, text), live))
    assert frame.decode("utf-8").splitlines() == [frame[:-1].decode("utf-8")]
    value = json.loads(frame)
    assert value["assistantMessageEvent"]["delta"] == text
    if mode == "full":
        assert value["message"]["content"] == [{"type": "text", "text": text}]


def test_a_long_answer_costs_its_length_not_its_square() -> None:
    live, renderer = LiveMessage(MODEL), Renderer()
    renderer.render(MessageUpdate(live.start_text(), live))
    pieces = [live.append(0, piece) for _ in range(8000) for piece in ("word \u00e9\n", "more ")]
    before = time.process_time()
    for piece in pieces:
        frame = renderer.render(MessageUpdate(piece, live))
    spent = time.process_time() - before
    assert json.loads(frame)["message"]["content"][0]["text"].endswith("word \u00e9\nmore ")
    # About 0.3 s; encoding the answer anew for every frame takes more than 4.
    assert spent < 2.0


def test_responses_have_their_keys_in_order() -> None:
    renderer = Renderer()
    ok = Response(id={"any": 1}, command="get_state", success=True, data={"model": None})
    assert renderer.render(ok) == (
        b'{"id":{"any":1},"type":"response","command":"get_state","success":true,"data":{"model":null}}\n'
    )
    assert renderer.render(Response(success=False, error="Unknown command: undefined")) == (
        b'{"type":"response","success":false,"error":"Unknown command: undefined"}\n'
    )
    nothing = Response(id=None, command="cycle_model", success=True, data=None)
    assert json.loads(renderer.render(nothing))["data"] is None


def test_ready_is_a_line() -> None:
    assert Renderer().render(Ready("1.2")).startswith(b'{"type":"ready","version":"1.2",')


def test_a_live_message_may_stand_in_any_event() -> None:
    live = LiveMessage(MODEL)
    live.start_text()
    live.append(0, "Hi")
    frame = json.loads(Renderer().render(MessageStart(live)))
    assert frame["message"]["content"] == [{"type": "text", "text": "Hi"}]


def test_what_json_cannot_hold_is_reported_in_its_place() -> None:
    renderer = Renderer()
    response = json.loads(renderer.render(Response(id="r1", command="get_entries", success=True, data=object())))
    assert (response["id"], response["command"], response["success"]) == ("r1", "get_entries", False)
    assert "cannot be written as JSON" in response["error"]
    event = ToolExecutionEnd("c1", "odd", ToolResult([Text("x")], details=object()), False)
    report = json.loads(renderer.render(event))
    assert (report["type"], report["event"]) == ("extension_error", "tool_execution_end")


# -- dialects -------------------------------------------------------------------------------------


def run_events() -> list[Event]:
    live = LiveMessage(MODEL)
    user = UserMessage([Text("hi")], 1)
    events: list[Event] = [Ready("1"), MessageStart(user), MessageEnd(user), MessageStart(live.so_far())]
    events += [MessageUpdate(live.start_text(), live), MessageUpdate(live.append(0, "Hello"), live)]
    events.append(MessageUpdate(live.start_tool_call("c1", "bash"), live))
    live.usage = Usage(reasoning=3)
    live.raw_stop_reason = "end_turn"
    final = live.finish("stop")
    events += [MessageEnd(final), AgentEnd([user, final], False), AgentSettled(False, "end")]
    return events


def lines(dialect: str) -> list[dict[str, Any]]:
    renderer = Renderer(dialect_named(dialect))
    return [json.loads(frame) for frame in map(renderer.render, run_events()) if frame]


def test_pi_074_hears_only_what_it_knows() -> None:
    frames = lines("pi-0.74")
    assert {frame["type"] for frame in frames} == {"message_start", "message_update", "message_end", "agent_end"}
    assert sorted(frames[-1]) == ["messages", "type"]
    assert "rawStopReason" not in frames[-1]["messages"][1]
    assert "reasoning" not in frames[-1]["messages"][1]["usage"]
    start = frames[-3]
    assert sorted(start) == ["assistantMessageEvent", "message", "type"]
    assert sorted(start["assistantMessageEvent"]) == ["contentIndex", "partial", "type"]


def test_pi_087_gets_deltas_and_the_end_of_work() -> None:
    frames = lines("pi-0.87")
    assert "ready" not in {frame["type"] for frame in frames}
    update = next(frame for frame in frames if frame["type"] == "message_update")
    assert sorted(update) == ["assistantMessageEvent", "type", "usage"]
    assert frames[-2]["willRetry"] is False
    assert frames[-1] == {"type": "agent_settled"}


def test_a_client_may_ask_for_full_updates_in_any_dialect() -> None:
    renderer = Renderer(dialect_named("pi-0.87"))
    renderer.set_update_mode("full")
    live = LiveMessage(MODEL)
    assert b'"partial"' in renderer.render(MessageUpdate(live.start_text(), live))


def test_xcsh_is_greeted() -> None:
    types = [frame["type"] for frame in lines("xcsh")]
    assert types[0] == "ready"
    assert types[-1] == "agent_end"
