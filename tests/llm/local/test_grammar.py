import re
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spindle.llm.live import LiveMessage
from spindle.llm.local.grammar import ANSWER, ReplyReader
from spindle.shapes.codec import encode
from spindle.shapes.messages import Text, ToolCall
from spindle.shapes.model import Model, ModelCost
from spindle.shapes.pieces import TextDelta, ToolCallDelta

MODEL = Model("m", "m", "local", "local", "", False, ["text"], ModelCost(0, 0, 0, 0), 8192, 2048)
TOOLS = ["read", "read_all", "bash", "answer"]


def fold(pieces: list[str]) -> tuple[list[Any], list[str], str, bool]:
    """Return the message, the kinds of events, all deltas joined, and whether it is a call."""
    live = LiveMessage(MODEL)
    reader = ReplyReader(live, TOOLS)
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.close()
    deltas = "".join(event.delta for event in events if isinstance(event, TextDelta | ToolCallDelta))
    blocks = live.finish("stop").content
    for block in blocks:
        if isinstance(block, ToolCall):
            assert re.fullmatch("call_[0-9a-f]{24}", block.id)
            block.id = ""
    kinds = list(dict.fromkeys(type(event).__name__ for event in events))
    return blocks, kinds, deltas, reader.is_call


def test_an_answer_is_text() -> None:
    blocks, kinds, deltas, is_call = fold(["ans", "wer: Hel", "lo\n", "there"])
    assert blocks == [Text("Hello\nthere")] and deltas == "Hello\nthere" and not is_call
    assert kinds == ["TextStart", "TextDelta", "TextEnd"]


def test_text_is_passed_on_as_it_comes() -> None:
    reader = ReplyReader(LiveMessage(MODEL), TOOLS)
    assert reader.feed("answer:") == []
    assert [type(event).__name__ for event in reader.feed(" Hi")] == ["TextStart", "TextDelta"]
    (event,) = reader.feed(" you")
    assert isinstance(event, TextDelta) and event.delta == " you"


def test_a_call_is_a_call() -> None:
    blocks, kinds, deltas, is_call = fold(['bash {"command":"ls -l"}'])
    assert blocks == [ToolCall("", "bash", {"command": "ls -l"})] and is_call
    assert kinds == ["ToolCallStart", "ToolCallDelta", "ToolCallEnd"] and deltas == '{"command":"ls -l"}'


def test_names_that_begin_alike_are_told_apart() -> None:
    assert fold(['read_all {"path":"a"}'])[0] == [ToolCall("", "read_all", {"path": "a"})]
    assert fold(['read {"path":"a"}'])[0] == [ToolCall("", "read", {"path": "a"})]
    assert fold(['answer {"x":1}'])[0] == [ToolCall("", "answer", {"x": 1})]


def test_a_server_that_ignores_the_grammar_still_answers() -> None:
    assert fold(["Sure", ", here"])[0] == [Text("Sure, here")]
    assert fold(["ans"])[0] == [Text("ans")]
    assert fold([])[0] == []


def test_a_call_cut_short_keeps_what_came() -> None:
    assert fold(['bash {"command":"cat no'])[0] == [ToolCall("", "bash", {"command": "cat no"})]


replies = st.one_of(
    st.text(min_size=1).map(lambda text: ANSWER + text),
    st.text(),
    st.tuples(st.sampled_from(TOOLS), st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3)).map(
        lambda call: f"{call[0]} {encode(call[1]).decode()}"
    ),
)


@given(reply=replies, cuts=st.lists(st.integers(0, 60)))
def test_any_split_gives_the_same_message(reply: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
    pieces = [reply[a:b] for a, b in pairwise(edges)]
    assert fold(pieces) == fold([reply])
    assert fold(list(reply)) == fold([reply])
