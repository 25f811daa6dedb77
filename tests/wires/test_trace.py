"""Every wire tells the trace of its connections, and a run belongs to the connection that its prompt came over."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.base import trace
from spindle.testing import Pause
from tests.support.agent_process import agent_environment, write_models
from tests.support.mock_model import MockModel, reply
from tests.wires.server.inside import run, until

TRACED = """
import sys
from spindle.base import trace
def tell(moment, span):
    print(moment, span.kind, span.id, span.parent and span.parent.id, span.find("wire"), file=sys.stderr)
trace.listen(tell)
from spindle.apps.cli import main
main(sys.argv[1:])
"""


@pytest.fixture
def ended() -> Iterator[list[trace.Span]]:
    spans: list[trace.Span] = []
    stop = trace.listen(lambda moment, span: None if moment == "started" else spans.append(span))
    yield spans
    stop()


class Process:
    """A process that serves on stdio and writes its trace on stderr."""

    def __init__(self, folder: Path, mode: str) -> None:
        command = [sys.executable, "-c", TRACED, "--mode", mode, "--model", "mock/m1", "--no-session"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = agent_environment(folder / "agent")
        self._process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload]

    def send(self, **frame: Any) -> None:
        self._process.stdin.write(json.dumps(frame) + "\n")
        self._process.stdin.flush()

    def until(self, **wanted: Any) -> dict[str, Any]:
        for line in self._process.stdout:
            frame: dict[str, Any] = json.loads(line)
            if wanted.items() <= frame.items():
                return frame
        raise AssertionError(self._process.stderr.read())

    def end(self) -> list[list[str]]:
        """Return what the trace told, each line as words."""
        _, told = self._process.communicate(timeout=20)
        return [line.split() for line in told.splitlines()]


@pytest.mark.parametrize("mode", ["rpc", "acp"])
def test_stdio(tmp_path: Path, mode: str) -> None:
    with MockModel([reply("ok")]) as mock:
        write_models(tmp_path / "agent", mock.openai_url)
        process = Process(tmp_path, mode)
        if mode == "rpc":
            process.send(type="prompt", message="hi")
            process.until(type="agent_settled")
        else:
            process.send(jsonrpc="2.0", id=1, method="initialize", params={"protocolVersion": 1})
            process.send(jsonrpc="2.0", id=2, method="session/new", params={"cwd": str(tmp_path), "mcpServers": []})
            session = process.until(id=2)["result"]["sessionId"]
            said = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
            process.send(jsonrpc="2.0", id=3, method="session/prompt", params=said)
            process.until(id=3)
        told = process.end()
    wire = "stdio" if mode == "rpc" else "acp"
    assert told == [
        ["started", "connection", "1", "None", wire],
        ["started", "run", "2", "1", wire],
        ["started", "chat", "3", "2", wire],
        ["ended", "chat", "3", "2", wire],
        ["ended", "run", "2", "1", wire],
        ["ended", "connection", "1", "None", wire],
    ]


def test_a_server(tmp_path: Path, ended: list[trace.Span]) -> None:
    async def story(world: Any) -> None:
        async with world.chat() as chat:
            await chat.ask("a", {"Text": "hi"})
        async with world.rpc() as rpc:
            await rpc.call("prompt", message="hi")
            await rpc.wait("agent_settled")
            id = rpc.ready["sessionId"]
        body = json.dumps({"message": "hi"}).encode()
        address = f"http://{world.address}/v1/sessions/{id}/prompt?wait=true"
        await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(address, body))
        await until(lambda: sum(span.kind == "connection" for span in ended) == 2)

    run(story, ["ok"], tmp_path)
    runs = [span for span in ended if span.kind == "run"]
    assert [(span.find("wire"), span.parent and span.parent.kind) for span in runs] == [
        ("chat", "connection"),
        ("websocket", "connection"),
        ("http", "request"),
    ]
    [request] = [span for span in ended if span.kind == "request"]
    assert request.attributes["status"] == 200 and request.attributes["path"].endswith("/prompt")
    closed = {span.attributes["wire"]: span.attributes for span in ended if span.kind == "connection"}
    assert closed["websocket"]["code"] == 1000 and closed["websocket"]["frames_in"] == 1
    assert all(span.error is None for span in ended)


def test_a_prompt_behind_the_abort_of_another_run_belongs_to_its_sender(
    tmp_path: Path, ended: list[trace.Span]
) -> None:
    """The run before it begins it, which came over another connection."""

    async def story(world: Any) -> None:
        async with world.chat() as chat:
            id = await chat.session_id()
            await chat.send("a", {"Text": "one"})
            await world.script.reached("never")
            async with world.rpc(f"?session={id}") as rpc:
                for type in ("abort", "prompt"):
                    await rpc.socket.send(json.dumps({"type": type, "message": "two"}))
                await rpc.wait(lambda frame: frame["type"] == "agent_settled" and not frame["aborted"])

    run(story, [{"text": ["a", Pause(gate="never")]}, "ok"], tmp_path)
    runs = [span for span in ended if span.kind == "run"]
    assert [(span.error, span.find("wire")) for span in runs] == [("Aborted", "chat"), (None, "websocket")]


def test_prompts_that_come_together_keep_their_connections(tmp_path: Path, ended: list[trace.Span]) -> None:
    """Most of them wait for their turn."""

    async def one(world: Any, together: asyncio.Barrier) -> None:
        async with world.rpc() as rpc:
            await together.wait()
            await rpc.call("prompt", message="hi")
            await rpc.wait("agent_settled")

    async def story(world: Any) -> None:
        together = asyncio.Barrier(30)
        await asyncio.gather(*(one(world, together) for _ in range(30)))

    run(story, ["ok"], tmp_path)
    runs = [span for span in ended if span.kind == "run"]
    assert len(runs) == 30 and len({span.parent for span in runs}) == 30
