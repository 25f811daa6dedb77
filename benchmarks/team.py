"""A server for a team under load: `python -m benchmarks.team [--users 50] [--sessions 4] [--seconds 60] [--kill]`.

Every user has a token, quotas and some sessions, each on a WebSocket of its own. Each session sends prompts with pauses
between them; the model answers with 50 pieces, 20 ms apart. In the middle the server is restarted, by SIGTERM with a
drain or by SIGKILL; clients come back to their sessions and go on. At the end the stored conversations are compared
with what the clients were told. Server, model and clients share the machine.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.fast_model import WORDS
from benchmarks.peers import ROOT, our_peer
from spindle.server.users import add_user

PIECES, APART = 50, 20
"""Pieces of an answer, and the milliseconds between them."""
ANSWER = "".join(f"{number * 7919 % 10007:x}" + WORDS[number * 5 % 8] for number in range(PIECES))
PRICE = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0}
QUOTAS = {"runsPerDay": 100_000, "costPerDay": 1000}
DRAIN = 5


class Server:
    """`spindle serve --tokens` in a process of its own; after an end it begins again at the same address."""

    def __init__(self, place: Path, model: str, users: int) -> None:
        peer = our_peer(place, model, "delta")
        agent = peer.folder("agent")
        models = json.loads((agent / "models.json").read_text())
        models["providers"]["bench"]["models"][0]["cost"] = PRICE
        (agent / "models.json").write_text(json.dumps(models))
        self.tokens = [add_user(agent / "tokens.json", f"user{n}", dict(QUOTAS)) for n in range(users)]
        self._peer, self._log, self.address = peer, place / "log", "127.0.0.1:0"

    def start(self) -> None:
        options = ["serve", self.address, "--tokens", "--model", "bench/bench", "--drain", str(DRAIN)]
        options += ["--remote-option", "max_connections=2000"]
        with self._log.open("ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(
                [str(ROOT / ".venv/bin/spindle"), *options],
                cwd=self._peer.folder("work"),
                env=self._peer.environment,
                stderr=log,
            )
        while not (found := re.search(r"Listening on http://([\d.:]+)/", self._log.read_text()[begin:])):
            assert self.process.poll() is None, self._log.read_text()[begin:]
            time.sleep(0.02)
        self.address = found[1]

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(DRAIN + 15)

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Told:
    """What all clients together were told."""

    def __init__(self) -> None:
        self.firsts: list[float] = []
        """Seconds from each prompt to the first piece of its answer."""
        self.refused: Counter[str] = Counter()
        self.reconnected = 0


class Client:
    """One session of a user."""

    def __init__(self, server: Server, user: int, told: Told, http: aiohttp.ClientSession) -> None:
        self._server, self._told, self._http = server, told, http
        self._headers = {"Authorization": f"Bearer {server.tokens[user]}"}
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self.id: str | None = None
        self.accepted: list[str] = []
        self.settled: set[str] = set()
        self._numbers = itertools.count()

    async def connect(self) -> None:
        """Come to the session, or come back to it, however long the server is away."""
        while True:
            query = "" if self.id is None else f"?session={self.id}"
            try:
                self._socket = await self._http.ws_connect(
                    f"ws://{self._server.address}/rpc{query}", headers=self._headers, max_msg_size=0
                )
                ready = json.loads(await self._frame())
                self.id = ready["sessionId"]
                await self._call("set_update_mode", mode="delta")
                return
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(0.1)

    async def work(self, until: float, pause: float) -> None:
        """Prompt, read the answer, wait, again; a prompt that got no answer is sent again if it is not there."""
        chance = random.Random(self.id)
        await asyncio.sleep(chance.uniform(0, pause))
        while time.monotonic() < until:
            text = f"bench:slow:{PIECES}:{APART} and number {next(self._numbers)}"
            while not await self._prompted(text):
                await self._come_back()
                if text in self.accepted or text in await self._stored_prompts():
                    break
            await self._idle(chance.uniform(0, 2 * pause))

    async def _idle(self, seconds: float) -> None:
        """Send nothing for a while, but see it if the server says goodbye."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._frame()
        except TimeoutError:
            pass
        except ConnectionError:
            await self._come_back()

    async def _come_back(self) -> None:
        self._told.reconnected += 1
        await self.connect()

    async def _prompted(self, text: str) -> bool:
        """Send a prompt and read to the end of its run. Returns false if the connection was lost before."""
        try:
            assert self._socket is not None
            begin, first = time.monotonic(), False
            await self._socket.send_str(json.dumps({"id": text, "type": "prompt", "message": text}))
            while True:
                frame = await self._frame()
                if '"text_delta"' in frame and not first:
                    first = True
                    self._told.firsts.append(time.monotonic() - begin)
                elif '"type":"response"' in frame:
                    if not (answer := json.loads(frame))["success"]:
                        self._told.refused[answer["error"].partition(";")[0]] += 1
                        while True:  # the server says goodbye soon
                            await self._frame()
                    self.accepted.append(text)
                elif '"type":"agent_settled"' in frame:
                    if not json.loads(frame)["aborted"]:
                        self.settled.add(text)
                    return True
        except (aiohttp.ClientError, ConnectionError):
            return False

    async def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._call("get_messages"))["messages"]
        return found

    async def _stored_prompts(self) -> list[str]:
        return [_text(message) for message in await self.messages() if message["role"] == "user"]

    async def _call(self, type: str, **fields: Any) -> Any:
        assert self._socket is not None
        await self._socket.send_str(json.dumps({"id": type, "type": type, **fields}))
        while f'"id":"{type}"' not in (frame := await self._frame())[:200]:
            pass
        return json.loads(frame).get("data")

    async def _frame(self) -> str:
        assert self._socket is not None
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError
        return str(message.data)

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def losses(client: Client) -> Counter[str]:
    """Compare what is stored with what the client was told."""
    stored = await client.messages()
    prompts = Counter(_text(message) for message in stored if message["role"] == "user")
    answers = {
        _text(before): _text(message)
        for before, message in itertools.pairwise(stored)
        if before["role"] == "user" and message["role"] == "assistant"
    }
    return Counter(
        {
            "prompts that were accepted": len(client.accepted),
            "… of these not stored": sum(text not in prompts for text in client.accepted),
            "… stored twice": sum(count > 1 for count in prompts.values()),
            "answers that ended": len(client.settled),
            "… of these not stored as they were sent": sum(answers.get(text) != ANSWER for text in client.settled),
            "answers that the restart cut": len(set(client.accepted) - client.settled),
        }
    )


async def load(server: Server, users: int, sessions: int, seconds: float, pause: float, number: int) -> dict[str, Any]:
    told = Told()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        clients = [Client(server, user, told, http) for user in range(users) for _ in range(sessions)]
        figures: dict[str, Any] = {"memory of the server alone (MiB)": round(server.memory())}
        for client in clients:
            await client.connect()
        figures[f"… with {len(clients)} sessions connected (MiB)"] = round(server.memory())
        begin = time.monotonic()
        work = [asyncio.create_task(client.work(begin + seconds, pause)) for client in clients]
        await asyncio.sleep(seconds / 2)
        spent, calm = server.cpu(), list(told.firsts)
        figures["… under load (MiB)"] = round(server.memory())
        figures["CPU of the server (of one core)"] = f"{spent / (time.monotonic() - begin):.0%}"
        away = time.monotonic()
        await asyncio.to_thread(server.end, number)
        await asyncio.to_thread(server.start)
        figures["restart, from the signal to the next start (s)"] = round(time.monotonic() - away, 1)
        await asyncio.gather(*work)
        figures["… at the end (MiB)"] = round(server.memory())
        figures |= {f"first delta before the restart, {name} (ms)": time for name, time in _spread(calm).items()}
        figures |= {f"… after it, {name} (ms)": time for name, time in _spread(told.firsts[len(calm) :]).items()}
        figures["refused while it drained"] = told.refused.total()
        figures["connections that came back"] = told.reconnected
        for one in await asyncio.gather(*map(losses, clients)):
            for name, count in one.items():
                figures[name] = figures.get(name, 0) + count
        for client in clients:
            await client.close()
    return figures


def _spread(times: list[float]) -> dict[str, int]:
    known = sorted(times) or [0.0]
    places = {"p50": 0.5, "p95": 0.95, "slowest": 1.0}
    return {name: round(known[min(len(known) - 1, int(len(known) * part))] * 1e3) for name, part in places.items()}


def measured(place: Path, users: int, sessions: int, seconds: float, pause: float, number: int) -> dict[str, Any]:
    module = [sys.executable, "-m", "benchmarks.fast_model"]
    with subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdin is not None and model.stdout is not None
        server = Server(place, model.stdout.readline().strip(), users)
        server.start()
        try:
            return asyncio.run(load(server, users, sessions, seconds, pause, number))
        finally:
            server.end(signal.SIGKILL)
            model.stdin.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.team", description=__doc__)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=4, help="of each user")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=9, help="mean seconds between an answer and the next prompt")
    parser.add_argument("--kill", action="store_true", help="restart by SIGKILL, not by SIGTERM")
    given = parser.parse_args()
    number = signal.SIGKILL if given.kill else signal.SIGTERM
    with tempfile.TemporaryDirectory() as name:
        found = measured(Path(name), given.users, given.sessions, given.seconds, given.pause, number)
    for figure, value in found.items():
        print(f"{figure:<60} {value}")
    return 1 if any(found[name] for name in found if "not stored" in name or "stored twice" in name) else 0


if __name__ == "__main__":
    raise SystemExit(main())
