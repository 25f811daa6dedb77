"""What an attack is, and how it is run.

An attack strikes in rounds. A round takes all its chances from one `random.Random`, seeded with the seed of the run,
the attack's name and the number of the round, so that a round that broke something can be struck again alone. What an
attack counts goes into `figures`; what must hold is said with `must`, in the words of a promise.

A promise in `OPEN` is known not to hold yet: where it breaks it is counted and printed, and fails nothing. To close
one, mend the program and take it out of the list.
"""

import itertools
import json
import mmap
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.support.agent_process import AgentProcess

__all__ = [
    "APIS",
    "OPEN",
    "Attack",
    "SoakAgent",
    "Vitals",
    "check_session",
    "is_cut",
    "processes_of",
    "strike",
    "until",
    "whole_lines",
]

OPEN: set[str] = set()
APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]


class Attack:
    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    """Part of the time of a soak, beside the others' shares."""
    enough: ClassVar[int | None] = None
    """Rounds after which a soak has seen enough."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.notes: list[str] = []
        """Sentences for the report."""
        self.broken: Counter[str] = Counter()
        """Open promises, and how often each broke."""
        self.number = 0
        """Of the round that is struck."""
        self.stack = ExitStack()
        """What is closed when the attack is over."""

    def start(self) -> None:
        """Set up what lasts for all rounds."""

    def round(self, chance: random.Random) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Judge all rounds together."""

    def must(self, promise: str, holds: bool, detail: object = "") -> None:
        if holds:
            return
        if promise not in OPEN:
            raise AssertionError(f"{promise}: {detail}")
        self.broken[promise] += 1


def strike(
    attack: Attack, seed: str, *, rounds: int | None = None, seconds: float | None = None, first: int = 0
) -> None:
    """Run an attack for so many rounds, or so long.

    Raises AssertionError at the first broken promise, after saying how to strike that round again.
    """
    end = time.monotonic() + seconds if seconds is not None else None
    with attack.stack:
        attack.start()
        for number in itertools.count(first):
            if rounds is not None and number - first >= rounds:
                break
            if end is not None and time.monotonic() > end:
                break
            attack.number = number
            try:
                attack.round(random.Random(f"{seed}/{attack.name}/{number}"))
            except BaseException:
                again = f"python -m tests.soak --only {attack.name} --seed {seed} --first {number} --rounds 1"
                print(f"\n{attack.name}: round {number} of seed {seed} broke; again: {again}", file=sys.stderr)
                raise
            attack.figures["rounds"] += 1
        attack.finish()


class SoakAgent(AgentProcess):
    """An agent with a provider for each model API, quick to try again, that survives being killed in mid-line."""

    def configure(self) -> None:
        path = self.agent_dir / "settings.json"
        quick = {"retry": {"baseDelayMs": 2, "maxRetries": 2}}
        path.write_text(json.dumps({**json.loads(path.read_text()), **quick}))
        path = self.agent_dir / "models.json"
        models = json.loads(path.read_text())
        mock = models["providers"]["mock"]
        for api in APIS:
            url = self.mock.anthropic_url if api == "anthropic-messages" else self.mock.openai_url
            models["providers"][api] = {**mock, "api": api, "baseUrl": url}
        path.write_text(json.dumps(models))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # killed while it wrote
            frame = _frame(line)
            self.frames.append(frame)
            self._arrived.put(frame)
        self._arrived.put(None)

    def drain(self) -> None:
        """Wait for all that a dead process had written."""
        for thread in self._threads:
            thread.join(10)

    def forget(self) -> None:
        """Drop what was received so far, so that a long soak stays small itself."""
        self.frames.clear()
        self._waiting.clear()

    def settle(self) -> None:
        """Wait until nothing runs, and forget what came before."""
        self.call("abort")
        assert not self.data("get_state")["isStreaming"]
        self.forget()

    def responses(self) -> list[dict[str, Any]]:
        return [frame for frame in list(self.frames) if frame["type"] == "response"]


@dataclass(frozen=True)
class Vitals:
    """What must not grow."""

    rss_mib: float
    descriptors: int
    children: int

    @classmethod
    def of(cls, pid: int) -> "Vitals":
        status = Path(f"/proc/{pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        below = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
        children = sum(b"spindle-watchdog" not in Path(f"/proc/{child}/cmdline").read_bytes() for child in below)
        return cls(int(rss.split()[1]) / 1024, len(os.listdir(f"/proc/{pid}/fd")), children)


def processes_of(agent_dir: Path) -> Iterator[int]:
    """Find the processes that were started, by whatever way, by an agent with this directory."""
    mark = f"SPINDLE_DIR={agent_dir}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
        except OSError:
            pass  # it has ended meanwhile


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait for a condition of the outside world; False if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _frame(line: bytes) -> dict[str, Any]:
    try:
        frame: dict[str, Any] = json.loads(line)
        return frame
    except RecursionError:  # a tree in pi's form is as deep as the conversation is long; Python cannot read that
        head = line.partition(b',"data":')[0] + b"}"
        assert b'"command":"get_tree"' in head, head[:200]
        return {**json.loads(head), "data": {}}


def is_cut(path: Path) -> bool:
    """Say whether a kill came while the kernel wrote the last line (page by page), of which nobody was told."""
    size = path.stat().st_size if path.exists() else 0
    return size > 0 and size % mmap.PAGESIZE == 0 and not path.read_bytes().endswith(b"\n")


def as_stored(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the empty keys that are on the wire only."""
    return {
        key: value
        for key, value in message.items()
        if (key, value) not in (("attachments", []), ("fullOutputPath", None))
    }


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Read a session file; raises AssertionError if a line is torn by anyone but the kernel."""
    if not path.exists():
        return []
    data = path.read_bytes()
    if is_cut(path):
        data = data[: data.rfind(b"\n") + 1]
    assert not data or data.endswith(b"\n"), f"the last line is torn: {data[-200:]!r}"
    entries = []
    for line in data.splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            raise AssertionError(f"a torn line: {line[:200]!r}") from None
    return entries


def check_session(path: Path) -> None:
    """Ask `spindle sessions check`."""
    command = [sys.executable, "-m", "spindle", "sessions", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
