"""The server: one port with the remote protocol, the RPC protocol, the web page and a health check."""

import asyncio
import contextlib
import mimetypes
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from spindle.agent.session import AgentSession
from spindle.protocol.dialect import DIALECTS
from spindle.types.codec import encode

from .access import Access, is_loopback
from .chat_connection import ChatConnection
from .live import SessionPool, UnknownSession
from .rpc_connection import RpcConnection

__all__ = ["RemoteOptions", "RemoteServer"]

PAGE = Path(__file__).parent / "page"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SUBPROTOCOL = "spindle"
CHAT_PATHS = ("/", "/ws")
RPC_PATH = "/rpc"
# Close codes.
GOING_AWAY, REPLACED, NO_SUCH_SESSION, BUSY = 1001, 4001, 4004, 1013


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    origins: frozenset[str] = frozenset()
    """Sites other than our own page that may connect."""
    insecure: bool = False
    """Serve other machines without a token."""
    tls: tuple[str, str] | None = None
    """Certificate and key file."""
    max_connections: int = 256
    max_message_bytes: int = 16 << 20
    keep_s: float = 600.0
    """How long a session without clients stays alive."""
    confirm_timeout_s: float | None = 300.0
    stream_complete: bool = False
    """Call the end of a stream `StreamComplete`, as one old client expects."""


class RemoteServer:
    def __init__(self, options: RemoteOptions, make_agent: Callable[[str | None], Awaitable[AgentSession]]) -> None:
        """`make_agent` makes an agent on a new session, or on the stored one of that id; raises `UnknownSession`."""
        if not is_loopback(options.host) and options.token is None and not options.insecure:
            raise ValueError(
                f"Refusing to listen on {options.host} without a token: whoever reaches it could run commands here. "
                "Set SPINDLE_REMOTE_TOKEN or --remote-token-file (or --remote-insecure if you know better)."
            )
        self._options = options
        self._pool = SessionPool(make_agent, options.keep_s)
        self._server: Server | None = None
        self._access = Access(options.host, options.port, options.token, options.origins)
        self._chats: dict[str, ServerConnection] = {}
        """The connection of the remote protocol that each session belongs to."""
        self._connections = 0

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Begin to listen. Returns the address of the page. Raises `OSError`."""
        options = self._options
        context = None
        if options.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*options.tls)
        self._server = await serve(
            self._serve,
            options.host,
            options.port,
            process_request=self._process_request,
            select_subprotocol=_choose_subprotocol,
            max_size=options.max_message_bytes,
            ping_interval=20,
            ping_timeout=20,
            compression=None,
            server_header=None,
            ssl=context,
        )
        port = next(iter(self._server.sockets)).getsockname()[1]
        self._access = Access(options.host, port, options.token, options.origins)
        host = f"[{options.host}]" if ":" in options.host else options.host
        return f"{'https' if context else 'http'}://{host}:{port}/"

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or SIGHUP, then say goodbye. Returns the exit code."""
        print(f"Listening on {await self.start()}", file=sys.stderr, flush=True)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, ended.set)
        await ended.wait()
        await self.stop()
        return 0

    async def stop(self) -> None:
        """Stop accepting, end every run, close every connection."""
        if self._server is None:
            return
        self._server.close(close_connections=False)
        closing = [
            asyncio.create_task(connection.close(GOING_AWAY, "the server is shutting down"))
            for connection in self._server.connections
        ]
        await self._pool.close()
        if closing:
            await asyncio.wait(closing, timeout=5)
        self._server.close()
        await self._server.wait_closed()

    # -- plain HTTP ------------------------------------------------------------------------------

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a plain request, refuse a bad one, or let the upgrade happen (None)."""
        path = urlsplit(request.path).path
        upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
        refusal = self._access.check(request.headers, needs_token=upgrade)
        if refusal is not None:
            return _plain(HTTPStatus(refusal.status), refusal.reason)
        if not upgrade:
            return self._page(path)
        if path not in (*CHAT_PATHS, RPC_PATH):
            return _plain(HTTPStatus.NOT_FOUND, "No such path")
        if self._connections >= self._options.max_connections:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections")
        return None

    def _page(self, path: str) -> Response:
        if path == "/healthz":
            body = encode({"status": "ok", "auth": self._options.token is not None})
            return _answer(HTTPStatus.OK, body, "application/json")
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        file = PAGE / name
        # Only files that lie directly in the page's directory; nothing is looked up outside of it.
        if "/" in name or name.startswith(".") or not file.is_file():
            if path in (RPC_PATH, *CHAT_PATHS):
                return _plain(HTTPStatus.UPGRADE_REQUIRED, "This is a WebSocket")
            return _plain(HTTPStatus.NOT_FOUND, "No such page")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        kind = "text/javascript" if name.endswith(".js") else kind
        return _answer(HTTPStatus.OK, file.read_bytes(), f"{kind}; charset=utf-8")

    # -- WebSockets ------------------------------------------------------------------------------

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        url = urlsplit(socket.request.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self._connections += 1
        try:
            await self._attach(socket, url.path, query)
        finally:
            self._connections -= 1

    async def _attach(self, socket: ServerConnection, path: str, query: dict[str, str]) -> None:
        try:
            live = await self._pool.join(socket, query.get("session"))
        except UnknownSession as error:
            await socket.close(NO_SUCH_SESSION, str(error)[:100])
            return
        except Exception as error:  # whatever keeps an agent from starting is the client's to know
            await socket.close(1011, str(error)[:100] or type(error).__name__)
            return
        try:
            if path == RPC_PATH:
                since = query.get("since", "")
                dialect = query.get("dialect", "spindle")
                await RpcConnection(
                    socket,
                    live,
                    dialect=dialect if dialect in DIALECTS else "spindle",
                    since=int(since) if since.isdigit() else None,
                ).run()
            else:
                await self._take_over(live.id, socket)
                await ChatConnection(
                    socket,
                    live,
                    confirm_timeout=self._options.confirm_timeout_s,
                    stream_complete=self._options.stream_complete,
                ).run()
        finally:
            if self._chats.get(live.id) is socket:
                del self._chats[live.id]
            self._pool.leave(socket, live)

    async def _take_over(self, session_id: str, socket: ServerConnection) -> None:
        """Make `socket` the one connection of this session; the newer one wins."""
        older = self._chats.get(session_id)
        self._chats[session_id] = socket
        if older is not None:
            await older.close(REPLACED, "this session was opened elsewhere")


def _choose_subprotocol(connection: ServerConnection, offered: object) -> None:
    """Agree on ours if a browser offers it; it is never required. The token among them is not for echoing."""
    with contextlib.suppress(TypeError):
        if SUBPROTOCOL in offered:  # type: ignore[operator]
            return SUBPROTOCOL  # type: ignore[return-value]
    return None


def _plain(status: HTTPStatus, text: str) -> Response:
    return _answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8")


def _answer(status: HTTPStatus, body: bytes, kind: str) -> Response:
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Cache-Control": "no-cache",
            "Content-Security-Policy": CSP,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
    )
    return Response(status.value, status.phrase, headers, body)
