"""Many tasks in one process, beside a shell loop over `spindle -p` and one over `pi -p`.

    python -m benchmarks.batch [--tasks 1000] [--loop 5] [--worktrees 50] [--jobs 64]

Every task has two model calls, to a server that is never the bottleneck, and a bash call between them. CPU time is that
of our process, without the commands of the tasks. The first two rows show that the cost of a task does not grow with
the number of tasks. Compare only ratios of one run.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.__main__ import NEW
from benchmarks.peers import Peer, our_peer, pi_peer

PROMPT = "bench:tool:1"


class Figures:
    """Time, CPU and memory of one command."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds = time.monotonic() - begin
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.memory = used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--loop", type=int, default=5)
    parser.add_argument("--worktrees", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=64)
    options = parser.parse_args()
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model,
    ):
        assert model.stdin is not None and model.stdout is not None
        try:
            url = model.stdout.readline().strip()
            measure(Path(name), our_peer(Path(name), url, "delta"), pi_peer(Path(name), url, NEW), options)
        finally:
            model.stdin.close()


def measure(place: Path, ours: Peer, pi: Peer, options: argparse.Namespace) -> None:
    choice = ["--provider", "bench", "--model", "bench"]
    print("| what | tasks | seconds | ms per task | CPU ms per task | memory MiB |")
    print("|---" * 6 + "|")

    def row(what: str, count: int, figures: Figures) -> None:
        each, cpu = figures.seconds / count * 1e3, figures.cpu / count * 1e3
        print(
            f"| {what} | {count:,} | {figures.seconds:.1f} | {each:.1f} | {cpu:.1f} | {figures.memory:.0f} |",
            flush=True,
        )

    def batch(title: str, count: int, **fields: str) -> None:
        tasks, out = place / f"{title}-{count}.jsonl", place / f"runs-{title}-{count}"
        own = [ours.folder(f"work/{number}") for number in range(count)]
        lines = ({"id": f"t{n}", "prompt": PROMPT, **(fields or {"cwd": str(own[n])})} for n in range(count))
        tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [ours.program[0], "batch", str(tasks), "-o", str(out), "-j", str(options.jobs), *choice]
        figures = Figures(command, place, ours.environment)
        done = (out / "results.jsonl").read_text()
        if done.count('"status":"ok"') != count or done.count('"toolCalls":1') != count:
            raise RuntimeError("not all tasks were done")
        row(f"`spindle batch`, {title}", count, figures)

    def loop(title: str, peer: Peer) -> None:
        one = shlex.join([*peer.program, *choice, "-p", PROMPT])
        many = ["sh", "-c", f"for n in $(seq {options.loop}); do {one} || exit 1; done"]
        row(f"`{title}` in a shell loop", options.loop, Figures(many, peer.folder("work"), peer.environment))

    batch("a directory each", max(1, options.tasks // 10))
    batch("a directory each", options.tasks)
    repo = place / "repo"
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    for words in (["init", "-q", str(repo)], ["-C", str(repo), "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    batch("a worktree each", options.worktrees, repo=str(repo))
    loop("spindle -p", ours)
    loop("pi -p", pi)


if __name__ == "__main__":
    main()
