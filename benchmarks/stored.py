"""Many stored sessions: how long a list, a page and a search of them take.

    python -m benchmarks.stored [--sessions 10000]

Each figure is of a fresh process, wall and CPU in milliseconds, least of the rounds. *Cold* is without the catalog; the
files themselves may be in the memory of the system.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sessions import messages, write_session

OURS = """
import json, sys, time
from spindle.agent.library import Search
from spindle.sessions.pages import list_page
wall, cpu = time.monotonic(), time.process_time()
word = sys.argv[1]
fits = Search(word) if word else None
limit = int(sys.argv[2]) or None
count = len(list_page("/srv/demo", limit=limit, fits=fits).sessions)
print(json.dumps([count, (time.monotonic() - wall) * 1000, (time.process_time() - cpu) * 1000]))
"""
CASES = (("first page, cold", "", 100), ("first page, warm", "", 100), ("all, warm", "", 0), ("search", "nowhere", 50))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "agent/sessions/--srv-demo--")
        folder.mkdir(parents=True)
        now = int(time.time())
        for number in range(options.sessions):
            moment = now - number * 60
            said = ({**message, "timestamp": moment * 1000} for message in messages(4))
            path = write_session(folder / f"{number}.jsonl", said, f"session-{number}")
            os.utime(path, (moment, moment))
        print(f"| {options.sessions:,} sessions | ms | CPU ms | shown |\n|---|---|---|---|")
        for title, word, limit in CASES:
            found = [once(Path(name, "agent"), title, word, limit) for _ in range(options.rounds)]
            wall, cpu = (min(one[at] for one in found) for at in (1, 2))
            print(f"| {title} | {wall:,.0f} | {cpu:,.0f} | {found[0][0]:,} |", flush=True)


def once(agent_dir: Path, title: str, word: str, limit: int) -> tuple[int, float, float]:
    if title.endswith("cold"):
        (agent_dir / "spindle-sessions.db").unlink(missing_ok=True)
    command = [sys.executable, "-c", OURS, word, str(limit)]
    environment = os.environ | {"SPINDLE_DIR": str(agent_dir)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    count, wall, cpu = json.loads(done.stdout)
    return count, wall, cpu


if __name__ == "__main__":
    main()
