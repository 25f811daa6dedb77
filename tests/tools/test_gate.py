"""What the gate takes for unchanged without another look: each test changes something in a way that its signs hide."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.base import limits
from spindle.programs import children, file_times
from spindle.programs.fence import Support
from spindle.workspace.area import Wanted
from spindle.workspace.guard import PutBack
from spindle.workspace.sandbox import Sandbox
from tests.tools.git_ways import git, variables
from tests.tools.test_sandbox import KINDS as KINDS
from tests.tools.test_sandbox import shell
from tests.tools.test_sandbox import using as using

EVIL = "[core]\n\tfsmonitor = touch $TOP/MARK; false\n"
ROOM = "#" * 200
MAPPED = f"""
import mmap, os, sys, time
evil = os.path.expandvars({EVIL!r}).encode()
with open('.git/config', 'r+b') as file:
    text = mmap.mmap(file.fileno(), 0)
at = text.find({ROOM.encode()!r})
if len(sys.argv) > 1:
    text[at] = text[at]  # from here on the kernel notes no time
    open('ready', 'w').close()
    while not os.path.exists('go'):
        time.sleep(0.01)
text[at : at + len(evil)] = evil
open('done', 'w').close()
"""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _repository(tmp_path, monkeypatch)


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no file system in memory here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield _repository(Path(folder), monkeypatch)


def _repository(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = home / "work"
    top.mkdir()
    for name, value in variables(home).items():
        monkeypatch.setenv(name, value)
    git("init", "-q", cwd=top)
    with (top / ".git/config").open("a") as config:
        config.write(f"[user]\n\tname = n\n{ROOM}\n")
    (top / "mapped.py").write_text(MAPPED)
    _settle()
    return top


def _settle() -> None:
    """What is as young as a tick of the clock is looked at again in any case."""
    time.sleep(0.03)


def _is_turned(top: Path) -> bool:
    git("status", cwd=top, check=False)
    return (top.parent / "MARK").exists()


def _leave(sandbox: Sandbox, work: str) -> None:
    """Have a command leave a process that does its work when there is a file `go`, and makes `done`."""
    wait = "until [ -e go ]; do sleep 0.01; done"
    assert shell(sandbox, f"({wait}; {work}; touch done) >/dev/null 2>&1 &")[0] == 0


def _go(top: Path, owner: Sandbox) -> None:
    (top / "go").touch()
    while not (top / "done").exists() or any(child.owner is owner for child in children.remaining()):
        time.sleep(0.01)


PLANT = f"printf '{EVIL}' | sed s,.TOP,$TOP, >>.git/config".replace("\n", "\\n").replace("\t", "\\t")


def test_a_mapped_file_in_memory_is_written_without_a_sign(in_memory: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(in_memory)), using)
    assert "it is put back" in shell(sandbox, f"{sys.executable} mapped.py")[1]
    assert not _is_turned(in_memory)


def test_a_process_that_goes_on_writes_to_a_mapped_file(top: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    wait = "until [ -e ready ]; do sleep 0.01; done; sleep 0.05"
    shell(sandbox, f"{sys.executable} mapped.py later >/dev/null 2>&1 & {wait}")
    _go(top, sandbox)
    assert "it is put back" in shell(sandbox, ":")[1]
    assert not _is_turned(top)


@pytest.mark.parametrize("then", ["a command", "the end", "another sandbox"])
def test_what_a_process_did_that_has_ended_since(top: Path, using: Support, then: str) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    said: list[str] = []
    first = sandbox
    _leave(first, PLANT)
    if then == "another sandbox":
        other = Sandbox(Wanted("workspace-write", str(top), network="off"), using, after=sandbox)
        sandbox.end(None, said.append)
        sandbox = other
    _go(top, first)
    if then != "the end":
        said.append(shell(sandbox, ":")[1])
    sandbox.end(sandbox, said.append)
    assert "it is put back" in "".join(said)
    assert not _is_turned(top)
    assert os.listdir(top.parent / "agent/fences") == []


def test_what_a_process_plants_that_goes_on_is_put_back_between_commands(
    top: Path, using: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user looks at what was done when nothing seems to run. Who plants again and again is ended."""
    monkeypatch.setattr(limits, "LEFT_LOOK", 0.05)
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    lines: list[bytes] = []

    async def command(line: str) -> None:
        words, how = ["/bin/sh", "-c", line], {"cwd": sandbox.cwd, "env": os.environ, "owner": sandbox}
        await sandbox.start("", words, on_output=lines.append, **how).wait()

    async def main() -> None:
        plant = f"until [ -e go ]; do sleep 0.01; done; rm go; {PLANT}"
        await command(f"({plant}; touch first; {plant}; sleep 60) >/dev/null 2>&1 &")
        (top / "go").touch()
        while not (top / "first").exists() or "fsmonitor" in (top / ".git/config").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert children.remaining()
        (top / "go").touch()
        while any(child.owner is sandbox for child in children.remaining()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await command(":")

    asyncio.run(asyncio.wait_for(main(), 20))
    said = b"".join(lines).decode()
    assert "it is put back" in said and "they were ended" in said
    assert not _is_turned(top)


def test_a_change_of_the_user_counts_when_all_processes_have_ended(top: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    _leave(sandbox, ":")
    _go(top, sandbox)
    assert shell(sandbox, ":") == (0, "")
    (top / "AGENTS.md").write_text("of the user")
    assert shell(sandbox, ":") == (0, "")
    assert (top / "AGENTS.md").read_text() == "of the user"


def test_a_dead_agent_has_left_a_name_that_agents_obey(top: Path, using: Support) -> None:
    program = (
        "import sys; from tests.tools.test_gate import *\n"
        "sandbox = Sandbox(Wanted('workspace-write', sys.argv[2]), KINDS[sys.argv[1]])\n"
        "shell(sandbox, 'mkdir -p sub/.pi; touch sub/.pi/x ready; sleep 60')\n"
    )
    (top / "sub").mkdir()
    kind = "bwrap" if using.bwrap else "landlock"
    agent = subprocess.Popen([sys.executable, "-c", program, kind, str(top)], cwd=Path(__file__).parents[2])
    try:
        while not (top / "ready").exists():
            assert agent.poll() is None
    finally:
        agent.kill()
        agent.wait()
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    assert "sub/.pi is a name that agents obey" in shell(sandbox, ":")[1]
    assert not (top / "sub/.pi").exists()


def test_a_folder_in_the_place_of_one_with_the_same_time(tmp_path: Path) -> None:
    """Two folders that are made within a tick have the same time of change; one takes the other's path."""
    one, two = tmp_path / "one/in", tmp_path / "two/in"
    for _ in range(1000):
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        shutil.rmtree(tmp_path / "two", ignore_errors=True)
        one.mkdir(parents=True)
        two.mkdir(parents=True)
        (two / "evil").mkdir()
        os.chmod(one, 0o755)
        if one.stat().st_ctime_ns == two.stat().st_ctime_ns:
            break
    else:
        pytest.skip("the clock of this file system is too fine")
    _settle()
    guard = PutBack([str(one / "evil")], str(tmp_path / "aside"))
    guard.remember()
    (tmp_path / "one").rename(tmp_path / "old")
    (tmp_path / "two").rename(tmp_path / "one")
    assert [*guard.changed()] == [str(one / "evil")]


def test_a_writable_folder_that_was_away(top: Path, using: Support) -> None:
    more = top.parent / "more"
    more.mkdir()
    sandbox = Sandbox(Wanted("workspace-write", str(top), writable=(str(more),)), using)
    more.rmdir()
    for _ in range(2):
        shell(sandbox, "sleep 0.03")
    (more / "repository").mkdir(parents=True)
    git("init", "-q", cwd=more / "repository")
    _settle()
    shell(sandbox, f"cd {more}/repository && {PLANT}")
    git("status", cwd=more / "repository", check=False)
    assert not (top.parent / "MARK").exists()


def test_a_line_that_is_all_blanks_is_read_in_no_time(top: Path, using: Support) -> None:
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    began = time.process_time()
    assert shell(sandbox, "printf '[user]\\nname =%200000s' n >>.git/config") == (0, "")
    assert time.process_time() - began < 5


def test_an_index_of_any_size(top: Path, using: Support) -> None:
    """It would be read into memory otherwise."""
    sandbox = Sandbox(Wanted("workspace-write", str(top)), using)
    code, said = shell(sandbox, "printf DIRC >.git/index; truncate -s 100G .git/index")
    assert (code, "it is put aside" in said) == (0, True)


@pytest.mark.parametrize(("changed", "settled"), [(5_000_000_001, True), (5_000_000_000, False)])
def test_a_file_system_that_keeps_whole_seconds(changed: int, settled: bool) -> None:
    now = changed + 1_000_000_000
    assert file_times.is_settled(changed, now) is settled
    assert file_times.is_settled(changed, now + 2_000_000_000)
