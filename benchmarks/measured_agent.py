"""A running agent: its output, its times, its CPU and memory (Linux)."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers import Peer

__all__ = ["MeasuredAgent", "Run", "cpu_of", "process_tree"]

NOW = time.perf_counter
LIMIT_S = 90.0
"""After this the agent is killed, and the sample fails."""
HEAD = 400
"""A record is recognised by its first bytes; the rest, which may be megabytes, is not looked at."""
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """Figures of a prompt, from sending it until the agent is idle."""

    seconds: float
    first_delta: float
    """Seconds to the first piece of text."""
    deltas: int
    tools: int
    bytes: int
    cpu: float
    """CPU seconds of the agent and its children."""


class MeasuredAgent:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.started = NOW()
        self.process = subprocess.Popen(
            peer.argv,
            cwd=peer.folder("work"),
            env=peer.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._guard = threading.Timer(LIMIT_S, self.process.kill)
        self._guard.start()
        self._count = 0
        self.request("get_state")
        self.start_s, self.start_cpu_s = NOW() - self.started, self.cpu()

    def send(self, type: str, **fields: Any) -> bytes:
        """Send a command; returns the first bytes of its response."""
        self._count += 1
        self._in.write(json.dumps({"id": f"b{self._count}", "type": type, **fields}).encode() + b"\n")
        self._in.flush()
        return b'{"id":"b%d"' % self._count

    def line(self) -> bytes:
        line = self._out.readline()
        if not line:
            raise RuntimeError(f"{self.peer.title} has ended ({self.process.wait(5)})")
        return line

    def request(self, type: str, **fields: Any) -> bytes:
        """Send a command and return the response; raises RuntimeError if the command is refused."""
        wanted = self.send(type, **fields)
        while not (line := self.line()).startswith(wanted):
            pass
        if b'"success":true' not in line[:HEAD]:
            raise RuntimeError(f"{self.peer.title} refuses {type}: {line[:HEAD]!r}")
        return line

    def timed(self, type: str, **fields: Any) -> float:
        """Return the seconds that a command takes."""
        start = NOW()
        self.request(type, **fields)
        return NOW() - start

    def prompt(self, text: str) -> Run:
        cpu, start, first, deltas, tools, size = self.cpu(), NOW(), 0.0, 0, 0, 0
        idle = b'"type":"%b"' % self.peer.idle
        self.send("prompt", message=text)
        while True:
            line = self.line()
            size, head = size + len(line), line[:HEAD]
            if b'"text_delta"' in head:
                first, deltas = first or NOW() - start, deltas + 1
            elif b'"tool_execution_end"' in head:
                tools += 1
            elif idle in head[:100]:
                return Run(NOW() - start, first, deltas, tools, size, self.cpu() - cpu)

    def wait(self, type: bytes) -> None:
        while b'"%b"' % type not in self.line()[:HEAD]:
            pass

    # -- CPU and memory --------------------------------------------------------------------------

    def cpu(self) -> float:
        return cpu_of(self.process.pid)

    def rss_mib(self) -> float:
        total = 0
        for pid in process_tree(self.process.pid):
            try:
                found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                total += int(found[1]) if found else 0
            except OSError:
                pass
        return total / 1024

    # -- the end ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guard.cancel()
        self._in.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # the group that was started above
            self.process.wait(5)
        self._out.close()


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                todo += map(int, path.read_text().split())
            except OSError:
                pass
    return found


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, by the clock of each."""
    total = 0.0
    for one in process_tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += time.clock_gettime((~one << 3) | 2)  # clock_getcpuclockid(3)
            total += sum(map(int, fields[13:15])) / TICK  # of children that have ended
        except OSError:
            pass
    return total
