"""Nothing that was acknowledged is ever lost: killed processes, torn lines, full and read-only disks."""

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spindle.sessions import SessionManager

from .helpers import assistant, begun, lines_of, user

KILL_ROUNDS = int(os.environ.get("SPINDLE_KILL_ROUNDS", "40"))


def run_script(script: str, *arguments: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)


def test_kill_minus_nine_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(4)
    acknowledged: list[str] = []
    for number in range(KILL_ROUNDS):
        path = tmp_path / f"{number // 10}.jsonl"
        if number % 10 == 0:
            acknowledged.clear()
        acknowledged += _append_until_killed(path, chance.random() * 0.01)
        with SessionManager.open(path) as manager:
            entries = {entry.id for entry in manager.get_entries()}
            assert entries.issuperset(acknowledged)
            assert len(manager.get_branch()) == len(entries), "each round went on where the one before it was killed"
    assert acknowledged


def _append_until_killed(path: Path, seconds: float) -> list[str]:
    """Let a process append; kill it `seconds` after its first acknowledgement. Returns the ids it told us."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            manager = SessionManager.open(path)
            for number in range(2000):
                message = {"role": "user", "content": "x" * (number * 37 % 500), "timestamp": number}
                os.write(writer, manager.append_message(message).encode() + b"\n")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as pipe:
        try:
            told = pipe.readline()
            time.sleep(seconds)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return (told + pipe.read()).decode().split()


def test_a_line_torn_at_any_byte_costs_only_itself(tmp_path: Path) -> None:
    source = Path(begun(tmp_path / "whole").get_session_file() or "")
    data = source.read_bytes()
    whole = [len(data[: data.index(b"\n") + 1])]
    while whole[-1] < len(data):
        whole.append(data.index(b"\n", whole[-1]) + 1)
    for cut in (*whole[:-1], *range(whole[-2] - 2, len(data))):
        path = tmp_path / "torn.jsonl"
        path.write_bytes(data[:cut])
        readable = sum(end <= cut + 1 for end in whole) - 1  # a line is whole without its newline
        with SessionManager.open(path, fsync="never") as manager:
            assert len(manager.get_entries()) == readable
            assert path.read_bytes() == data[:cut], "opening must not touch it"
            entry_id = manager.append_message(user("after the crash"))
        is_torn = cut not in whole and cut + 1 not in whole
        kept = data[: max(end for end in whole if end <= cut)] if is_torn else data[:cut]
        assert path.read_bytes().startswith(kept) and path.read_bytes()[len(kept) :].strip().startswith(b'{"type"')
        with SessionManager.open(path) as again:
            assert again.damage == [], "mended"
            assert len(again.get_entries()) == readable + 1
            assert again.get_leaf_id() == entry_id


def test_a_header_torn_in_the_middle_is_no_session(tmp_path: Path) -> None:
    data = Path(begun(tmp_path / "whole").get_session_file() or "").read_bytes()
    path = tmp_path / "torn.jsonl"
    path.write_bytes(data[:40])
    with pytest.raises(Exception, match="not a valid pi session"):
        SessionManager.open(path)
    assert path.read_bytes() == data[:40]


def test_a_full_disk_holds_up_the_file_but_not_the_conversation(tmp_path: Path) -> None:
    """A limit on file sizes stands for the disk: it refuses in the middle of a line, and can be lifted again."""
    script = """
        import resource, sys
        from spindle.sessions import SessionManager
        told = []
        manager = SessionManager.open(sys.argv[1], on_write_error=told.append)
        def say(text):
            return manager.append_message({"role": "user", "content": text, "timestamp": 1})
        say("first")
        limit = 2000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for number in range(20):
            say(f"{number} " + "y" * 200)
        size = len(open(sys.argv[1], "rb").read())
        assert size == limit, size
        assert len(told) == 1, told
        assert told[0] == manager.write_error
        assert manager.write_error.startswith("Session cannot be saved (File too large: "), told
        assert len(manager.build_session_context().messages) == 21
        manager.sync()
        assert manager.write_error
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if sys.argv[2] == "append":
            say("last")
            assert manager.write_error is None
        manager.close()
        assert manager.write_error is None
    """
    for what, expected in (("append", 22), ("close", 21)):
        path = tmp_path / f"{what}.jsonl"
        process = run_script(script, path, what)
        process.communicate()
        assert process.returncode == 0
        with SessionManager.open(path) as manager:
            assert manager.damage == []
            assert len(manager.get_branch()) == expected


def test_a_disk_without_room_for_the_lock_leaves_nobody_locked_out(tmp_path: Path) -> None:
    script = """
        import resource, sys
        from pathlib import Path
        from spindle.sessions import SessionLocked, SessionManager
        path = Path(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        manager = SessionManager.open(path)
        manager.append_message({"role": "user", "content": "x", "timestamp": 1})
        assert "File too large" in manager.write_error, manager.write_error
        try:
            SessionManager.open(path)
        except SessionLocked as error:
            assert "in use by another process" in str(error)
        else:
            raise AssertionError("the lock holds although its text could not be written")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        manager.append_message({"role": "user", "content": "y", "timestamp": 1})
        assert manager.write_error is None, manager.write_error
        manager.close()
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        assert len(SessionManager.open(path).get_entries()) == 2
    """
    process = run_script(script, tmp_path / "s.jsonl")
    process.communicate()
    assert process.returncode == 0


def test_a_copy_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    script = """
        import resource, sys
        from pathlib import Path
        from spindle.sessions import SessionError, SessionManager
        from spindle.sessions.repair import repair_copy
        source, target = map(Path, sys.argv[1:])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        for copy in (
            lambda: repair_copy(source, target, "/p"),
            lambda: SessionManager.open(source, read_only=True).export_branch(target),
        ):
            try:
                copy()
            except SessionError as error:
                assert str(error).endswith(f" session (File too large): {target}"), error
            else:
                raise AssertionError("there was no room")
            assert not target.exists()
    """
    with begun(tmp_path) as manager:
        source = manager.get_session_file()
    process = run_script(script, source, tmp_path / "copy.jsonl")
    process.communicate()
    assert process.returncode == 0


def test_what_is_written_survives_a_disk_that_stays_full(tmp_path: Path) -> None:
    script = """
        import os, resource, sys
        from spindle.sessions import SessionManager
        manager = SessionManager.open(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        for number in range(20):
            manager.append_message({"role": "user", "content": f"{number} " + "y" * 200, "timestamp": 1})
        os._exit(0)
    """
    path = tmp_path / "s.jsonl"
    run_script(script, path).communicate()
    assert path.stat().st_size == 2000
    with SessionManager.open(path) as manager:
        assert [item.kind for item in manager.damage] == ["torn line"]
        kept = len(manager.get_entries())
        assert kept >= 4
        manager.append_message(user("there is room again"))
    with SessionManager.open(path) as manager:
        assert manager.damage == [] and len(manager.get_branch()) == kept + 1


@pytest.fixture
def read_only_dir() -> Iterator[Path]:
    """A directory that we may read but not write, also if the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "s").mkdir()
        is_root = os.geteuid() == 0
        yield directory / "s"
        if is_root and os.geteuid() != 0:
            os.seteuid(0)
        (directory / "s").chmod(0o755)


def lock_out(directory: Path) -> None:
    directory.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)


def test_a_read_only_directory_keeps_the_conversation_in_memory(read_only_dir: Path) -> None:
    lock_out(read_only_dir)
    told: list[str] = []
    with SessionManager.create("/srv/demo", read_only_dir, on_write_error=told.append) as manager:
        manager.append_message(user())
        manager.append_message(assistant())
        assert told == [manager.write_error]
        assert told[0].startswith("Session cannot be saved (Permission denied: ")
        assert len(manager.build_session_context().messages) == 2
    assert list(read_only_dir.iterdir()) == []


def test_an_old_file_in_a_read_only_directory_is_migrated_in_memory(read_only_dir: Path) -> None:
    old = read_only_dir / "old.jsonl"
    old.write_text(
        '{"type":"session","id":"S","cwd":"/p"}\n{"type":"message","message":{"role":"user","content":"q"}}\n'
    )
    old.chmod(0o444)
    before = old.read_bytes()
    lock_out(read_only_dir)
    with SessionManager.open(old) as manager:
        assert len(manager.build_session_context().messages) == 1
        manager.append_message(user("more"))
        assert manager.write_error is not None
        assert len(manager.build_session_context().messages) == 2
    assert old.read_bytes() == before


def test_a_directory_that_vanishes_is_made_again_with_everything_in_it(tmp_path: Path) -> None:
    place = tmp_path / "s"
    told: list[str] = []
    with begun(place, on_write_error=told.append) as manager:
        shutil.rmtree(place)
        manager.append_message(user("into the void"))
        assert not told and manager.write_error is None
        manager.append_message(user("back again"))
        assert len(lines_of(manager.get_session_file())) == 5
    assert [path.suffix for path in place.iterdir()] == [".jsonl"]


def test_a_file_that_was_deleted_comes_back_whole(tmp_path: Path) -> None:
    with begun(tmp_path) as manager:
        path = Path(manager.get_session_file() or "")
        path.unlink()
        manager.append_message(user("more"))
        assert [line["type"] for line in lines_of(path)] == ["session", "message", "message", "message"]


def test_sync_and_close_bring_the_file_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def synced(policy: str) -> list[str]:
        calls: list[str] = []
        real = os.fsync
        monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), real(descriptor))[1])
        manager = begun(tmp_path / policy, fsync=policy)
        calls.append("sync")
        manager.sync()
        manager.append_message(user())
        calls.append("close")
        manager.close()
        monkeypatch.setattr(os, "fsync", real)
        return calls

    assert synced("never") == ["sync", "close"]
    assert synced("run") == ["sync", "fsync", "fsync", "close", "fsync"]  # the directory too, once
    assert synced("always") == ["fsync", "fsync", "fsync", "sync", "fsync", "close"]


def test_a_disk_that_fails_in_a_thread_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    synced: list[bool] = []
    real = os.fsync

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def note(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    with begun(tmp_path, on_write_error=told.append) as manager, ThreadPoolExecutor(1) as thread:
        monkeypatch.setattr(os, "fsync", refuse)
        wait = manager.begin_sync()
        assert wait is not None
        with pytest.raises(OSError) as caught:
            thread.submit(wait).result()
        manager.sync_failed(caught.value)
        assert told == [manager.write_error]
        assert told[0].startswith("Session cannot be saved (Input/output error: ")
        manager.append_message(user())
        assert manager.write_error == told[0], "the file has it, but not the disk"
        monkeypatch.setattr(os, "fsync", note)
        again = manager.begin_sync()
        assert again is not None
        thread.submit(again).result()
        assert synced == [False, True], "the file, and the directory that holds its name"
        assert manager.write_error is None
        assert manager.begin_sync() is None, "there is nothing new"


def test_what_waits_for_the_disk_in_a_thread_is_not_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not answer would hold up whoever closes the session."""
    calls: list[int] = []
    manager = begun(tmp_path)
    wait = manager.begin_sync()
    assert wait is not None
    monkeypatch.setattr(os, "fsync", calls.append)
    manager.close()
    assert calls == []
    wait()
    assert len(calls) == 2


def test_a_sync_may_outlive_its_session(tmp_path: Path) -> None:
    manager = begun(tmp_path)
    wait = manager.begin_sync()
    assert wait is not None
    manager.new_session()
    wait()
    assert manager.write_error is None


def test_a_manager_can_go_on_after_close(tmp_path: Path) -> None:
    manager = begun(tmp_path)
    manager.close()
    manager.close()
    manager.append_message(user("one more"))
    manager.close()
    assert len(lines_of(manager.get_session_file())) == 4
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]
