"""The port: accepts connections, each with a time limit for its first request and a bound on the size of a request.

A connection whose client does not read its answer is ended as well. If there are too many, the one that has waited
longest for a request makes room.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from spindle.base import limits
from spindle.wires.network.options import RemoteOptions

CONNECTIONS_PER_CLIENT = 4
_BACKLOG = 1024
"""Connections that the system holds until we accept them; beyond that, clients try again after a second or three."""
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpConnection(web.RequestHandler):
    """One connection. Its first request has to come soon: a client that only holds it open is disconnected."""

    __slots__ = ("_full", "_idle", "_patience", "_reading", "_stall_timeout", "bell", "gone", "own", "user")

    def __init__(self, manager: "HttpServer", **options: Any) -> None:
        super().__init__(manager, keepalive_timeout=limits.NEXT_REQUEST, **options)
        self._idle = manager.idle
        self._full = len(manager.connections) >= manager.max_connections
        self.own: bool | None = None
        """Whether a process of our own user is at the other end, once that is known."""
        self.user: str | None = None
        """The name of the user whose token came, on a server with users."""
        self.gone = asyncio.Event()
        """Set when the connection is lost."""
        self.bell = asyncio.Event()
        """Set when an event may have come that the present request waits for, and when the connection is lost."""
        self._patience: asyncio.TimerHandle | None = None
        self._stall_timeout = manager.stall_timeout
        self._reading: asyncio.TimerHandle | None = None
        """The next check whether the client reads, while much output waits for it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._full:
            oldest = next(iter(self._idle), self)
            oldest.is_served()
            oldest.force_close()
            if oldest is self:
                return
        self._idle[self] = None
        self._patience = asyncio.get_running_loop().call_later(limits.FIRST_REQUEST, self.force_close)

    def is_served(self) -> None:
        """Stop the time limit: a request has come, or the connection is at its end."""
        self._idle.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later(self._unread())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_looking()

    def _look_later(self, unread: int) -> None:
        self._reading = asyncio.get_running_loop().call_later(self._stall_timeout, self._look, unread)

    def _look(self, unread: int) -> None:
        """End the connection if the client has read none of the `unread` bytes: they must not stay in memory."""
        if (now := self._unread()) < unread:
            self._look_later(now)
        elif self.transport is not None:
            self.transport.abort()

    def _unread(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def _stop_looking(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_served()
        self._stop_looking()
        self.gone.set()
        self.bell.set()
        super().connection_lost(exc)


class HttpServer(web.Server):
    def __init__(self, handler: Handler, options: RemoteOptions) -> None:
        super().__init__(self._serve, request_factory=self._request, logger=_silent_logger(), access_log=None)
        self._handler = handler
        self._options = options
        self.max_connections = CONNECTIONS_PER_CLIENT * options.max_connections
        """Connections of every kind. Idle ones must not use up the descriptors that sessions need for their files."""
        self.stall_timeout = 2 * max(options.stall_timeout, options.viewer_stall_timeout)
        """Seconds, for any connection; streams and WebSockets have shorter time limits of their own."""
        self.idle: dict[HttpConnection, None] = {}
        """Connections that wait for a request, be it their first; the one that has waited longest is the first."""
        self._listening: asyncio.Server | None = None

    async def listen(self, context: ssl.SSLContext | None) -> int:
        """Begin to listen. Returns the port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            self,
            self._options.host,
            self._options.port,
            ssl=context,
            ssl_handshake_timeout=None if context is None else limits.FIRST_REQUEST,
            backlog=_BACKLOG,
        )
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Take no new connections."""
        if self._listening is not None:
            self._listening.close()

    async def end(self) -> None:
        """End every connection."""
        await self.shutdown(limits.LAST_FRAMES)

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, loop=self._loop, **self._kwargs)

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(
            message, payload, protocol, writer, task, self._loop, client_max_size=self._options.max_message_bytes
        )

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        connection.is_served()
        try:
            return await self._handler(request)
        finally:
            if not connection.gone.is_set():
                self.idle[connection] = None


def _silent_logger() -> logging.Logger:
    """Return a silent logger for the library: it would log headers with tokens, and a page for every port scan."""
    for name in ("spindle.remote.http", "aiohttp.websocket"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return logging.getLogger("spindle.remote.http")
