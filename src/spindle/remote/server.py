"""The server: one port with the remote protocol, the RPC protocol, the web page and a health check."""

import asyncio
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from urllib.parse import parse_qs

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from spindle.children import kill_all
from spindle.remote.access import Access, is_loopback
from spindle.remote.chat_connection import ChatConnection
from spindle.remote.http import healthy, page_file, plain
from spindle.remote.line import CLOSE_S, FAILED, GOING_AWAY, NO_SUCH_SESSION, TRY_AGAIN_LATER, Line
from spindle.remote.live import MakeAgent, SessionPool, UnknownSession
from spindle.remote.options import RemoteOptions
from spindle.remote.rpc_connection import RpcConnection

__all__ = ["RemoteOptions", "RemoteServer"]

SUBPROTOCOL = Subprotocol("spindle")
CHAT_PATHS = ("/", "/ws")
RPC_PATH = "/rpc"
HEADERS = ("Host", "Origin", "Authorization", "Sec-WebSocket-Protocol")
"""Those that decide who may come in."""
GOODBYE_S = 5.0
BUFFERED_MESSAGES = 4

log = logging.getLogger("spindle.remote")


class RemoteServer:
    def __init__(self, options: RemoteOptions, make_agent: MakeAgent) -> None:
        """Prepare a server. Raises `ValueError` if it would be open to everybody."""
        if not is_loopback(options.host) and options.token is None and not options.insecure:
            raise ValueError(
                f"Refusing to listen on {options.host} without a token: whoever reaches it could run commands here. "
                "Set SPINDLE_REMOTE_TOKEN or --remote-token-file (or --remote-insecure if you know better)."
            )
        self._options = options
        self._pool = SessionPool(make_agent, options)
        self._server: Server | None = None
        self._access = Access(options.host, options.port, options.token, options.origins)
        self._lines: dict[Line, asyncio.Task[None] | None] = {}
        """Every connection and the task that serves it."""
        self._numbers = itertools.count(1)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Begin to listen. Returns the address of the page. Raises `OSError`."""
        options = self._options
        context = None
        if options.tls is not None:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*options.tls)
        self._server = await serve(
            self._serve,
            options.host,
            options.port,
            process_request=self._process_request,
            select_subprotocol=_choose_subprotocol,
            max_size=options.max_message_bytes,
            max_queue=BUFFERED_MESSAGES,
            ping_interval=options.ping_seconds,
            ping_timeout=options.ping_seconds,
            close_timeout=CLOSE_S,
            compression=None,
            server_header=None,
            ssl=context,
            logger=_silent_logger(),
        )
        port = next(iter(self._server.sockets)).getsockname()[1]
        self._access = Access(options.host, port, options.token, options.origins)
        host = f"[{options.host}]" if ":" in options.host else options.host
        return f"{'https' if context else 'http'}://{host}:{port}/"

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or SIGHUP, then say goodbye. Returns the exit code."""
        print(f"Listening on {await self.start()}", file=sys.stderr, flush=True)
        ended = asyncio.Event()

        def end() -> None:
            if ended.is_set():  # it is ending already, too slowly for somebody
                kill_all()
                os._exit(1)
            ended.set()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end)
        await ended.wait()
        await self.stop()
        return 0

    async def stop(self) -> None:
        """Stop accepting, end every run, close every connection. Takes a limited time, whatever clients do."""
        if self._server is None:
            return
        self._server.close(close_connections=False)
        await self._pool.interrupt()
        for line in self._lines:
            line.leave(GOING_AWAY, "the server is shutting down")
        serving = [task for task in self._lines.values() if task is not None]
        if serving:
            await asyncio.wait(serving, timeout=GOODBYE_S)
        await self._pool.close()

    # -- plain HTTP ------------------------------------------------------------------------------

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a plain request, refuse a bad one, or let the upgrade happen (None)."""
        path = request.path.partition("?")[0]
        upgrade = "websocket" in ",".join(request.headers.get_all("Upgrade")).lower()
        given = {name: ", ".join(values) for name in HEADERS if (values := request.headers.get_all(name))}
        refusal = self._access.check(given, needs_token=upgrade)
        if refusal is not None:
            log.info("refused %s: %s", connection.remote_address, refusal.reason)
            return plain(refusal.status, refusal.reason)
        if not upgrade:
            return self._plain_answer(path)
        if path not in (*CHAT_PATHS, RPC_PATH):
            return plain(404, "No such path")
        if len(self._lines) >= self._options.max_connections:
            return plain(503, "Too many connections")
        return None

    def _plain_answer(self, path: str) -> Response:
        if path == "/healthz":
            return healthy(auth=self._options.token is not None)
        if (file := page_file(path)) is not None:
            return file
        return plain(426, "This is a WebSocket") if path in (*CHAT_PATHS, RPC_PATH) else plain(404, "No such page")

    # -- WebSockets ------------------------------------------------------------------------------

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        path, _, fields = socket.request.path.partition("?")
        query = {key: values[-1] for key, values in parse_qs(fields).items()}
        number, began = next(self._numbers), time.monotonic()
        options = self._options
        line = Line(
            socket,
            stall_timeout=options.viewer_stall_timeout if path == RPC_PATH else options.stall_timeout,
            frames_per_second=options.frames_per_second,
        )
        self._lines[line] = asyncio.current_task()
        log.info("connection %d: %s from %s", number, path, socket.remote_address)
        try:
            if len(self._lines) > options.max_connections:  # several may have been let in at the same moment
                line.leave(TRY_AGAIN_LATER, "too many connections")
            else:
                await self._attach(line, path, query)
            await line.close()
        except Exception:  # a bug, which is for us to see; the library then closes the connection
            log.exception("connection %d failed", number)
            raise
        finally:
            del self._lines[line]
            spent = time.monotonic() - began
            log.info(
                "connection %d: ended with %s after %.1f s, %d frames in, %d out",
                number, socket.close_code, spent, line.frames_in, line.frames_out,
            )  # fmt: skip

    async def _attach(self, line: Line, path: str, query: dict[str, str]) -> None:
        try:
            live = await self._pool.join(line, query.get("session"))
        except UnknownSession as error:
            line.leave(NO_SUCH_SESSION, str(error))
            return
        except Exception as error:  # whatever keeps an agent from starting is the client's to know
            log.warning("no agent for a client: %s", error)
            line.leave(FAILED, str(error) or type(error).__name__)
            return
        try:
            if path == RPC_PATH:
                dialect, since = query.get("dialect", ""), _number(query.get("since", ""))
                await line.run(RpcConnection(line, live, dialect=dialect, since=since))
            else:
                async with live.only_chat(line):
                    await line.run(ChatConnection(line, live, self._options))
        finally:
            self._pool.leave(line, live)


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
