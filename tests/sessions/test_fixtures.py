"""Every fixture against what pi made of it, and the damaged ones against what a careful reader should make of them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions import InvalidSession, SessionManager
from spindle.sessions.entries import iso_time
from spindle.sessions.index import most_recent_session, read_info
from spindle.sessions.load import SKIPPED
from spindle.sessions.tree import TreeNode
from spindle.shapes.codec import decode, encode

FIXTURES = Path(__file__).parent / "fixtures"
RECOMMENDED: dict[str, dict[str, Any]] = json.loads((FIXTURES / "RECOMMENDED.json").read_text())
ALL = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
HEALTHY = [name for name in ALL if name not in RECOMMENDED]
READABLE = [name for name in ALL if RECOMMENDED.get(name, {}).get("open", "ok") == "ok"]
REFUSED = [name for name in ALL if name not in READABLE]
SIMPLE = json.loads((FIXTURES / "damaged-crlf.expected.json").read_text())["listInfo"]
# One line without a text makes pi drop the whole session from its lists.
UNLISTED_BY_PI = {
    "damaged-null-line": {},
    "damaged-message-missing": {"messageCount": 5},
    "damaged-null-content": {"messageCount": 6, "modified": "2025-01-01T00:00:06.000Z"},
}
EMPTY = ("damaged-empty", "damaged-whitespace-only")

APPENDED = {
    "role": "assistant",
    "content": [{"type": "text", "text": "APPENDED"}],
    "api": "a",
    "provider": "p",
    "model": "m",
    "usage": {},
    "stopReason": "stop",
    "timestamp": 1735689600000,
}


def expected(name: str) -> dict[str, Any]:
    """Return what pi 0.74 answered, with the answers of 0.87 where they differ."""
    told = json.loads((FIXTURES / f"{name}.expected.json").read_text())
    newer = told.pop("pi_0_87_1")
    return told | newer if isinstance(newer, dict) else told


@pytest.fixture
def copy(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copy(FIXTURES / f"{request.param}.jsonl", tmp_path / "session.jsonl"))


def for_fixtures(names: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("copy", "name"), [(name, name) for name in names], indirect=["copy"], ids=names)


def without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    """A key that is null and one that is absent say the same about a message."""
    return {key: value for key, value in message.items() if value is not None}


def numbered(manager: SessionManager) -> dict[str, str]:
    """Return the sidecars' placeholders for ids that a migration made up."""
    return {entry.id: f"#{number}" for number, entry in enumerate(manager.get_entries())}


def plain_tree(manager: SessionManager, names: dict[str, str]) -> list[dict[str, Any]]:
    def plain(node: TreeNode) -> dict[str, Any]:
        found: dict[str, Any] = {"id": names.get(node.entry.id, node.entry.id), "type": node.entry.type}
        if node.label is not None:
            found |= {"label": node.label, "labelTimestamp": node.label_timestamp}
        if node.children:
            found["children"] = [plain(child) for child in node.children]
        return found

    return [plain(root) for root in manager.get_tree()]


@for_fixtures(HEALTHY)
def test_pi_and_we_read_the_same(copy: Path, name: str) -> None:
    want = expected(name)
    before = copy.read_bytes()
    with SessionManager.open(copy) as manager:
        names = numbered(manager) if want["idsGenerated"] else {}
        context = manager.build_session_context()
        got = {
            "sessionId": manager.get_session_id(),
            "cwd": manager.get_cwd(),
            "header": manager.get_header().value,
            "entryCount": len(manager.get_entries()),
            "entryIds": [names.get(entry.id, entry.id) for entry in manager.get_entries()],
            "entryTypes": [entry.type for entry in manager.get_entries()],
            "leafId": names.get(manager.get_leaf_id() or "", manager.get_leaf_id()),
            "name": manager.get_session_name(),
            "labels": {e.id: manager.get_label(e.id) for e in manager.get_entries() if manager.get_label(e.id)},
            "tree": plain_tree(manager, names),
            "branchIds": [names.get(entry.id, entry.id) for entry in manager.get_branch()],
        }
        assert got == {key: want[key] for key in got}
        assert context.thinking_level == want["context"]["thinkingLevel"]
        assert context.model == (tuple(want["context"]["model"].values()) if want["context"]["model"] else None)
        got_messages = [without_nulls(decode(encode(message))) for message in context.messages]
        assert got_messages == [without_nulls(message) for message in want["context"]["messages"]]
        assert len(context.entry_ids) == len(context.messages)
        if not want["fileChangedByOpen"]:
            assert copy.read_bytes() == before
        else:
            after = copy.read_text()
            for made_up, placeholder in names.items():
                after = after.replace(f'"{made_up}"', f'"{placeholder}"')
            assert after == want["fileAfterOpen"]
            backup = copy.with_name("session.jsonl.bak")
            # A version 2 file loses nothing by the change; one without ids cannot be had back without its copy.
            assert backup.exists() == want["idsGenerated"]
            assert not backup.exists() or backup.read_bytes() == before


@for_fixtures(READABLE)
def test_what_is_appended_is_there_after_reopening(copy: Path, name: str) -> None:
    with SessionManager.open(copy) as manager:
        before = copy.read_bytes()
        if any(item.kind == "torn line" for item in manager.damage):  # that goes, and nothing else
            before = before[: before.rindex(b"\n") + 1]
        leaf = manager.get_leaf_id()
        count = len(manager.get_entries())
        entry_id = manager.append_message(APPENDED)
        assert manager.write_error is None
        assert manager.get_entry(entry_id).parent_id == leaf
    assert copy.read_bytes().startswith(before)
    with SessionManager.open(copy) as again:
        assert len(again.get_entries()) == count + 1
        assert again.get_leaf_id() == entry_id
        assert again.get_leaf_entry().parent_id == leaf
    if name in HEALTHY:
        want = expected(name)["afterAppend"]
        assert copy.read_bytes().count(b"\n") == want["lineCount"]
        assert count + 1 == want["parsedEntries"]


@for_fixtures(sorted(RECOMMENDED))
def test_damaged_files_are_read_as_recommended_and_left_alone(copy: Path, name: str) -> None:
    want = RECOMMENDED[name]
    before = copy.read_bytes()
    if want["open"] == "error":
        with pytest.raises(InvalidSession, match=r"^Session file is not a valid pi session: .*session\.jsonl$"):
            SessionManager.open(copy)
    else:
        with SessionManager.open(copy) as manager:
            ids = [entry.id for entry in manager.get_branch()]
            roles = [decode(encode(message))["role"] for message in manager.build_session_context().messages]
            assert len(manager.get_entries()) == want["entryCount"]
            assert (manager.get_leaf_id(), ids, roles) == (want["leafId"], want["branchIds"], want["contextRoles"])
            if name not in EMPTY:
                found = manager.damage
                assert [item.line for item in found if item.kind in SKIPPED] == want["badLines"]
                ends_open = any(item.kind in ("torn line", "no final newline") for item in found)
                assert ends_open == want["needsNewlineBeforeAppend"]
                assert [d.entry_id for d in found if d.kind == "orphan"] == want.get("orphans", [])
                assert [d.entry_id for d in found if d.kind == "duplicate id"] == want.get("duplicateIds", [])
                if want.get("cycleDetected"):
                    assert any(item.kind == "cycle" for item in found)
    assert copy.read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == ["session.jsonl"]


@for_fixtures(READABLE)
def test_every_entry_is_in_the_tree_exactly_once(copy: Path, name: str) -> None:
    with SessionManager.open(copy, read_only=True) as manager:
        ids = re.findall(rb'"entry":\{', manager.tree_json())
        assert len(ids) == len({entry.id for entry in manager.get_entries()})
        stack, seen = manager.get_tree(), []
        while stack:
            node = stack.pop()
            seen.append(node.entry.id)
            stack.extend(node.children)
        assert sorted(seen) == sorted({entry.id for entry in manager.get_entries()})
        assert [entry["id"] for entry in decode(manager.entries_json())] == [e.id for e in manager.get_entries()]


@for_fixtures(ALL)
def test_lists_show_what_pi_shows(copy: Path, name: str) -> None:
    want = json.loads((FIXTURES / f"{name}.expected.json").read_text())["listInfo"]
    if name in UNLISTED_BY_PI:
        want = UNLISTED_BY_PI[name] | {key: SIMPLE[key] for key in SIMPLE if key not in UNLISTED_BY_PI[name]}
    elif name in REFUSED:
        want = want if want and isinstance(want["id"], str) and want["id"] != "$undefined" else None
    info = read_info(copy)
    if want is None:
        assert info is None
        return
    assert info is not None
    assert info.created is not None
    got = {
        "id": info.id,
        "cwd": info.cwd,
        "name": info.name,
        "parentSessionPath": info.parent_session_path,
        "created": iso_time(info.created),
        "modified": iso_time(info.modified),
        "messageCount": info.message_count,
        "firstMessage": info.first_message,
    }
    want.pop("allMessagesText")  # pi's list has it for a search that we do not offer
    assert got == want


@for_fixtures(ALL)
def test_a_session_with_a_sound_header_can_be_continued(copy: Path, name: str) -> None:
    sound = expected(name)["open"] == "ok" and name not in (*EMPTY, "damaged-header-without-cwd")
    with_bom = name in ("damaged-bom", "damaged-bom-crlf")
    assert (most_recent_session("/srv/demo/alpha", copy.parent) == copy) == (sound or with_bom)
