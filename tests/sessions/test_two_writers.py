"""Several processes and one session: who may write, and what happens to what others write."""

import errno
import fcntl
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from spindle.sessions import SessionLocked, SessionManager
from spindle.sessions.lock import SessionLock

from .helpers import HEADER, assistant, begun, entry, lines_of, user, write_session


@contextmanager
def another_process(work: Callable[[], object]) -> Iterator[int]:
    """Do `work` in a child that then stays alive until the end, or until it is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kept = work()
            os.write(writer, b"ready" if kept else b"done")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    try:
        assert os.read(reader, 5) == b"ready"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_session(tmp_path / "s.jsonl", [entry("a", None)])


def test_a_second_process_is_told_who_writes(path: Path) -> None:
    with another_process(lambda: SessionManager.open(path)) as child:
        with pytest.raises(SessionLocked) as caught:
            SessionManager.open(path)
        host = os.uname().nodename
        assert (caught.value.pid, caught.value.host) == (child, host)
        assert str(caught.value) == (
            f"Session is in use by process {child} on {host}: {path}. Open it read-only or fork it."
        )
        with pytest.raises(SessionLocked):
            SessionManager.continue_recent("/srv/demo", path.parent)


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_the_second_writer_is_told_where_there_are_no_locks(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)
    with another_process(lambda: SessionManager.open(path)) as child:
        with pytest.raises(SessionLocked) as caught:
            SessionManager.open(path)
        assert caught.value.pid == child
    with SessionManager.open(path) as manager:  # the other one was killed
        with pytest.raises(SessionLocked):
            SessionManager.open(path)
        manager.append_message(user())
        assert manager.write_error is None
    assert not path.with_name("s.jsonl.lock").exists()
    SessionManager.open(path).close()


def test_others_may_read_and_fork_meanwhile(path: Path) -> None:
    with another_process(lambda: SessionManager.open(path)):
        with SessionManager.open(path, read_only=True) as reader:
            assert reader.get_leaf_id() == "a"
        with SessionManager.fork_from(path, "/srv/demo", path.parent) as fork:
            fork.append_message(user())
            assert fork.write_error is None
    assert len(lines_of(path)) == 2


def test_the_lock_of_a_killed_process_is_taken_over(path: Path) -> None:
    with another_process(lambda: SessionManager.open(path)):
        pass
    assert path.with_name("s.jsonl.lock").exists(), "the killed one could not clean up"
    with SessionManager.open(path) as manager:
        manager.append_message(user())
        assert manager.write_error is None
    assert [p.name for p in path.parent.iterdir()] == ["s.jsonl"]


def test_two_managers_in_one_process_exclude_each_other_too(path: Path) -> None:
    with SessionManager.open(path), pytest.raises(SessionLocked, match=f"process {os.getpid()} on "):
        SessionManager.open(path)
    SessionManager.open(path).close()


def test_a_forgotten_manager_gives_its_lock_back(path: Path) -> None:
    SessionManager.open(path)
    gc.collect()
    SessionManager.open(path).close()


def test_a_session_that_could_not_be_opened_is_not_left_locked(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("something else\n")
    with pytest.raises(Exception, match="not a valid pi session"):
        SessionManager.open(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_forked_child_that_exits_leaves_its_parents_lock(path: Path) -> None:
    with SessionManager.open(path) as manager:
        child = os.fork()
        if child == 0:
            manager.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert path.with_name("s.jsonl.lock").exists()
        with pytest.raises(SessionLocked):
            SessionManager.open(path)


def test_two_that_begin_the_same_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    first, second = SessionManager.open(path), SessionManager.open(path)
    first.append_message(user("mine"))
    second.append_message(user("mine too"))
    assert first.write_error is None
    assert second.write_error is not None and f"in use by process {os.getpid()}" in second.write_error
    first.close()
    second.append_message(user("again"))
    assert second.write_error is not None and "another session is in its file now" in second.write_error
    assert len(second.build_session_context().messages) == 2
    assert len(lines_of(path)) == 2


# -- a process has one locked file for all its sessions ------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    (tmp_path / "else").mkdir()
    return [write_session(tmp_path / name, [entry("a", None)]) for name in ("x.jsonl", "y.jsonl", "else/z.jsonl")]


def lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def inodes(paths: list[Path]) -> list[int]:
    return [lock_of(path).stat().st_ino for path in paths]


def is_free(path: Path) -> bool:
    try:
        SessionManager.open(path).close()
    except SessionLocked:
        return False
    return True


def test_sessions_share_a_lock_file_and_let_go_one_by_one(three: list[Path]) -> None:
    managers = [SessionManager.open(path) for path in three]
    assert len(set(inodes(three))) == 1
    for number, manager in enumerate(managers):  # the first one made the file
        assert not any(map(is_free, three[number:]))
        manager.close()
        assert all(map(is_free, three[: number + 1]))
    assert not list(three[0].parent.rglob("*.lock"))


def test_each_session_of_a_killed_process_is_taken_over_alone(three: list[Path]) -> None:
    with another_process(lambda: [SessionManager.open(path) for path in three]):
        assert not any(map(is_free, three))
    with SessionManager.open(three[1]), another_process(lambda: SessionManager.open(three[0])):
        assert [is_free(path) for path in three] == [False, False, True]
    assert is_free(three[1])


def test_nobody_is_refused_for_another_that_clears_up_after_a_killed_process(three: list[Path]) -> None:
    with another_process(lambda: [SessionManager.open(path) for path in three]):
        pass
    clearing = os.open(lock_of(three[0]), os.O_RDWR)
    fcntl.flock(clearing, fcntl.LOCK_EX)
    Timer(0.02, os.close, [clearing]).start()
    assert is_free(three[1])


def test_a_forked_child_locks_for_itself(three: list[Path]) -> None:
    with SessionManager.open(three[0]):
        with another_process(lambda: SessionManager.open(three[1])):
            assert not is_free(three[1])
        assert is_free(three[1]), "its lock ends with the child, and not with us"
        assert not is_free(three[0])


def test_threads_lock_and_let_go_at_the_same_time(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for _ in range(100):
            for lock in reversed([SessionLock(tmp_path / f"{number}-{name}.jsonl") for name in range(20)]):
                lock.release()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert not list(tmp_path.glob("*.lock"))


def test_a_lock_file_that_was_exchanged_is_not_shared(three: list[Path]) -> None:
    with SessionManager.open(three[0]):
        lock_of(three[0]).unlink()
        with another_process(lambda: SessionManager.open(three[0])), SessionManager.open(three[1]):
            assert len(set(inodes(three[:2]))) == 2
            assert not is_free(three[1])


def test_without_hard_links_each_session_has_a_lock_file(three: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    managers = [SessionManager.open(path) for path in three]
    assert len(set(inodes(three))) == 3
    assert not any(map(is_free, three))
    for manager in managers:
        manager.close()
    assert not list(three[0].parent.rglob("*.lock"))


# -- programs that know no lock, such as pi ------------------------------------------------------


def write_behind_our_back(path: str | Path | None, *lines: str) -> None:
    assert path is not None
    with open(path, "a") as file:
        file.writelines(lines)


def line(entry_id: str, parent_id: str | None) -> str:
    return json.dumps(entry(entry_id, parent_id)) + "\n"


def test_what_others_append_is_taken_in_and_our_place_is_kept(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        leaf = manager.get_leaf_id() or ""
        label = json.dumps(entry("label", "theirs", "label", targetId=leaf, label="L")) + "\n"
        write_behind_our_back(manager.get_session_file(), line("theirs", leaf), label)
        mine = manager.append_message(user("mine"))
        assert manager.get_entry(mine).parent_id == leaf
        assert {e.id for e in manager.get_children(leaf)} == {"theirs", mine}
        assert manager.get_label(leaf) == "L"
        before = [e.id for e in manager.get_entries()]
    with SessionManager.open(manager.get_session_file() or "") as again:
        assert [e.id for e in again.get_entries()] == before


def test_what_slips_in_between_our_look_and_our_write_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(tmp_path) as manager:
        file = Path(manager.get_session_file() or "")
        leaf = manager.get_leaf_id()
        look = os.stat

        def look_and_be_overtaken(*arguments: Any, **options: Any) -> os.stat_result:
            found = look(*arguments, **options)
            monkeypatch.undo()
            write_behind_our_back(file, line("theirs", leaf))
            return found

        monkeypatch.setattr(os, "stat", look_and_be_overtaken)
        manager.append_message(user("just behind theirs"))
        manager.append_message(user("and on"))
        known = {e.id for e in manager.get_entries()}
        assert "theirs" in known
        assert len(manager.get_entries()) == len(known)
        assert manager.write_error is None
    with SessionManager.open(file) as again:
        assert {e.id for e in again.get_entries()} == known
        assert again.damage == []


def test_a_line_somebody_left_torn_does_not_swallow_ours(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        write_behind_our_back(manager.get_session_file(), '{"type":"mess')
        mine = manager.append_message(user("mine"))
    with SessionManager.open(manager.get_session_file() or "") as again:
        assert again.get_leaf_id() == mine
        assert [item.kind for item in again.damage] == ["bad line"]


def test_a_line_glued_to_a_torn_one_is_written_again(tmp_path: Path) -> None:
    """Pi 0.74 appends without looking at how the file ends."""
    path = write_session(tmp_path / "s.jsonl", [entry("a", None)])
    write_behind_our_back(path, '{"type":"mess')
    with SessionManager.open(path) as manager:
        write_behind_our_back(path, line("lost", "a"))
        mine = manager.append_message(user("mine"))
        assert manager.write_error is None
    with SessionManager.open(path) as again:
        assert [e.id for e in again.get_branch()] == ["a", mine]


def test_a_file_replaced_by_a_longer_one_is_joined(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        path = Path(manager.get_session_file() or "")
        leaf = manager.get_leaf_id()
        fresh = tmp_path / "fresh"
        fresh.write_bytes(path.read_bytes() + line("theirs", leaf).encode())
        os.replace(fresh, path)
        manager.append_message(user("mine"))
        assert manager.write_error is None
        assert [line["id"] for line in lines_of(path)[1:]][2] == "theirs"
        assert len(lines_of(path)) == 5
        assert "theirs" in {e.id for e in manager.get_entries()}


def test_what_a_shorter_file_lost_is_put_back(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        path = Path(manager.get_session_file() or "")
        ids = [e.id for e in manager.get_entries()]
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) - 30])
        mine = manager.append_message(user("mine"))
    with SessionManager.open(path) as again:
        assert [e.id for e in again.get_branch()] == [*ids, mine]


def test_another_session_in_our_place_is_left_alone(tmp_path: Path) -> None:
    told: list[str] = []
    with begun(tmp_path, on_write_error=told.append) as manager:
        path = Path(manager.get_session_file() or "")
        write_session(path, [entry("x", None)], HEADER | {"id": "stranger"})
        theirs = path.read_bytes()
        manager.append_message(user())
        manager.append_message(assistant())
        assert len(told) == 1 and "another session is in its file now" in told[0]
        assert len(manager.build_session_context().messages) == 4
    assert path.read_bytes() == theirs


def test_a_link_is_the_same_session(path: Path) -> None:
    link = path.with_name("link.jsonl")
    link.symlink_to(path)
    with SessionManager.open(path), pytest.raises(SessionLocked):
        SessionManager.open(link)
    path.write_text('{"type":"session","version":2,"id":"S","cwd":"/p"}\n')
    with SessionManager.open(link) as manager:
        manager.append_message(user())
    assert link.is_symlink()
    assert [line["type"] for line in lines_of(path)] == ["session", "message"]
