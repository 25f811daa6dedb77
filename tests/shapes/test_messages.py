"""Shapes read whatever other programs write, and write what they read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.messages import AssistantMessage, OpaqueMessage, Text, UserMessage, message_from_value

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def test_keys_that_are_missing_are_filled_in():
    message = message_from_value({"role": "assistant", "content": None})
    assert isinstance(message, AssistantMessage) and message.content == [] and message.stop_reason == "stop"


def test_an_unknown_block_does_not_cost_the_rest():
    blocks = [{"type": "hologram"}, {"type": "text", "text": "x"}]
    message = message_from_value({"role": "user", "content": blocks, "timestamp": 1})
    assert message == UserMessage(content=[Text("x")], timestamp=1)


def test_an_unknown_role_is_carried_as_it_came():
    value = {"role": "system", "content": "x", "sections": {"a": None}}
    message = message_from_value(value)
    assert isinstance(message, OpaqueMessage) and json.loads(encode(message)) == value


@given(json_values)
def test_no_value_breaks_reading(value):
    encode(message_from_value(value))


@given(json_values)
def test_what_is_encoded_decodes_to_the_same(value):
    data = encode(value)
    assert b"\n" not in data and "\u2028" not in data.decode()
    assert decode(data) == value


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_survives_lone_surrogates_included(text):
    assert decode(encode(text)) == text


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"[1,]", b"\xff", b"[" * 100_000, b'{"a":1} x', b"\xef\xbb\xbf{}"])
def test_what_is_not_json_is_a_decode_error(data):
    with pytest.raises(DecodeError):
        decode(data)
