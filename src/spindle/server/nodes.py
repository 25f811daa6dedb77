"""Several servers on one store: which of them has a session, and the way there.

A node that gets a request for a session of another node opens the same route there, and copies bytes both ways; the
other one checks the client again, by the headers of the client, as if it had come by itself. So nodes need no trust in
each other: addresses come from the store, and whoever can write there has all sessions anyway.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

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
ALIVE_SECONDS = 1.0
"""Seconds between two looks whether the nodes that requests were passed on to are alive."""
CONNECT_SECONDS = 2.0
ENDED, ENDED_TEXT = 1012, b"the node that has the session ended"
"""How a WebSocket is closed if the node behind it is lost."""
_HOPS = ("connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer")
"""Headers that are about one connection, in lower case."""
_SOCKET_ONLY = ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol")
_NOT_OURS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that the library would add: an answer would be packed for a client that cannot unpack it."""
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""What is raised if there was no connection."""

T = TypeVar("T")

log = logging.getLogger("spindle.nodes")


class NodeSilent(SessionError):
    """The node that has the session does not answer, and its leases have not ended."""


class Leased(Protocol):
    def look(self) -> None:
        """Find out whether another node has the session now."""


class Nodes:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._client: aiohttp.ClientSession | None = None
        self._changed = asyncio.Event()
        """Set when a lease may have been given back."""
        self._hearers: list[Callable[[], None]] = []
        self._used: dict[str, set[asyncio.Timeout]] = {}
        """Node → what is being done there for clients of ours."""
        self._looking: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        """The name by which the health check of this node can be told from that of another one."""
        return self._store.node.word

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
            within = aiohttp.ClientTimeout(CONNECT_SECONDS)
            async with self.client().get(f"{address}/healthz", timeout=within) as answer:
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

    async def watch(self, sessions: Callable[[], Iterable["Leased"]]) -> None:
        """Let live sessions look at their leases again and again, soon after some have changed hands."""
        news = asyncio.Event()
        self.on_news(news.set)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_SECONDS):
                    await news.wait()
            news.clear()
            for session in sessions():
                session.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        self._stop_watching()
        if self._looking is not None:
            self._looking.cancel()
        if self._client is not None:
            await self._client.close()
        await asyncio.to_thread(self._store.close)

    # -- the others ------------------------------------------------------------------------------

    async def others(self) -> list[Holder]:
        """Return the other nodes that are alive. Raises `StoreError`."""
        alive = await asyncio.to_thread(self._store.nodes)
        return [one for one in alive if one.node != self._store.node.node and one.address is not None]

    async def at_owner(self, store: SessionStore, session: str, do: Callable[[Holder], Awaitable[T]]) -> T | None:
        """Do something at the node that has a session; None if that is this one, or no node has it.

        Raises `NodeSilent`, `StoreError`.
        """
        began = asyncio.get_running_loop().time()
        while True:
            self._changed.clear()
            holder = await asyncio.to_thread(store.holder, session)
            if holder is None or holder.node == self._store.node.node:
                return None
            waited = asyncio.get_running_loop().time() - began
            if holder.address is not None:
                try:
                    return await do(holder)
                except NodeGone:
                    pass  # it may be dead: then its leases end soon
            elif waited > store.lease_seconds + 1:
                raise NodeSilent(f"Session {session} is in use by a program that takes no requests ({holder.node})")
            if waited > TAKE_OVER_SECONDS:
                raise NodeSilent(f"The node that has session {session} does not answer ({holder.node})")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()

    @asynccontextmanager
    async def while_alive(self, holder: Holder) -> AsyncIterator[None]:
        """Raise `TimeoutError` in what is done meanwhile once the leases of that node have ended."""
        async with asyncio.timeout(None) as until:
            self._used.setdefault(holder.node, set()).add(until)
            if self._looking is None:
                self._looking = asyncio.create_task(self._look(), name="spindle-nodes-alive")
            try:
                yield
            finally:
                self._used.get(holder.node, set()).discard(until)

    async def _look(self) -> None:
        while self._used:
            await asyncio.sleep(ALIVE_SECONDS)
            self._used = {node: works for node, works in self._used.items() if works}
            try:
                alive = [holder.node for holder in await self.others()]
            except SessionError:
                continue  # then no other node takes over either
            for node in [node for node in self._used if node not in alive]:
                for work in self._used.pop(node):
                    work.reschedule(0)
        self._looking = None

    def client(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                auto_decompress=False,
                skip_auto_headers=_NOT_OURS,
                connector=aiohttp.TCPConnector(limit=0, ssl_shutdown_timeout=0),
            )
        return self._client

    # -- passing on ------------------------------------------------------------------------------

    async def pass_on(
        self, request: web.BaseRequest, store: SessionStore, session: str, *, socket: bool
    ) -> web.StreamResponse | None:
        """Let the node answer that has the session; None if that is this one, or no node has it.

        Raises `NodeSilent`, `StoreError`.
        """
        if PASSED in request.headers:
            return None
        return await self.at_owner(store, session, partial(self._socket if socket else self._plain, request))

    async def _plain(self, request: web.BaseRequest, holder: Holder) -> web.StreamResponse:
        body, ours = await request.read(), web.StreamResponse()
        try:
            async with self.while_alive(holder):
                theirs = await self.client().request(
                    request.method,
                    f"{holder.address}{request.path_qs}",
                    data=body or None,
                    headers=headers_for(request),
                    allow_redirects=False,
                )
                try:
                    await _answer_as(theirs, ours, request)
                finally:
                    theirs.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if ours.prepared:  # the node has ended in the middle: so does our answer
                ours.force_close()
                if request.transport is not None:
                    request.transport.abort()
                return ours
            if isinstance(error, _UNSENT) or request.method in ("GET", "HEAD"):
                raise NodeGone from error
            return _lost()
        return ours

    async def _socket(self, request: web.BaseRequest, holder: Holder) -> web.StreamResponse:
        try:
            theirs = await self.connect(request, holder, request.path_qs)
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
            async with self.while_alive(holder):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(both, timeout=1.0)  # the other side says goodbye, too
        except TimeoutError:
            with suppress(aiohttp.ClientError, OSError):
                await ours.close(code=ENDED, message=ENDED_TEXT)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await asyncio.gather(theirs.close(), ours.close(), return_exceptions=True)
        return ours  # type: ignore[no-any-return]

    async def connect(
        self, request: web.BaseRequest, holder: Holder, path: str
    ) -> "aiohttp.ClientWebSocketResponse[bool]":
        """Open a WebSocket at a node for the client of `request`. Raises `NodeGone`, `aiohttp.ClientError`."""
        protocols = [part.strip() for part in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if part]
        try:
            async with self.while_alive(holder):
                return await self.client().ws_connect(
                    f"{holder.address}{path}",
                    headers=headers_for(request, _SOCKET_ONLY),
                    protocols=protocols,
                    autoping=False,
                    autoclose=False,
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                )
        except (*_UNSENT, TimeoutError) as error:  # nothing was asked of it
            raise NodeGone from error


class NodeGone(Exception):
    """The node does not answer, and knows nothing of the request."""


def headers_for(request: web.BaseRequest, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the headers of a client that go with its request to another node."""
    left_out = (*_HOPS, *without)
    kept = {name: value for name, value in request.headers.items() if name.lower() not in left_out}
    return {**kept, PASSED: "1"}


async def _answer_as(theirs: aiohttp.ClientResponse, ours: web.StreamResponse, request: web.BaseRequest) -> None:
    """Answer as another node does, byte for byte."""
    ours.set_status(theirs.status)
    for name, value in theirs.headers.items():
        if name.lower() not in _HOPS:
            ours.headers.add(name, value)
    if (length := theirs.headers.get("Content-Length")) is not None and request.method != "HEAD":
        ours.content_length = int(length)
    await ours.prepare(request)
    async for chunk in theirs.content.iter_any():
        await ours.write(chunk)
    await ours.write_eof()


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
                await target.close(code=ENDED, message=ENDED_TEXT)
                return
