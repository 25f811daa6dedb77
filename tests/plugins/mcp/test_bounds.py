"""Servers that are hostile: each call ends, endless streams end the connection, texts for the model are bounded."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from spindle.plugins.mcp import McpError
from spindle.plugins.mcp.connection import pages
from spindle.plugins.mcp.server_config import Servers
from spindle.plugins.mcp.shared_server import Server
from tests.plugins.mcp.helpers import running

_SERVER = """
import json, sys
def put(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
def answer(id, result):
    put(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}))
def end():
    sys.exit(0)
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        answer(id, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
    elif method == "tools/list":
        answer(id, {"tools": [TOOL, {**TOOL, "name": "n" * 500}]})
    elif method == "tools/call":
        WHAT
    elif id is not None:
        put(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"}}))
"""
CALLS = [
    ("put('{\"jsonrpc\":\"2.0\",\"result\":' + '[' * 200_000 + ']' * 200_000 + ',\"id\":%d}' % id)", "nested deeper"),
    ('put(\'{"jsonrpc":"2.0","id":%d,"result":\' % id + \'[\' * 200_000 + \'}\')', "nested deeper"),
    ('put(\'{"jsonrpc":"2.0","result":[\' + \'[],\' * 3_000_000 + \'1],"id":%d}\' % id)', "than 1,000,000 values"),
    ('put(\'{"result":NaN,"id":%d,"jsonrpc":"2.0"}\' % id)', "not JSON"),
    ('while True: put(\'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\\n\' * 1000)', "flood"),
    ('while True: put(\'{"jsonrpc":"2.0","id":9999,"result":{}}\\n\' * 1000)', "flood"),
    (
        "token = message['params']['_meta']['progressToken']\n"
        "        while True: put(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/progress',"
        " 'params': {'progressToken': token}}))",
        "flood",
    ),
    ("put(json.dumps({'jsonrpc': '2.0', 'id': id, 'error': {'code': 1, 'message': 'why ' * 900_000}}))", "cut …"),
    ("put(json.dumps({'jsonrpc': '2.0', 'id': id, 'error': {'code': 1, 'message': [None]}}))", "no reason given"),
    ("put(json.dumps({'jsonrpc': '2.0', 'id': id, 'error': [1]}))", "no reason given"),
    ("answer(id, [None])", "not an object"),
]


@pytest.mark.parametrize(("what", "told"), CALLS, ids=range(len(CALLS)))
def test_each_call_ends_in_words(what: str, told: str) -> None:
    async def work() -> None:
        source = _SERVER.replace("WHAT", what)
        async with running(command=sys.executable, args=["-S", "-E", "-c", source], protocol="2025-11-25") as server:
            await server.connected()
            assert server.listing is not None and [tool.name for tool in server.listing.tools] == ["echo"]
            with pytest.raises(McpError, match=told) as caught:
                await server.call("echo", {}, progress=lambda params: None)
            text = str(caught.value)
            assert len(text) < 5000 and "recursion" not in text and "NoneType" not in text

    asyncio.run(asyncio.wait_for(work(), 40))


_PROGRESS = """
        import time
        token = message['params']['_meta']['progressToken']
        while True:
            time.sleep(0.05)
            put(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': {'progressToken': token}}))
"""


def test_progress_does_not_hold_a_call_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.MCP_LONGEST", 0.5)

    async def work() -> None:
        source = _SERVER.replace("WHAT", _PROGRESS)
        async with running(command=sys.executable, args=["-S", "-E", "-c", source], protocol="2025-11-25") as server:
            with pytest.raises(McpError, match="no answer to tools/call"):
                await server.call("echo", {}, progress=lambda params: None)

    asyncio.run(asyncio.wait_for(work(), 40))


@asynccontextmanager
async def serving(reply: Any) -> AsyncIterator[Server]:
    """Give a server behind HTTP that answers calls with the pieces of `reply(id)`, over and over."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        id, method = message.get("id"), message.get("method")
        if method == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            return web.json_response({"jsonrpc": "2.0", "id": id, "result": result})
        if method == "tools/list":
            return web.json_response({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": "echo"}]}})
        if method != "tools/call":
            return web.Response(status=202)
        kind, piece, times = reply(id)
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        try:
            for _ in range(times):
                await response.write(piece)
        except ConnectionError:
            pass
        return response

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    servers = Servers()
    servers.add({"far": {"url": f"http://127.0.0.1:{port}/mcp", "protocol": "2025-11-25"}}, "test")
    server = Server(servers.configs["far"], "/", lambda: frozenset())
    try:
        yield server
    finally:
        await server.close()
        await runner.cleanup()


_STREAM = "text/event-stream"
REPLIES = [
    (lambda id: (_STREAM, b": nothing but comments\n\n" * 1000, 1 << 20), "flood"),
    (
        lambda id: (_STREAM, b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n' * 500, 1 << 20),
        "flood",
    ),
    (lambda id: (_STREAM, b"data: " + b"[" * 200_000 + b"\n\n", 1), "nested deeper"),
    (lambda id: (_STREAM, b"data: {\n\n", 1), "nested deeper than 100 levels, or whose brackets|not JSON"),
    (lambda id: (_STREAM, b"data:\n" * 200_000 + b"\n", 1), "more than 100,000 lines"),
    (lambda id: (_STREAM, b"retry: " + b"9" * 9000 + b"\n\ndata: x\n\n", 1), "not JSON"),
    (lambda id: ("application/json", b"[" * 200_000, 1), "nested deeper"),
    (lambda id: ("application/json", b" " * (1 << 20), 80), "more than 64 MB"),
]


@pytest.mark.parametrize(("reply", "told"), REPLIES, ids=range(len(REPLIES)))
def test_each_call_over_http_ends_in_words(reply: Any, told: str) -> None:
    async def work() -> None:
        async with serving(reply) as server:
            with pytest.raises(McpError, match=told):
                await server.call("echo", {})

    asyncio.run(asyncio.wait_for(work(), 40))


def test_a_list_without_end_is_cut() -> None:
    asked = 0

    async def get(method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"things": [{"text": "x" * 1_000_000}] * 10, "nextCursor": "more"}

    items = asyncio.run(pages(get, "things/list", "things"))
    assert asked < 10 and len(items) == asked * 10
