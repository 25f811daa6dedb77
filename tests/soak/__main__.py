"""Run the attacks: `python -m tests.soak [--seconds 3600] [--seed WORD] [--only kills,lines]`; see --help.

Each attack gets its share of the time. A broken promise ends its attack, not the others; the exit code is 1 then.
`--report FILE` writes the figures into the part `survived` of a page.
"""

import argparse
import os
import platform
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripts.marks import put

from tests.soak.attack import Attack, strike
from tests.soak.disks import Disks
from tests.soak.endurance import Endurance
from tests.soak.failovers import Failovers
from tests.soak.faults import Faults
from tests.soak.fuzzing import DOORS
from tests.soak.kills import Kills
from tests.soak.matrix import Matrix
from tests.soak.nodes import Nodes
from tests.soak.readers import Pipes, Sockets
from tests.soak.resumes import Resumes
from tests.soak.shells import Shells
from tests.support import nursery

ATTACKS: list[type[Attack]] = [
    *(Kills, Resumes, Nodes, *DOORS, Faults, Failovers, Disks, Pipes, Sockets, Shells, Matrix, Endurance),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="for all attacks together")
    parser.add_argument(
        "--seed", default=secrets.token_hex(4), help="the seed of an earlier run strikes the same blows"
    )
    parser.add_argument("--only", default="", help="names of attacks: " + ",".join(attack.name for attack in ATTACKS))
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--rounds", type=int, help="so many rounds of each attack, instead of a time")
    parser.add_argument("--report", type=Path, help="a page with the part `survived`, which is written")
    options = parser.parse_args()
    nursery.use_short_way(False)  # its figures are those of the program as users start it
    names = options.only.split(",") if options.only else [attack.name for attack in ATTACKS]
    chosen = [attack for attack in ATTACKS if attack.name in names]
    shares = sum(attack.share for attack in chosen)
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip() or "unknown"
    print(f"seed {options.seed}, commit {commit}", flush=True)
    rows, failed, began = [], False, time.monotonic()
    for kind in chosen:
        attack, start, result = kind(), time.monotonic(), "held"
        rounds = options.rounds or kind.enough
        seconds = None if options.rounds else options.seconds * kind.share / shares
        try:
            strike(attack, options.seed, rounds=rounds, seconds=seconds, first=options.first)
        except pytest.skip.Exception as missing:
            result = f"not run: {missing}"
        except Exception as error:
            result, failed = f"BROKEN: {type(error).__name__}: {str(error)[:300]}", True
        rows.append(row(attack, time.monotonic() - start, result))
        print(rows[-1], flush=True)
    if options.report:
        text = part(options.seed, commit, time.monotonic() - began, rows)
        options.report.write_text(put(options.report.read_text(), "survived", text))
    return int(failed)


def row(attack: Attack, seconds: float, result: str) -> str:
    figures = [f"{count:,} {name}" for name, count in attack.figures.items()] + attack.notes
    gaps = [f"open: {promise} ({count} times not)" for promise, count in attack.broken.items()]
    told = " ".join("; ".join([result, *gaps]).replace("|", "/").split())
    return f"| {attack.name} | {seconds:,.0f} s | {', '.join(figures)} | {told} |"


def part(seed: str, commit: str, seconds: float, rows: list[str]) -> str:
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return PART.format(commit=commit, date=date, minutes=seconds / 60, machine=machine, seed=seed, rows="\n".join(rows))


PART = """\
Written by `make soak`, which attacks the real process (`spindle --mode rpc`, `spindle serve`) with a scripted model
server; `tests/soak` says how. This run, of commit {commit} on {date}, took {minutes:.0f} minutes (a whole one takes an
hour) on {machine}. Its seed is {seed}: `make soak SEED={seed}` repeats the same attacks, but not at the same moments.

| attack | time | counts | result |
|---|---|---|---|
{rows}

"Held" means that no promise broke: every line gets exactly one response, everything that a client was told is in the
session file, no line of that file is torn, every run ends, the process lives, and memory, descriptors and children stay
flat. Flat memory: after a quarter of the rounds as warm-up, the last third has at most 8 MiB more than the first.
"Open" names a promise that is known not to hold yet, and how often it broke. A shorter form of all attacks runs with
the tests (`tests/soak/test_soak.py`).
"""

if __name__ == "__main__":
    sys.exit(main())
