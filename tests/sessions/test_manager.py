"""What `SessionManager` promises, seen from the file and from its answers."""

import gc
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spindle.sessions import EntryNotFound, InvalidSession, SessionError, SessionManager
from spindle.sessions.entries import new_session_id
from spindle.sessions.file import encode_cwd, session_dir_for
from spindle.shapes.messages import OpaqueMessage, UserMessage

from .helpers import assistant, begun, chain, entry, lines_of, user, when, write_session


def file_of(manager: SessionManager) -> Path:
    return Path(manager.get_session_file() or "")


# -- where and when ------------------------------------------------------------------------------


def test_an_untouched_session_leaves_no_file(tmp_path: Path) -> None:
    with SessionManager.create("/srv/demo", tmp_path / "s") as manager:
        manager.append_model_change("p", "m")
        manager.append_thinking_level_change("high")
        manager.append_session_info("a name")
    assert not (tmp_path / "s").exists()


def test_the_file_comes_with_the_first_user_message_and_holds_all_that_was_before(tmp_path: Path) -> None:
    with SessionManager.create("/srv/demo", tmp_path) as manager:
        manager.append_model_change("p", "m")
        manager.append_thinking_level_change("high")
        manager.append_message(user())
        kinds = [line["type"] for line in lines_of(manager.get_session_file())]
    assert kinds == ["session", "model_change", "thinking_level_change", "message"]


def test_a_custom_message_is_worth_a_file_too(tmp_path: Path) -> None:
    with SessionManager.create("/srv/demo", tmp_path) as manager:
        manager.append_custom_entry("state", {"n": 1})
        assert not file_of(manager).exists()
        manager.append_custom_message_entry("note", "look", True)
        assert [line["type"] for line in lines_of(file_of(manager))] == ["session", "custom", "custom_message"]


def test_only_the_owner_can_read_files_and_directories(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    with SessionManager.create("/srv/demo", deep) as manager:
        manager.append_message(user())
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (deep.parent, deep, *deep.iterdir())]
    assert modes == [0o700, 0o700, 0o600, 0o600]


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/u/my proj", "--home-u-my proj--"),
        ("/", "----"),
        ("C:\\Users\\me\\x", "--C--Users-me-x--"),
        ("C:/Users/me/x", "--C--Users-me-x--"),
        ("\\\\srv\\share\\d", "---srv-share-d--"),
        ("//double//slash/", "---double--slash---"),
        ("/a/b-c/d:e", "--a-b-c-d-e--"),
        ("/ünï/日本", "--ünï-日本--"),
    ],
)
def test_project_directories_are_named_like_pis(cwd: str, name: str) -> None:
    assert encode_cwd(cwd) == name


def test_the_project_directory_is_that_of_the_normalised_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path))
    assert session_dir_for("/a/./b/../c/") == tmp_path / "sessions" / "--a-c--"
    with SessionManager.create("/a/b/") as manager:
        assert manager.get_session_dir() == str(tmp_path / "sessions" / "--a-b--")
        assert manager.uses_default_session_dir()


def test_the_agent_directory_is_ours_then_pis_then_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPINDLE_DIR", raising=False)
    monkeypatch.setenv("PI_CODING_AGENT_DIR", "~/pi")
    assert session_dir_for("/p") == tmp_path / "pi" / "sessions" / "--p--"
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "ours"))
    assert session_dir_for("/p") == tmp_path / "ours" / "sessions" / "--p--"
    monkeypatch.delenv("SPINDLE_DIR")
    monkeypatch.setenv("PI_CODING_AGENT_DIR", "")
    assert session_dir_for("/p") == tmp_path / ".pi" / "agent" / "sessions" / "--p--"


def test_the_file_name_is_the_headers_time_and_id(tmp_path: Path) -> None:
    manager = begun(tmp_path)
    header = lines_of(manager.get_session_file())[0]
    assert file_of(manager).name == re.sub("[:.]", "-", header["timestamp"]) + f"_{header['id']}.jsonl"
    assert list(header) == ["type", "version", "id", "timestamp", "cwd"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", header["timestamp"])


def test_session_ids_are_version_7_uuids_that_grow() -> None:
    ids = [new_session_id() for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", i) for i in ids)


def test_a_chosen_id_must_fit_a_file_name(tmp_path: Path) -> None:
    with SessionManager.create("/srv/demo", tmp_path, id="my.session_1") as manager:
        assert manager.get_session_id() == "my.session_1"
    for bad in ("", "../x", "-a", "a-", "a b", "a/b"):
        with pytest.raises(SessionError, match=r"^Session id must be non-empty, contain only alphanumeric"):
            SessionManager.create("/srv/demo", tmp_path, id=bad)
    with pytest.raises(SessionError, match="at most 200 characters"):
        SessionManager.create("/srv/demo", tmp_path, id=201 * "a")
    with SessionManager.create("/srv/demo", tmp_path, id=200 * "a") as manager:
        manager.append_message({"role": "user", "content": "x", "timestamp": 1})
        assert manager.session.write_error is None and manager.session.path.exists()


# -- what is written -----------------------------------------------------------------------------


def test_entries_have_pis_keys_in_pis_order(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        first = manager.get_entries()[0].id
        manager.append_model_change("p", "m")
        manager.append_thinking_level_change("low")
        manager.append_compaction("s", first, 5, {"readFiles": []}, False)
        manager.append_custom_entry("k")
        manager.append_custom_entry("k", {"a": 1})
        manager.append_custom_message_entry("k", "c", False)
        manager.append_custom_message_entry("k", "c", True, {"d": 1})
        manager.append_label_change(first, "L")
        manager.append_label_change(first, None)
        manager.append_session_info("n")
        manager.branch_with_summary(first, "s")
        keys = {tuple(line) for line in lines_of(manager.get_session_file())[3:]}
    base = ("type", "id", "parentId", "timestamp")
    assert keys == {
        (*base, "provider", "modelId"),
        (*base, "thinkingLevel"),
        (*base, "summary", "firstKeptEntryId", "tokensBefore", "details", "fromHook"),
        ("type", "customType", "id", "parentId", "timestamp"),
        ("type", "customType", "data", "id", "parentId", "timestamp"),
        ("type", "customType", "content", "display", "id", "parentId", "timestamp"),
        ("type", "customType", "content", "display", "details", "id", "parentId", "timestamp"),
        (*base, "targetId", "label"),
        (*base, "targetId"),
        (*base, "name"),
        (*base, "fromId", "summary"),
    }


def test_ids_are_eight_hex_digits_and_times_have_milliseconds(tmp_path: Path) -> None:
    for line in lines_of(begun(tmp_path).get_session_file())[1:]:
        assert re.fullmatch("[0-9a-f]{8}", line["id"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])


def test_messages_may_be_plain_values_and_come_back_as_messages(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        known = manager.append_message({"role": "user", "content": "hi", "timestamp": 1, "extra": {"kept": True}})
        odd = manager.append_message({"role": "martian", "content": "??"})
        assert isinstance(manager.get_entry(known).message, UserMessage)
        assert isinstance(manager.get_entry(odd).message, OpaqueMessage)
        assert lines_of(manager.get_session_file())[-2]["message"]["extra"] == {"kept": True}


def test_text_that_breaks_line_readers_is_escaped(tmp_path: Path) -> None:
    with SessionManager.create("/srv/demo", tmp_path) as manager:
        manager.append_message(user("a\u2028b\u2029c\ud83dd\u0085e\x0bf"))
        raw = file_of(manager).read_bytes()
    assert b"\\u2028" in raw and b"\\u2029" in raw and b"\\ud83d" in raw
    with SessionManager.open(file_of(manager)) as again:
        assert again.build_session_context().messages[0].content[0].text == "a\u2028b\u2029c\ud83dd\u0085e\x0bf"


def test_compaction_that_keeps_nothing_names_itself(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        compaction = manager.append_compaction("all of it", None, 9)
        assert manager.get_entry(compaction).value["firstKeptEntryId"] == compaction
        assert manager.build_session_context().entry_ids == [compaction]


# -- tree ----------------------------------------------------------------------------------------


def test_appending_follows_the_leaf(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        question, answer = (e.id for e in manager.get_entries())
        assert manager.get_leaf_id() == answer
        manager.branch(question)
        other = manager.append_message(assistant("another"))
        assert manager.get_entry(other).parent_id == question
        assert [e.id for e in manager.get_children(question)] == [answer, other]
        manager.reset_leaf()
        assert (manager.get_leaf_id(), manager.get_leaf_entry(), manager.get_branch()) == (None, None, [])
        root = manager.append_message(user("anew"))
        assert [e.id for e in manager.get_children(None)] == [question, root]
        assert [e.id for e in manager.get_branch(other)] == [question, other]
        assert manager.get_branch("nothing") == manager.get_children("nothing") == []


def test_moving_writes_nothing(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        before = file_of(manager).read_bytes()
        manager.branch(manager.get_entries()[0].id)
        manager.reset_leaf()
        assert file_of(manager).read_bytes() == before


def test_unknown_entries_are_named_in_the_error(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        for call in (
            manager.branch,
            manager.create_branched_session,
            lambda i: manager.append_label_change(i, "x"),
            lambda i: manager.branch_with_summary(i, "x"),
        ):
            with pytest.raises(EntryNotFound, match=r"^Entry nope not found$"):
                call("nope")
        with pytest.raises(SessionError, match=r"^Entry not found: nope$"):
            manager.entries_json("nope")
        assert manager.get_entry("nope") is None


def test_a_branch_summary_names_what_was_left_behind(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        question, answer = (e.id for e in manager.get_entries())
        summary = manager.branch_with_summary(question, "tried")
        assert manager.get_entry(summary).value["fromId"] == answer
        assert manager.get_entry(summary).parent_id == question
        manager.reset_leaf()
        top = manager.branch_with_summary(None, "tried more")
        assert (manager.get_entry(top).value["fromId"], manager.get_entry(top).parent_id) == ("root", None)


def test_labels_and_names_go_by_file_order_not_by_branch(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        question, answer = (e.id for e in manager.get_entries())
        manager.append_label_change(question, "one")
        manager.append_session_info("  first\r\nname ")
        manager.branch(question)
        manager.append_label_change(question, "two")
        assert (manager.get_label(question), manager.get_session_name()) == ("two", "first name")
        manager.branch(answer)
        manager.append_label_change(question, "")
        manager.append_label_change(answer, " ")
        manager.append_session_info("")
        assert (manager.get_label(question), manager.get_label(answer)) == (None, " ")
        assert manager.get_session_name() is None
    with SessionManager.open(file_of(manager)) as again:
        assert (again.get_label(question), again.get_label(answer), again.get_session_name()) == (None, " ", None)


def test_entries_since_are_those_after(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        question, answer = manager.get_entries()
        assert manager.entries_json(question.id) == b"[" + answer.raw + b"]"
        assert manager.entries_json(answer.id) == b"[]"


# -- other sessions ------------------------------------------------------------------------------


def test_a_branched_session_holds_one_path_without_gaps(tmp_path: Path) -> None:
    source = write_session(
        tmp_path / "source.jsonl",
        [
            *chain(
                {"type": "message", "message": {"role": "user", "content": "q", "timestamp": 1}},
                {"type": "label", "targetId": "e0", "label": "start"},
                {"type": "message", "message": {"role": "user", "content": "q2", "timestamp": 2}, "odd": [1.0, 1e-7]},
                {"type": "compaction", "summary": "s", "firstKeptEntryId": "e1", "tokensBefore": 1},
                {"type": "label", "targetId": "e1", "label": "a label's label"},
            ),
            entry("other", "e0"),
        ],
    )
    before = source.read_bytes()
    with SessionManager.open(source) as manager:
        path = manager.create_branched_session("e4")
        assert path is not None and path != str(source)
        header, *entries = lines_of(path)
        assert header["parentSession"] == str(source)
        assert [(e["id"], e["parentId"]) for e in entries[:3]] == [("e0", None), ("e2", "e0"), ("e3", "e2")]
        assert entries[1]["odd"] == [1.0, 1e-7]
        assert entries[2]["firstKeptEntryId"] == "e2"
        (label,) = entries[3:]
        assert (label["type"], label["parentId"], label["targetId"], label["label"]) == ("label", "e3", "e0", "start")
        assert label["timestamp"] == when(1)
        assert manager.get_leaf_id() == label["id"]
        assert len(manager.build_session_context().messages) == 2
        manager.append_message(user("goes on here"))
        assert len(lines_of(path)) == 6
    assert source.read_bytes() == before


def test_a_branched_session_without_messages_waits_for_one(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        manager.reset_leaf()
        model = manager.append_model_change("p", "m")
        source = manager.get_session_file()
        path = Path(manager.create_branched_session(model) or "")
        assert not path.exists()
        manager.append_message(user())
        assert lines_of(path)[0]["parentSession"] == source
        assert [line["type"] for line in lines_of(path)] == ["session", "model_change", "message"]


def test_a_new_session_forgets_the_old_one(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        old = manager.get_session_file()
        manager.append_label_change(manager.get_leaf_id() or "", "L")
        manager.append_session_info("name")
        path = manager.new_session(parent_session=old)
        assert path != old and manager.get_entries() == [] and manager.get_leaf_id() is None
        assert manager.get_session_name() is None and manager.tree_json() == b"[]"
        manager.append_message(user())
        assert lines_of(path)[0]["parentSession"] == old
        # The old one is free again.
        SessionManager.open(old or "").close()


def test_fork_copies_all_branches_at_once(tmp_path: Path) -> None:
    source = write_session(tmp_path / "s.jsonl", [entry("a", None), entry("b", "a"), entry("c", "a")])
    with SessionManager.fork_from(source, "/other/place", tmp_path / "new") as fork:
        header, *entries = lines_of(fork.get_session_file())
        assert entries == lines_of(source)[1:]
        assert (header["cwd"], header["parentSession"]) == ("/other/place", str(source))
        assert header["id"] == fork.get_session_id() != lines_of(source)[0]["id"]
        assert fork.get_leaf_id() == "c"


@pytest.mark.parametrize("content", [None, "", "not a session\n"])
def test_nothing_to_fork(tmp_path: Path, content: str | None) -> None:
    source = tmp_path / "s.jsonl"
    if content is not None:
        source.write_text(content)
    expected = re.escape(f"Cannot fork: source session file is empty or invalid: {source}")
    with pytest.raises(SessionError, match=f"^{expected}$"):
        SessionManager.fork_from(source, "/other", tmp_path)


def test_fork_of_an_old_file_is_a_sound_new_one(tmp_path: Path) -> None:
    old = write_session(
        tmp_path / "v1.jsonl",
        [
            {"type": "message", "timestamp": when(1), "message": {"role": "user", "content": "q", "timestamp": 1}},
            {"type": "message", "timestamp": when(2), "message": {"role": "hookMessage", "content": "h"}},
        ],
        {"type": "session", "id": "S", "timestamp": when(0), "cwd": "/p"},
    )
    before = old.read_bytes()
    with SessionManager.fork_from(old, "/p", tmp_path / "new") as fork:
        _, first, second = lines_of(fork.get_session_file())
        assert second["parentId"] == first["id"] and second["message"]["role"] == "custom"
    assert old.read_bytes() == before


def test_continue_takes_the_file_written_last(tmp_path: Path) -> None:
    older = write_session(tmp_path / "a.jsonl", [entry("a", None)])
    newer = write_session(tmp_path / "b.jsonl", [entry("b", None)])
    write_session(tmp_path / "c.jsonl", [], {"type": "session", "id": "x", "cwd": "/another/project"})
    (tmp_path / "d.jsonl").write_text("no session\n")
    os.utime(newer, ns=(2, 2))
    os.utime(older, ns=(1, 1))
    with SessionManager.continue_recent("/srv/demo", tmp_path) as manager:
        assert manager.get_session_file() == str(newer)
    with SessionManager.continue_recent("/srv/elsewhere", tmp_path) as manager:
        assert manager.get_entries() == [] and manager.get_cwd() == "/srv/elsewhere"


def test_a_missing_file_is_a_new_session_at_that_place(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.jsonl"
    with SessionManager.open(path, cwd="/srv/demo") as manager:
        assert not path.exists()
        manager.append_message(user())
        assert lines_of(path)[0]["cwd"] == "/srv/demo"
        assert manager.get_session_dir() == str(path.parent)


def test_an_empty_file_gets_its_header_with_the_first_message(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"  \n ")
    with SessionManager.open(path) as manager:
        manager.append_message(user())
    assert [line["type"] for line in lines_of(path)] == ["session", "message"]
    assert path.read_bytes().startswith(b"  \n \n{")


def test_what_cannot_be_read_is_told_clearly(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"^Session path is a directory: "):
        SessionManager.open(tmp_path)
    with pytest.raises(SessionError, match=r"^Session file not found: "):
        SessionManager.open(tmp_path / "x.jsonl", read_only=True)
    with pytest.raises(SessionError, match=r"^Session file cannot be read \(File name too long\): "):
        SessionManager.open(tmp_path / ("x" * 300))
    with pytest.raises(SessionError, match=r"^Session file cannot be read \(.*embedded null .*\): "):
        SessionManager.open(f"{tmp_path}/a\0b.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_session_may_be_opened_in_a_thread(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        path = manager.get_session_file() or ""
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(SessionManager.open, path).result()
    with opened:
        opened.append_message(user("here"))
        assert opened.write_error is None
    assert len(lines_of(path)) == 4
    assert gc.isenabled()


def test_a_summary_that_cannot_be_written_moves_nothing(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        leaf, first = manager.get_leaf_id(), manager.get_entries()[0].id
        with pytest.raises(NotImplementedError, match="cannot be written as JSON"):
            manager.branch_with_summary(first, "tried", details=object())
        assert manager.get_leaf_id() == leaf
    with SessionManager.open(manager.get_session_file() or "", read_only=True) as reader:
        with pytest.raises(SessionError, match="open read-only"):
            reader.branch_with_summary(first, "tried")
        assert reader.get_leaf_id() == leaf


@pytest.mark.parametrize("kind", ["pipe", "zeros", "text", "text without lines"])
def test_something_else_is_refused_without_reading_it_all(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zeros":
        with path.open("wb") as file:
            file.truncate(1 << 36)
    else:
        path.write_bytes((b"words" if kind == "text without lines" else b"words\n") * 1_000_000)
    with pytest.raises(InvalidSession):
        SessionManager.open(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.jsonl"]


def test_read_only_never_writes(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s.jsonl", [entry("a", None)])
    with SessionManager.open(path, read_only=True) as manager:
        with pytest.raises(SessionError, match=r"^Session is open read-only: "):
            manager.append_message(user())
        assert len(manager.get_entries()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["s.jsonl"]


def test_in_memory_sessions_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    manager = SessionManager.in_memory()
    first = manager.append_message(user())
    manager.append_message(assistant())
    assert manager.create_branched_session(first) is None
    assert [e.id for e in manager.get_entries()] == [first]
    assert manager.new_session() is None
    manager.append_message(user())
    assert (manager.get_session_file(), manager.get_session_dir(), manager.is_persisted()) == (None, "", False)
    assert manager.get_cwd() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_session_file_can_be_exchanged(tmp_path: Path) -> None:
    other = write_session(tmp_path / "other.jsonl", [entry("a", None)])
    with begun(tmp_path / "mine") as manager:
        manager.set_session_file(other)
        assert manager.get_leaf_id() == "a" and manager.get_cwd() == "/srv/demo"
        assert manager.get_session_dir() == str(tmp_path / "mine")
        manager.set_session_file(other)  # also with itself
        manager.append_message(user())
    assert len(lines_of(other)) == 3


def test_export_is_the_current_path_only(tmp_path: Path) -> None:
    source = write_session(
        tmp_path / "s.jsonl", [entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "lost")], None
    )
    with SessionManager.open(source) as manager:
        manager.branch("c")
        header, *entries = lines_of(manager.export_branch(tmp_path / "out.jsonl"))
        assert [(e["id"], e["parentId"]) for e in entries] == [("a", None), ("c", "a")]
        assert header["id"] == manager.get_session_id() and "parentSession" not in header
        manager.branch("d")
        assert lines_of(manager.export_branch(tmp_path / "orphan.jsonl"))[1]["parentId"] is None
        with pytest.raises(SessionError, match=r"^Cannot export session \(File exists\): "):
            manager.export_branch(source)


def test_the_names_of_the_documents(tmp_path: Path) -> None:
    manager: Any = SessionManager.create("/srv/demo", tmp_path)
    with manager:
        first = manager.appendMessage(user("one"))
        manager.appendMessage(assistant())
        manager.appendCompaction("so far", first, 10)
        manager.appendCustomEntry("state", {"n": 1})
        assert manager.getEntry(manager.getLeafId()).type == manager.getLeafEntry().type == "custom"
        assert len(manager.getBranch()) == 4 and len(manager.getTree()) == 1
        assert [entry.id for entry in manager.getChildren(None)] == [first]
        manager.branchWithSummary(first, "another way")
        manager.resetLeaf()
        assert manager.buildSessionContext().messages == []
        path = manager.getSessionFile()
    makers: Any = SessionManager
    for made in (
        makers.continueRecent("/srv/demo", tmp_path),
        makers.inMemory(),
        makers.forkFrom(path, "/srv", tmp_path),
    ):
        made.close()
    assert makers.listAll() == []
