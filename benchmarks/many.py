"""Many sessions in one process: `python -m benchmarks.many [--idle 1000] [--streams 100]`.

Measures the memory of idle sessions, the time to open one, 100 sessions that stream at once, how quickly `get_state` is
answered meanwhile, and the memory after all are closed. Everything goes through one pair of pipes. A session streams
only once, so one alone and each of the hundred have the same work, including that of making the session file.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measured_agent import HEAD, MeasuredAgent
from benchmarks.peers import our_peer

NOW = time.perf_counter
ROUNDS = 3
ASK_EVERY_S = 0.02
"""Asking without pauses would itself be work for the agent."""


def opened(agent: MeasuredAgent, cwd: Path) -> tuple[str, float]:
    """Open a session; return its id, and how many seconds that took."""
    cwd.mkdir(exist_ok=True)
    start = NOW()
    answer = agent.request("open_session", cwd=str(cwd))
    return json.loads(answer)["data"]["id"], NOW() - start


def idle(agent: MeasuredAgent, place: Path, count: int) -> tuple[list[str], dict[str, Any]]:
    time.sleep(0.5)  # modules loaded after the first answer are part of the bare process
    bare = agent.rss_mib()
    ids, times = zip(*(opened(agent, place / f"d{number % 20}") for number in range(count)), strict=True)
    return list(ids), {
        "bare process (MiB)": round(bare, 1),
        f"{count} idle sessions, above it (MiB)": round(agent.rss_mib() - bare, 1),
        "open_session, the hundredth (ms)": round(times[min(99, count - 1)] * 1e3, 1),
        "open_session, median (ms)": round(sorted(times)[count // 2] * 1e3, 1),
        "list_live_sessions of all (ms)": round(agent.timed("list_live_sessions") * 1e3, 1),
    }


def streams(agent: MeasuredAgent, fresh: Iterator[str], count: int) -> dict[str, Any]:
    """Let `count` sessions stream at once; right after the prompts, begin to ask for the state of the first session.

    The first round opens the connections to the model server, the later ones use them again.
    """
    ask: list[float] = []
    alone, slowest, took = [], [], []
    for _ in range(ROUNDS):
        alone += [first_deltas(agent, [next(fresh)])[0] for _ in range(3)]
        begin = NOW()
        slowest.append(max(first_deltas(agent, [next(fresh) for _ in range(count)], ask)))
        took.append(NOW() - begin)
    one = statistics.median(alone)
    return {
        "first delta of one alone, median (ms)": round(one * 1e3, 1),
        f"first delta of the slowest of {count}, each round (ms)": [round(time * 1e3) for time in slowest],
        "… times that of one alone": [round(time / one, 1) for time in slowest],
        "get_state meanwhile, slowest of those asked (ms)": round(max(ask) * 1e3, 1),
        "… asked so often": len(ask),
        f"{count} answers of 50 pieces, all together (s)": [round(time, 2) for time in took],
    }


def first_deltas(agent: MeasuredAgent, ids: list[str], asked: list[float] | None = None) -> list[float]:
    """Prompt each session and return the seconds to the first piece of each answer; a piece comes every 20 ms."""
    begin: dict[bytes, float] = {}
    for id in ids:
        begin[id.encode()] = NOW()
        agent.send("prompt", message="bench:slow:50:20", sessionId=id)
    firsts: dict[bytes, float] = {}
    settled, wanted, since = 0, b"\0", 0.0
    while settled < len(ids):
        if asked is not None and wanted == b"\0" and NOW() > since + ASK_EVERY_S:
            since, wanted = NOW(), agent.send("get_state")
        head = agent.line()[:HEAD]
        if head.startswith(wanted):
            assert asked is not None
            asked.append(NOW() - since)
            wanted = b"\0"
        session = head[14:50]
        if b'"text_delta"' in head and session in begin:
            firsts.setdefault(session, NOW() - begin[session])
        elif b'"agent_settled"' in head:
            settled += 1
    return list(firsts.values())


def closed(agent: "Agent", ids: list[str]) -> dict[str, Any]:
    for id in ids:
        agent.request_in(id, "close_session")
    return {"after closing all of them (MiB)": round(agent.rss_mib(), 1)}


class Agent(MeasuredAgent):
    def request_in(self, id: str, type: str) -> None:
        """Send a command to a session other than the first, and wait for its response."""
        wanted = b'"id":"b%d"' % (self._count + 1)
        self.send(type, sessionId=id)
        while wanted not in self.line()[:HEAD]:
            pass


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=__doc__)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for figure, value in measured(Path(name), options.idle, options.streams).items():
            print(f"{figure:<60} {value}")
    return 0


def measured(place: Path, count: int, streaming: int) -> dict[str, Any]:
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdin is not None and model.stdout is not None
        try:
            with Agent(our_peer(place, model.stdout.readline().strip(), "delta")) as agent:
                agent.prompt("bench:text:5")  # the first model call loads modules
                ids, figures = idle(agent, place, count)
                runs = ROUNDS * (streaming + 3)
                ids += [opened(agent, place / f"d{number % 20}")[0] for number in range(runs - count)]
                cpu = agent.cpu()
                figures |= streams(agent, iter(ids), streaming)
                figures["CPU of a prompt and its answer (ms)"] = round((agent.cpu() - cpu) / runs * 1e3, 1)
                return figures | closed(agent, ids)
        finally:
            model.stdin.close()


if __name__ == "__main__":
    raise SystemExit(main())
