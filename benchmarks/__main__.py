"""Measure Spindle beside pi from npm, or beside another state of itself (`states.py`): `python -m benchmarks --help`.

Peers take turns, so that a busy moment of the machine hits all of them: compare the ratios of one run, never figures
of two runs. Every figure is a median of fresh processes, with the least and the greatest beside it.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from scripts.marks import put

from benchmarks.peers import Peer, our_peer, pi_peer
from benchmarks.plot import draw
from benchmarks.scenarios import FIGURES, SCENARIOS
from benchmarks.states import compare

NEW, OLD = "0.87.1", "0.74.2"
"""pi with updates in delta form, and the last one with the full form."""
Samples = dict[str, dict[str, list[float]]]
"""Figure → peer → samples."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--base", help="a git ref: print CPU beside that state of this repository")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the rounds")
    parser.add_argument("--only", default="", help="scenarios: " + ",".join(one.sample.__name__ for one in SCENARIOS))
    parser.add_argument("--report", type=Path, help="a page with the part `beside`: write it, and a picture")
    parser.add_argument("--bound", type=float, help="fail if CPU is above so many times that of --base")
    options = parser.parse_args()
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model,
    ):
        assert model.stdin is not None and model.stdout is not None
        url, place = model.stdout.readline().strip(), Path(name)
        try:
            if options.base:
                return compare(place, url, options.base, options.scale, options.bound)
            peers = {form: [our_peer(place, url, form), pi_peer(place, url, FORMS[form])] for form in FORMS}
            begin = time.monotonic()
            samples = measure(peers, options.only.split(",") if options.only else [], options.scale)
        finally:
            model.stdin.close()
    text = part(peers, samples, time.monotonic() - begin)
    print(text)
    if options.report:
        options.report.write_text(put(options.report.read_text(), "beside", text))
        draw(options.report)
    return 0


FORMS = {"delta": NEW, "full": OLD}


def measure(peers: dict[str, list[Peer]], only: list[str], scale: float) -> Samples:
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for scenario in SCENARIOS:
        name = scenario.sample.__name__
        if only and name not in only:
            continue
        for peer in peers[scenario.form]:
            if name == "start":
                scenario.sample(peer)  # the first start ever compiles and caches modules
        for number in range(max(1, round(scenario.rounds * scale))):
            for peer in peers[scenario.form][:: 1 if number % 2 else -1]:
                for figure, value in scenario.sample(peer).items():
                    samples[figure][peer.title].append(value)
                print(f"{name} {number + 1} {peer.title}", file=sys.stderr, flush=True)
    return samples


# -- the part of the page ------------------------------------------------------------------------------------


def part(peers: dict[str, list[Peer]], samples: Samples, seconds: float) -> str:
    ours, others = peers["delta"][0].title, [peers[form][1].title for form in FORMS]
    names = " and ".join(dict.fromkeys(others))
    rows, worse = [], []
    for figure, values in samples.items():
        title, about = next(name for name in values if name != ours), FIGURES[figure]
        mine, theirs = values[ours], values[title]
        ratio = statistics.median(mine) / statistics.median(theirs)
        rows.append(
            f"| {about.title} | {about.spread(mine)} | {about.spread(theirs)} ({title}) | {ratio:.2f} | {len(mine)} |"
        )
        if about.more_is_better is not None and (ratio < 1 if about.more_is_better else ratio > 1):
            overlap = min(max(mine), max(theirs)) >= max(min(mine), min(theirs))
            note = "within the spread of this run" if overlap else "beyond the spread of this run"
            worse.append(f"* {about.title}: {ratio:.2f} of {title}'s figure, {note}.")
    machine = f"{os.cpu_count()} cores ({processor()}), {platform.system()} {platform.release()}"
    return PART.format(
        names=names,
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        commit=git("describe", "--always", "--dirty") or "unknown",
        machine=machine,
        python=platform.python_version(),
        load=" ".join(f"{value:.1f}" for value in os.getloadavg()),
        seconds=seconds,
        busy=BUSY if os.getloadavg()[0] > (os.cpu_count() or 1) else "",
        rows="\n".join(rows),
        worse="\n".join(worse) or "* In nothing that was measured.",
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True).stdout.strip()


BUSY = """

**The machine was busy with other work: these figures show that the program runs, not how fast anything is.**"""
PART = """\
Spindle ({commit}, Python {python}) beside {names}, written by `make bench` on {date}.
{machine}, load average {load} at the end, {seconds:.0f} seconds.{busy}

All talk to the same model server on loopback and take turns, each sample in a fresh process. Figures are medians, with
the least and the greatest in brackets. Compare the ratios; absolute figures differ from machine to machine and from
hour to hour.

![How many times better than pi Spindle is in each figure of the table](pictures/benchmarks.svg)

| what | Spindle | beside | Spindle / other | samples |
|---|---|---|---|---|
{rows}

### Where the others are better

{worse}

`make bench BASE=<git ref>` measures this checkout beside another state of itself, mostly in CPU, with agents of both
alive at once: every change that touches a path of a prompt is measured beside the state before it.
`benchmarks/sessions.py` measures the session library alone, and `python -m benchmarks.stored` lists and searches of ten
thousand sessions.
"""

if __name__ == "__main__":
    sys.exit(main())
