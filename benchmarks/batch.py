"""Many scripted tasks in one process, beside a shell loop over `spindle -p`.

    python -m benchmarks.batch [--tasks 1000] [--loop 20] [--worktrees 100] [--jobs 64]

Every task has two model calls and a bash between them. CPU time and memory are those of our process, without the
commands of the tasks. That the cost of a task does not grow with their number is seen in the first two rows.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = [
    {"match": ".", "calls": [{"name": "bash", "arguments": {"command": "true"}}], "usage": {"input": 10, "output": 5}},
    {"match": ".", "text": "done", "usage": {"input": 20, "output": 5}},
]


class Figures:
    """What one command took."""

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
    parser.add_argument("--loop", type=int, default=20)
    parser.add_argument("--worktrees", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        env = {**os.environ, "SPINDLE_DIR": str(place / "agent"), "HOME": name}
        for folder in ("agent", "work"):
            (place / folder).mkdir()
        (place / "script.json").write_text(json.dumps(SCRIPT))
        spindle, model = [sys.executable, "-m", "spindle"], ["--model", f"scripted/{place / 'script.json'}"]
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
            own = [place / "work" / str(number) for number in range(count)]
            for folder in own:
                folder.mkdir(exist_ok=True)
            lines = ({"id": f"t{n}", "prompt": f"task {n}", **(fields or {"cwd": str(own[n])})} for n in range(count))
            tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
            command = [*spindle, "batch", str(tasks), "-o", str(out), "-j", str(options.jobs), *model]
            figures = Figures(command, place, env)
            done = (out / "results.jsonl").read_text()
            if done.count('"status":"ok"') != count or done.count('"tool_calls":1') != count:
                raise RuntimeError("not all tasks were done")
            row(f"`spindle batch`, {title}", count, figures)

        batch("a directory each", max(1, options.tasks // 10))
        batch("a directory each", options.tasks)
        repo = place / "repo"
        git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
        for words in (["init", "-q", str(repo)], ["-C", str(repo), "commit", "-q", "--allow-empty", "-m", "first"]):
            subprocess.run([*git, *words], check=True)
        batch("a worktree each", options.worktrees, repo=str(repo))
        loop = f'for n in $(seq {options.loop}); do {" ".join([*spindle, *model])} -p "task $n" || exit 1; done'
        row("`spindle -p` in a shell loop", options.loop, Figures(["sh", "-c", loop], place / "work", env))


if __name__ == "__main__":
    main()
