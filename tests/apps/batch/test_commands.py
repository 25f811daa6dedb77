"""`setup` and `verify` of a task: the same on this machine and at the far side of a pipe."""

import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mock_model import MockModel, pause, reply

from .conftest import Tasks
from .test_batch_command import wait_for
from .test_hostile_repositories import KEYS

Write = Callable[..., Path]


@pytest.fixture(params=["here", "there"])
def write(request: pytest.FixtureRequest, tasks: Tasks) -> Write:
    """Writes a task that works here, or in a folder that stands in for a container. Returns where it works."""
    if request.param == "here":
        work, place = tasks.runs / "a/work", {}
    else:
        work = tasks.place.root / "there/a"
        enter = f'cd {shlex.quote(str(work.parent))}/{{id}} && exec env TMPDIR="$PWD/tmp" "$@"'
        place = {"start": f"mkdir -p {work}/tmp", "exec": f"sh -c {shlex.quote(enter)} enter"}

    def write(**fields: Any) -> Path:
        tasks.write({"id": "a", "prompt": "p", **place, **fields})
        return work

    return write


def is_running(pid: str) -> bool:
    return Path("/proc", pid.strip()).exists()


def test_verify_decides(tasks: Tasks, write: Write) -> None:
    tasks.script("done")
    work = write(
        setup="echo one > begun; echo said; echo complained >&2", verify="cat begun; echo $SPINDLE_TASK_ID; exit 3"
    )
    assert tasks.run("--workspace", "copy", "--retries", "0").returncode == 1
    assert (tasks.lines()[0]["status"], tasks.lines()[0]["exit"]) == ("failed", 3)
    log = (tasks.runs / "a/log").read_text()
    assert "\nsaid\ncomplained\n" in log and "verify ended with 3: cat begun;" in log and "\none\na\n" in log
    assert (work / "begun").read_text() == "one\n"


def test_setup_that_fails_is_an_error(tasks: Tasks, write: Write) -> None:
    tasks.script("done")
    write(setup="exit 4")
    assert tasks.run("--workspace", "copy", "--retries", "0").returncode == 1
    assert (tasks.lines()[0]["status"], tasks.lines()[0]["error"]) == ("error", "setup ended with 4, see log")


def test_they_run_in_the_shell_of_the_user(tasks: Tasks, write: Write) -> None:
    tasks.place.write("agent/settings.json", {"shellCommandPrefix": "greet() { echo hello; }"})
    tasks.script({"calls": [{"name": "bash", "arguments": {"command": "greet > by-agent"}}]}, "done")
    kept = tasks.place.root / "both"
    write(setup="greet > by-setup", verify=f"cat by-agent by-setup > {kept}; greet >> {kept}")
    assert tasks.run("--workspace", "copy", "--retries", "0").returncode == 0
    assert kept.read_text() == "hello\n" * 3


def test_what_setup_leaves_running_lives_as_long_as_the_attempt(tasks: Tasks, write: Write) -> None:
    began, kept = time.monotonic(), tasks.place.root / "pid"
    tasks.place.write("agent/settings.json", {"keepBackgroundProcesses": True})  # for the agent, not for us
    tasks.script({"calls": [{"name": "bash", "arguments": {"command": "kill -0 $(cat pid) && echo > alive"}}]}, "done")
    write(setup="sleep 50 & echo $! > pid", verify=f"kill -0 $(cat pid) && test -e alive && cp pid {kept}")
    done = tasks.run("--workspace", "copy")
    assert done.returncode == 0, done.stdout
    assert time.monotonic() - began < 40
    assert not is_running(kept.read_text())


def test_a_command_that_is_stopped_leaves_nothing_running(tasks: Tasks, write: Write) -> None:
    pids = tasks.place.root / "pids"
    os.mkfifo(pids)
    tasks.script("done")
    write(verify=f"sleep 50 & echo $! $$ > {pids}; wait")
    process = tasks.place.start(*tasks.arguments("--workspace", "copy", "--retries", "0"), text=True)
    running = pids.read_text().split()
    assert len(running) == 2 and all(map(is_running, running))
    process.send_signal(signal.SIGINT)
    wait_for(process, "Running tasks may end")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert tasks.statuses() == {"a": "cancelled"}
    assert not any(map(is_running, running))


def test_verifying_counts_as_time_of_the_attempt(served: tuple[Tasks, MockModel], write: Write) -> None:
    tasks, mock = served
    mock.script(reply("d", pause(1), "one"))
    write()
    tasks.run("--timeout", "2", "--retries", "0", "--verify", "sleep 1.7")
    assert [line["status"] for line in tasks.lines()] == ["timeout"]


def test_what_a_command_prints_is_not_kept(tasks: Tasks, write: Write) -> None:
    tasks.script("done")
    work = write(verify="yes | head -c 80000000; echo last; exit 7")
    code, most = tasks.run_measured("--workspace", "copy", "--retries", "0")
    assert (code, tasks.lines()[0]["exit"]) == (1, 7)
    log = (tasks.runs / "a/log").read_text()
    assert "\ny\nlast\n" in log and len(log) < 100_000
    assert most < 75 << 10
    assert not list(work.glob("tmp/*"))


def test_they_get_no_keys(tasks: Tasks, write: Write) -> None:
    tasks.place.env |= KEYS
    tasks.place.env["OTHER"] = "stays"
    tasks.script("done")
    here = tasks.place.root
    work = write(setup=f"env > {here}/setup-env", verify=f"env > {here}/verify-env")
    assert tasks.run("--workspace", "copy").returncode == 0
    for name in ("setup-env", "verify-env"):
        text = (here / name).read_text()
        assert "OTHER=stays" in text and "SPINDLE_TASK_ID=a\n" in text
        assert not any(value in text for value in KEYS.values())
        assert ("SPINDLE_TASK_DIR=" in text) == (work.parent == tasks.runs / "a"), "a path that means nothing there"
