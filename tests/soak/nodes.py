"""Several servers on one PostgreSQL, without a shared disk: kill -9 of nodes and cut connections at random moments.

Clients send prompts to any node. The model calls commands that leave marks, until the limit of turns; one session of
each round asks a question, whose node is killed, and which is answered at another one.
"""

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from spindle.sessions.store import SessionStore, open_store
from tests.soak.attack import Attack
from tests.support import postgres
from tests.support.agent_process import agent_environment, write_models

NODES, SESSIONS, BLOWS = 3, 8, 4
TURNS = 4
"""The limit of each run; the model would call tools for ever."""
PATIENCE = 90.0
ACKNOWLEDGED = "No acknowledged message is lost or doubled"
ONCE = "No command that has an effect is made twice"
ENDS = "Every run ends"
LIMIT = "No limit is passed by more than one call"
WHOLE = "Every entry is there once, and so is its parent"
ANSWERED = "A question is answered at another node after the death of the first"


class Model(BaseHTTPRequestHandler):
    """Answers by what is in the conversation: which node asks, and how often, makes no difference."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [json.dumps(message["content"]) for message in asked["messages"] if message["role"] == "user"]
        mark, question = uuid4().hex[:12], "question" in texts[-1]
        if question and asked["messages"][-1]["role"] == "tool":
            delta: dict[str, Any] = {"content": "answered"}
        else:
            command = (
                f"touch asked-{mark}" if question else f"echo {mark} >> marks; sleep {random.choice([0, 0.1, 0.4])}"
            )
            function = {"name": "bash", "arguments": json.dumps({"command": command})}
            delta = {"tool_calls": [{"index": 0, "id": f"call_{mark}", "type": "function", "function": function}]}
        chunks = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
            {
                "choices": [
                    {"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in delta else "stop"}
                ]
            },
        ]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())
        except OSError:
            pass  # its node was killed

    def log_message(self, *_: object) -> None:
        pass


class Node:
    def __init__(self, base: Path, store: str, model: str, work: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._base, self._work = base, work
        self.struck = threading.Lock()
        """Held while it is killed and started again: two blows at once would leave a process that nobody knows."""
        base.mkdir()
        write_models(base / "agent", model)
        settings = base / "agent" / "settings.json"
        settings.write_text(json.dumps({"retry": {"baseDelayMs": 20}}))
        self._env = agent_environment(base / "agent", SPINDLE_STORE=store, SPINDLE_LEASE_SECONDS="2")
        self.start()

    def start(self) -> None:
        options = ["--model", "mock/m1", "--recover", "--ask", "Bash(touch *)", "--on-question", "wait"]
        with open(self._base / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spindle", "serve", f"127.0.0.1:{self.port}", *options],
                cwd=self._work, env=self._env, stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Nodes(Attack):
    name = "nodes"
    share = 2.0
    enough = 25

    def start(self) -> None:
        self.server = postgres.server()
        self.address = self.server.database()
        self.base = Path(self.stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        self.work = self.base / "work"
        self.work.mkdir()
        model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
        model.handle_error = lambda *_: None  # type: ignore[method-assign]  # its node was killed
        threading.Thread(target=model.serve_forever, daemon=True).start()
        self.stack.callback(model.shutdown)
        url = f"http://127.0.0.1:{model.server_port}/v1"
        self.nodes = [Node(self.base / f"node-{number}", self.address, url, self.work) for number in range(NODES)]
        for node in self.nodes:
            self.stack.callback(node.kill)
        self.store: SessionStore = open_store(self.address)
        self.stack.callback(self.store.close)
        for node in self.nodes:
            self._until(
                lambda node=node: self._ask("GET", "/readyz", node=node)[0] == 200, ENDS, "a node does not begin"
            )

    def round(self, chance: random.Random) -> None:
        names = [f"r{self.number}-{index}-{chance.getrandbits(32):x}" for index in range(SESSIONS)]
        over = threading.Event()
        blows = threading.Thread(target=self._strike, args=(random.Random(chance.random()), over))
        with ThreadPoolExecutor(SESSIONS) as clients:
            talks = [clients.submit(self._talk, name, random.Random(chance.random())) for name in names[1:]]
            question = clients.submit(self._question, names[0], random.Random(chance.random()))
            blows.start()
            try:
                told = [talk.result() for talk in talks]
                question.result()
            finally:
                over.set()
                blows.join()
        for name, acknowledged in zip(names[1:], told, strict=True):
            self._judge(name, acknowledged)
        marks = Counter((self.work / "marks").read_text().split())
        self.figures["commands"] = len(marks)
        self.must(ONCE, max(marks.values()) == 1, marks.most_common(3))

    # -- blows -----------------------------------------------------------------------------------

    def _strike(self, chance: random.Random, over: threading.Event) -> None:
        for _ in range(BLOWS):
            if over.wait(chance.uniform(0.1, 1.5)):
                break
            if chance.random() < 0.6:
                self._kill(chance.choice(self.nodes), chance.uniform(0, 2))
                self.figures["nodes killed"] += 1
            else:
                self.server.sql(
                    self.address,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()",
                )
                self.figures["connections cut"] += 1

    def _kill(self, node: Node, pause: float) -> None:
        with node.struck:
            node.kill()
            time.sleep(pause)
            node.start()

    # -- clients ---------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Any = None, node: Node | None = None) -> tuple[int, Any]:
        """Send a request to any node; status 0: no answer came, so it may have been taken or not."""
        chosen = node or random.choice(self.nodes)
        connection = HTTPConnection("127.0.0.1", chosen.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data.startswith(b"{") else data
        except (OSError, HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def _until(self, true: Any, promise: str, detail: object) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := true()):
            self.must(promise, time.monotonic() < end, detail() if callable(detail) else detail)
            time.sleep(0.1)
        return found

    def _open(self, name: str) -> None:
        path = f"/v1/sessions/{name}"
        self._until(lambda: self._ask("PUT", path, {"cwd": str(self.work)})[0] == 200, ENDS, f"{name} is not opened")

    def _talk(self, name: str, chance: random.Random) -> list[str]:
        """Send two prompts. Returns those that were acknowledged."""
        acknowledged = []
        self._open(name)
        for number in range(2):
            end = time.monotonic() + PATIENCE
            for attempt in range(1000):
                text = f"{name} {number}.{attempt}"
                status, answer = self._ask("POST", f"/v1/sessions/{name}/prompt", {"message": text, "maxTurns": TURNS})
                if status in (200, 204):
                    acknowledged.append(text)
                    self.figures["prompts acknowledged"] += 1
                    break
                # Refused, or nobody knows: a run may be going on now, which is waited for.
                self._settled(name)
                self.must(ENDS, time.monotonic() < end, (name, status, answer))
                time.sleep(chance.uniform(0.05, 0.3))
            self._settled(name)
        return acknowledged

    def _settled(self, name: str) -> None:
        def is_settled() -> bool:
            status, state = self._ask("POST", f"/v1/sessions/{name}/get_state", {})
            if status == 404:  # its node was killed before anything was said
                self._open(name)
            last.append((status, state if status != 200 else state.get("interruptedRun")))
            return status == 200 and state["isSettled"] and state.get("interruptedRun") is None

        last: list[Any] = []
        self._until(is_settled, ENDS, lambda: (name, last[-3:]))

    def _question(self, name: str, chance: random.Random) -> None:
        self._open(name)
        while True:
            if self._ask("POST", f"/v1/sessions/{name}/prompt", {"message": f"{name} question"})[0] == 404:
                self._open(name)
            found = self._lines(name)
            if any(b'"spindle.question"' in line for line in found) or self._asked(found):
                break
            time.sleep(0.2)
        holder = self.store.holder(name)
        first = next(
            (node for node in self.nodes if holder and holder.address and holder.address.endswith(str(node.port))), None
        )
        if first is not None:
            self._kill(first, 0)
            self.figures["nodes killed"] += 1
        asked = [json.loads(line) for line in self._lines(name) if b'"spindle.question"' in line]
        id = asked[-1]["data"]["request"]["id"] if asked else ""
        others = [node for node in self.nodes if node is not first]

        def is_answered() -> bool:
            body = {"question": id, "behavior": "allow"}
            self._ask("POST", f"/v1/sessions/{name}/answer_question", body, chance.choice(others))
            return any(b'"answered"' in line and b'"assistant"' in line for line in self._lines(name))

        self._until(is_answered, ANSWERED, lambda: (name, id, self._lines(name)[-3:]))
        self.figures["questions answered elsewhere"] += 1

    @staticmethod
    def _asked(lines: list[bytes]) -> bool:
        return any(b"touch asked" in line for line in lines)

    def _lines(self, name: str) -> list[bytes]:
        while True:
            try:
                found = self.store.load(name)
                return [] if found is None else found.lines
            except Exception:  # our own connection was cut
                time.sleep(0.1)

    # -- judging ---------------------------------------------------------------------------------

    def _judge(self, name: str, acknowledged: list[str]) -> None:
        def runs_of(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [entry["data"] for entry in entries if entry.get("customType") == "spindle.run"]

        def is_over() -> bool:  # the last note may be on its way
            runs = runs_of([json.loads(line) for line in self._lines(name)])
            return not runs or runs[-1]["state"] in ("ended", "abandoned")

        self._until(is_over, ENDS, lambda: (name, self._lines(name)[-3:]))
        entries = [json.loads(line) for line in self._lines(name)][1:]
        ids = Counter(entry["id"] for entry in entries)
        self.must(WHOLE, max(ids.values()) == 1, ids.most_common(2))
        self.must(WHOLE, all(entry["parentId"] in ids for entry in entries[1:]), name)
        messages = [entry["message"] for entry in entries if entry["type"] == "message"]
        texts = Counter(_text(message) for message in messages if message["role"] == "user")
        self.must(ACKNOWLEDGED, all(texts[text] == 1 for text in acknowledged), (name, acknowledged, texts))
        self.must(ACKNOWLEDGED, not texts or max(texts.values()) == 1, texts)
        self.figures["runs resumed"] += sum(run["state"] == "resumed" for run in runs_of(entries))
        turns = 0
        for message in messages:
            turns = 0 if message["role"] == "user" else turns + (message["role"] == "assistant")
            self.must(LIMIT, turns <= TURNS + 1, (name, turns))


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
