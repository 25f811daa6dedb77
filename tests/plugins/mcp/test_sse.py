"""Servers of 2024: one stream of events for their messages, an address for ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from spindle.plugins.mcp import McpError
from spindle.plugins.mcp.server_config import Servers
from spindle.plugins.mcp.shared_server import Server
from spindle.shapes.codec import decode, encode

from .helpers import text_of


class OldSite:
    """Speaks the transport of 2024 with one client at a time."""

    def __init__(self, endpoint: str = "/messages?session=1") -> None:
        self.endpoint = endpoint
        self.streams = 0
        self.versions: list[str] = []
        self.tokens: set[str] = set()
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()

    @asynccontextmanager
    async def up(self, **more: Any) -> AsyncIterator[Server]:
        app = web.Application()
        app.router.add_get("/sse", self._stream)
        app.router.add_post("/messages", self._take)
        app.router.add_get("/page", self._page)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        servers = Servers()
        entry = {"type": "sse", "url": f"{origin}/sse", "timeout": 5, "headers": {"X-Key": "k"}} | more
        servers.add({"old": entry | {"url": str(entry["url"]).replace("ORIGIN", origin)}}, "test")
        server = Server(servers.configs["old"], "/", frozenset)
        try:
            yield server
        finally:
            await server.close()
            await runner.cleanup()

    def hang_up(self) -> None:
        self._out.put_nowait(None)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self.streams += 1
        self.tokens.add(request.headers["X-Key"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": hello\r\n\r\nevent: endpoint\r\ndata: " + self.endpoint.encode() + b"\r\n\r\n")
        while (data := await self._out.get()) is not None:
            await response.write(b"event: message\ndata: " + data + b"\n\n")
        return response

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def _take(self, request: web.Request) -> web.Response:
        message = decode(await request.read())
        self.tokens.add(request.headers["X-Key"])
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)}
            asyncio.get_running_loop().call_later(0.05, self._out.put_nowait, encode(answer))
        return web.Response(status=202, text="Accepted")

    def _result(self, message: dict[str, Any]) -> Any:
        match message["method"]:
            case "initialize":
                self.versions.append(message["params"]["protocolVersion"])
                return {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}
            case "tools/list":
                return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case _:
                return {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 50))


def test_calls_come_back_on_the_stream() -> None:
    async def work() -> None:
        site = OldSite()
        async with site.up() as server:
            texts = await asyncio.gather(*(server.call("echo", {"text": str(n)}) for n in range(5)))
            assert [text_of(text) for text in texts] == ["0", "1", "2", "3", "4"]
            assert (server.version, server.shown().transport, site.streams) == ("2024-11-05", "sse", 1)
            assert site.versions == ["2025-11-25"]  # without a question that it might not survive
            assert site.tokens == {"k"}
            site.hang_up()
            async with asyncio.timeout(10):
                while server.state == "ready":  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            assert text_of(await server.call("echo", {"text": "again"})) == "again"
            assert site.streams == 2

    run(work())


@pytest.mark.parametrize(
    ("endpoint", "more", "words"),
    [
        ("http://127.0.0.2:1/messages", {}, "wants messages at another origin"),
        ("/nowhere", {}, "404"),
        ("/messages", {"url": "ORIGIN/page"}, 'is its type "http"'),
        ("/messages", {"url": "ORIGIN/none"}, "404"),
        ("/messages", {"url": "http://127.0.0.1:9/sse"}, "Cannot reach"),
    ],
)
def test_servers_that_cannot_be_used(endpoint: str, more: dict[str, str], words: str) -> None:
    async def work() -> None:
        async with OldSite(endpoint).up(**more) as server:
            with pytest.raises(McpError, match=words):
                await server.connected()

    run(work())


def test_the_version_of_the_protocol_can_be_chosen() -> None:
    async def work() -> None:
        site = OldSite()
        async with site.up(protocol="2025-03-26") as server:
            await server.connected()
            assert site.versions == ["2025-03-26"]

    run(work())
