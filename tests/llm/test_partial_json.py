"""Half-written tool arguments: the golden table, independence of the pieces, linear cost."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.llm.partial_json import PartialJson

from .golden import rows

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
json_like = st.text(alphabet="{}[]\",:\\ \n\tu0123e.-+tfnaNIl'é\ud83d", max_size=40)


def parse_partial(text: str) -> object:
    partial = PartialJson()
    partial.feed(text)
    return partial.value()


@pytest.mark.parametrize("row", rows("partial-json"), ids=lambda row: row["in"])
def test_golden(row):
    assert parse_partial(row["in"]) == row["out"]


@pytest.mark.parametrize("row", rows("partial-json"), ids=lambda row: row["in"])
def test_golden_piece_by_piece(row):
    partial = PartialJson()
    for char in row["in"]:
        partial.feed(char)
        partial.value()
    assert partial.value() == row["out"]
    assert partial.text == row["in"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1.', {}),
        ('{"a": -', {}),
        ('{"a": 1.5e+', {"a": 1.5}),
        ('{"a": 1.5e+, "b": 2', {"a": 1.5, "b": 2}),
        ('{"a": 1, "b": tr', {"a": 1, "b": True}),
        ('{"a": 1, "b": tr}', {"a": 1}),
        ('{"a": 1 "b": 2', {"a": 1, "b": 2}),
        ('{"a": [1 2', {"a": [1, 2]}),
        ('{"a": [1,,2]}', {"a": [1]}),
        ('{"a": "one\ntwo", "b": "x', {"a": "one\ntwo", "b": "x"}),
        ('{"a": "C:\\Temp \\n more', {"a": "C:"}),
        ('{"a": "C:\\Temp \\n more"}', {"a": "C:\\Temp \n more"}),
        ('{"a": "\\u12', {"a": ""}),
        ('{"a": "\\u12zz"}', {"a": "\\u12zz"}),
        ('{"a\nb": 1}', {"a\nb": 1}),
        ('{"a" 1}', {}),
        ("nul", {}),
        ("]", {}),
        ("[" * 100_000, None),
    ],
)
def test_rules(text, value):
    result = parse_partial(text)
    if value is None:
        assert isinstance(result, list)
    else:
        assert result == value


@given(json_values)
def test_whole_values_read_as_they_are(value):
    text = json.dumps(value)
    assert parse_partial(text) == value
    partial = PartialJson()
    for char in text:
        partial.feed(char)
        partial.value()
    assert partial.value() == value


@given(json_values | json_like, st.data())
def test_pieces_do_not_matter(value, data):
    text = value if isinstance(value, str) else json.dumps({"k": value}, ensure_ascii=False)
    text = text[: data.draw(st.integers(0, len(text)))]
    partial = PartialJson()
    position = 0
    while position < len(text):
        step = data.draw(st.integers(1, 8))
        partial.feed(text[position : position + step])
        position += step
        if data.draw(st.booleans()):
            assert partial.value() == parse_partial(text[:position])
    assert partial.text == text
    assert partial.value() == parse_partial(text)


short = st.text(max_size=8)


@given(st.dictionaries(short, short | st.integers() | st.lists(short, max_size=3), min_size=1, max_size=3))
def test_every_beginning_of_an_object_is_an_object(value):
    text = json.dumps(value)
    for end in range(len(text) + 1):
        assert parse_partial(text[:end]).keys() <= value.keys()  # type: ignore[attr-defined]


def test_cost_is_linear_when_nobody_looks():
    def cost(pieces: int) -> float:
        partial = PartialJson()
        start = time.process_time()
        partial.feed('{"content": "')
        for _ in range(pieces):
            partial.feed("some words\\n ")
        partial.feed('"')
        assert len(partial.value()["content"]) == 12 * pieces
        return time.process_time() - start

    cost(1000)
    small, large = min(cost(10_000) for _ in range(3)), min(cost(80_000) for _ in range(3))
    assert large < small * 8 * 3
