"""Lists of sessions by the page, and the catalog behind them."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.sessions import catalog, index, pages
from spindle.sessions.entries import SessionError
from spindle.sessions.open import create, delete
from spindle.sessions.pages import list_page

from .helpers import HEADER, entry, user, write_session

OURS = "/srv/demo"
MINUTE = 60_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    place = tmp_path / "agent/sessions/--srv-demo--"
    place.mkdir(parents=True)
    return place


def store(folder: Path, name: str, minute: int, *, text: str = "hello", cwd: str = OURS) -> Path:
    """Write a session whose last message, and whose file, is so many minutes old since 2020."""
    at = 1_577_836_800_000 + minute * MINUTE
    message = {"role": "user", "content": text, "timestamp": at}
    path = write_session(
        folder / f"{name}.jsonl", [entry("a", None, message=message)], HEADER | {"id": name, "cwd": cwd}
    )
    os.utime(path, (at / 1000, at / 1000))
    return path


def ids(page: pages.Page) -> list[str]:
    return [info.id for info in page.sessions]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are read from now on."""
    names: list[str] = []
    read = index.read_row

    def counted(path: Path, only_cwd: str | None = None) -> catalog.Row:
        names.append(path.stem)
        return read(path, only_cwd)

    monkeypatch.setattr(pages, "read_row", counted)
    return names


def test_pages_follow_each_other_and_show_everything_once(folder: Path) -> None:
    for number in range(7):
        store(folder, f"s{number}", number // 2)  # some at the same time
    whole = ids(list_page(OURS))
    found, cursor = list[str](), None
    while True:
        page = list_page(OURS, limit=3, cursor=cursor)
        found += ids(page)
        if (cursor := page.cursor) is None:
            break
    assert found == whole
    assert len(set(found)) == 7
    assert list_page(OURS, limit=7).cursor is None


def test_a_page_reads_only_what_it_shows_and_nothing_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        store(folder, f"s{number}", number)
    names = reads(monkeypatch)
    page = list_page(OURS, limit=2)
    assert ids(page) == ["s9", "s8"]
    assert names == ["s9", "s8", "s7"]
    assert ids(list_page(OURS, limit=2, cursor=page.cursor)) == ["s7", "s6"]
    assert names[3:] == ["s6", "s5"]
    assert len(list_page(OURS).sessions) == 10
    assert len(names) == 10


def test_only_what_has_changed_is_read_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        store(folder, f"s{number}", number)
    first = list_page(OURS)
    names = reads(monkeypatch)
    store(folder, "s1", 60, text="and now?")
    page = list_page(OURS, changed_since=first.as_of)
    assert ids(page) == ["s1", "s4"]  # the latest change before is told once more
    assert page.sessions[0].first_message == "and now?"
    assert names == ["s1"]
    assert ids(list_page(OURS, changed_since=page.as_of)) == ["s1"]


def test_sessions_of_other_projects_cost_their_header_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    store(shared, "mine", 1)
    store(shared, "theirs", 2, cwd="/another")
    names = reads(monkeypatch)
    assert ids(list_page(OURS, shared)) == ids(list_page(OURS, shared)) == ["mine"]
    assert names == ["mine", "theirs"] or names == ["theirs", "mine"]
    assert ids(list_page(None, shared)) == ["theirs", "mine"]  # now its facts are needed
    assert names[2:] == ["theirs"]


def test_the_catalog_is_private_and_may_be_thrown_away(folder: Path, tmp_path: Path) -> None:
    store(folder, "one", 1)
    whole = list_page(OURS)
    file = tmp_path / "agent" / catalog.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    for damage in (file.unlink, lambda: file.write_bytes(b"no database" * 1000), lambda: file.write_bytes(b"")):
        damage()
        assert list_page(OURS) == whole
    assert list_page(OURS) == whole
    assert file.read_bytes().startswith(b"SQLite format 3")
    file.unlink()
    file.mkdir()  # it cannot be made
    assert list_page(OURS) == whole


def test_a_deleted_session_leaves_no_word_in_the_catalog(folder: Path, tmp_path: Path) -> None:
    store(folder, "keep", 1, text="rhododendron")
    gone = [store(folder, "gone", 2, text="a secret wombat"), store(folder, "lost", 3, text="another secret wombat")]
    list_page(OURS)
    file = tmp_path / "agent" / catalog.FILE
    assert b"wombat" in file.read_bytes()
    delete(gone[0])
    gone[1].unlink()  # by hand: the next list sees it
    assert ids(list_page(OURS)) == ["keep"]
    assert b"wombat" not in file.read_bytes()
    assert b"rhododendron" in file.read_bytes()


def test_a_locked_catalog_holds_up_no_list(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.CATALOG_WAIT", 0.05)
    store(folder, "one", 1)
    list_page(OURS)
    holder = sqlite3.connect(tmp_path / "agent" / catalog.FILE)
    holder.execute("BEGIN EXCLUSIVE")
    store(folder, "two", 2)
    assert ids(list_page(OURS)) == ["two", "one"]
    holder.close()


def test_several_processes_share_it(folder: Path) -> None:
    for number in range(100):
        store(folder, f"s{number}", number)
    program = f"from spindle.sessions.pages import list_page; print(len(list_page({OURS!r}).sessions))"
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[0] for process in running] == [b"100\n"] * 4
    assert len(catalog.recall([str(folder)])) == 100


def test_a_session_that_is_written_is_read_again(folder: Path) -> None:
    session = create(OURS)
    session.append_message(user("first words"))
    assert list_page(OURS).sessions[0].message_count == 1
    session.append_message(user("more"))
    assert list_page(OURS).sessions[0].message_count == 2
    session.append_name("given name")
    assert list_page(OURS).sessions[0].name == "given name"
    session.close()


@pytest.mark.parametrize("cursor", ["", "x", "12", "x.y", "9" * 30 + ".a"])
def test_a_cursor_of_another_kind_is_refused_in_words(cursor: str) -> None:
    with pytest.raises(SessionError, match="give the cursor that came with the page before"):
        list_page(OURS, cursor=cursor)
    with pytest.raises(SessionError, match="limit must be at least 1"):
        list_page(OURS, limit=0)
