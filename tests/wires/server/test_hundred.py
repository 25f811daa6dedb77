"""A hundred sessions of one server, each with a directory and an extension of its own; a third of them in trouble."""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.support.mock_model import gate, reply

from .server import ServerProcess

HOW_MANY = 100
EXTENSION = """
NUMBER = {number}

def extension(agent):
    @agent.command("who", help="Says who")
    async def who(args, ctx):
        await agent.send_message("who", f"number {{NUMBER}} in {{ctx.cwd}}")
"""
RAISES = """
EVENTS = ("session_start", "input", "before_agent_start", "agent_start", "turn_start", "context", "message_end",
          "turn_end", "agent_end", "session_shutdown")

def extension(agent):
    for event in EVENTS:
        @agent.on(event)
        async def broken(event, ctx):
            raise RuntimeError("broken on purpose")
"""
BLOCKS = """
import threading

def extension(agent):
    @agent.on("session_start")
    def begin(event, ctx):
        threading.Event().wait()

    @agent.on("before_agent_start")
    def never(event, ctx):
        threading.Event().wait()
"""
WAITS = """
import os, time

def wait():
    while not os.path.exists({flag!r}):
        time.sleep(0.02)

{top}

def extension(agent):
    wait()
"""


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children_of(int(child))]
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def session_files(server: ServerProcess) -> list[str]:
    """Return the conversations and locks that are open."""
    place = Path(f"/proc/{server.process.pid}/fd")
    found = []
    for name in os.listdir(place):
        with suppress(OSError):
            found.append(os.readlink(place / name))
    return [file for file in found if ".jsonl" in file]


def connections(server: ServerProcess) -> int:
    """Count what is connected to the port, and what was and is not closed here."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{server.port:04X}") and row[3] in ("01", "08") for row in rows)


class Sessions:
    def __init__(self, http: aiohttp.ClientSession, server: ServerProcess) -> None:
        self.http = http
        self.at = f"http://{server.address}/v1/sessions"

    async def post(self, id: str, name: str, **fields):
        async with self.http.post(f"{self.at}/{id}/{name}", json=fields) as answer:
            return answer.status, await answer.json() if answer.status != 204 else None

    async def put(self, id: str, cwd: Path) -> None:
        async with self.http.put(f"{self.at}/{id}", json={"cwd": str(cwd)}) as answer:
            assert answer.status == 200, await answer.text()

    async def delete(self, id: str) -> None:
        async with self.http.delete(f"{self.at}/{id}") as answer:
            assert answer.status == 204


async def until(ready, seconds=20.0):
    end = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    return found


@pytest.mark.timeout(100)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes in /proc")
def test_a_hundred_sessions_some_of_them_in_trouble(tmp_path):
    steps = [
        reply(*["slow "] * 20, gate("closed"), match="close me"),
        reply("begun ", gate("aborted"), match="abort me"),
        reply(*(f"{number:06d} " * 40 for number in range(1500)), match="a lot"),
        reply("fine"),
    ]
    with ServerProcess(steps, base=tmp_path, args=["--approve"]) as server:
        asyncio.run(asyncio.wait_for(story(server, tmp_path), 80))
        assert server.stop() == 0


async def story(server: ServerProcess, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    texts = {90: RAISES, 91: RAISES, 92: BLOCKS, 93: BLOCKS}
    texts |= {94: WAITS.format(flag=str(flag), top=""), 95: WAITS.format(flag=str(flag), top="wait()")}
    ids = [f"s{number}" for number in range(HOW_MANY)]
    for number, id in enumerate(ids):
        folder = tmp_path / id / ".pi" / "extensions"
        folder.mkdir(parents=True)
        (folder / "own.py").write_text(texts.get(number) or EXTENSION.format(number=number))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        web = Sessions(http, server)
        await web.put("watcher", tmp_path)
        opening = [asyncio.create_task(web.put(id, tmp_path / id)) for id in ids]
        await asyncio.gather(*(task for number, task in enumerate(opening) if number not in (94, 95)))
        assert not opening[94].done() and not opening[95].done()  # and no other has waited for them
        flag.touch()
        await asyncio.gather(*opening)
        stuck = []
        for id in ids[80:85]:  # readers of events that do not read
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
            writer.write(f"GET /v1/sessions/{id}/events HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode())
            stuck.append(writer)
        sockets = [  # and clients of the socket that do not
            await http.ws_connect(f"http://{server.address}/rpc?session={id}", max_msg_size=0) for id in ids[85:88]
        ]
        for socket in sockets:
            socket._reader._protocol.pause_reading()

        said = {number: "hi" for number in range(HOW_MANY) if number not in (92, 93)}
        said |= dict.fromkeys(range(60, 66), "close me") | dict.fromkeys(range(66, 72), "abort me")
        said |= dict.fromkeys(range(80, 88), "a lot")
        runs = {
            number: asyncio.create_task(web.post(ids[number], "prompt?wait=true", message=text))
            for number, text in said.items()
        }
        children = [asyncio.create_task(web.post(id, "bash", command="exec sleep 987654")) for id in ids[72:78]]
        blocked = [await web.post(ids[number], "prompt", message="hi") for number in (92, 93)]
        assert [status for status, _ in blocked] == [200, 200]
        ordinary = [number for number, text in said.items() if text == "hi"]
        results = await asyncio.gather(*(runs[number] for number in ordinary))
        assert {(status, result["text"]) for status, result in results} == {(200, "fine")}

        for id in ids[60:66]:
            await web.delete(id)
        for id in ids[66:72]:
            assert (await web.post(id, "abort"))[0] == 204
        sleeping = await until(
            lambda: (
                (found := [pid for pid in children_of(server.process.pid) if "sleep 987654" in command_of(pid)])
                and len(found) >= 6
                and found
            )
        )
        for pid in sleeping:
            os.kill(pid, signal.SIGKILL)
        for number in range(60, 72):
            status, result = await runs[number]
            assert (status, result["stopReason"]) == (200, "aborted"), (number, status, result)
        for status, result in await asyncio.gather(*children):
            assert status == 200 and result["exitCode"] != 0 and not result["cancelled"], result
        for number in range(80, 85):  # nothing waits for a reader of events
            assert (await runs[number])[1]["status"] == "ok"
        for number in (0, 33, 90):
            status, _ = await web.post(ids[number], "prompt?wait=true", message="/who" if number != 90 else "again")
            assert status == 200
        who = json.dumps((await web.post(ids[33], "get_messages"))[1])
        assert f"number 33 in {tmp_path / ids[33]}" in who
        for socket in sockets:
            socket._response.connection.transport.abort()
        for writer in stuck:
            writer.transport.abort()
        for number in (85, 86, 87):
            assert (await runs[number])[1]["status"] == "ok"
        await asyncio.gather(*(web.delete(id) for id in ids if id not in ids[60:66]))
        async with http.get(web.at) as answer:
            assert [one["id"] for one in (await answer.json())["sessions"]] == ["watcher"]
    # Nothing is left of them: no child, no file, no connection.
    await until(lambda: not [pid for pid in children_of(server.process.pid) if "sleep 987654" in command_of(pid)])
    await until(lambda: not session_files(server) and not connections(server))
