"""History on its way to a model: conversion of roles, clean-up across models."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.llm.history import bash_text, clean_text, clean_value, to_model_messages, transform_messages
from spindle.shapes.codec import encode
from spindle.shapes.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    message_from_value,
)

from .golden import rows
from .helpers import make_model

SAME = make_model(id="m1", api="x", provider="mock", input=["text", "image"])
OTHER = make_model(id="m2", api="y", provider="other", input=["text"])


def wire(messages) -> list:
    return json.loads(encode(messages))


def plain(messages) -> list:
    """Messages on the wire without what the tables leave out."""
    return [{key: value for key, value in message.items() if key != "timestamp"} for message in wire(messages)]


@pytest.mark.parametrize("row", rows("convert-to-llm"))
def test_convert_golden(row):
    assert wire(to_model_messages(map(message_from_value, row["in"]))) == row["out"]


@pytest.mark.parametrize("row", rows("bash-to-text"), ids=lambda row: row["text"])
def test_bash_golden(row):
    assert bash_text(message_from_value(row["in"])) == row["text"]


def test_summaries_are_wrapped():
    compaction, branch = to_model_messages([CompactionSummaryMessage("C", 5, 1), BranchSummaryMessage("B", "x", None)])
    assert compaction.content[0].text.endswith("\n\n<summary>\nC\n</summary>")
    assert branch.content[0].text.endswith("\n\n<summary>\nB</summary>")


def test_unknown_roles_stay_at_home():
    assert to_model_messages([message_from_value({"role": "system", "content": "x"})]) == []


@pytest.mark.parametrize("row", rows("transform-messages"), ids=lambda row: row["model"])
def test_transform_golden(row):
    model = SAME if row["model"] == "same" else OTHER
    messages = [message_from_value(value) for value in row["in"]]
    cleaned = transform_messages(messages, model)
    assert plain(cleaned) == row["out"]
    assert plain(transform_messages(cleaned, model)) == row["out"]


def answer(*content, model=SAME, stop_reason="stop") -> AssistantMessage:
    return AssistantMessage(list(content), model.api, model.provider, model.id, Usage(), stop_reason, 0)


def result(id: str) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=id, tool_name="t", content=[Text("r")], is_error=False, timestamp=0)


@pytest.mark.parametrize(
    ("api", "limit"), [("openai-completions", 40), ("anthropic-messages", 64), ("openai-responses", 64)]
)
def test_ids_of_other_models_are_made_to_fit(api, limit):
    ids = ["call_1|fc_" + "a" * 80, "call_1|fc_" + "a" * 79, "plain-id", "späce d"]
    history = [answer(*(ToolCall(id, "t", {}) for id in ids)), *(result(id) for id in ids)]
    first, *results = transform_messages(history, make_model(api=api))
    new = [call.id for call in first.content]
    assert [message.tool_call_id for message in results] == new
    assert len(set(new)) == 4
    assert new[2] == "plain-id"
    assert all(len(id) <= limit and id.replace("_", "").replace("-", "").isalnum() and id.isascii() for id in new)


def test_own_ids_and_signatures_stay():
    call = ToolCall("call_1|fc_" + "a" * 80, "t", {}, "sig")
    (first, _) = transform_messages([answer(call), result(call.id)], SAME)
    assert first.content == [call]


def test_signatures_of_other_models_go():
    history = [answer(Text("a", "sig"), ToolCall("i", "t", {}, "sig")), result("i")]
    (first, _) = transform_messages(history, OTHER)
    assert first.content == [Text("a"), ToolCall("i", "t", {})]


def test_lone_surrogates_vanish_everywhere():
    history = [
        UserMessage("a\ud83db", 0),
        answer(Text("\ude00x"), Thinking("t\ud83d"), ToolCall("i", "t", {"k\ud83d": ["\ud83d", 1]})),
        result("i"),
        UserMessage([Text("\ud83d\ude00")], 0),
    ]
    text = encode(transform_messages(history, SAME)).decode()
    assert "\\ud" not in text
    assert "😀" in text


def test_the_given_history_is_not_changed():
    history = [answer(Text("a", "sig"), Thinking("t"), ToolCall("a|b", "t", {"x": "\ud83d"})), result("a|b")]
    before = msgspec.to_builtins(history)
    transform_messages(history, OTHER)
    assert msgspec.to_builtins(history) == before


@given(st.text(alphabet=st.characters(codec="utf-8") | st.characters(categories=["Cs"])))
def test_clean_text_can_be_encoded_and_leaves_good_text_alone(text):
    cleaned = clean_text(text)
    cleaned.encode()
    assert clean_text(cleaned) is cleaned


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_clean_values_are_passed_on(value):
    assert clean_value(value) is value
