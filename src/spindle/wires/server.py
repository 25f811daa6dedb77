"""The server: one port with the remote protocol, the RPC protocol, plain HTTP, the web page and a health check."""

import asyncio
import itertools
import logging
import os
import secrets
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

from aiohttp import web
from msgspec.structs import replace

from spindle.base import limits, trace
from spindle.protocol.dialect import SPINDLE
from spindle.protocol.live_session import LiveSession
from spindle.protocol.neighbours import DIALECTS
from spindle.protocol.pool import AgentSource, PoolBounds, SessionPool, UnknownSession
from spindle.protocol.registry import Wanted
from spindle.wires.chat.seat import ChatSeat, OneAtATime
from spindle.wires.http.api import API_PATHS, HttpApi, event_number
from spindle.wires.network.access import Access, Refusal, Slowdown, can_tell, is_loopback, owner
from spindle.wires.network.answers import failed, healthy, page_file, plain
from spindle.wires.network.listener import HttpConnection, Listener
from spindle.wires.network.options import RemoteOptions
from spindle.wires.network.peer import FAILED, GOING_AWAY, NO_SUCH_SESSION, TRY_AGAIN_LATER, Peer
from spindle.wires.websocket import RpcSeat

__all__ = ["RemoteOptions", "RemoteServer"]

SUBPROTOCOL = "spindle"
CHAT_PATHS = ("/", "/ws")
RPC_PATH = "/rpc"
HEADERS = ("Host", "Origin", "Authorization", "Sec-WebSocket-Protocol")
"""The headers that decide about access."""

log = logging.getLogger("spindle.remote")


class RemoteServer:
    def __init__(self, options: RemoteOptions, source: AgentSource) -> None:
        """Prepare a server. Raises `ValueError` if it would be open to every machine."""
        if not is_loopback(options.host) and options.token is None and not options.insecure:
            raise ValueError(
                f"Refusing to listen on {options.host} without a token: whoever reaches it could run commands here. "
                "Set SPINDLE_REMOTE_TOKEN or --remote-token-file (or --remote-insecure if you know better)."
            )
        self._options = options
        kept = PoolBounds(
            max_sessions=options.max_sessions, keep_seconds=options.keep_seconds, max_kept=options.max_kept
        )
        self._pool = SessionPool(source, kept, numbered=True)
        self._chats: WeakKeyDictionary[LiveSession, OneAtATime] = WeakKeyDictionary()
        self._api = HttpApi(self._pool, options)
        self._listener: Listener | None = None
        self._access = Access(options.host, options.port, options.token, options.origins, options.tls is not None)
        self._slowdown = Slowdown()
        self._peers: dict[Peer, asyncio.Task[None] | None] = {}
        """Every connection and the task that serves it."""
        self._numbers = itertools.count(1)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Begin to listen. Return the address of the page, with the token if one was made. Raises `OSError`."""
        options = self._options
        made_token = ""
        if self._access.only_owner and not await asyncio.to_thread(can_tell):
            made_token = secrets.token_urlsafe(32)
            self._access = replace(self._access, token=made_token)
        context = None
        if options.tls is not None:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*options.tls)
        self._listener = Listener(self._answer, options)
        port = await self._listener.listen(context)
        self._access = replace(self._access, port=port)
        host = f"[{options.host}]" if ":" in options.host else options.host
        page = f"{'https' if context else 'http'}://{host}:{port}/"
        # After a #: browsers do not send that part, so the token is in no log.
        return f"{page}#token={made_token}" if made_token else page

    async def stop(self) -> None:
        """Stop accepting, end every run, close every connection. Every wait has a time limit, whatever clients do."""
        if self._listener is None:
            return
        self._listener.close()
        await self._pool.interrupt()
        for peer in self._peers:
            peer.leave(GOING_AWAY, "the server is shutting down")
        serving = [task for task in self._peers.values() if task is not None]
        if serving:
            await asyncio.wait(serving, timeout=limits.GOODBYE)
        await self._pool.close()
        await self._listener.end()

    # -- requests --------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a plain request, refuse a bad one, or serve a WebSocket to its end."""
        path, query = _split(request.path_qs)
        upgrade = "websocket" in ",".join(request.headers.getall("Upgrade", [])).lower()
        refusal = await self._refusal(request, needs_token=upgrade or path.startswith(API_PATHS))
        if refusal is not None:
            refuse = failed if path.startswith(API_PATHS) and not upgrade else plain
            return refuse(refusal.status, refusal.reason)
        if not upgrade:
            return await self._plain_answer(request, path, query)
        if path not in (*CHAT_PATHS, RPC_PATH):
            return plain(404, "No such path")
        if len(self._peers) >= self._options.max_connections:
            return plain(503, self._too_many())
        if path == RPC_PATH and query.get("dialect", SPINDLE.name) not in DIALECTS:
            return plain(400, f"Unknown dialect {query['dialect']!r}; there are {', '.join(DIALECTS)}")
        return await self._serve(request, path, query)

    def _too_many(self) -> str:
        most = self._options.max_connections
        return f"Too many connections: {most} are allowed; --remote-option max_connections=N changes that"

    async def _refusal(self, request: web.BaseRequest, *, needs_token: bool) -> Refusal | None:
        given = {name: ", ".join(values) for name in HEADERS if (values := request.headers.getall(name, []))}
        refusal = self._access.check(given, needs_token=needs_token)
        if refusal is None and self._access.only_owner and not await _is_own(request):
            refusal = Refusal(
                403, "Only the user who started this server may connect; --remote-token-file FILE lets others in"
            )
        if refusal is not None:
            log.info("refused %s: %s", request.remote, refusal.reason)
            if refusal.guessed and request.remote:
                await asyncio.sleep(self._slowdown.delay(request.remote))
        return refusal

    async def _plain_answer(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.StreamResponse:
        if path.startswith(API_PATHS):
            with trace.span("request", wire="http", method=request.method, path=path, client=request.remote) as span:
                answer = await self._api.answer(request, path, query)
                span.set(status=answer.status)
                return answer
        if request.method not in ("GET", "HEAD"):
            return plain(405, "Only GET is allowed here")
        if path == "/healthz":
            return healthy(auth=self._access.token is not None)
        if (file := page_file(path, request.headers)) is not None:
            return file
        return plain(426, "This is a WebSocket") if path in (*CHAT_PATHS, RPC_PATH) else plain(404, "No such page")

    # -- WebSockets ------------------------------------------------------------------------------

    async def _serve(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.StreamResponse:
        options = self._options
        socket: web.WebSocketResponse[Any] = web.WebSocketResponse(
            timeout=limits.CLOSE_FRAME,
            protocols=(SUBPROTOCOL,),  # never required; a token that came as a subprotocol must not be echoed
            autoping=False,
            compress=False,
            # Twice the bound: the library hangs up without a reason, while `Peer` tells the client why.
            max_msg_size=2 * options.max_message_bytes,
            writer_limit=0,
        )
        await socket.prepare(request)
        number = next(self._numbers)
        is_rpc = path == RPC_PATH
        stall = options.viewer_stall_timeout if is_rpc else options.stall_timeout
        peer = Peer(socket, request, options, stall_timeout=stall)
        self._peers[peer] = asyncio.current_task()
        wire = "websocket" if is_rpc else "chat"
        with trace.span("connection", wire=wire, number=number, path=path, client=request.remote) as span:
            try:
                if len(self._peers) > options.max_connections:  # several may have come in at the same moment
                    peer.leave(TRY_AGAIN_LATER, self._too_many())
                else:
                    await self._attach(peer, path, query)
                await peer.close()
            except Exception as error:  # a bug
                log.exception("connection %d failed", number)
                span.fail(type(error).__name__)
                peer.leave(FAILED, "internal error")
                await peer.close()
            finally:
                del self._peers[peer]
                span.set(code=socket.close_code, frames_in=peer.frames_in, frames_out=peer.frames_out)
        return socket

    async def _attach(self, peer: Peer, path: str, query: dict[str, str]) -> None:
        dialect = DIALECTS[query.get("dialect", SPINDLE.name)]
        seat = RpcSeat(peer, self._pool, dialect) if path == RPC_PATH else ChatSeat(peer, self._options)
        try:
            live = await self._pool.open(Wanted(session=query.get("session")), seat)
        except UnknownSession as error:
            peer.leave(NO_SUCH_SESSION, str(error))
            return
        except Exception as error:  # whatever keeps the agent from starting, the client is told
            log.warning("no agent for a client: %s", error)
            peer.leave(FAILED, str(error) or type(error).__name__)
            return
        try:
            if isinstance(seat, RpcSeat):
                seat.begin(live, event_number(query.get("since", "")))
                await peer.run(seat)
            else:
                async with self._chats.setdefault(live, OneAtATime()).take(peer):
                    seat.begin(live)
                    await peer.run(seat)
        finally:
            self._pool.leave(seat, live)


async def _is_own(request: web.BaseRequest) -> bool:
    """Say whether the process at the other end of a connection runs as the same user as we do."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    if connection.own is None:
        transport = request.transport
        theirs = transport and transport.get_extra_info("peername")
        ours = transport and transport.get_extra_info("sockname")
        if not theirs or not ours:  # the connection is lost already
            return False
        connection.own = await asyncio.to_thread(owner, theirs[:2], ours[:2]) == os.geteuid()
    return connection.own


def _split(target: str) -> tuple[str, dict[str, str]]:
    """Return path and query of a request; of a key that comes twice, the last value counts."""
    path, _, fields = target.partition("?")
    return path, {key: values[-1] for key, values in parse_qs(fields).items()}
