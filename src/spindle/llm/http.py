"""The one way to a model server: post a body, stream the answer.

One connection pool belongs to each event loop and is closed with it. Nothing is retried here, but for a request that
finds a kept connection dead. Downloads follow redirects; what is posted goes only to where its server sends it on.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from spindle.base import limits, trace
from spindle.llm.errors import ConnectError, IdleTimeoutError

if TYPE_CHECKING:
    from spindle.llm.connection import Connection, Pool
    from spindle.llm.http_parser import ResponseParser, Unpacker
    from spindle.llm.route import Route

__all__ = [
    "MAX_ERROR_BODY_BYTES",
    "ConnectError",
    "HttpResponse",
    "IdleTimeoutError",
    "StatusError",
    "UnreadableError",
    "ask",
    "download",
    "post",
    "request",
]

MAX_ERROR_BODY_BYTES: Final = 1024 * 1024
_MAX_REDIRECTS: Final = 10


class UnreadableError(Exception):
    """The server's answer is not what its headers say."""


class StatusError(Exception):
    """The server answered with a status other than success."""

    def __init__(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.body = body
        self.headers = headers


class HttpResponse:
    """An answer whose body is still coming. It is a context manager: leaving the block early, by an exception or by
    cancellation, closes the socket at once."""

    def __init__(
        self,
        parser: "ResponseParser",
        connection: "Connection",
        route: "Route",
        pool: "Pool",
        idle_timeout: float | None,
    ) -> None:
        self.status = parser.status
        self.headers: Mapping[str, str] = parser.headers
        """Names in lower case."""
        self._parser = parser
        self._connection: Connection | None = connection
        self._route = route
        self._pool = pool
        self._idle_timeout = idle_timeout
        self._unpacker = _unpacker(parser.headers)

    @property
    def whole(self) -> bool:
        """Whether the body was read to the end that its head announces. A body without a length ends with the
        connection, which may have been cut: nobody can tell."""
        is_unpacked = self._unpacker is None or self._unpacker.is_whole
        return self._parser.complete and not self._parser.pieces and is_unpacked

    async def __aenter__(self) -> "HttpResponse":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *details: object) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if kind is not None:
            self._pool.drop(connection)
        else:
            self._pool.give_back(self._route, connection)  # kept if the body came to its end, else closed

    async def read(self) -> bytes:
        """Return the next bytes of the body, none at its end. A broken connection ends the body, too, but
        then it is not `whole`.

        Raises `IdleTimeoutError`, and `UnreadableError` for a body whose compression is broken.
        """
        if self._connection is None:
            return b""
        if self._unpacker is None:
            return await self._connection.read(self._idle_timeout)
        return await self._unpacked(self._unpacker, self._connection)

    async def _unpacked(self, unpacker: "Unpacker", connection: "Connection") -> bytes:
        import zlib

        while True:
            packed = b""
            if unpacker.is_hungry and not (packed := await connection.read(self._idle_timeout)):
                return b""
            try:
                if data := unpacker.take(packed):
                    return data
            except zlib.error:
                encoding = self.headers["content-encoding"].lower()
                text = f"The server's answer cannot be read: Can not decode content-encoding: {encoding}"
                raise UnreadableError(text) from None

    async def read_all(self, most: int) -> bytes:
        """Return the body, or a little more than its first `most` bytes."""
        body = bytearray()
        while len(body) <= most and (data := await self.read()):
            body += data
        return bytes(body)

    async def drain(self) -> None:
        """Read the few bytes that may follow the end of the answer, so that the connection can be used again."""
        if not self._parser.complete:
            try:
                async with asyncio.timeout(limits.RESPONSE_DRAIN):
                    while await self.read():
                        pass
            except (TimeoutError, IdleTimeoutError, UnreadableError):
                pass


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    idle_timeout: float | None = None,
    proxy: str | None = None,
    *,
    connect_timeout: float | None = None,
) -> HttpResponse:
    """Send `body` and return the response once its headers are there.

    Raises `ConnectError`, `StatusError` (with the beginning of the body) and `IdleTimeoutError`.
    """
    sent, hops = {**headers, **trace.outgoing()}, _MAX_REDIRECTS
    while True:
        response = await request(
            "POST", url, sent, body, idle_timeout, proxy, again=True, connect_timeout=connect_timeout
        )
        other = _other_path(url, response) if hops else None
        if other is None:
            break
        async with response:
            url, hops = other, hops - 1
    if not 200 <= response.status < 300:
        async with response:
            raise StatusError(response.status, await _error_body(response), response.headers)
    return response


def _other_path(url: str, response: HttpResponse) -> str | None:
    """Return where to send a request with its key and its body again: to the same server, or to that behind TLS."""
    from spindle.llm.route import find_target

    if response.status not in (307, 308) or not (location := response.headers.get("location")):
        return None
    try:
        other = urljoin(url, location)
        here, there = (find_target(one, None).route.server for one in (url, other))
    except (ConnectError, ValueError):
        return None
    return other if here == there or (here.host == there.host and there.is_tls) else None


async def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    idle_timeout: float | None = None,
    proxy: str | None = None,
    *,
    again: bool = False,
    connect_timeout: float | None = None,
) -> HttpResponse:
    """Send a request and return the response, whatever its status. Raises `ConnectError`, `IdleTimeoutError`.

    `again`: send it once more if a connection that was used before turns out to be gone.
    """
    from spindle.llm.connection import GoneError, gone, unsound
    from spindle.llm.route import find_target

    target = find_target(url, proxy)
    route = target.route
    head = target.head(method, headers, body)
    pool = await _pool()
    while True:
        connection = await pool.get(route, connect_timeout)
        try:
            parser = await connection.ask(head, body, idle_timeout)
            if parser.error is not None:
                raise unsound(parser.error, route)
            return HttpResponse(parser, connection, route, pool, idle_timeout)
        except GoneError as error:
            pool.drop(connection)
            # Servers hang up on connections that they have promised to keep (llama.cpp after every stream).
            if not (again and connection.was_stale):
                raise gone(error, route) from error
            pool.forget(route)  # the request is sent once more, and not again to each that was kept
        except BaseException:
            pool.drop(connection)
            raise


async def ask(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, proxy: str | None = None
) -> tuple[int, str]:
    """Send a small request and return status and text of the answer. Raises `ConnectError`."""
    try:
        async with (
            _within(limits.SMALL_REQUEST),
            await request(method, url, headers, body, proxy=proxy) as response,
        ):
            data = await response.read_all(MAX_ERROR_BODY_BYTES)
            _check_whole(response, len(data) > MAX_ERROR_BODY_BYTES)
            return response.status, data[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")
    except UnreadableError as error:
        raise ConnectError(str(error)) from None


async def download(url: str, *, max_bytes: int, timeout: float, proxy: str | None = None) -> bytes:
    """Return the content at `url`; redirects are followed. Raises `ConnectError`, `StatusError`, `UnreadableError`."""
    async with _within(timeout):
        for _ in range(_MAX_REDIRECTS):
            async with await request("GET", url, {"accept": "*/*"}, proxy=proxy) as response:
                location = response.headers.get("location")
                if response.status in (301, 302, 303, 307, 308) and location:
                    url = urljoin(url, location)
                    continue
                if response.status != 200:
                    raise StatusError(response.status, "", response.headers)
                data = await response.read_all(max_bytes)
                if len(data) > max_bytes:
                    raise UnreadableError(f"it is larger than {max_bytes >> 20} MB")
                _check_whole(response)
                return data
    raise ConnectError(f"more than {_MAX_REDIRECTS} redirects")


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None, None]:
    """Limit the time of a whole request. Raises `ConnectError`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ConnectError(f"no complete answer within {seconds:g} s") from None


def _check_whole(response: HttpResponse, is_enough: bool = False) -> None:
    """Raises `ConnectError` for an answer that was cut."""
    has_length = "content-length" in response.headers or "transfer-encoding" in response.headers
    if has_length and not response.whole and not is_enough:
        raise ConnectError("the connection was closed before the end of the answer")


def _unpacker(headers: Mapping[str, str]) -> "Unpacker | None":
    if (encoding := headers.get("content-encoding", "").lower()) not in ("gzip", "deflate"):
        return None
    from spindle.llm.http_parser import Unpacker

    return Unpacker(encoding)


_pools: "dict[asyncio.AbstractEventLoop, tuple[Pool, AsyncGenerator[Any, None]]]" = {}


async def _pool() -> "Pool":
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        from spindle.llm.connection import Pool

        pool = Pool()
        closer = _close_with_loop(pool)
        _pools[loop] = (pool, closer)
        await anext(closer)
    return _pools[loop][0]


async def _close_with_loop(pool: "Pool") -> AsyncGenerator[None, None]:
    """Close the pool when the event loop shuts its asynchronous generators down."""
    try:
        yield
    finally:
        del _pools[asyncio.get_running_loop()]
        pool.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round


async def _error_body(response: HttpResponse) -> str:
    body = bytearray()
    try:
        while len(body) < MAX_ERROR_BODY_BYTES and (data := await response.read()):
            body += data
    except (IdleTimeoutError, UnreadableError):
        pass  # the status is known; the part of the body that has arrived must do
    if not body and (target := response.headers.get("location")):
        return f"The server redirects to {target}: use that address instead"
    return body[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")
