"""The server: one port with the remote protocol, the RPC protocol, the web page and a health check."""

import asyncio
import itertools
import logging
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from spindle import limits
from spindle.protocol.dialect import DIALECTS, SPINDLE
from spindle.protocol.live import AgentSource, LiveLimits, LiveSession, SessionPool, UnknownSession, Wanted
from spindle.remote.access import Access, Refusal, Slowdown, is_loopback
from spindle.remote.chat_connection import ChatConnection, ChatSeat
from spindle.remote.options import RemoteOptions
from spindle.remote.peer import FAILED, GOING_AWAY, NO_SUCH_SESSION, TRY_AGAIN_LATER, BoundedConnection, Peer
from spindle.remote.rpc_connection import RpcConnection
from spindle.remote.socket_owner import can_tell, owner
from spindle.shapes.codec import encode
from spindle.web import CHAT_POLICY, chat_file, chat_needs

__all__ = ["RemoteOptions", "RemoteServer"]

SUBPROTOCOL = Subprotocol("spindle")
CHAT_PATHS = ("/", "/ws")
RPC_PATH = "/rpc"
HEADERS = ("Host", "Origin", "Authorization", "Sec-WebSocket-Protocol")
"""Those that decide who may come in."""
BUFFERED_MESSAGES = 4

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
        kept = LiveLimits(
            max_sessions=options.max_sessions, keep_seconds=options.keep_seconds, max_kept=options.max_kept
        )
        self._pool = SessionPool(source, kept, numbered=True)
        self._seats: WeakKeyDictionary[LiveSession, ChatSeat] = WeakKeyDictionary()
        self._server: Server | None = None
        self._access = Access(options.host, options.port, options.token, options.origins)
        self._slowdown = Slowdown()
        self._peers: dict[Peer, asyncio.Task[None] | None] = {}
        """Every connection and the task that serves it."""
        self._numbers = itertools.count(1)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Begin to listen. Returns the address of the page, with the token if one was made. Raises `OSError`."""
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
        self._server = await serve(
            self._serve,
            options.host,
            options.port,
            create_connection=BoundedConnection,
            process_request=self._process_request,
            select_subprotocol=_choose_subprotocol,
            max_size=options.max_message_bytes,
            max_queue=BUFFERED_MESSAGES,
            ping_interval=options.ping_seconds,
            ping_timeout=options.ping_seconds,
            close_timeout=limits.CLOSE_FRAME,
            compression=None,
            server_header=None,
            ssl=context,
            logger=_silent_logger(),
        )
        port = next(iter(self._server.sockets)).getsockname()[1]
        self._access = replace(self._access, port=port)
        host = f"[{options.host}]" if ":" in options.host else options.host
        page = f"{'https' if context else 'http'}://{host}:{port}/"
        # After a #: browsers keep that part to themselves, so the token is in no log.
        return f"{page}#token={made_token}" if made_token else page

    async def stop(self) -> None:
        """Stop accepting, end every run, close every connection. Takes a limited time, whatever clients do."""
        if self._server is None:
            return
        self._server.close(close_connections=False)
        await self._pool.interrupt()
        for peer in self._peers:
            peer.leave(GOING_AWAY, "the server is shutting down")
        serving = [task for task in self._peers.values() if task is not None]
        if serving:
            await asyncio.wait(serving, timeout=limits.GOODBYE)
        await self._pool.close()

    # -- plain HTTP ------------------------------------------------------------------------------

    async def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a plain request, refuse a bad one, or let the upgrade happen (None)."""
        path, query = _split(request.path)
        upgrade = "websocket" in ",".join(request.headers.get_all("Upgrade")).lower()
        given = {name: ", ".join(values) for name in HEADERS if (values := request.headers.get_all(name))}
        refusal = self._access.check(given, needs_token=upgrade)
        if refusal is None and self._access.only_owner and not await _is_own(connection):
            refusal = Refusal(
                403, "Only the user who started this server may connect; --remote-token-file FILE lets others in"
            )
        if refusal is not None:
            log.info("refused %s: %s", connection.remote_address, refusal.reason)
            if refusal.guessed and connection.remote_address:
                await asyncio.sleep(self._slowdown.delay(connection.remote_address[0]))
            return _plain(refusal.status, refusal.reason)
        if not upgrade:
            return self._plain_answer(path)
        if path not in (*CHAT_PATHS, RPC_PATH):
            return _plain(404, "No such path")
        if len(self._peers) >= self._options.max_connections:
            return _plain(503, "Too many connections")
        if path == RPC_PATH and query.get("dialect", SPINDLE.name) not in DIALECTS:
            return _plain(400, f"Unknown dialect {query['dialect']!r}; there are {', '.join(DIALECTS)}")
        return None

    def _plain_answer(self, path: str) -> Response:
        if path == "/healthz":
            return _healthy(auth=self._access.token is not None)
        if (file := _page_file(path)) is not None:
            return file
        return _plain(426, "This is a WebSocket") if path in (*CHAT_PATHS, RPC_PATH) else _plain(404, "No such page")

    # -- WebSockets ------------------------------------------------------------------------------

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        path, query = _split(socket.request.path)
        number, began = next(self._numbers), time.monotonic()
        options = self._options
        peer = Peer(
            socket,
            stall_timeout=options.viewer_stall_timeout if path == RPC_PATH else options.stall_timeout,
            frames_per_second=options.frames_per_second,
            answers=path == RPC_PATH,
        )
        self._peers[peer] = asyncio.current_task()
        log.info("connection %d: %s from %s", number, path, socket.remote_address)
        try:
            if len(self._peers) > options.max_connections:  # several may have been let in at the same moment
                peer.leave(TRY_AGAIN_LATER, "too many connections")
            else:
                await self._attach(peer, path, query)
            await peer.close()
        except Exception:  # a bug, which is for us to see; the library then closes the connection
            log.exception("connection %d failed", number)
            raise
        finally:
            del self._peers[peer]
            spent = time.monotonic() - began
            log.info(
                "connection %d: ended with %s after %.1f s, %d frames in, %d out",
                number, socket.close_code, spent, peer.frames_in, peer.frames_out,
            )  # fmt: skip

    async def _attach(self, peer: Peer, path: str, query: dict[str, str]) -> None:
        try:
            live = await self._pool.open(Wanted(session=query.get("session")), peer)
        except UnknownSession as error:
            peer.leave(NO_SUCH_SESSION, str(error))
            return
        except Exception as error:  # whatever keeps an agent from starting is the client's to know
            log.warning("no agent for a client: %s", error)
            peer.leave(FAILED, str(error) or type(error).__name__)
            return
        try:
            if path == RPC_PATH:
                dialect = DIALECTS[query.get("dialect", SPINDLE.name)]
                await peer.run(RpcConnection(peer, live, dialect, _number(query.get("since", ""))))
            else:
                async with self._seats.setdefault(live, ChatSeat()).take(peer):
                    await peer.run(ChatConnection(peer, live, self._options))
        finally:
            self._pool.leave(peer, live)


async def _is_own(connection: ServerConnection) -> bool:
    """Say whether the process at the other end of a connection runs as the same user as we do."""
    theirs, ours = connection.remote_address, connection.local_address
    if not theirs or not ours:  # it is gone already
        return False
    return await asyncio.to_thread(owner, theirs[:2], ours[:2]) == os.geteuid()


def _split(target: str) -> tuple[str, dict[str, str]]:
    """Return path and query of a request; of a key that comes twice, the last value counts."""
    path, _, fields = target.partition("?")
    return path, {key: values[-1] for key, values in parse_qs(fields).items()}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _choose_subprotocol(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Agree on ours if a browser offers it; it is never required. The token among them is not for echoing."""
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


def _silent_logger() -> logging.Logger:
    """Return a logger for the library: it would write headers, and with them tokens, and a page for every port scan."""
    logger = logging.getLogger("spindle.remote.websockets")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


# -- answers over plain HTTP: the page, its files, the health check ---------------------------------


def _page_file(path: str) -> Response | None:
    """Return a file of the chat page for a path of the URL; None if there is no such file."""
    found = chat_file("chat/index.html" if path == "/" else path.removeprefix("/page/"))
    if found is None:
        return None
    kind, body = found
    answer = _answer(HTTPStatus.OK, body, kind)
    if path == "/":
        answer.headers["Link"] = chat_needs("page/")
    return answer


def _healthy(*, auth: bool) -> Response:
    """Say that the server is there, and whether clients need a token."""
    return _answer(HTTPStatus.OK, encode({"status": "ok", "auth": auth}), "application/json")


def _plain(status: int, text: str) -> Response:
    return _answer(HTTPStatus(status), f"{text}\n".encode(), "text/plain; charset=utf-8")


def _answer(status: HTTPStatus, body: bytes, kind: str) -> Response:
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Cache-Control": "no-cache",
            "Content-Security-Policy": CHAT_POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    return Response(status.value, status.phrase, headers, body)
