"""What a model gets to see. The expectations for `context_edit` and system messages are answers of pi 0.87.1."""

from pathlib import Path
from typing import Any

import pytest

from spindle.sessions import SessionManager
from spindle.shapes.codec import decode, encode

from .helpers import chain, entry, write_session


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "message": {"role": "user", "content": text, "timestamp": 1}}


def answer(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    fields = {"api": "a", "provider": "p", "model": "m", "usage": {}, "stopReason": "stop", "timestamp": 2}
    return {"type": "message", "message": {"role": "assistant", "content": content, **fields}}


def result(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    fields = {"toolCallId": "c", "toolName": "x", "isError": False, "timestamp": 2}
    return {"type": "message", "message": {"role": "toolResult", "content": content, **fields}}


def system(text: str) -> dict[str, Any]:
    return {"type": "message", "message": {"role": "system", "content": text, "timestamp": 2}}


def bash(command: str) -> dict[str, Any]:
    fields = {"output": "o", "cancelled": False, "truncated": False, "timestamp": 2}
    return {"type": "message", "message": {"role": "bashExecution", "command": command, **fields}}


def note(text: str) -> dict[str, Any]:
    return {"type": "custom_message", "customType": "k", "content": text, "display": True}


def summary(text: str) -> dict[str, Any]:
    return {"type": "branch_summary", "fromId": "root", "summary": text}


def compaction(first_kept: str, **more: Any) -> dict[str, Any]:
    return {"type": "compaction", "summary": "sum", "firstKeptEntryId": first_kept, "tokensBefore": 1, **more}


def edit(target: str, replacement: Any) -> dict[str, Any]:
    return {"type": "context_edit", "targetId": target, "replacement": replacement}


STORED = {"role": "system", "content": "stored", "timestamp": 3}
TEXT = [{"type": "text", "text": "new"}]


@pytest.mark.parametrize(
    ("entries", "seen"),
    [
        ([user("q"), answer("a"), edit("e0", {"content": "new"})], "user new / assistant a"),
        ([user("q"), answer("a"), edit("e1", {"content": "new"})], "user q / assistant new"),
        ([user("q"), answer("a"), edit("e0", {"content": TEXT})], "user new / assistant a"),
        ([user("q"), result("r"), edit("e1", {"content": "new"})], "user q / toolResult new"),
        ([user("q"), note("n"), edit("e1", {"content": "new"})], "user q / custom new"),
        ([user("q"), bash("ls"), edit("e1", {"content": "new"})], "user q / bashExecution ls"),
        ([user("q"), summary("s"), edit("e1", {"content": "new"})], "user q / branchSummary s"),
        ([system("s"), user("q"), edit("e0", {"content": "new"})], "system s / user q"),
        ([user("q"), answer("a"), edit("e1", None), user("again")], "user q / user again"),
        ([user("q"), bash("ls"), edit("e1", None)], "user q"),
        ([user("q"), summary("s"), edit("e1", None)], "user q"),
        ([user("q"), edit("e2", None), answer("a")], "user q"),
        ([user("q"), answer("a"), edit("e1", {"content": "1"}), edit("e1", {"content": "2"})], "user q / assistant 2"),
        ([user("q"), answer("a"), edit("e1", None), edit("e1", {"content": "2"})], "user q / assistant 2"),
        ([user("q"), answer("a"), compaction("e1"), edit("e2", None)], "assistant a"),
        ([user("q"), compaction("e0"), edit("e1", {"content": "new"})], "compactionSummary sum / user q"),
        ([user("q"), edit("e0", {"content": "new"}), compaction("e0")], "compactionSummary sum / user new"),
        ([system("s"), user("q"), compaction("e0"), user("z")], "compactionSummary sum / user q / user z"),
        ([user("q"), compaction("e0"), system("s"), user("z")], "compactionSummary sum / user q / system s / user z"),
        ([user("q"), compaction("e0", systemMessage=STORED)], "system stored / compactionSummary sum / user q"),
        (
            [user("q"), compaction("e0", systemMessage=STORED), answer("a"), compaction("e0")],
            "compactionSummary sum / user q / assistant a",
        ),
    ],
)  # fmt: skip
def test_newer_entries_are_honoured(tmp_path: Path, entries: list[dict[str, Any]], seen: str) -> None:
    path = write_session(tmp_path / "s.jsonl", chain(*entries))
    with SessionManager.open(path, read_only=True) as manager:
        context = manager.build_session_context()
    assert " / ".join(map(_say, context.messages)) == seen
    assert len(context.entry_ids) == len(context.messages)


@pytest.mark.parametrize("replacement", ["text", {"other": 1}, {"content": None}, 5])
def test_an_edit_that_makes_no_sense_changes_nothing(tmp_path: Path, replacement: Any) -> None:
    path = write_session(tmp_path / "s.jsonl", chain(user("q"), edit("e0", replacement)))
    with SessionManager.open(path, read_only=True) as manager:
        assert [_say(message) for message in manager.build_session_context().messages] == ["user q"]


def test_an_edit_on_another_branch_does_not_count(tmp_path: Path) -> None:
    entries = [*chain(user("q"), answer("a"), edit("e1", None)), entry("other", "e1")]
    with SessionManager.open(write_session(tmp_path / "s.jsonl", entries), read_only=True) as manager:
        assert manager.build_session_context().entry_ids == ["e0", "e1", "other"]


def test_a_hidden_answer_still_tells_the_model(tmp_path: Path) -> None:
    change = {"type": "model_change", "provider": "x", "modelId": "y"}
    path = write_session(tmp_path / "s.jsonl", chain(change, user("q"), answer("a"), edit("e2", None)))
    with SessionManager.open(path, read_only=True) as manager:
        assert manager.build_session_context().model == ("p", "m")


def test_model_and_level_are_found_before_a_compaction_too(tmp_path: Path) -> None:
    level = {"type": "thinking_level_change", "thinkingLevel": "high"}
    path = write_session(tmp_path / "s.jsonl", chain(level, answer("a"), user("q"), compaction("e2")))
    with SessionManager.open(path, read_only=True) as manager:
        context = manager.build_session_context()
        assert (context.model, context.thinking_level) == (("p", "m"), "high")
        assert context.entry_ids == ["e3", "e2"]
        assert manager.get_thinking_level() == "high" and manager.get_model() == ("p", "m")


def test_nothing_is_seen_before_the_first_entry(tmp_path: Path) -> None:
    with SessionManager.open(write_session(tmp_path / "s.jsonl", chain(user("q"))), read_only=True) as manager:
        manager.reset_leaf()
        context = manager.build_session_context()
        assert (context.messages, context.model, context.thinking_level) == ([], None, "off")
        assert manager.get_thinking_level() is None


def _say(message: Any) -> str:
    value = decode(encode(message))
    content = value.get("content", value.get("summary", value.get("command")))
    return f"{value['role']} {content if isinstance(content, str) else content[0]['text']}"
