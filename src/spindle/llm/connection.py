"""Connections to servers: how they are opened, carry one request after another, and are kept."""

import asyncio
import errno
import os
import re
import socket
from typing import TYPE_CHECKING, Final

from spindle.base import limits
from spindle.llm.errors import PASSING_STATUSES, ConnectError, IdleTimeoutError
from spindle.llm.http_parser import ResponseParser
from spindle.llm.route import Route

if TYPE_CHECKING:
    import ssl

_MAX_WAITING_BYTES: Final = 128 * 1024
"""When this much of a body waits for its reader, no more is taken from the socket."""
_NEXT_ADDRESS: Final = 0.25
"""Seconds until the next address of a host is tried as well."""
_SEVERAL: Final = re.compile(r"Multiple exceptions: \[Errno (\d+)\]")


class GoneError(Exception):
    """The connection ended before the head of the response."""


class Connection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self.parser: ResponseParser | None = None
        """Of the response that is being read."""
        self.was_used = False
        """Whether it carried a request before."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._loss: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = self._idle_timeout = 0.0
        self._unsent = 0
        """Bytes of the request that waited to be sent when the clock was last looked at."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_bytes = 0
        self._heard = False
        """Whether the server has begun to answer."""

    @property
    def is_open(self) -> bool:
        return not self._lost

    @property
    def was_stale(self) -> bool:
        """Whether the server hung up on a connection that it had kept, and did not begin to answer: a server that did
        may have done the work, and would do it, and charge for it, again."""
        return self.was_used and not self._heard

    # -- called by the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        parser = self.parser
        if parser is None:  # nothing was asked
            self.close()
            return
        self._heard = True
        parser.feed(data)
        if parser.error is not None:
            self.close()
        self._waiting_bytes += len(data)
        # Without a piece there is nobody to go on: the reader waits for more.
        has_reader = bool(parser.pieces) or parser.complete
        if self._waiting_bytes > _MAX_WAITING_BYTES and has_reader and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, loss: Exception | None) -> None:
        self._lost = True
        self._loss = self._loss or loss
        self._transport = None
        self._stop_timer()
        self._wake()

    # -- one request -------------------------------------------------------------------------------

    async def ask(self, head: bytes, body: bytes | None, idle_timeout: float | None) -> ResponseParser:
        """Send a request and return once the head of its response is there.

        Raises `GoneError`, `IdleTimeoutError`; an `error` of the parser is left to the caller.
        """
        parser = self.parser = ResponseParser()
        self._heard = False
        if self._transport is not None:
            self._transport.writelines((head, body) if body else (head,))
        self._unsent, self._idle_timeout = self._unsent_bytes(), idle_timeout or 0.0
        came: tuple[bool, int] | None = None
        while not parser.has_head and parser.error is None:
            if self._lost:
                raise GoneError from self._loss
            before, came = came, (self._heard, parser.interims)
            # Pieces of a head are no signs of life: it must be there in the time that one silence may take.
            await self._wait(idle_timeout, came != before)
        return parser

    async def read(self, idle_timeout: float | None) -> bytes:
        """Return the next bytes of the body, none at its end or when the connection is lost.

        Raises `IdleTimeoutError`.
        """
        parser = self.parser
        assert parser is not None
        pieces = parser.pieces
        while not pieces:
            if parser.complete or self._lost:
                return b""
            await self._wait(idle_timeout)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._waiting_bytes > _MAX_WAITING_BYTES and self._transport is not None:
            self._transport.resume_reading()
        self._waiting_bytes = 0
        return data

    def finish(self) -> bool:
        """Say whether the connection can carry another request; if not, close it."""
        parser, transport = self.parser, self._transport
        if parser is None or transport is None or not (parser.complete and parser.keeps_alive):
            self.close()
            return False
        if self._unsent_bytes():  # answered before the request was sent
            self.close()
            return False
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            transport.resume_reading()
        self._waiting_bytes = 0
        self.parser = None
        self.was_used = True
        return True

    def close(self) -> None:
        """Close the socket at once."""
        self._lost = True
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # -- TLS inside of a tunnel --------------------------------------------------------------------

    async def start_tls(self, context: "ssl.SSLContext", host: str) -> None:
        assert self._transport is not None
        self.parser = None
        self._transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)

    # -- waiting -----------------------------------------------------------------------------------

    async def _wait(self, idle_timeout: float | None, begins: bool = True) -> None:
        """Wait until something arrives or the connection is lost; the time runs on from the wait before unless it
        `begins`. Raises `IdleTimeoutError`."""
        self._waiter = self._loop.create_future()
        if idle_timeout is not None and begins:
            self._deadline = self._loop.time() + idle_timeout
        if self._timer is not None and (idle_timeout is None or self._timer.when() > self._deadline):
            self._stop_timer()  # that of an earlier request
        if idle_timeout is not None and self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._look_at_clock)
        try:
            await self._waiter
        except TimeoutError:
            raise IdleTimeoutError(idle_timeout) from None
        finally:
            self._waiter = None

    def _look_at_clock(self) -> None:
        """One timer serves all waits: it is set again when it finds that a later one has begun."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._unsent and (unsent := self._unsent_bytes()) < self._unsent:  # the server still takes the request
            self._unsent = unsent
            self._deadline = self._loop.time() + self._idle_timeout
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look_at_clock)
        else:
            self._waiter.set_exception(TimeoutError())

    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Pool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        """In use."""
        self._kept: dict[Route, list[tuple[float, Connection]]] = {}
        """Unused, with the time since when."""
        self._sweeper: asyncio.TimerHandle | None = None

    async def get(self, route: Route, timeout: float | None = None) -> Connection:
        """Return a connection that was kept, or a new one. Raises `ConnectError`."""
        kept = self._kept.get(route, [])
        while kept:
            _, connection = kept.pop()
            if connection.is_open:
                break
        else:
            connection = await open_connection(route, timeout)
        self._open.add(connection)
        return connection

    def give_back(self, route: Route, connection: Connection) -> None:
        """Keep a connection for another request if it is fit for that, else close it."""
        self._open.discard(connection)
        if connection.finish():
            loop = asyncio.get_running_loop()
            self._kept.setdefault(route, []).append((loop.time(), connection))
            if self._sweeper is None:
                self._sweeper = loop.call_later(limits.KEEP_ALIVE, self._sweep)

    def drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    def forget(self, route: Route) -> None:
        """Close the unused connections of a route: the next one is new."""
        for _, connection in self._kept.pop(route, ()):
            connection.close()

    def close(self) -> None:
        for connection in [*self._open, *(one for kept in self._kept.values() for _, one in kept)]:
            connection.close()
        self._open.clear()
        self._kept.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep(self) -> None:
        """Close connections that were not used for long."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        still: dict[Route, list[tuple[float, Connection]]] = {}
        for route, kept in self._kept.items():
            for since, connection in kept:
                if connection.is_open and since + limits.KEEP_ALIVE > now:
                    still.setdefault(route, []).append((since, connection))
                else:
                    connection.close()
        self._kept = still
        first = min((kept[0][0] for kept in still.values()), default=None)
        self._sweeper = None if first is None else loop.call_at(first + limits.KEEP_ALIVE, self._sweep)


# -- opening ---------------------------------------------------------------------------------------


async def open_connection(route: Route, timeout: float | None = None) -> Connection:
    """Raises `ConnectError`."""
    first, seconds = route.proxy or route.server, timeout or limits.CONNECT
    through = "the proxy for " if route.proxy else ""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(seconds):
            context = await _tls_context() if first.is_tls or route.server.is_tls else None
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection,
                first.host,
                first.port,
                ssl=context if first.is_tls else None,
                happy_eyeballs_delay=_NEXT_ADDRESS,
            )
            if route.proxy is not None and context is not None and route.server.is_tls:
                through = ""
                await _open_tunnel(connection, route)
                await connection.start_tls(context, route.server.host)
            return connection
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, TimeoutError) and error.errno is None:
            text = f"{route.server} did not accept the connection within {seconds:g} s"
            raise ConnectError(text) from None
        if isinstance(error, OSError | ValueError):
            raise _cannot_reach(error, through, route) from error
        raise


async def _open_tunnel(connection: Connection, route: Route) -> None:
    try:
        answer = await connection.ask(route.tunnel_request(), None, None)
    except GoneError as error:
        raise gone(error, route) from error
    if answer.error is not None:
        raise unsound(answer.error, route)
    if not 200 <= answer.status < 300:
        text = f"The proxy refused to connect to {route.server}: {answer.status} {answer.reason}"
        is_final = answer.status < 500 and answer.status not in PASSING_STATUSES
        if answer.status in (401, 407):
            text += ". It wants " + ("another login" if route.proxy_login else "a login: http://NAME:PASSWORD@…")
        raise ConnectError(text, is_final=is_final)
    if answer.pieces:
        raise unsound("Data after the answer of the proxy", route)


_context: "ssl.SSLContext | None" = None


async def _tls_context() -> "ssl.SSLContext":
    """Return the settings that all connections share. Reading the system's certificates takes a while: in a thread."""
    global _context
    if _context is None:
        import ssl

        _context = await asyncio.to_thread(ssl.create_default_context)
        _context.set_alpn_protocols(["http/1.1"])
    return _context


# -- why there is no answer ------------------------------------------------------------------------


def gone(error: GoneError, route: Route) -> ConnectError:
    if isinstance(error.__cause__, OSError):
        return _cannot_reach(error.__cause__, "", route)
    return ConnectError(f"{route.server} closed the connection without an answer")


def unsound(text: str, route: Route) -> ConnectError:
    return ConnectError(f"{route.server} did not answer in sound HTTP: {text}")


def _cannot_reach(error: OSError | ValueError, through: str, route: Route) -> ConnectError:
    if message := getattr(error, "verify_message", None):
        text = f"The certificate of {route.server} was not accepted: {message}"
        return ConnectError(text, is_final=True)
    number = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if tls := getattr(error, "reason", None):  # of an SSLError, whose number is no number of the system
        reason = tls.replace("_", " ").lower()
    elif found := _SEVERAL.match(reason):  # one of a host with several addresses stands for all
        reason = os.strerror(int(found[1]))
    elif not isinstance(error, socket.gaierror) and isinstance(number, int) and number in errno.errorcode:
        reason = os.strerror(number)  # asyncio puts its own words and the address into the exception
    is_final = number == socket.EAI_NONAME if isinstance(error, socket.gaierror) else isinstance(error, ValueError)
    return ConnectError(f"Cannot reach {through}{route.server}: {reason}", is_final=is_final)
