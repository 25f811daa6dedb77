"""The one way to a model server: post a body, stream the answer.

The HTTP client is imported on first use, in a worker thread, because the import takes longer than starting the whole
agent; it also builds the TLS context that all connections share. One connection pool belongs to each event loop and is
closed with it. Nothing is retried here and no redirect is followed.
"""

import asyncio
import errno
import importlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from spindle.base import limits, trace
from spindle.base.version import __version__
from spindle.shapes.model import masked_url

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL


MAX_ERROR_BODY_BYTES = 1024 * 1024


class ConnectError(Exception):
    """No answer came: the server could not be reached or hung up first."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final
        """Whether trying again is useless."""


class IdleTimeoutError(Exception):
    """The server was silent for too long."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"Request timed out: no data for {seconds:g} s")


class UnreadableError(Exception):
    """The server's answer is not what its headers say."""


class StatusError(Exception):
    """The server answered with a status other than success."""

    def __init__(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.body = body
        self.headers = headers


BeforeSend: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Way:
    """How one request travels."""

    before_send: BeforeSend | None
    """Awaited once there is a connection, before a byte of the request is sent."""
    used: bool = True
    """Whether its connection carried other requests before."""


_way: ContextVar[_Way | None] = ContextVar("way", default=None)
"""The way of the request that the running task is about to send."""


class Response:
    """An answer whose body is still coming. It is a context manager: leaving the block early, by an exception or by
    cancellation, closes the socket at once."""

    def __init__(self, raw: "aiohttp.ClientResponse", idle_timeout: float | None) -> None:
        self.status = raw.status
        self.headers: Mapping[str, str] = raw.headers
        self.whole = False
        """Whether the body came to the end that its headers announce. A body without a length ends with the connection,
        which may have been cut: nobody can tell."""
        self._raw = raw
        self._idle_timeout = idle_timeout

    async def __aenter__(self) -> "Response":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if kind is not None:
            self._raw.close()
        else:
            self._raw.release()  # back to the pool if the body was read to its end, else closed

    async def read(self) -> bytes:
        """Return the next bytes of the body, none at its end. A broken connection ends the body, too, but
        then it is not `whole`.

        Raises `IdleTimeoutError`, and `UnreadableError` for a body whose compression is broken.
        """
        import aiohttp

        try:
            data = await self._raw.content.readany()
        except aiohttp.SocketTimeoutError:
            raise IdleTimeoutError(self._idle_timeout) from None
        except (aiohttp.ClientError, OSError) as error:
            from aiohttp.http_exceptions import ContentEncodingError

            if isinstance(error.__cause__, ContentEncodingError):
                raise UnreadableError(f"The server's answer cannot be read: {error.__cause__.message}") from None
            return b""
        self.whole = not data and ("content-length" in self.headers or "transfer-encoding" in self.headers)
        return data

    async def drain(self) -> None:
        """Read the few bytes that may follow the end of the answer, so that the connection can be used again."""
        if not self._raw.content.at_eof():
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
    before_send: "BeforeSend | None" = None,
) -> Response:
    """Send `body`, when `before_send` has returned, and return the response once its headers are there.

    Raises `ConnectError`, `StatusError` (with the beginning of the body) and `IdleTimeoutError`.
    """
    response = await request(
        "POST", url, {**headers, **trace.outgoing()}, body, idle_timeout, proxy, before_send, again=True
    )
    if not 200 <= response.status < 300:
        async with response:
            raise StatusError(response.status, await _error_body(response), response.headers)
    return response


async def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    idle_timeout: float | None = None,
    proxy: str | None = None,
    before_send: "BeforeSend | None" = None,
    *,
    again: bool = False,
) -> Response:
    """Send a request and return the response, whatever its status. Raises `ConnectError`, `IdleTimeoutError`.

    `again`: send it once more if a connection that was used before turns out to be gone.
    """
    session = await _session()
    import aiohttp

    proxy, proxy_headers = _split_proxy(proxy or _proxy_of_environment(url))
    if not url.startswith("https:"):
        headers = {**headers, **proxy_headers}  # no tunnel: the proxy reads the request itself
    while True:
        way = _Way(before_send)
        before = _way.set(way)
        try:
            raw = await session.request(
                method,
                _exact(url),
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.CONNECT, sock_read=idle_timeout),
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=proxy_headers,
            )
            return Response(raw, idle_timeout)
        except aiohttp.SocketTimeoutError:
            raise IdleTimeoutError(idle_timeout) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Servers hang up on connections that they have promised to keep (llama.cpp after every stream).
            gone = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            if again and gone and way.used:
                continue
            raise ConnectError(_reason(error, url), is_final=_is_final(error)) from error
        finally:
            _way.reset(before)
            way.before_send = None  # timers of the connection keep `way` for minutes, and this would keep the session


async def ask(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, proxy: str | None = None
) -> tuple[int, str]:
    """Send a small request and return status and text of the answer. Raises `ConnectError`."""
    seconds = limits.SMALL_REQUEST
    async with _whole(method, url, seconds, proxy, headers=headers, data=body, allow_redirects=False) as response:
        data = await response.content.read(MAX_ERROR_BODY_BYTES)
        return response.status, data.decode("utf-8", "replace")


async def download(url: str, *, max_bytes: int, timeout: float, proxy: str | None = None) -> bytes:
    """Return the content at `url`; redirects are followed. Raises `ConnectError`, `StatusError`, `UnreadableError`."""
    async with _whole("GET", url, timeout, proxy, headers={"accept": "*/*"}) as response:
        if response.status != 200:
            raise StatusError(response.status, "", response.headers)
        data = bytearray()
        async for chunk in response.content.iter_any():
            data += chunk
            if len(data) > max_bytes:
                raise UnreadableError(f"it is larger than {max_bytes >> 20} MB")
        return bytes(data)


@asynccontextmanager
async def _whole(
    method: str, url: str, seconds: float, proxy: str | None, **details: Any
) -> AsyncGenerator["aiohttp.ClientResponse", None]:
    """Give the response to a request; `seconds` is the time limit for all of it. Raises `ConnectError`."""
    session = await _session()
    import aiohttp

    where, proxy_headers = _split_proxy(proxy or _proxy_of_environment(url))
    details |= {"timeout": aiohttp.ClientTimeout(total=seconds), "proxy": where, "proxy_headers": proxy_headers}
    try:
        async with session.request(method, url, **details) as response:
            yield response
    except TimeoutError:
        raise ConnectError(f"no complete answer within {seconds:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ConnectError(_reason(error, url)) from error


def _exact(url: str) -> "str | URL":
    """Keep escapes in a path as they are: the client would undo some of them, and signatures cover them."""
    if "%" not in url:
        return url
    from yarl import URL

    return URL(url, encoded=True)


def _is_final(error: Exception) -> bool:
    """Say whether the same request cannot reach the server later either."""
    import socket

    import aiohttp

    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror):
        return cause.errno == socket.EAI_NONAME
    return isinstance(error, aiohttp.InvalidURL | aiohttp.ClientConnectorCertificateError | ValueError)


_pools: "dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[Any, None]]]" = {}


async def _session() -> "aiohttp.ClientSession":
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
    if loop not in _pools:  # another request may have been quicker
        pool = _pool()
        _pools[loop] = (await anext(pool), pool)
    return _pools[loop][0]


async def _pool() -> AsyncGenerator["aiohttp.ClientSession", None]:
    """Open a session and close it when the event loop shuts its asynchronous generators down."""
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        async def connect(self, *request: Any, **details: Any) -> Any:
            connection = await super().connect(*request, **details)
            way = _way.get()
            if way is not None and way.before_send is not None:
                try:
                    await way.before_send()
                except BaseException:
                    connection.close()
                    raise
            return connection

        async def _create_connection(self, *request: Any, **details: Any) -> Any:
            if (way := _way.get()) is not None:
                way.used = False
            return await super()._create_connection(*request, **details)

    session = aiohttp.ClientSession(
        connector=Connector(limit=0, keepalive_timeout=limits.KEEP_ALIVE),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={
            "user-agent": f"spindle/{__version__}",
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
        },
    )
    try:
        yield session
    finally:
        del _pools[asyncio.get_running_loop()]
        await session.close()


async def _error_body(response: Response) -> str:
    body = bytearray()
    try:
        while len(body) < MAX_ERROR_BODY_BYTES and (data := await response.read()):
            body += data
    except (IdleTimeoutError, UnreadableError):
        pass  # the status is known; the part of the body that has arrived must do
    if not body and (target := response.headers.get("location")):
        return f"The server redirects to {target}: use that address instead"
    return body[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")


def _proxy_of_environment(url: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return None  # not a URL; the client will say so
    # A proxy of the environment is for the network; a server on this machine is reached directly.
    if host in ("", "localhost", "::1") or host.startswith("127."):
        return None
    from urllib.request import getproxies, proxy_bypass

    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _split_proxy(proxy: str | None) -> tuple[str | None, dict[str, str]]:
    """Return a proxy's address without its credentials, and the header that carries them."""
    if not proxy:
        return None, {}
    from base64 import b64encode

    from yarl import URL

    url = URL(proxy if "://" in proxy else f"http://{proxy}")
    if not url.user:
        return str(url), {}
    credentials = b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return str(url.with_user(None)), {"Proxy-Authorization": f"Basic {credentials}"}


def _reason(error: Exception, url: str) -> str:
    """Say why there is no answer, without addresses that may hold credentials."""
    import aiohttp
    from yarl import URL

    if isinstance(error, aiohttp.InvalidURL):
        return f"{masked_url(url)!r} is not a valid address"
    where = URL(url).authority.rpartition("@")[2]
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"The proxy refused to connect to {where}: {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{where} did not answer in sound HTTP: {error.message.splitlines()[0].rstrip(':')}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return f"{where} closed the connection without an answer"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"{where} did not accept the connection within {limits.CONNECT:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return f"The certificate of {where} was not accepted: {getattr(cause, 'verify_message', None) or cause}"
    system = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    through = "the proxy for " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
    text = getattr(system, "strerror", None) or str(system) or type(system).__name__
    number = getattr(system, "errno", None)
    if isinstance(number, int) and number in errno.errorcode:
        text = os.strerror(number)  # asyncio puts its own words and the address into the exception
    return f"Cannot reach {through}{where}: {text}"
