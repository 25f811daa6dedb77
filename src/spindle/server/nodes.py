"""Several servers on one store: which of them has a session, and the way there.

A node that gets a request for a session of another node opens the same route there, and copies bytes both ways; the
other one checks the client again, by the headers of the client, as if it had come by itself. So nodes need no trust in
each other: addresses come from the store, and whoever can write there has all sessions anyway.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web

from spindle.sessions.entries import SessionError
from spindle.sessions.store import Holder, SessionStore
from spindle.shapes.codec import encode

PASSED = "Spindle-Passed-On"
"""Header of a request that was passed on. It goes no further: a node whose address is wrong must not ask itself."""
TAKE_OVER_SECONDS = 12.0
"""How long a request waits for the end of a dead node's leases, at most."""
LOOK_SECONDS = 0.25
CONNECT_SECONDS = 2.0
CHUNK = 64 << 10
_HOPS = ("connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer")
"""Headers that are about one connection, in lower case."""
_SOCKET_ONLY = ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol")

log = logging.getLogger("spindle.nodes")


class NodeSilent(SessionError):
    """The node that has the session does not answer, and its leases have not ended."""


class Nodes:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._client: aiohttp.ClientSession | None = None
        self._changed = asyncio.Event()
        """Set when a lease may have been given back."""
        self._hearers: list[Callable[[], None]] = []
        self._stop_watching: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        """The name by which the health check of this node can be told from that of another one."""
        return self._store.node.node.rpartition("-")[2]

    def is_alive(self) -> bool:
        """Say whether other nodes see this one as alive: its database answers. Blocks."""
        try:
            return self._store.is_alive
        except SessionError:
            return False

    async def begin(self, address: str | None, port: int, scheme: str) -> str:
        """Tell the others where this node answers; None: as the database sees us. Returns the address.

        Raises `SessionError` if another node answers there.
        """
        if address is None:
            host = await asyncio.to_thread(self._store.seen_as)
            address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        found = await self._node_at(address)
        if found is not None and found != self.name:
            raise SessionError(
                f"Another node answers at {address}: every node needs an address of its own (--node-address), at which "
                "the others reach it"
            )
        if found is None:
            log.warning("this node does not reach itself at %s: if others do not either, set --node-address", address)
        await asyncio.to_thread(self._store.answers_at, address, is_ours=found is not None)
        loop = asyncio.get_running_loop()
        self._stop_watching = self._store.watch_all(partial(self._hear, loop))
        return address

    async def _node_at(self, address: str) -> str | None:
        """Return the name of the node whose health check answers at an address; None if none does."""
        try:
            async with self._ask().get(f"{address}/healthz", timeout=aiohttp.ClientTimeout(CONNECT_SECONDS)) as answer:
                value = await answer.json()
            return str(value.get("node", "")) if isinstance(value, dict) else ""
        except (OSError, TimeoutError, ValueError, aiohttp.ClientError):
            return None

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._tell)

    def on_news(self, hear: Callable[[], None]) -> None:
        """Call a function when a lease was given back somewhere."""
        self._hearers.append(hear)

    def _tell(self) -> None:
        self._changed.set()
        for hear in self._hearers:
            hear()

    async def end(self) -> None:
        self._stop_watching()
        if self._client is not None:
            await self._client.close()
        await asyncio.to_thread(self._store.close)

    # -- passing on ------------------------------------------------------------------------------

    async def pass_on(
        self, request: web.BaseRequest, store: SessionStore, session: str, *, socket: bool
    ) -> web.StreamResponse | None:
        """Let the node answer that has the session; None if that is this one, or no node has it.

        Raises `NodeSilent`, `StoreError`.
        """
        end = asyncio.get_running_loop().time() + TAKE_OVER_SECONDS
        while True:
            self._changed.clear()
            holder = await asyncio.to_thread(store.holder, session)
            if holder is None or holder.node == self._store.node.node or PASSED in request.headers:
                return None
            if holder.address is not None:
                try:
                    return await (self._socket if socket else self._plain)(request, holder)
                except _NotThere:
                    pass  # it may be dead: then its leases end soon
            if asyncio.get_running_loop().time() > end:
                raise NodeSilent(f"The node that has session {session} does not answer ({holder.node})")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()

    async def _plain(self, request: web.BaseRequest, holder: Holder) -> web.StreamResponse:
        body = await request.read()
        url = f"{holder.address}{request.path_qs}"
        try:
            theirs = await self._ask().request(
                request.method, url, data=body or None, headers=_headers(request), allow_redirects=False
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) or request.method in ("GET", "HEAD"):
                raise _NotThere from error
            return _lost()
        ours = web.StreamResponse(status=theirs.status)
        for name, value in theirs.headers.items():
            if name.lower() not in _HOPS:
                ours.headers.add(name, value)
        if (length := theirs.headers.get("Content-Length")) is not None and request.method != "HEAD":
            ours.content_length = int(length)
        try:
            await ours.prepare(request)
            async for chunk in theirs.content.iter_any():
                await ours.write(chunk)
            await ours.write_eof()
        except aiohttp.ClientError:  # the node has ended in the middle: so does our answer
            ours.force_close()
            if request.transport is not None:
                request.transport.abort()
        finally:
            theirs.close()
        return ours

    async def _socket(self, request: web.BaseRequest, holder: Holder) -> web.StreamResponse:
        protocols = [part.strip() for part in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if part]
        headers = {name: value for name, value in _headers(request).items() if name.lower() not in _SOCKET_ONLY}
        try:
            theirs = await self._ask().ws_connect(
                f"{holder.address}{request.path_qs}",
                headers=headers,
                protocols=protocols,
                autoping=False,
                autoclose=False,
                max_msg_size=0,
            )
        except aiohttp.ClientConnectorError as error:
            raise _NotThere from error
        except aiohttp.WSServerHandshakeError as error:
            told = error.headers.get("X-Reason", "") if error.headers is not None else ""
            return web.Response(status=error.status, text=f"{told}\n", headers={"X-Reason": told})
        except (aiohttp.ClientError, TimeoutError, OSError):
            return _lost()
        chosen = [theirs.protocol] if theirs.protocol else []
        ours: Any = web.WebSocketResponse(protocols=chosen, autoping=False, autoclose=False, max_msg_size=0)
        await ours.prepare(request)
        both = asyncio.create_task(_copy(ours, theirs)), asyncio.create_task(_copy(theirs, ours))
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(both, timeout=1.0)  # the other side says goodbye, too
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await asyncio.gather(theirs.close(), ours.close(), return_exceptions=True)
        return ours  # type: ignore[no-any-return]

    def _ask(self) -> aiohttp.ClientSession:
        if self._client is None:
            none = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._client = aiohttp.ClientSession(
                timeout=none, auto_decompress=False, connector=aiohttp.TCPConnector(limit=0, ssl_shutdown_timeout=0)
            )
        return self._client


class _NotThere(Exception):
    """No connection to the node was made, so it knows nothing of the request."""


def _headers(request: web.BaseRequest) -> dict[str, str]:
    kept = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
    return {**kept, PASSED: "1"}


def _lost() -> web.Response:
    text = "The node that has the session ended before it answered. What it accepted is kept: look before you repeat it"
    return web.Response(status=502, body=encode({"error": text}), content_type="application/json")


async def _copy(source: Any, target: Any) -> None:
    """Copy the frames of a WebSocket until it is closed."""
    kinds = aiohttp.WSMsgType
    while True:
        message = await source.receive()
        match message.type:
            case kinds.TEXT:
                await target.send_str(message.data)
            case kinds.BINARY:
                await target.send_bytes(message.data)
            case kinds.PING:
                await target.ping(message.data)
            case kinds.PONG:
                await target.pong(message.data)
            case kinds.CLOSE:
                await target.close(code=message.data or 1000, message=(message.extra or "").encode())
                return
            case _:  # lost, without a word
                await target.close(code=1012, message=b"the node that has the session ended")
                return
