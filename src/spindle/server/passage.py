"""The other nodes as one client may use them: its requests go there with its own headers.

A connection to this node reaches sessions of others through links; a list asks all nodes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import aiohttp
from aiohttp import web

from spindle.agent import AgentError
from spindle.server.nodes import ENDED_TEXT, PASSED, NodeGone, Nodes, headers_for
from spindle.sessions.store import Holder, SessionStore
from spindle.shapes.codec import DecodeError, decode

ASK_SECONDS = 3.0
"""How long a list waits for a node."""
NO_QUERY: Mapping[str, str] = {}
_OF_A_SOCKET = ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "content-type")


class Link:
    """A WebSocket to the node that has a session, for a client of this one."""

    def __init__(self, nodes: Nodes, holder: Holder, socket: Any) -> None:
        self._nodes = nodes
        self._holder = holder
        self._socket = socket
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, frame: bytes) -> None:
        self._waiting.put_nowait(frame)

    async def close(self) -> None:
        await self._socket.close()

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> str:
        """Pass on frames both ways until the connection ends. Returns why it did."""
        writing = asyncio.create_task(self._write())
        try:
            async with self._nodes.while_alive(self._holder):
                return await self._read(hear)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return ENDED_TEXT.decode()
        finally:
            writing.cancel()
            await asyncio.gather(writing, self._socket.close(), return_exceptions=True)

    async def _read(self, hear: Callable[[bytes], Awaitable[None]]) -> str:
        kinds = aiohttp.WSMsgType
        while True:
            message = await self._socket.receive()
            match message.type:
                case kinds.TEXT:
                    await hear(message.data.encode())
                case kinds.PING:
                    await self._socket.pong(message.data)
                case kinds.CLOSE:
                    return message.extra or ENDED_TEXT.decode()
                case kinds.CLOSED | kinds.CLOSING | kinds.ERROR:
                    return ENDED_TEXT.decode()

    async def _write(self) -> None:
        with suppress(aiohttp.ClientError, OSError):  # the reader sees the end, too
            while True:
                await self._socket.send_str((await self._waiting.get()).decode())


class Passage:
    def __init__(self, nodes: Nodes, store: SessionStore, request: web.BaseRequest) -> None:
        """`request`: that of the client, whose headers say who it is. What was passed on to us goes no further."""
        self._nodes = nodes
        self._store = store
        self._request = request
        self._ends_here = PASSED in request.headers

    async def live(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the live sessions of the other nodes, and the nodes that did not answer. Raises `StoreError`."""
        others = [] if self._ends_here else await self._nodes.others()
        asked = [self._ask("GET", "/v1/sessions", other) for other in others]
        found = await asyncio.gather(*asked, return_exceptions=True)
        sessions: list[dict[str, Any]] = []
        silent = []
        for other, answer in zip(others, found, strict=True):
            if isinstance(answer, BaseException):
                silent.append(other.word)
            else:
                sessions += answer.get("sessions", ())
        return sessions, silent

    async def info(self, session: str) -> dict[str, Any] | None:
        """Return what a list shows of a session of another node, which stays open; None: no other node has it.

        Raises `NodeSilent`, `StoreError`.
        """
        return await self._at_owner(session, "GET", f"/v1/sessions/{quote(session, safe='')}")

    async def end(self, session: str) -> None:
        """End a session that another node has. Raises `NodeSilent`, `StoreError`."""
        await self._at_owner(session, "DELETE", f"/v1/sessions/{quote(session, safe='')}")

    async def link(self, session: str, path: str, query: Mapping[str, str] = NO_QUERY) -> Link | None:
        """Open a WebSocket to the node that has a session; None: no other node has it.

        Raises `NodeSilent`, `StoreError`, and `AgentError` if that node refuses.
        """
        if self._ends_here:
            return None
        try:
            return await self._nodes.at_owner(self._store, session, partial(self._connect, self._path(path, query)))
        except aiohttp.WSServerHandshakeError as error:
            why = error.message if error.headers is None else error.headers.get("X-Reason", error.message)
            raise AgentError(f"The node that has session {session} refuses: {why}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise AgentError(f"The node that has session {session} cannot be used: {error}") from None

    async def _connect(self, path: str, holder: Holder) -> Link:
        return Link(self._nodes, holder, await self._nodes.connect(self._request, holder, path))

    async def _at_owner(self, session: str, method: str, path: str) -> dict[str, Any] | None:
        return (
            None
            if self._ends_here
            else await self._nodes.at_owner(self._store, session, partial(self._ask, method, path))
        )

    async def _ask(self, method: str, path: str, holder: Holder) -> dict[str, Any]:
        """Return what a node answers. Raises `NodeGone`, and `AgentError` if it refuses."""
        headers = {**headers_for(self._request, _OF_A_SOCKET), "Accept-Encoding": "identity"}
        url = f"{holder.address}{self._path(path)}"
        try:
            async with (
                asyncio.timeout(ASK_SECONDS),
                self._nodes.client().request(method, url, headers=headers) as answer,
            ):
                value = decode(await answer.read() or b"{}")
        except (aiohttp.ClientError, TimeoutError, OSError, DecodeError) as error:
            raise NodeGone from error
        if answer.status >= 400 or not isinstance(value, dict):
            raise AgentError(str(value.get("error")) if isinstance(value, dict) else f"status {answer.status}")
        return value

    def _path(self, path: str, query: Mapping[str, str] = NO_QUERY) -> str:
        """Return a path with a query: whose sessions the client uses is said there."""
        user = [(key, value) for key, value in parse_qsl(self._request.query_string) if key == "user"]
        fields = urlencode([*user, *query.items()])
        return f"{path}?{fields}" if fields else path
