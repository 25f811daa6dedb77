"""The scenarios. Each takes one sample of one peer, in a fresh process, and returns figures by name."""

import json
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_agent import MeasuredAgent
from benchmarks.peers import Peer
from benchmarks.sessions import messages, short_messages, write_session

__all__ = ["FIGURES", "SCENARIOS", "Figure", "Scenario", "model_latency", "stored"]

Sample = dict[str, float]
NOW = time.perf_counter


@dataclass(frozen=True)
class Figure:
    title: str
    form: str
    """How it is printed."""
    more_is_better: bool | None = False
    """None: neither; the figure explains another one."""

    def spread(self, values: list[float]) -> str:
        """Return the median of some samples, with the least and the greatest."""
        middle, least, most = (
            f"{value:{self.form}}" for value in (statistics.median(values), min(values), max(values))
        )
        return f"{middle} [{least}–{most}]"

    def quartiles(self, values: list[float]) -> str:
        """Return the median of some samples, with the quartiles."""
        first, middle, third = statistics.quantiles(values, method="inclusive") if len(values) > 1 else values * 3
        return f"{middle:{self.form}} [{first:{self.form}}–{third:{self.form}}]"


FIGURES = {
    "start": Figure("cold start to the first answer (ms)", ".0f"),
    "start_cpu": Figure("CPU of a cold start (ms)", ".0f"),
    "rss": Figure("idle memory, RSS (MiB)", ".0f"),
    "first_delta": Figure("prompt to first delta, over the model's own time (ms)", ".2f"),
    "turn_cpu": Figure("CPU of a short turn (ms)", ".1f"),
    "state": Figure("`get_state`, hot (ms)", ".3f"),
    "deltas": Figure("deltas per second, 5,000 in one answer", ",.0f", True),
    "deltas_cpu": Figure("deltas per CPU second", ",.0f", True),
    "rounds": Figure("tool loop, bash `true`: rounds per second", ".1f", True),
    "abort": Figure("abort in mid-answer to idle (ms)", ".1f"),
    "switch_first": Figure("switch to a session of 10,000 entries, first (ms)", ".0f"),
    "switch_again": Figure("switch to it again (ms)", ".0f"),
    "messages": Figure("`get_messages` of 2,000 (ms)", ".1f"),
    "unpaced": Figure("full form: bytes of 1,000 deltas at once (MB)", ".2f"),
    "unpaced_told": Figure("… told in so many updates", ",.0f", None),
    "paced": Figure("full form: bytes of 1,000 deltas, one per ms (MB)", ".2f"),
    "paced_told": Figure("… told in so many updates", ",.0f", None),
}


def start(peer: Peer) -> Sample:
    with MeasuredAgent(peer) as agent:
        time.sleep(0.3)  # memory taken after the first answer counts as idle memory, too
        return {"start": agent.start_s * 1e3, "start_cpu": agent.start_cpu_s * 1e3, "rss": agent.rss_mib()}


def hot(peer: Peer) -> Sample:
    with MeasuredAgent(peer) as agent:
        for _ in range(8):
            agent.prompt("bench:text:1")
        runs = [(agent.prompt("bench:text:1"), model_latency(peer.model)) for _ in range(6)]
        for _ in range(20):
            agent.request("get_state")
        states = [agent.timed("get_state") for _ in range(50)]
        over = sorted(run.first_delta - bare for run, bare in runs)
        turns = sorted(run.cpu for run, _ in runs)
        return {
            "first_delta": over[len(over) // 2] * 1e3,
            "turn_cpu": turns[len(turns) // 2] * 1e3,
            "state": sorted(states)[len(states) // 2] * 1e3,
        }


def stream(peer: Peer) -> Sample:
    count = 5000
    with MeasuredAgent(peer) as agent:
        agent.prompt("bench:text:300")
        agent.request("new_session")
        run = agent.prompt(f"bench:text:{count}")
        return {"deltas": count / run.seconds, "deltas_cpu": count / run.cpu}


def tools(peer: Peer) -> Sample:
    count = 40
    with MeasuredAgent(peer) as agent:
        agent.prompt("bench:tool:3")
        agent.request("new_session")
        run = agent.prompt(f"bench:tool:{count}")
        if run.tools != count:
            raise RuntimeError(f"{peer.title} ran {run.tools} of {count} tool calls")
        return {"rounds": count / run.seconds}


def abort(peer: Peer) -> Sample:
    taken = []
    with MeasuredAgent(peer) as agent:
        for _ in range(3):
            agent.prompt("bench:text:5")
            agent.send("prompt", message="bench:slow:600:20")
            agent.wait(b"text_delta")
            begin = NOW()
            agent.send("abort")
            agent.wait(peer.idle)
            taken.append(NOW() - begin)
    return {"abort": sorted(taken)[1] * 1e3}


def sessions(peer: Peer) -> Sample:
    big, middle, small = (stored(peer, count) for count in (10_000, 2_000, 4))
    with MeasuredAgent(peer) as agent:
        agent.request("switch_session", sessionPath=small)
        first = agent.timed("switch_session", sessionPath=big)
        if b'"messageCount":10000' not in agent.request("get_state"):
            raise RuntimeError(f"{peer.title} has not opened all of the session")
        agent.request("switch_session", sessionPath=small)
        again = agent.timed("switch_session", sessionPath=big)
        agent.request("switch_session", sessionPath=middle)
        agent.request("get_messages")
        taken = sorted(agent.timed("get_messages") for _ in range(5))[2]
        return {"switch_first": first * 1e3, "switch_again": again * 1e3, "messages": taken * 1e3}


def stored(peer: Peer, count: int, *, short: bool = False) -> str:
    """Return a session file of `count` entries. Each peer has its own, since an agent may lock it or write to it."""
    number = f"{count:09d}{short:03d}"
    path: Path = peer.folder("sessions") / f"2026-01-01T00-00-00-000Z_{number}.jsonl"
    if not path.exists():
        said = short_messages(count) if short else messages(count)
        write_session(path, said, f"019a0000-0000-7000-8000-{number}", cwd=str(peer.folder("work")))
    return str(path)


def full_form(peer: Peer) -> Sample:
    with MeasuredAgent(peer) as agent:
        agent.prompt("bench:text:100")
        agent.request("new_session")
        unpaced = agent.prompt("bench:text:1000")
        agent.request("new_session")
        paced = agent.prompt("bench:slow:1000:1")
        return {
            "unpaced": unpaced.bytes / 1e6,
            "unpaced_told": unpaced.deltas,
            "paced": paced.bytes / 1e6,
            "paced_told": paced.deltas,
        }


@dataclass(frozen=True)
class Scenario:
    sample: Callable[[Peer], Sample]
    rounds: int
    form: str = "delta"


SCENARIOS = [
    Scenario(start, 7),
    Scenario(hot, 4),
    Scenario(stream, 4),
    Scenario(tools, 4),
    Scenario(abort, 4),
    Scenario(sessions, 4),
    Scenario(full_form, 2, "full"),
]


def model_latency(url: str) -> float:
    """Return the least of three times from a request to its first delta, without an agent."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"messages": [{"role": "user", "content": "bench:text:1"}]}).encode()
    times = []
    with socket.create_connection((host, int(port))) as wire:
        for _ in range(3):
            begin, data, first = NOW(), b"", 0.0
            wire.sendall(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            while not data.endswith(b"0\r\n\r\n"):
                data += wire.recv(65536)
                if not first and b'"content":"0' in data:
                    first = NOW() - begin
            times.append(first)
    return min(times)
