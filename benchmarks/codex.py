"""Our sessions beside the threads of codex app-server: `python -m benchmarks.codex [--count 100]`.

Both open conversations without a message; neither needs a key for that. They run in turns, each of them alone.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.measured_agent import process_tree
from benchmarks.peers import codex_program, our_peer

ROUNDS = 3
HELLO = {"method": "initialize", "params": {"clientInfo": {"name": "benchmark", "version": "1"}}}


class Program:
    """A program that answers JSON lines, each with the id of the question."""

    def __init__(self, argv: list[str], place: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._count = 0

    def tell(self, frame: dict[str, Any]) -> None:
        self._in.write(json.dumps(frame).encode() + b"\n")
        self._in.flush()

    def ask(self, frame: dict[str, Any]) -> float:
        """Return how many seconds the answer takes; raises RuntimeError if it is a refusal."""
        self._count += 1
        start = time.perf_counter()
        self.tell({**frame, "id": self._count})
        for line in self._out:
            answer = json.loads(line)
            if answer.get("id") == self._count:
                if "result" in answer or answer.get("success"):
                    return time.perf_counter() - start
                raise RuntimeError(line.decode())
        raise RuntimeError(f"It has ended ({self.process.wait(5)})")

    def pss_mib_at_rest(self) -> float:
        """Return the memory of the process and its descendants; memory that they share is counted once."""
        time.sleep(1)  # the work that follows the last answers is done by then
        total = 0
        for pid in process_tree(self.process.pid):
            try:
                found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
                total += int(found[1]) if found else 0
            except OSError:
                pass  # it has just ended
        return total / 1024

    def close(self) -> None:
        self._in.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        self._out.close()


def spindle(place: Path) -> Program:
    peer = our_peer(place, "http://127.0.0.1:9", "delta")
    program = Program(peer.argv, peer.folder("work"), peer.environment)
    program.ask({"type": "get_state"})
    return program


def codex(place: Path) -> Program:
    place.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "CODEX_HOME": str(place)}
    program = Program([*codex_program(), "app-server"], place, environment)
    program.ask(HELLO)
    program.tell({"method": "initialized"})
    return program


def measured(program: Program, opening: dict[str, Any], count: int) -> dict[str, float]:
    with closing(program):
        bare = program.pss_mib_at_rest()
        program.ask(opening)
        first = program.pss_mib_at_rest()
        times = [program.ask(opening) for _ in range(count - 1)]
        full = program.pss_mib_at_rest()
    return {
        "started (MiB)": bare,
        f"with {count} sessions (MiB)": full,
        "one more (MiB)": (full - first) / (count - 1),
        "opening one, median (ms)": statistics.median(times) * 1e3,
        "opening the last (ms)": times[-1] * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codex", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    count = parser.parse_args().count
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            place = Path(name) / str(number)
            ours.append(measured(spindle(place), {"type": "open_session"}, count))
            theirs.append(measured(codex(place / "codex"), {"method": "thread/start", "params": {}}, count))
    version = subprocess.run([*codex_program(), "--version"], capture_output=True, text=True, check=True).stdout
    print(f"{'':<28} {'Spindle':<26} {version.strip()} app-server")
    for figure in ours[0]:
        columns = [", ".join(f"{one[figure]:.2f}" for one in rounds) for rounds in (ours, theirs)]
        print(f"{figure:<28} {columns[0]:<26} {columns[1]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
