# mypy: disable-error-code="attr-defined"
"""The document of the session format: entries are written, and their keys are those that it names.

The document lost its separators: it names the keys of an entry in one word, such as `providermodelId`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions import SessionManager

from .samples import document

BASE = {"type", "id", "parentId", "timestamp"}
# Entry → its keys in the document's order, and those that it may have beside them.
ENTRIES: dict[str, tuple[list[str], set[str]]] = {
    "message": (["message"], set()),
    "model_change": (["provider", "modelId"], set()),
    "thinking_level_change": (["thinkingLevel"], set()),
    "compaction": (["summary", "firstKeptEntryId", "tokensBefore"], {"details", "fromHook"}),
    "branch_summary": (["fromId", "summary"], {"details", "fromHook"}),
    "custom": (["customType", "data"], set()),
    "label": (["targetId", "label"], set()),
}
# Part of the document with a list of methods → how their names stand there.
METHODS = (
    *("appendMessage", "appendCompaction", "appendCustomEntry", "getLeafId", "getLeafEntry", "getEntry", "getBranch"),
    *("getTree", "getChildren", "branch", "resetLeaf", "branchWithSummary", "buildSessionContext"),
)
STATIC = ("create", "open", "continueRecent", "inMemory", "forkFrom", "list", "listAll")


@pytest.fixture(scope="module")
def text() -> str:
    return document("002")


def written(tmp_path: Path) -> list[dict[str, Any]]:
    manager = SessionManager.create(str(tmp_path), str(tmp_path / "stored"))
    first = manager.appendMessage({"role": "user", "content": "One way?", "timestamp": 1})
    manager.appendModelChange("anthropic", "claude-sonnet-4-20250514")
    manager.appendThinkingLevelChange("high")
    manager.appendMessage({"role": "user", "content": "On.", "timestamp": 2})
    manager.appendCompaction("So far.", first, 1000)
    manager.appendCustomEntry("mine", {"n": 1})
    manager.appendLabelChange(first, "here")
    manager.branchWithSummary(first, "It led nowhere.")
    path = manager.getSessionFile()
    manager.close()
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_the_entries(text: str, tmp_path: Path) -> None:
    head, *entries = written(tmp_path)
    assert set(head) == {"type", "version", "id", "timestamp", "cwd"} and head["version"] == 3
    assert '包含 type: "session"versionid(UUID)、timestampcwd' in text
    for kind, (keys, more) in ENTRIES.items():
        entry = next(entry for entry in entries if entry["type"] == kind)
        assert entry.keys() - more == BASE | set(keys), entry
        assert f'"{kind}",包含 {"".join(keys)}' in text.replace("，", ","), kind
    assert entries[0]["parentId"] is None and {e["id"] for e in entries} >= {e["parentId"] for e in entries[1:]}


def test_what_is_read_has_the_names_of_the_document(tmp_path: Path) -> None:
    manager = SessionManager.create(str(tmp_path), str(tmp_path / "stored"))
    first = manager.appendMessage({"role": "user", "content": "One way?", "timestamp": 1})
    manager.appendThinkingLevelChange("high")
    manager.appendCompaction("So far.", first, 1000)
    entry = manager.getLeafEntry()
    assert (entry.summary, entry.firstKeptEntryId, entry.tokensBefore) == ("So far.", first, 1000)
    assert entry.parentId == manager.getEntry(entry.parentId).id and not hasattr(entry, "nothing")
    assert manager.buildSessionContext().thinkingLevel == "high"
    manager.close()


def test_the_place(text: str, tmp_path: Path) -> None:
    assert "~/.pi/agent/sessions/--<path>--/<timestamp>_<uuid>.jsonl" in text
    manager = SessionManager.create(str(tmp_path))
    folder, file = Path(manager.getSessionFile()).parts[-2:]
    assert folder == f"--{str(tmp_path).strip('/').replace('/', '-')}--"
    time, _, id = file.removesuffix(".jsonl").partition("_")
    assert id == manager.getSessionId() and time.count("-") == 5
    manager.close()


def test_every_method_of_the_document_is_there(text: str) -> None:
    for name in METHODS:
        assert f"{name}(" in text and callable(getattr(SessionManager, name)), name
    for name in STATIC:
        assert f"SessionManager.{name}(" in text and callable(getattr(SessionManager, name)), name
