"""This state of Spindle beside an earlier one: `make bench BASE=<git ref>`.

Agents of both states are alive at once and asked in turns, so a busy moment of the machine hits both; most figures are
CPU of the agent and its children, which other work changes less than time. Both run on the packages of this checkout's
environment. They are driven only over their pipes, because modules of the earlier state may have other names.
"""

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measured_agent import MeasuredAgent
from benchmarks.peers import ROOT, Peer, state_peer
from benchmarks.scenarios import Figure, model_latency, stored

__all__ = ["FIGURES", "compare"]

ROUNDS = 10
Samples = dict[str, tuple[list[float], list[float]]]
"""Figure → samples of this state, samples of the earlier one."""

FIGURES = {
    "start": Figure("CPU of a cold start (ms)", ".0f"),
    "state": Figure("CPU of `get_state` (µs)", ".0f"),
    "messages": Figure("CPU of `get_messages`, 2,000 messages (ms)", ".2f"),
    "short_messages": Figure("CPU of `get_messages`, 2,000 short messages (ms)", ".2f"),
    "short_turn": Figure("CPU of a turn with one delta (ms)", ".2f"),
    "tool_turn": Figure("CPU of a turn with a tool call that may write (ms)", ".1f"),
    "unkept_turn": Figure("CPU of that turn without checkpoints (ms)", ".1f"),
    "deltas": Figure("CPU of 1,000 deltas (ms)", ".2f"),
    "first_delta": Figure("prompt to first delta, over the model's own time (ms)", ".2f"),
    "rss": Figure("memory after the start, RSS (MiB)", ".1f"),
}
NO_CPU = ("first_delta", "rss")
"""Figures that the bound does not hold for."""


def compare(place: Path, model: str, base: str, scale: float = 1.0, bound: float | None = None) -> int:
    """Print a table of both states. Returns 1 if a CPU figure is above `bound` times that of `base`, else 0."""
    begin = time.monotonic()
    name = subprocess.check_output(["git", "rev-parse", "--short", f"{base}^{{commit}}"], cwd=ROOT, text=True).strip()
    peers = [
        state_peer(place, model, ROOT / "src", "this state"),
        state_peer(place, model, extracted(place / "source", name), name),
    ]
    for peer in peers:
        check_source(peer)
        with MeasuredAgent(peer):
            pass  # the first start ever compiles the package
    samples: Samples = defaultdict(lambda: ([], []))
    rounds = max(1, round(ROUNDS * scale))
    for number in range(rounds):
        for figure, values in one_round(peers, swapped=number % 2 == 1).items():
            for into, value in zip(samples[figure], values, strict=True):
                into.append(value)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    ratios = {figure: [a / b for a, b in zip(*samples[figure], strict=True)] for figure in FIGURES}
    print(table(name, samples, ratios))
    print(f"\n{rounds} rounds in {time.monotonic() - begin:.0f} seconds; medians, with the quartiles.")
    return check_bound(name, {figure: statistics.median(values) for figure, values in ratios.items()}, bound)


def extracted(folder: Path, ref: str) -> Path:
    """Unpack the packages of another state into `folder`, and return where they are."""
    folder.mkdir()
    archive = subprocess.check_output(["git", "archive", ref, "src"], cwd=ROOT)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder / "src"


def check_source(peer: Peer) -> None:
    """Raise `RuntimeError` if the peer would run another state than the one it is named after."""
    program = [peer.program[0], "-c", "import spindle; print(spindle.__file__)"]
    found = subprocess.check_output(program, cwd=peer.folder("work"), env=peer.environment, text=True).strip()
    if peer.source is None or not Path(found).is_relative_to(peer.source):
        raise RuntimeError(f"{peer.title} would run {found}")


def one_round(peers: list[Peer], *, swapped: bool) -> dict[str, list[float]]:
    """Return figures of fresh processes, with values in the order of `peers`."""
    with ExitStack() as stack:
        agents = [stack.enter_context(MeasuredAgent(peer)) for peer in (peers[::-1] if swapped else peers)]
        time.sleep(0.3)  # modules loaded after the first answer are part of its memory
        found = {
            "start": [agent.start_cpu_s * 1e3 for agent in agents],
            "rss": [agent.rss_mib() for agent in agents],
            "state": in_turns(agents, 8, lambda agent: cpu(agent, 50, lambda: agent.request("get_state")) * 1e6),
            "messages": messages(agents, lambda peer: stored(peer, 2000)),
            "short_messages": messages(agents, lambda peer: stored(peer, 2000, short=True)),
            **turns(agents),
        }
    found["unkept_turn"] = unkept_turn(peers, swapped=swapped)
    return {figure: values[::-1] if swapped else values for figure, values in found.items()}


def messages(agents: list[MeasuredAgent], session: Callable[[Peer], str]) -> list[float]:
    for agent in agents:
        agent.request("switch_session", sessionPath=session(agent.peer))
    return in_turns(agents, 8, lambda agent: cpu(agent, 2, lambda: agent.request("get_messages")) * 1e3)


def turns(agents: list[MeasuredAgent]) -> dict[str, list[float]]:
    for agent in agents:
        agent.request("new_session")
        for text in ("bench:text:300", "bench:shell:1", "bench:text:1"):
            agent.prompt(text)

    def first_delta(agent: MeasuredAgent) -> float:
        return (agent.prompt("bench:text:1").first_delta - model_latency(agent.peer.model)) * 1e3

    return {
        "first_delta": in_turns(agents, 8, first_delta),
        "short_turn": in_turns(agents, 3, lambda agent: cpu(agent, 20, lambda: agent.prompt("bench:text:1")) * 1e3),
        "tool_turn": in_turns(agents, 3, tool_turn),
        "deltas": in_turns(agents, 3, lambda agent: agent.prompt("bench:text:5000").cpu / 5 * 1e3),
    }


def tool_turn(agent: MeasuredAgent) -> float:
    return cpu(agent, 10, lambda: agent.prompt("bench:shell:1")) * 1e3


def unkept_turn(peers: list[Peer], *, swapped: bool) -> list[float]:
    """Return the CPU of a turn with a tool call where no checkpoints are kept, in agents of their own."""
    with ExitStack() as stack:
        in_order = peers[::-1] if swapped else peers
        agents = [stack.enter_context(MeasuredAgent(peer.configured(checkpoints=False))) for peer in in_order]
        for agent in agents:
            agent.prompt("bench:shell:1")
        values = in_turns(agents, 3, tool_turn)
    for peer in peers:
        peer.configured()
    return values


def in_turns(agents: list[MeasuredAgent], times: int, measure: Callable[[MeasuredAgent], float]) -> list[float]:
    """Measure the agents in turns, and return the median of each."""
    rows = [[measure(agent) for agent in agents] for _ in range(times)]
    return [statistics.median(values) for values in zip(*rows, strict=True)]


def cpu(agent: MeasuredAgent, times: int, work: Callable[[], object]) -> float:
    """Return the CPU seconds of an agent for `work`, done `times` times to make up for a coarse clock."""
    before = agent.cpu()
    for _ in range(times):
        work()
    return (agent.cpu() - before) / times


def table(name: str, samples: Samples, ratios: dict[str, list[float]]) -> str:
    rows = [f"| what | this state | {name} | this state / {name} |", "|---|---|---|---|"]
    ratio = Figure("", ".2f")
    for key, figure in FIGURES.items():
        ours, theirs = samples[key]
        cells = figure.title, figure.quartiles(ours), figure.quartiles(theirs), ratio.quartiles(ratios[key])
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def check_bound(name: str, ratios: dict[str, float], bound: float | None) -> int:
    above = [key for key, ratio in ratios.items() if bound is not None and key not in NO_CPU and ratio > bound]
    for key in above:
        print(f"{FIGURES[key].title}: {ratios[key]:.2f} of {name}, more than {bound}", file=sys.stderr)
    return 1 if above else 0
