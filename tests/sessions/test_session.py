"""What `Session` and the functions of `open` promise: one object stays one session, and its file is its own.

`test_manager.py` and the others drive the same code under pi's names.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.sessions import EntryNotFound, Session, SessionError, SessionLocked, open

from .helpers import assistant, entry, lines_of, user, write_session


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def session(directory: Path) -> Session:
    """A session with a file: a question and its answer."""
    made = open.create("/srv/demo", directory)
    made.append_message(user())
    made.append_message(assistant())
    return made


def is_locked(session: Session) -> bool:
    try:
        open.load(session.path or "").close()
    except SessionLocked:
        return True
    return False


# -- another session is another object -----------------------------------------------------------

OTHERS: dict[str, Callable[[Session], Session]] = {
    "following": lambda session: open.following(session, parent=session.path),
    "branched": lambda session: open.branched(session, session.entries[0].id),
    "created": lambda session: open.create(session.cwd, session.directory),
    "loaded": lambda session: open.load((session.directory or Path()) / "other.jsonl"),
    "forked": lambda session: open.forked_from(session.path or "", session.cwd, session.directory),
    "in memory": lambda session: open.in_memory(session.cwd),
}


@pytest.mark.parametrize("way", OTHERS)
def test_the_old_session_stays_open_locked_and_as_it_was(session: Session, way: str) -> None:
    before = (session.id, session.path, session.leaf_id, session.entries)
    with OTHERS[way](session) as other:
        assert other.id != session.id and other.path != session.path
        assert (session.id, session.path, session.leaf_id, session.entries) == before
        assert is_locked(session)
        session.append_message(user("goes on"))
        other.append_message(user("goes on elsewhere"))
        assert len(lines_of(session.path)) == 4
    assert is_locked(session), "the end of one is not the end of the other"
    session.close()
    assert not is_locked(session)
    assert "goes on elsewhere" not in (session.path or Path()).read_text()


@pytest.mark.parametrize("way", ["following", "created", "loaded"])
def test_a_session_that_is_prepared_and_not_used_leaves_no_file(session: Session, way: str) -> None:
    assert session.directory is not None
    with OTHERS[way](session) as other:
        other.append_model_change("p", "m")
        other.append_name("prepared")
    session.close()
    assert list(session.directory.iterdir()) == [session.path]


def test_a_following_session_is_in_the_same_place(session: Session) -> None:
    with session, open.following(session, id="next", parent=session.path) as other:
        assert (other.cwd, other.directory, other.id) == (session.cwd, session.directory, "next")
        assert other.entries == [] and other.leaf_id is None
        other.append_message(user())
        assert lines_of(other.path)[0]["parentSession"] == str(session.path)
        with pytest.raises(SessionError, match="Session id must be"):
            open.following(session, id="../bad")


def test_what_follows_a_session_in_memory_stays_there(tmp_path: Path) -> None:
    session = open.in_memory(tmp_path)
    first = session.append_message(user())
    for other in (open.following(session), open.branched(session, first), open.loaded_after(session, tmp_path / "x")):
        other.append_message(user())
        assert (other.path, other.directory) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_branched_session_has_its_file_at_once(session: Session) -> None:
    with session, open.branched(session, session.entries[0].id) as other:
        header, message = lines_of(other.path)
        assert header["parentSession"] == str(session.path)
        assert message["id"] == session.entries[0].id
        with pytest.raises(EntryNotFound):
            open.branched(session, "nothing")


def test_listeners_and_fsync_go_along(directory: Path) -> None:
    told: list[str] = []
    with open.create("/srv/demo", directory, fsync="never", on_write_error=told.append) as session:
        session.append_message(user())
        with open.following(session) as other:
            other.on_write_error(told.append)
            assert other.path is not None
            other.path.mkdir()  # no file can be made there
            other.append_message(user())
            assert other.begin_sync() is None
            assert len(told) == 2 and set(told) == {other.write_error}, "once for each listener"
            other.path.rmdir()
            other.append_message(user())
            assert other.write_error is None and len(lines_of(other.path)) == 3
        assert session.write_error is None and len(told) == 2


def test_the_same_file_is_known_by_any_name(session: Session, tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    assert session.path is not None
    link.symlink_to(session.path)
    assert session.is_same_file(link) and session.is_same_file(str(session.path))
    assert not session.is_same_file(tmp_path / "other.jsonl")
    assert not open.in_memory().is_same_file(link)
    with session, pytest.raises(SessionLocked):
        open.load(link)


# -- loading -------------------------------------------------------------------------------------


def test_a_loaded_session_works_where_the_file_says_unless_told_otherwise(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s.jsonl", [entry("a", None)])
    with open.load(path) as session:
        assert (session.cwd, session.directory, session.path) == ("/srv/demo", tmp_path, path)
    with open.load(path, tmp_path / "there", tmp_path / "here") as session:
        assert (session.cwd, session.directory) == (str(tmp_path / "here"), tmp_path / "there")


def test_the_latest_session_of_a_project(session: Session) -> None:
    session.close()
    with open.recent("/srv/demo", session.directory) as again:
        assert again.id == session.id and len(again.entries) == 2
    with open.recent("/srv/elsewhere", session.directory) as fresh:
        assert fresh.entries == []


# -- its own names -------------------------------------------------------------------------------


def test_questions_and_moves(session: Session) -> None:
    with session:
        question, reply = session.entries
        assert session.branch() == [question, reply] and session.branch(question.id) == [question]
        assert session.entry(reply.id) is reply and session.entry("nothing") is None
        assert session.children(None) == [question] and session.children(question.id) == [reply]
        assert session.model() == ("p", "m") and session.thinking_level() is None
        session.append_label(question.id, "start")
        session.append_thinking_level("high")
        session.append_name("two\nlines")
        assert (session.label(question.id), session.thinking_level(), session.name) == ("start", "high", "two lines")
        session.move(question.id)
        assert session.leaf_id == question.id and len(session.context().messages) == 1
        session.append_custom("state", {"n": 1})
        session.append_custom_message("note", "look", True)
        assert len(session.context().messages) == 2 and session.has_messages()
        session.move(None)
        assert session.leaf_id is None and not session.has_messages()
        summary = session.branch_with_summary(question.id, "tried this")
        assert session.entry(summary) in session.children(question.id)
        with pytest.raises(EntryNotFound):
            session.move("nothing")
        kinds = [line["type"] for line in lines_of(session.path)]
    assert kinds == [
        "session",
        "message",
        "message",
        "label",
        "thinking_level_change",
        "session_info",
        "custom",
        "custom_message",
        "branch_summary",
    ]


def test_the_list_of_entries_is_the_callers(session: Session) -> None:
    with session:
        session.entries.clear()
        assert len(session.entries) == 2


@pytest.mark.parametrize(
    "content", [5, None, {"type": "text", "text": "x"}, ["text"], [{"text": "x"}], [{"type": "text"}]]
)
def test_content_that_is_neither_text_nor_blocks_is_refused(session: Session, content: object) -> None:
    before = lines_of(session.path)
    for role in ("user", "assistant", "toolResult", "custom"):
        with pytest.raises(SessionError, match="must be text or a list of blocks"):
            session.append_message({"role": role, "content": content, "timestamp": 1})
    assert lines_of(session.path) == before
    for good in ("text", [], [{"type": "text", "text": ""}], [{"type": "newer", "x": 1}]):
        session.append_message({"role": "user", "content": good, "timestamp": 1})
