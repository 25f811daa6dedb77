"""Many subagents of one agent: `python -m benchmarks.subagents [--count 100]`.

One prompt makes the model give a task to all of them at once, and each answers in 50 pieces, one every 40 ms. Measures
the memory above that of the same process before, and how quickly `get_state` is answered meanwhile.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measured_agent import HEAD, MeasuredAgent
from benchmarks.peers import SETTINGS, our_peer

NOW = time.perf_counter
ASK_EVERY_S = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.subagents", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model,
    ):
        assert model.stdin is not None and model.stdout is not None
        try:
            for figure, value in measured(Path(name), model.stdout.readline().strip(), options.count).items():
                print(f"{figure:<60} {value}")
        finally:
            model.stdin.close()
    return 0


def measured(place: Path, model: str, count: int) -> dict[str, Any]:
    peer = our_peer(place, model, "delta")
    (peer.folder("agent") / "settings.json").write_text(json.dumps({**SETTINGS, "maxSubagents": 0}))  # all at once
    with MeasuredAgent(replace(peer, program=[*peer.program, "--tools", "read,bash,edit,write,task"])) as agent:
        agent.prompt("bench:tasks:1:5:1")  # the first one loads modules
        time.sleep(0.5)
        bare, begin, most = agent.rss_mib(), NOW(), 0.0
        streaming: set[bytes] = set()
        together, since, wanted = 0, 0.0, b"\0"
        asked: list[float] = []
        agent.send("prompt", message=f"bench:tasks:{count}:50:40")
        while True:
            if wanted == b"\0" and NOW() > since + ASK_EVERY_S:
                most = max(most, agent.rss_mib())
                since, wanted = NOW(), agent.send("get_state")
            head = agent.line()[:HEAD]
            if head.startswith(wanted):
                asked.append(NOW() - since)
                wanted = b"\0"
            elif head.startswith(b'{"type":"agent_settled"'):
                break
            elif head.startswith(b'{"type":"subagent_event"'):
                call = head.split(b'"', 8)[7]
                streaming = streaming | {call} if b'"text_delta"' in head else streaming
                together = max(together, len(streaming))
                streaming -= {call} if b'"agent_settled"' in head else set()
        took = NOW() - begin
        return {
            "subagents that stream at once": together,
            "memory before (MiB)": round(bare, 1),
            f"{count} subagents, above it (MiB)": round(most - bare, 1),
            "get_state meanwhile, median (ms)": round(statistics.median(asked) * 1e3, 1),
            "get_state meanwhile, slowest (ms)": round(max(asked) * 1e3, 1),
            "... asked so often": len(asked),
            "all together (s)": round(took, 2),
        }


if __name__ == "__main__":
    raise SystemExit(main())
