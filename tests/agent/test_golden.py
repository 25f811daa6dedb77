"""Pure functions against recorded tables of what pi does: token estimates, where to cut, how to serialise."""

import json
from pathlib import Path

import pytest

from spindle.agent.compaction.plan import prepare_compaction
from spindle.agent.compaction.summary import serialize_conversation
from spindle.llm.history import estimate_context, estimate_tokens
from spindle.sessions.entries import Entry
from spindle.shapes.codec import encode
from spindle.shapes.messages import message_from_value


def table(name: str) -> list[dict]:
    text = (Path(__file__).parent / "golden" / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def messages(values: list[dict]) -> list:
    return [message_from_value(value) for value in values]


def entry(value: dict) -> Entry:
    return Entry(value["type"], value["id"], value["parentId"], value["timestamp"], encode(value) + b"\n")


@pytest.mark.parametrize("row", table("estimate-tokens"))
def test_tokens_of_a_message(row):
    assert estimate_tokens(message_from_value(row["in"])) == row["tokens"]


@pytest.mark.parametrize("row", table("estimate-context"))
def test_tokens_of_a_conversation(row):
    assert estimate_context(messages(row["in"])) == row["out"]["tokens"]


@pytest.mark.parametrize("row", table("serialize-conversation"))
def test_conversation_as_text(row):
    assert serialize_conversation(messages(row["in"])) == row["out"]


def roles(found):
    return [getattr(message, "role", None) or type(message).__struct_config__.tag for message in found]


@pytest.mark.parametrize("row", table("prepare-compaction"))
def test_where_to_cut(row):
    plan = prepare_compaction([entry(value) for value in row["entries"]], row["settings"]["keepRecentTokens"])
    expected = row["preparation"]
    if expected is None:
        assert plan is None
        return
    assert plan is not None
    found = {
        "firstKeptEntryId": plan.first_kept_entry_id,
        "isSplitTurn": plan.is_split_turn,
        "tokensBefore": plan.tokens_before,
        "previousSummary": plan.previous_summary,
        "summarizeRoles": [
            getattr(m, "role", None) or type(m).__struct_config__.tag for m in plan.messages_to_summarize
        ],
        "prefixRoles": [getattr(m, "role", None) or type(m).__struct_config__.tag for m in plan.turn_prefix_messages],
    }
    assert found == {key: expected.get(key) for key in found}
