"""What a feature may cost: the same agent with and without it, alive at once and asked in turns.

`python -m benchmarks.promises [--rounds 5] [--only NAMES] [--report docs/benchmarks.md]` prints each ratio beside the
bound that is promised for it. Some are beside an earlier state of this repository (`BASE`), which a clone must have.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.marks import put

from benchmarks.measured_agent import MeasuredAgent
from benchmarks.peers import ROOT, Peer, our_peer, state_peer
from benchmarks.scenarios import stored
from benchmarks.states import extracted

BASE = "3760b6d"
FILES = 1341
THINKS_MS = 500
ROUNDS_OF_TOOLS = 10
Pair = tuple[float, float]
"""A figure with the feature (or with more to do), and without it."""


@dataclass(frozen=True)
class Promise:
    title: str
    bound: float
    sample: Callable[[Path, str], Pair]
    """Takes one sample in an empty folder, with the URL of a model."""
    unit: str = "ms"
    """Of thousandths of the samples."""


def with_settings(peer: Peer, **values: Any) -> Peer:
    path = peer.folder("agent") / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return peer


def both(place: Path, url: str, **off: Any) -> tuple[Peer, Peer]:
    """Return an agent as users have it, and one with settings that switch a feature off."""
    one, other = our_peer(place / "on", url, "delta"), our_peer(place / "off", url, "delta")
    return one, with_settings(other, **off)


def fill(peer: Peer) -> None:
    """Make its working directory a repository of many files."""
    folder = peer.folder("work")
    for number in range(FILES):
        path = folder / f"part{number % 37}" / f"file{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {number}\n" * 20)
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@example.org", "-C", str(folder)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def alive(*peers: Peer) -> Iterator[list[MeasuredAgent]]:
    with ExitStack() as stack:
        yield [stack.enter_context(MeasuredAgent(peer)) for peer in peers]


def first_tool(place: Path, url: str) -> Pair:
    peers = both(place, url, checkpoints=False)
    for peer in peers:
        fill(peer)
    with alive(*peers) as (on, off):
        prompt = f"bench:thinks:1:{THINKS_MS}"
        return on.prompt(prompt).seconds, off.prompt(prompt).seconds


def states(place: Path, url: str) -> tuple[Peer, Peer]:
    """Return this state, and the one that it is compared with."""
    return state_peer(place, url, ROOT / "src", "now"), state_peer(place, url, extracted(place / "source", BASE), BASE)


def rounds_in_repository(place: Path, url: str, kind: str = "shell") -> Pair:
    peers = states(place, url)
    for peer in peers:
        fill(peer)
    return _rounds(peers, kind)


def rounds_that_read(place: Path, url: str) -> Pair:
    return rounds_in_repository(place, url, "tool")


def rounds_in_empty_folder(place: Path, url: str) -> Pair:
    return _rounds(states(place, url), "shell")


def start(place: Path, url: str) -> Pair:
    return _starts(states(place, url), lambda agent: agent.start_cpu_s)


def memory(place: Path, url: str) -> Pair:
    return _starts(states(place, url), lambda agent: agent.rss_mib() / 1e3)


def _starts(peers: tuple[Peer, Peer], measure: Callable[[MeasuredAgent], float]) -> Pair:
    rows = []
    for number in range(12):
        with alive(*peers) as agents:
            time.sleep(0.2)  # memory taken after the first answer counts, too
            rows.append([measure(agent) for agent in agents])
        if number == 0:
            rows.clear()  # the first start ever compiles the package
    now, base = (statistics.median(row) for row in zip(*rows, strict=True))
    return now, base


def short_turn(place: Path, url: str) -> Pair:
    with alive(*states(place, url)) as agents:
        for agent in agents:
            for _ in range(5):
                agent.prompt("bench:text:1")
        rows = [[agent.prompt("bench:text:1").cpu for agent in agents] for _ in range(40)]
        now, base = (statistics.median(row) for row in zip(*rows, strict=True))
        return now, base


def _rounds(peers: tuple[Peer, Peer], kind: str) -> Pair:
    with alive(*peers) as agents:
        for agent in agents:
            agent.prompt(f"bench:{kind}:2")
        rows = [[agent.prompt(f"bench:{kind}:{ROUNDS_OF_TOOLS}").cpu for agent in agents] for _ in range(4)]
        with_it, without = (statistics.median(row) / ROUNDS_OF_TOOLS for row in zip(*rows, strict=True))
        return with_it, without


WRITER = """
import os, sys
while True:
    with open(sys.argv[1], "wb") as file:
        file.write(bytes(10_000_000)); file.flush(); os.fsync(file.fileno())
"""


def busy_disk(place: Path, url: str) -> Pair:
    """The first delta, over that of the model itself, while another program writes to the same disk."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(place / "large")])
    try:
        with alive(*both(place, url, fsync="never")) as agents:
            for agent in agents:
                agent.prompt("bench:text:1")
            # A model takes a while; the one here answers at once, and would wait for the disk alone.
            prompt = "bench:thinks:0:100"
            rows = [[agent.prompt(prompt).first_delta for agent in agents] for _ in range(12)]
            always, never = (statistics.median(row) for row in zip(*rows, strict=True))
            return always, never
    finally:
        writer.kill()
        writer.wait()


def long_conversation(place: Path, url: str) -> Pair:
    long, short = our_peer(place / "long", url, "delta"), our_peer(place / "short", url, "delta")
    with alive(long, short) as agents:
        for agent, count in zip(agents, (2000, 100), strict=True):
            agent.request("switch_session", sessionPath=stored(agent.peer, count))
            for _ in range(3):
                agent.prompt("bench:text:1")
        rows = [[agent.prompt("bench:text:1").cpu for agent in agents] for _ in range(20)]
        at_the_end, at_the_start = (statistics.median(row) for row in zip(*rows, strict=True))
        return at_the_end, at_the_start


PROMISES = {
    "first_tool": Promise(
        f"first tool prompt, {FILES:,} files, a model that thinks for {THINKS_MS / 1000} s: wall, checkpoints on / off",
        1.5,
        first_tool,
    ),
    "repository": Promise(
        f"CPU of a tool round that may write, {FILES:,} files: now / {BASE}", 1.3, rounds_in_repository
    ),
    "reading": Promise(f"CPU of a round of bash that plainly reads, there: now / {BASE}", 1.3, rounds_that_read),
    "empty": Promise(f"CPU of a tool round that may write, empty folder: now / {BASE}", 1.05, rounds_in_empty_folder),
    "start": Promise(f"CPU of a start: now / {BASE}", 1.02, start),
    "memory": Promise(f"memory after the start, RSS: now / {BASE}", 1.02, memory, "MiB"),
    "turn": Promise(f"CPU of a turn of one delta: now / {BASE}", 1.05, short_turn),
    "disk": Promise(
        "first delta of a model that thinks for 0.1 s, on a busy disk: fsync / `fsync: never`", 1.3, busy_disk
    ),
    "long": Promise("CPU of a turn: at 2,000 messages / at 100", 1.5, long_conversation),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.promises", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PROMISES))
    parser.add_argument("--report", type=Path, help="a page with the part `promises`: write it")
    options = parser.parse_args()
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdin is not None and model.stdout is not None
        url = model.stdout.readline().strip()
        try:
            rows = [row(name, url, options.rounds) for name in options.only.split(",")]
        finally:
            model.stdin.close()
    machine = f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end"
    text = "\n".join(
        [
            f"Written by `python -m benchmarks.promises` on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine}.",
            "Medians of the ratios, with the least and the greatest.",
            "",
            "| what | with | without | ratio | promised | samples |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )
    print(text)
    if options.report:
        options.report.write_text(put(options.report.read_text(), "promises", text))
    return 0


def row(name: str, url: str, rounds: int) -> str:
    promise = PROMISES[name]
    pairs = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            pairs.append(promise.sample(Path(place), url))
        print(f"{name} {number + 1}: {pairs[-1]}", file=sys.stderr, flush=True)
    with_it, without = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    spread = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"
    figures = f"{with_it:.1f} {promise.unit} | {without:.1f} {promise.unit} | {spread}"
    return f"| {promise.title} | {figures} | {promise.bound} | {rounds} |"


if __name__ == "__main__":
    sys.exit(main())
