"""FastMCP, with which many servers are made, on every transport and in both eras of the protocol.

SPINDLE_TEST_MCP names the folder of programs of an environment with `fastmcp` in it.
"""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

PYTHON = Path(os.environ.get("SPINDLE_TEST_MCP", "/nonexistent"), "python")
SERVER = Path(__file__).with_name("fastmcp_server.py")
pytestmark = [
    pytest.mark.skipif(
        not list(PYTHON.parent.parent.glob("lib/python*/site-packages/fastmcp")),
        reason="SPINDLE_TEST_MCP has no fastmcp",
    ),
    pytest.mark.timeout(120),
]
ANSWERS = {
    "Name": ["A", "Ann"],
    "Count": ["12", "three", "3"],
    "Size": ["large"],
    "Which?": ["ham", "olives", "(done)"],
}
ORDER = 'accept {"name":"Ann","count":3,"size":"large"}'


@contextmanager
def served(transport: str) -> Iterator[dict[str, Any]]:
    """Yield the configuration of a server that runs."""
    if transport == "stdio":
        yield {"command": str(PYTHON), "args": [str(SERVER), "stdio"]}
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([PYTHON, SERVER, transport, str(port)], **quiet)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield {"url": f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"}
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def results(config: dict[str, Any], *tools: str) -> tuple[list[str], list[str]]:
    """Let the model call tools; returns their results, and the questions that the user was asked."""

    class Process(AgentProcess):
        def configure(self) -> None:
            (self.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": config}}))

    given = {"add": {"a": 2, "b": 3}}
    steps = [reply(call(f"mcp__shop__{tool}", given.get(tool, {}), id=tool)) for tool in tools]
    left = {field: iter(values) for field, values in ANSWERS.items()}
    asked: list[str] = []
    with Process([*steps, reply("done")]) as agent:
        agent.prompt("go")
        while True:
            frame = agent.wait(lambda f: f["type"] in ("extension_ui_request", "agent_settled"))
            if frame["type"] == "agent_settled":
                break
            asked.append(frame["title"])
            field = next(name for name in left if name in frame["title"])
            answer = {"type": "extension_ui_response", "id": frame["id"], "value": next(left[field])}
            agent.write(json.dumps(answer).encode() + b"\n")
        told = [m["content"] for m in agent.mock.requests[-1].body["messages"] if m["role"] == "tool"]
    return told, asked


@pytest.mark.parametrize("transport", ["stdio", "sse", "http"])
def test_a_server_of_the_handshake_asks_with_requests(transport) -> None:
    with served(transport) as config:
        told, asked = results({**config, "protocol": "2025-11-25"}, "add", "order", "toppings", "fails")
    assert told == ["5", ORDER, "accept ['ham', 'olives']", "Error calling tool 'fails': kaput"]
    assert ["cannot be used" in title for title in asked] == [
        False,
        True,
        False,
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_stateless_server_asks_with_results(transport) -> None:
    with served(transport) as config:
        told, asked = results(config, "add", "order_again", "order")
    assert told[:2] == ["5", ORDER]
    assert len(asked) == 6
    assert '"protocol": "2025-11-25"' in told[2]  # what a server that asks in the old way needs
