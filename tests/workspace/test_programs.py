"""The helper's processes: whose exit code is whose, and which of them it still knows."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from spindle.workspace import states
from spindle.workspace.disk import Cancel, ToolError
from spindle.workspace.helper import Helper, Program


def started(helper: Helper, command: str, cwd: Path, **request: Any) -> Program:
    program = Program(helper, 1, {"command": command, "cwd": str(cwd), "file": True, **request})
    helper.programs[1] = program
    return program


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="needs waitid and /proc")
def test_the_exit_code_of_an_operations_program_is_not_taken_away() -> None:
    child = subprocess.Popen(["false"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    Helper(-1, -1)._reap()
    assert child.wait() == 1


def test_a_command_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    helper = Helper(-1, -1)
    started(helper, "true", tmp_path).watch()
    assert helper.programs == {}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_processes_that_a_command_left_can_be_ended_and_then_it_is_forgotten(tmp_path: Path) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as the helper does: orphans become ours
    try:
        helper = Helper(-1, -1)
        program = started(helper, "sleep 600 & echo $! > pid", tmp_path)
        program.watch()
        assert helper.programs == {1: program} and program.left() == [int((tmp_path / "pid").read_text())]
        program.kill()
        os.waitid(os.P_PID, int((tmp_path / "pid").read_text()), os.WEXITED | os.WNOWAIT)
        helper._reap()
        assert helper.programs == {}
    finally:
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


def test_one_agent_at_a_time_records_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a").write_text("a")
    place, bounds = states.git_place(Cancel(), "x", str(tmp_path / "work")), [1 << 20, 100, 1 << 20]
    found: list[Any] = []
    work = threading.Thread(
        target=lambda: found.append(states.take_state(Cancel(), place, str(tmp_path / "work"), bounds, False, []))
    )
    with states._alone(Cancel(), place):
        aborted = Cancel()
        aborted.set()
        with pytest.raises(ToolError, match="aborted"):
            states.take_state(aborted, place, str(tmp_path / "work"), bounds, False, [])
        work.start()
        work.join(0.3)
        assert found == []
    work.join(20)
    assert found[0]["there"] == ["a"]
