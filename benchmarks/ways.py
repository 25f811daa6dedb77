"""The way of a prompt through the house: `python -m benchmarks.ways`.

Counts functions, calls, and switches between packages of ours, from the moment a prompt is sent until the agent has
settled, after two runs that warm everything up; `-v` prints each function with its calls. The agent is the real
process, with a profiler that two signals switch on and off; the figures of a run differ by a few calls, as answers come
in one piece or in two. Of a batch with one task the whole process is counted, from its start to its end.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import spindle

HOME = str(Path(spindle.__file__).parent) + os.sep
TEXT, BASH, READING = "bench:text:3", "bench:shell:1", "bench:tool:1"
WARM_UP = 2


class Profiler:
    """Counts calls of functions below `src/spindle` while it is on."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.functions: Counter[Any] = Counter()
        self.calls = self.switches = 0
        self._last = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(HOME):
            return
        self.functions[code] += 1
        self.calls += 1
        room = code.co_filename[len(HOME) :].partition(os.sep)[0]
        if room != self._last:
            self.switches, self._last = self.switches + 1, room

    def on(self, *signal: Any) -> None:
        self._clear()
        threading.setprofile(self)
        sys.setprofile(self)

    def off(self, *signal: Any) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        counts = self.functions.items()
        names = sorted(f"{code.co_filename[len(HOME) :]} {code.co_qualname} {count}" for code, count in counts)
        result = {"calls": self.calls, "switches": self.switches, "functions": names}
        target = Path(os.environ["WAYS_RESULT"])
        target.with_suffix(".new").write_text(json.dumps(result))
        target.with_suffix(".new").replace(target)


def traced(arguments: list[str]) -> int:
    """Be the agent, with a counter in it."""
    from spindle.apps.cli import main

    counter = Profiler()
    if "batch" in arguments:
        leave = os._exit

        def told(code: int) -> None:
            counter.off()
            leave(code)

        os._exit = told  # type: ignore[assignment]  # how the program ends
        counter.on()
    signal.signal(signal.SIGUSR1, counter.on)
    signal.signal(signal.SIGUSR2, counter.off)
    return main(arguments)


class Traced:
    """The agent in a process of its own."""

    def __init__(self, folder: Path, url: str, *arguments: str, cwd: Path | None = None) -> None:
        self.result = folder / "result.json"
        model = {"id": "bench", "name": "bench", "contextWindow": 200_000, "maxTokens": 8192}
        provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [model]}
        (folder / "models.json").write_text(json.dumps({"providers": {"bench": provider}}))
        env = {**os.environ, "SPINDLE_DIR": str(folder), "WAYS_RESULT": str(self.result), "PI_OFFLINE": "1"}
        env["PYTHONPATH"] = str(Path(__file__).parents[1])
        command = [sys.executable, "-m", "benchmarks.ways", "--traced", *arguments, "--model", "bench/bench"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def count(self, prompt: Callable[[], None]) -> dict[str, Any]:
        for _ in range(WARM_UP):
            prompt()
        time.sleep(0.5)  # what follows the run by itself
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        prompt()
        time.sleep(0.2)
        self.process.send_signal(signal.SIGUSR2)
        for _ in range(100):
            if self.result.exists():
                break
            time.sleep(0.05)
        return self.found()

    def found(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.result.read_text())
        return result

    def port(self) -> int:
        """Return the port that a server listens on."""
        stderr = self.process.stderr
        assert stderr is not None
        found = next(found for line in stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
        threading.Thread(target=stderr.read, daemon=True).start()
        return int(found[1])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def rpc(folder: Path, url: str, text: str) -> dict[str, Any]:
    agent = Traced(folder, url, "--mode", "rpc", "--no-session")
    stdin, stdout = agent.process.stdin, agent.process.stdout
    assert stdin is not None and stdout is not None

    def prompt() -> None:
        stdin.write(json.dumps({"type": "prompt", "message": text}) + "\n")
        stdin.flush()
        for line in stdout:
            if json.loads(line)["type"] == "agent_settled":
                return
        raise RuntimeError("The agent has ended")

    try:
        return agent.count(prompt)
    finally:
        agent.end()


def agent_cli(folder: Path, url: str, text: str) -> dict[str, Any]:
    from websockets.sync.client import connect

    agent = Traced(folder, url, "--remote", "127.0.0.1:0")
    try:
        with connect(f"ws://127.0.0.1:{agent.port()}/ws") as socket:

            def prompt() -> None:
                request = {"request_id": "1", "input": {"Text": text}, "stream": True, "use_tools": True}
                socket.send(json.dumps(request))
                while "Complete" not in json.loads(socket.recv())["response"]:
                    pass

            return agent.count(prompt)
    finally:
        agent.end()


def http(folder: Path, url: str, text: str) -> dict[str, Any]:
    agent = Traced(folder, url, "--remote", "127.0.0.1:0")
    try:
        port = agent.port()

        def post(path: str, **fields: Any) -> Any:
            one = HTTPConnection("127.0.0.1", port, timeout=20)
            one.request("POST", f"/v1/sessions{path}", json.dumps(fields), {"Content-Type": "application/json"})
            return json.loads(one.getresponse().read())

        id = post("")["id"]
        stream = HTTPConnection("127.0.0.1", port, timeout=20)
        stream.request("GET", f"/v1/sessions/{id}/events")
        events = stream.getresponse()

        def prompt() -> None:
            post(f"/{id}/prompt", message=text)
            while b'"agent_settled"' not in (line := events.readline()):
                if not line:
                    raise RuntimeError("The agent has ended")

        return agent.count(prompt)
    finally:
        agent.end()


def acp(folder: Path, url: str, text: str) -> dict[str, Any]:
    agent = Traced(folder, url, "--mode", "acp")
    stdin, stdout = agent.process.stdin, agent.process.stdout
    assert stdin is not None and stdout is not None

    def ask(method: str, **params: Any) -> Any:
        stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + "\n")
        stdin.flush()
        for line in stdout:
            if (frame := json.loads(line)).get("id") == method:
                return frame["result"]
        raise RuntimeError("The agent has ended")

    try:
        ask("initialize", protocolVersion=1, clientCapabilities={})
        id = ask("session/new", cwd=str(folder), mcpServers=[])["sessionId"]
        return agent.count(lambda: ask("session/prompt", sessionId=id, prompt=[{"type": "text", "text": text}]))
    finally:
        agent.end()


def batch(folder: Path, url: str, text: str) -> dict[str, Any]:
    (folder / "work").mkdir()
    (folder / "work/tasks.jsonl").write_text(json.dumps({"id": "a", "prompt": text}) + "\n")
    agent = Traced(folder, url, "batch", "tasks.jsonl", "-o", "out", cwd=folder / "work")
    _, said = agent.process.communicate(timeout=60)
    if agent.process.returncode:
        raise RuntimeError(said)
    return agent.found()


WAYS: dict[str, tuple[Callable[[Path, str, str], dict[str, Any]], str]] = {
    "rpc, text only": (rpc, TEXT),
    "rpc + bash": (rpc, BASH),
    "rpc + bash that plainly reads": (rpc, READING),
    "agent-cli WebSocket + bash": (agent_cli, BASH),
    "HTTP + bash": (http, BASH),
    "ACP + bash": (acp, BASH),
    "batch of one task + bash, whole process": (batch, BASH),
}


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fast_model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdin is not None
    url = server.stdout.readline().strip()
    print("| way | functions | calls | switches |\n|---|---|---|---|")
    try:
        for name, (way, text) in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                found = way(Path(folder), url, text)
            if "-v" in sys.argv:
                print(*found["functions"], sep="\n")
            print(f"| {name} | {len(found['functions'])} | {found['calls']:,} | {found['switches']} |", flush=True)
    finally:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--traced"]:
        sys.exit(traced(sys.argv[2:]))
    main()
