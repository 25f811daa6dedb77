"""A signal ends the process in its time, whatever holds the event loop or Python's lock."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.base import limits
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, reply, stall

SECONDS = 1.5
SHORTER = f"from spindle.base import limits; limits.PROCESS_END = {SECONDS}; limits.BATCH_STOP = 0.5"
# Once a signal would be caught, no other thread runs any more: `sum` neither gives the lock away nor looks at signals.
# It makes the mark itself, or a signal could come between the two.
HOG = """
import ctypes, itertools, threading, time
from spindle.programs import stop_signals

def hog():
    while stop_signals._watchdog < 0:
        time.sleep(0.01)
    marks = map(ctypes.PyDLL(None).creat, [b"MARK"], [0o600])
    sum(itertools.chain(marks, range(10**15)))

def extension(agent):
    if not [one for one in threading.enumerate() if one.name == "hog"]:
        threading.Thread(target=hog, name="hog", daemon=True).start()
"""
MODES = {
    "rpc": ["--mode", "rpc"],
    "acp": ["--mode", "acp"],
    "server": ["--remote", "127.0.0.1:0"],
    "print": ["-p", "go"],
    "batch": ["batch", "tasks.jsonl", "-o", "out"],
    "chat": ["chat"],
}


class Stuck:
    """A process that is stuck, in directories of its own."""

    def __init__(self, base: Path, mode: str, extension: str = HOG, input: bytes = b"") -> None:
        self.work, agent_dir, patch = base / "work", base / "agent", base / "patch"
        for folder in (self.work, agent_dir / "extensions", patch):
            folder.mkdir(parents=True)
        self.mock = MockModel([reply("a", stall())] * 5)
        self.mock.__enter__()
        write_models(agent_dir, self.mock.openai_url)
        mark = base / "stuck"
        (agent_dir / "extensions" / "hog.py").write_text(extension.replace("MARK", str(mark)))
        (self.work / "tasks.jsonl").write_text('{"id": "a", "prompt": "go"}\n')
        (patch / "sitecustomize.py").write_text(SHORTER)
        self._terminal, theirs = pty.openpty()
        files: int = theirs if mode == "chat" else subprocess.PIPE
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "spindle",
                *MODES[mode],
                *(["--no-session"] if mode != "batch" else []),
                "--model=mock/m1",
            ],
            cwd=self.work,
            env=agent_environment(agent_dir, PYTHONPATH=str(patch), TERM="xterm"),
            stdin=files,
            stdout=files,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        if mode == "acp":  # the extension is loaded with the first session
            new = {"cwd": str(self.work), "mcpServers": []}
            for number, (method, params) in enumerate([("initialize", {"protocolVersion": 1}), ("session/new", new)]):
                line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                input += line.encode() + b"\n"
        if self.process.stdin is not None:
            self.process.stdin.write(input)
            self.process.stdin.flush()
            if mode == "print":
                self.process.stdin.close()
                self.process.stdin = None
        _until(lambda: mark.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.stderr and self.process.stderr.read().decode()

    def end(self) -> tuple[int, float, str]:
        """Return the exit code, how long the process took to end from now on, and its last words."""
        begin = time.monotonic()
        _, errors = self.process.communicate(timeout=30) if self._piped() else (b"", b"")
        code = self.process.wait(30)
        return code, time.monotonic() - begin, errors.decode()

    def _piped(self) -> bool:
        return self.process.stdout is not None

    def __enter__(self) -> "Stuck":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._terminal)
        self.mock.__exit__(None, None, None)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("mode", MODES)
def test_a_process_that_cannot_run_is_killed_in_time(tmp_path: Path, mode: str) -> None:
    with Stuck(tmp_path, mode) as stuck:
        stuck.process.send_signal(signal.SIGTERM)
        code, seconds, errors = stuck.end()
        assert code == -signal.SIGKILL
        assert seconds < SECONDS + 3
        if mode != "chat":
            assert "Error: The process was killed: it did not end within" in errors


def test_a_second_signal_kills_it_sooner(tmp_path: Path) -> None:
    long = f"import spindle.programs.stop_signals as stop\nstop.on_stop.__kwdefaults__['seconds'] = 60\n{HOG}"
    with Stuck(tmp_path, "rpc", long) as stuck:
        stuck.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            stuck.process.wait(SECONDS + 0.5)
        stuck.process.send_signal(signal.SIGTERM)
        code, seconds, _ = stuck.end()
        assert code == -signal.SIGKILL
        assert seconds < 5


def test_its_children_end_with_it(tmp_path: Path) -> None:
    later = HOG.replace("stop_signals._watchdog < 0", "not os.path.exists('pid')").replace("import", "import os,", 1)
    with Stuck(tmp_path, "rpc", later, b'{"type": "bash", "command": "echo $$ > p; mv p pid; sleep 1000"}\n') as stuck:
        pid = int((stuck.work / "pid").read_text())
        stuck.process.send_signal(signal.SIGTERM)
        assert stuck.end()[0] == -signal.SIGKILL
        _until(lambda: not Path(f"/proc/{pid}").exists())


def test_no_watchdog_is_left(tmp_path: Path) -> None:
    quick = 'def extension(agent):\n    open("MARK", "w").close()\n'
    with Stuck(tmp_path, "rpc", quick) as stuck:
        assert stuck.process.stdout is not None
        stuck.process.stdout.readline()
        _until(lambda: _watchdogs(stuck.process.pid) == 1)
        stuck.process.send_signal(signal.SIGTERM)
        assert stuck.end()[0] == 128 + signal.SIGTERM
        _until(lambda: _watchdogs(stuck.process.pid) == 0)


def _watchdogs(pid: int) -> int:
    """Return how many watchdogs watch a process."""
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        found += b"spindle-watchdog" in words and str(pid).encode() in words
    return found


def test_the_time_is_the_one_that_the_manual_promises() -> None:
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    assert f"{limits.PROCESS_END:g} seconds" in page.read_text()
