"""First delta with PostgreSQL beside files: `python -m benchmarks.nodes [--prompts 200] [--idle 1000]`.

A server on files and one on a database of its own (a real PostgreSQL on this machine, `fsync` on) are prompted in turns
over HTTP; what counts is the difference within each pair. `--idle`: memory of so many sessions without work, too.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from tests.support import postgres

from benchmarks.peers import ROOT, our_peer

WARM = 10
"""Prompts before the first that counts."""


class Node:
    def __init__(self, place: Path, model: str, title: str, *options: str) -> None:
        peer = our_peer(place, model, "delta", title=title)
        peer.program[0] = str(ROOT / ".venv/bin/spindle")
        command = [peer.program[0], "serve", "127.0.0.1:0", "--model", "bench/bench", *options]
        command += ["--remote-option", "max_sessions=5000"]
        log = place / f"{title}.log"
        self.process = subprocess.Popen(
            command, cwd=peer.folder("work"), env=peer.environment, stderr=log.open("wb"), stdin=subprocess.DEVNULL
        )
        while not (found := re.search(r"Listening on http://[\d.]+:(\d+)/", log.read_text())):
            if self.process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.02)
        self.port = int(found[1])
        self.requests = HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.session = self.open()
        self._events = HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._events.request("GET", f"/v1/sessions/{self.session}/events")
        self._stream: HTTPResponse = self._events.getresponse()
        self._until(b'"ready"')

    def open(self) -> str:
        return str(self._ask("POST", "/v1/sessions", {})["id"])

    def _ask(self, method: str, path: str, body: Any) -> Any:
        self.requests.request(method, path, json.dumps(body))
        answer = self.requests.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise SystemExit(data.decode())
        return json.loads(data) if data else None

    def _until(self, word: bytes) -> None:
        while word not in (line := self._stream.readline()):
            if not line:
                raise SystemExit("the stream of events has ended")

    def first_delta(self) -> float:
        """Return the milliseconds from a prompt to the first piece of its answer."""
        began = time.perf_counter()
        body = json.dumps({"message": "bench:text:1"})
        self.requests.request("POST", f"/v1/sessions/{self.session}/prompt", body)
        self._until(b'"text_delta"')
        taken = time.perf_counter() - began
        self.requests.getresponse().read()
        self._until(b'"agent_settled"')
        time.sleep(0.02)  # the notes of the end are on their way
        return taken * 1e3

    def memory(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) / 1024

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--idle", type=int, default=0)
    options = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = postgres.Server.of_its_own("on")
        stack.callback(database.remove)
        model = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fast_model"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(model.kill)
        assert model.stdout is not None
        url = model.stdout.readline().decode().strip()
        files = Node(place, url, "files")
        stack.callback(files.end)
        stored = Node(place, url, "postgres", "--store", database.database())
        stack.callback(stored.end)
        pairs = []
        for number in range(WARM + options.prompts):
            both = {node: node.first_delta() for node in ((files, stored) if number % 2 else (stored, files))}
            pairs.append((both[files], both[stored]))
        columns = {
            "files": [one for one, _ in pairs[WARM:]],
            "PostgreSQL": [one for _, one in pairs[WARM:]],
            "more": [theirs - ours for ours, theirs in pairs[WARM:]],
        }
        print("| first delta (ms) | median | 10 % | 90 % |\n|---|---|---|---|")
        for title, values in columns.items():
            tenths = statistics.quantiles(values, n=10)
            print(f"| {title} | {statistics.median(values):.2f} | {tenths[0]:.2f} | {tenths[-1]:.2f} |", flush=True)
        for node, title in ((files, "files"), (stored, "PostgreSQL")) if options.idle else ():
            before = node.memory()
            for _ in range(options.idle):
                node.open()
            print(f"{options.idle} idle sessions, {title}: {node.memory() - before:.0f} MiB more than {before:.0f}")


if __name__ == "__main__":
    main()
