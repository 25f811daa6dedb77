"""Servers that others have written: npm's everything, filesystem and memory, and PyPI's mcp-server-time.

SPINDLE_TEST_NODE_MODULES names a node_modules folder with the former, SPINDLE_TEST_MCP a folder with the latter.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from spindle import Agent
from spindle.shapes.messages import Image, ToolResultMessage
from spindle.testing import Script

from .helpers import text_of, until
from .test_http import Site

MODULES = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nonexistent")) / "@modelcontextprotocol"
TIME = shutil.which("mcp-server-time", path=f"{os.environ.get('SPINDLE_TEST_MCP', '')}:{os.environ.get('PATH', '')}")
NODE = shutil.which("node")


def npm(name: str, *args: str) -> dict[str, Any]:
    script = MODULES / f"server-{name}" / "dist" / "index.js"
    if not script.exists() or NODE is None:
        pytest.skip(f"set SPINDLE_TEST_NODE_MODULES to a folder with @modelcontextprotocol/server-{name}")
    return {"command": NODE, "args": [str(script), *args]}


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 55))


def test_several_servers_in_one_session(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("written here")
    servers = {
        "everything": npm("everything"),
        "files": npm("filesystem", str(tmp_path)),
        "memory": npm("memory") | {"env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}},
    }
    entity = {"name": "Spindle", "entityType": "program", "observations": ["has no face"]}
    calls = [
        ("tool_search", {"query": "select:echo,read_text_file,create_entities,read_graph,get-tiny-image"}),
        ("mcp__everything__echo", {"message": "hello"}),
        ("mcp__files__read_text_file", {"path": str(tmp_path / "note.txt")}),
        ("mcp__memory__create_entities", {"entities": [entity]}),
        ("mcp__memory__read_graph", {}),
        ("mcp__everything__get-tiny-image", {}),
    ]
    steps: list[Any] = [{"calls": [{"name": name, "arguments": given}]} for name, given in calls]

    async def work() -> None:
        script = Script([*steps, {"text": "done"}])
        async with await Agent.create(model=script.model(), persist=False, mcp_servers=servers, cwd=tmp_path) as agent:
            await agent.run("go")
            found = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
            assert [message.is_error for message in found] == [False] * 6, found
            assert found[1].content[0].text == "Echo: hello" and found[2].content[0].text == "written here"
            assert "has no face" in found[4].content[0].text
            assert any(isinstance(block, Image) for block in found[5].content)
            prompts = [item.name for item in agent.session.commands() if item.name.startswith("mcp__everything__")]
            assert prompts
            states = {state.name: state for state in agent.session.mcp_servers.states()}
            assert {state.state for state in states.values()} == {"ready"}

    run(work())


def test_a_server_of_python() -> None:
    if TIME is None:
        pytest.skip("pip install mcp-server-time")

    async def work() -> None:
        from spindle.plugins.mcp.server_config import Servers
        from spindle.plugins.mcp.shared_server import Server

        servers = Servers()
        servers.add({"time": {"command": TIME, "args": ["--local-timezone", "UTC"]}}, "test")
        server = Server(servers.configs["time"], "/", frozenset)
        try:
            answer = json.loads(text_of(await server.call("get_current_time", {"timezone": "Asia/Tokyo"})))
            assert answer["timezone"] == "Asia/Tokyo"
        finally:
            await server.close()

    run(work())


def test_everything_over_http(tmp_path: Path) -> None:
    """It speaks streamable HTTP, with sessions and a stream of its own."""
    entry = npm("everything", "streamableHttp")

    async def work() -> None:
        import socket

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        child = await asyncio.create_subprocess_exec(
            entry["command"], *entry["args"], env={**os.environ, "PORT": str(port)}, stderr=asyncio.subprocess.DEVNULL
        )
        site = Site()
        site.url = f"http://127.0.0.1:{port}/mcp"
        try:
            await until(lambda: _listens(port), 30)
            async with site.server() as server:
                assert text_of(await server.call("echo", {"message": "over HTTP"})) == "Echo: over HTTP"
                assert server.listing is not None and server.listing.prompts and server.listing.resources
        finally:
            child.terminate()
            await child.wait()

    run(work())


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
