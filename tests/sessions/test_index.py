"""Lists of sessions, and finding one."""

import os
from pathlib import Path

import pytest

from spindle.sessions import SessionManager
from spindle.sessions.index import find_sessions
from spindle.shapes.codec import encode

from .helpers import HEADER, entry, user, write_session

OURS = "/srv/demo"


@pytest.fixture(autouse=True)
def agent_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    return tmp_path / "agent"


def stored(directory: Path, session_id: str, cwd: str = OURS, at: int = 1) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    message = {"role": "user", "content": f"hello from {session_id}", "timestamp": at}
    header = HEADER | {"id": session_id, "cwd": cwd, "timestamp": "2020-01-01T00:00:00.000Z"}
    return str(write_session(directory / f"{session_id}.jsonl", [entry("a", None, message=message)], header))


def project(agent_dir: Path, name: str) -> Path:
    return agent_dir / "sessions" / name


def test_a_list_is_sorted_by_the_last_message_and_tells_progress(agent_dir: Path) -> None:
    place = project(agent_dir, "--srv-demo--")
    stored(place, "old", at=1_700_000_000_000)
    stored(place, "new", at=1_800_000_000_000)
    (place / "notes.txt").write_text("no session")
    (place / "broken.jsonl").write_text("no session either\n")
    progress: list[tuple[int, int]] = []
    infos = SessionManager.list(OURS, on_progress=lambda done, total: progress.append((done, total)))
    assert [info.id for info in infos] == ["new", "old"]
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert infos[0].modified == 1_800_000_000_000
    assert infos[0].first_message == "hello from new"


def test_listing_changes_nothing_and_a_missing_directory_is_an_empty_list(agent_dir: Path) -> None:
    assert SessionManager.list(OURS) == SessionManager.list_all() == []
    assert SessionManager.find_by_id(OURS, "x") is None
    assert not agent_dir.exists()


def test_what_cannot_be_read_hides_nothing_else(agent_dir: Path) -> None:
    place = project(agent_dir, "--srv-demo--")
    stored(place, "mine")
    (place / "loop.jsonl").symlink_to(place / "loop.jsonl")
    (place.parent / "loop").symlink_to(place.parent / "loop")
    os.mkfifo(place / "pipe.jsonl")
    assert [info.id for info in SessionManager.list(OURS)] == ["mine"]
    assert [info.id for info in SessionManager.list_all()] == ["mine"]
    with SessionManager.continue_recent(OURS) as manager:
        assert manager.get_session_id() == "mine"


def test_a_shared_directory_is_filtered_by_project(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    mine = stored(shared, "mine")
    stored(shared, "theirs", "/another")
    stored(shared, "nobodys", "")
    assert [info.path for info in SessionManager.list(OURS + "/", shared)] == [mine]
    assert {info.id for info in SessionManager.list_all(shared)} == {"mine", "theirs", "nobodys"}
    assert SessionManager.find_by_id(OURS, "mine", shared) == mine
    assert SessionManager.find_by_id(OURS, "theirs", shared) is None


def test_the_projects_own_directory_is_not_filtered(agent_dir: Path) -> None:
    """Its name stands for more than one path, and a project may have moved."""
    stored(project(agent_dir, "--srv-demo--"), "moved", "/somewhere/before")
    assert [info.id for info in SessionManager.list(OURS)] == ["moved"]


def test_all_projects_are_the_directories_one_level_down(agent_dir: Path) -> None:
    stored(project(agent_dir, "--a--"), "one", "/a")
    stored(project(agent_dir, "--b--"), "two", "/b")
    stored(project(agent_dir, "--b--") / "deeper", "hidden", "/b")
    os.symlink(project(agent_dir, "--b--"), project(agent_dir, "--link--"))
    assert sorted(info.id for info in SessionManager.list_all()) == ["one", "two", "two"]


def test_a_renamed_session_shows_its_name(tmp_path: Path) -> None:
    with SessionManager.create(OURS, tmp_path) as manager:
        manager.append_message(user("first words"))
        manager.append_session_info("given name")
        (info,) = SessionManager.list(OURS, tmp_path)
        assert (info.name, info.first_message, info.message_count) == ("given name", "first words", 1)
        assert (info.id, info.cwd) == (manager.get_session_id(), OURS)
        manager.append_session_info(" ")
        assert SessionManager.list(OURS, tmp_path)[0].name is None


def test_a_name_is_looked_for_exactly_then_as_a_beginning_here_then_elsewhere(agent_dir: Path) -> None:
    here, elsewhere = project(agent_dir, "--srv-demo--"), project(agent_dir, "--else--")
    stored(here, "abc1")
    stored(here, "abc2")
    stored(elsewhere, "abc", "/else")
    stored(elsewhere, "xyz9", "/else")

    def found(start: str) -> list[tuple[str, bool]]:
        return sorted((match.id, match.in_project) for match in find_sessions(start, OURS))

    assert found("abc1") == [("abc1", True)]
    assert found("abc") == [("abc", False)], "an exact id elsewhere goes before beginnings here"
    assert found("ab") == [("abc1", True), ("abc2", True)]
    assert found("xy") == [("xyz9", False)]
    assert found("ABC") == []


def test_only_as_much_is_read_as_is_needed(tmp_path: Path) -> None:
    """A session of another project costs its header, not its length."""
    stored(tmp_path, "mine")
    with open(stored(tmp_path, "theirs", "/another"), "ab") as file:
        file.truncate(1 << 36)  # a hole of 64 GB: nobody could read that
    assert [info.id for info in SessionManager.list(OURS, tmp_path)] == ["mine"]
    assert SessionManager.find_by_id(OURS, "mine", tmp_path) is not None


def test_a_list_does_not_keep_the_conversations(tmp_path: Path) -> None:
    """A list of many long sessions would otherwise hold all their text in memory, and nothing shows it."""
    with SessionManager.create(OURS, tmp_path, fsync="never") as manager:
        manager.append_message(user("first words"))
        for _ in range(100):
            manager.append_message(user("x" * 10_000))
    (info,) = SessionManager.list(OURS, tmp_path)
    assert (info.message_count, info.first_message) == (101, "first words")
    assert len(encode(info)) < 1000
