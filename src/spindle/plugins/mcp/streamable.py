"""A server behind HTTP: every message is a POST, whose answer is JSON or a stream of events.

In the earlier era there is a session, and a separate stream for messages that answer no request. A stream that breaks
is resumed where it ended, if the server numbers its events.
"""

import asyncio
import os
import re
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from spindle.base import limits
from spindle.base.flow import Tasks
from spindle.base.strangers import MAX_BYTES, Patience, StrangerError
from spindle.llm import http
from spindle.plugins.mcp import LoginNeeded, McpError, Message, SessionForgotten, Unreachable
from spindle.plugins.mcp.connection import read_message, rpc_error
from spindle.plugins.mcp.server_config import ServerConfig
from spindle.shapes.codec import encode

if TYPE_CHECKING:
    from spindle.plugins.mcp.oauth import ServerLogin

_MAX_LINES: Final = 100_000
"""Lines of one event."""
_MAX_ATTEMPTS: Final = 4
"""Attempts of one request: to another address, with another token, with a nonce in its proof."""
_RECONNECTS: Final = 5
"""Attempts to resume a stream that brings nothing."""
_INVALID: Final = -32600
"""The error code for a refusal by HTTP status."""
BROKEN: Final = (http.ConnectError, http.IdleTimeoutError, http.UnreadableError)
_HEADER: Final = "x-mcp-header"


class HttpTransport:
    paired = True

    def __init__(self, config: ServerConfig, login: "ServerLogin | None" = None) -> None:
        """`config` is resolved. `login` gives and renews tokens; None: use those that are kept for the server."""
        self._url = config.url or ""
        self._headers = {name.lower(): value for name, value in config.headers.items()}
        self._config = config
        self._login = login
        self._session_id: str | None = None
        self._version: str | None = None
        """Version of the protocol, once agreed on with a server of the earlier era."""
        self._tasks = Tasks()
        self._patience = Patience()
        self._hearing = asyncio.Event()
        """Set unless the stream of messages that answer no request is being opened."""
        self._hearing.set()
        self.receive: Callable[[Message], bool]
        self.closed: Callable[[str], None]

    @property
    def pid(self) -> None:
        return None

    def last_words(self) -> str:
        return ""

    async def open(self) -> None:
        host = urlsplit(self._url).hostname or ""
        if os.environ.get("PI_OFFLINE") and host not in ("localhost", "::1") and not host.startswith("127."):
            raise McpError("it is out there, and this run is to stay offline")
        if self._login is None and "authorization" not in self._headers:
            from spindle.plugins.mcp.oauth import ServerLogin

            self._login = ServerLogin(self._config)

    def handshaken(self, version: str) -> None:
        self._version = version
        self._hearing.clear()
        asyncio.get_running_loop().call_later(limits.MCP_HEAR, self._hearing.set)
        self._tasks.spawn(self._hear(), "spindle-mcp-hear", report=False)

    async def close(self) -> None:
        await self._tasks.end(limits.HANDLER_END)
        if self._session_id is not None:
            with suppress(*BROKEN, TimeoutError, McpError):
                async with asyncio.timeout(limits.HANDLER_END), self._request("DELETE", {}, None):
                    pass

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        body = encode(message)
        id = message.get("id") if "method" in message else None
        if message.get("method") == "initialize":
            self._session_id = self._version = None
        elif message.get("method") == "tools/call":
            await self._hearing.wait()  # many servers ask their questions there, and drop them if it is not open
        try:
            async with self._request("POST", headers, body) as response:
                if id is None and 200 <= response.status < 300:
                    return
                if not 200 <= response.status < 300:
                    raise await self._refusal(response)
                if message.get("method") == "initialize":
                    self._session_id = response.headers.get("mcp-session-id")
                await self._take_answer(response, id)
        except StrangerError as error:
            raise McpError(f"it sent {error}") from None
        except BROKEN as error:
            raise Unreachable(str(error)) from None

    # -- HTTP ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _request(
        self, method: str, headers: Mapping[str, str], body: bytes | None, url: str | None = None
    ) -> AsyncGenerator[http.HttpResponse, None]:
        """Send a request; once more with another token if the server refuses the first. Raises `McpError`.

        `url`: another address than that of the server.
        """
        whole = {**self._headers, "accept": "application/json, text/event-stream", **_safe(headers)}
        if self._session_id is not None:
            whole["mcp-session-id"] = self._session_id
        if self._version is not None:
            whole["mcp-protocol-version"] = self._version
        for attempt in range(_MAX_ATTEMPTS):
            keys = self._login
            address = url or self._url
            login = {} if keys is None else await keys.authorization(method, address)
            async with await http.request(method, address, {**whole, **login}, body) as response:
                redirected = response.status in (307, 308) and url is None and attempt < _MAX_ATTEMPTS - 1
                if redirected and self._follow(response):
                    continue
                status = response.status
                if keys is not None and status in (401, 403) and await keys.refused(status, response.headers, login):
                    continue
                yield response
                return
        raise McpError("it refuses every login, or redirects in a circle")

    def _follow(self, response: http.HttpResponse) -> bool:
        """Use another address on the same server from now on."""
        target = urljoin(self._url, response.headers.get("location", ""))
        here, there = urlsplit(self._url), urlsplit(target)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc) or target == self._url:
            return False
        self._url = target
        return True

    async def _refusal(self, response: http.HttpResponse) -> McpError:
        """Return the error for an answer other than success."""
        body = await _read(response)
        # The protocol wants 404 for an unknown session; servers built on the official example answer 400.
        if self._session_id is not None and (
            response.status == 404 or (response.status == 400 and b"session" in body[:2000].lower())
        ):
            return SessionForgotten("it has forgotten the session")
        with suppress(StrangerError):
            answer = read_message(body)
            if isinstance(answer, dict) and answer.get("error") is not None:
                return rpc_error(answer["error"])
        if response.status == 401 and self._login is not None:
            return LoginNeeded(f"it wants a login: spindle mcp login {self._config.name}", _INVALID)
        text = body[:500].decode("utf-8", "replace").strip()
        if target := response.headers.get("location"):
            text = f"it redirects to {target}: use that address instead"
        elif response.status == 401:
            text = "it does not accept the Authorization header of its entry"
        elif response.status in (404, 405) and urlsplit(self._url).path.rstrip("/").endswith("/sse"):
            text = 'it may speak the transport of 2024: set "type": "sse" in its entry'
        return McpError(f"HTTP status {response.status}{f': {text}' if text else ''}", _INVALID)

    async def _take_answer(self, response: http.HttpResponse, id: Any) -> None:
        """Pass on all messages up to the answer to request `id`. Raises `McpError`, `StrangerError`."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            answer = read_message(await _read(response))
            for item in answer if isinstance(answer, list) else [answer]:
                if isinstance(item, dict):
                    self.receive(item if item.get("id") is not None or "method" in item else {**item, "id": id})
            return
        if kind != "text/event-stream":
            raise McpError(f"it answered with HTTP status {response.status} and {kind or 'nothing'}", _INVALID)
        events = ServerEvents(self._patience)
        if await self._take_events(response, events, id):
            return
        for _ in range(_RECONNECTS):
            if events.last_id is None:
                break
            await asyncio.sleep(events.retry)
            async with self._request("GET", {"last-event-id": events.last_id}, None) as again:
                if again.status != 200:
                    raise await self._refusal(again)
                if await self._take_events(again, events, id):
                    return
        raise Unreachable("the stream ended before the answer came")

    async def _take_events(self, response: http.HttpResponse, events: "ServerEvents", id: Any) -> bool:
        """Pass on the messages of a stream, up to the answer to `id`; say whether that came. Raises `StrangerError`."""
        while data := await response.read():
            for event in events.feed(data):
                message = read_message(event)
                for item in message if isinstance(message, list) else [message]:
                    if not (isinstance(item, dict) and self.receive(item)):
                        self._patience.spend(len(event))
                    elif id is not None and item.get("id") == id:
                        return True
        events.broken()
        return False

    async def _hear(self) -> None:
        """Read the stream of messages that answer no request, from a server of the earlier era, until it ends."""
        events, silent = ServerEvents(self._patience), 0
        while silent < _RECONNECTS:
            headers = {} if events.last_id is None else {"last-event-id": events.last_id}
            began, before = time.monotonic(), events.count
            try:
                async with self._request("GET", headers, None) as response:
                    self._hearing.set()
                    if response.status != 200:
                        return  # most servers have no such stream
                    await self._take_events(response, events, None)
            except StrangerError as error:
                self.closed(f"it sent {error}")
                return
            except (McpError, *BROKEN):
                pass
            self._hearing.set()
            # Proxies end every stream after a while; that is no failure.
            lived = events.count > before or time.monotonic() - began > limits.MCP_PROBE
            silent = 0 if lived else silent + 1
            await asyncio.sleep(events.retry)


async def _read(response: http.HttpResponse) -> bytes:
    """Return the body of a response. Raises `StrangerError`."""
    body = bytearray()
    while data := await response.read():
        body += data
        if len(body) > MAX_BYTES:
            raise StrangerError(f"an answer of more than {MAX_BYTES >> 20} MB")
    return bytes(body)


class ServerEvents:
    """Splits a stream into the data of its events, and remembers how to resume it."""

    def __init__(self, patience: Patience, on_endpoint: Callable[[str], None] | None = None) -> None:
        """`on_endpoint` gets the data of events that name an address."""
        self._patience = patience
        self._on_endpoint = on_endpoint
        self.last_id: str | None = None
        self.retry: float = limits.MCP_RECONNECT
        """Seconds to wait before resuming."""
        self.count = 0
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the data of complete events. Raises `StrangerError` for an event that is too long."""
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        ends = b"\n\n" in data or (data.startswith(b"\n") and self._rest.endswith(b"\n"))
        self._rest += data
        if not ends:
            if len(self._rest) > MAX_BYTES:
                raise StrangerError(f"an event of more than {MAX_BYTES >> 20} MB")
            return []
        *blocks, rest = bytes(self._rest).split(b"\n\n")
        self._rest = bytearray(rest)
        return [found for block in blocks if (found := self._take(block))]

    def broken(self) -> None:
        """Note that the stream has ended; half an event is dropped."""
        self._rest.clear()

    def _take(self, block: bytes) -> bytes:
        self.count += 1
        if block.count(b"\n") > _MAX_LINES:
            raise StrangerError(f"an event of more than {_MAX_LINES:,} lines")
        lines, kind = [], b""
        for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                lines.append(value)
            elif name == b"event":
                kind = value
            elif name == b"id" and b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace") or None
            elif name == b"retry" and value.isdigit():
                self.retry = min(max(int(value[:9]) / 1000, 0.1), 60.0)
        if kind == b"endpoint" and self._on_endpoint is not None:
            self._on_endpoint(b"".join(lines).decode("utf-8", "replace"))
            return b""
        if not lines:
            self._patience.spend(len(block))
        return b"\n".join(lines)


# -- headers ---------------------------------------------------------------------------------------


def _safe(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: _header_value(value) for name, value in headers.items()}


def _header_value(value: str) -> str:
    """Return the value in a form that a header can carry."""
    plain = re.fullmatch(r"[\x20-\x7e]*", value) and value == value.strip()
    if plain and not re.fullmatch(r"=\?base64\?.*\?=", value):
        return value
    return f"=?base64?{b64encode(value.encode()).decode()}?="


class _Marked(NamedTuple):
    """A place in a schema that asks for a header."""

    path: tuple[str, ...] | None
    """Names of properties from the root; None: below anything but properties."""
    schema: Message


def _marked(schema: Any, path: tuple[str, ...] | None = (), depth: int = 0) -> Iterator[_Marked]:
    if not isinstance(schema, dict) or depth > 50:
        return
    if _HEADER in schema:
        yield _Marked(path, schema)
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            for name, part in value.items():
                yield from _marked(part, None if path is None else (*path, name), depth + 1)
        elif key in ("patternProperties", "dependentSchemas", "$defs", "definitions") and isinstance(value, dict):
            for part in value.values():
                yield from _marked(part, None, depth + 1)
        elif key not in ("default", "examples", "const", "enum", _HEADER):
            for part in value if isinstance(value, list) else [value]:
                yield from _marked(part, None, depth + 1)


def header_problem(schema: Any) -> str | None:
    """Say why a tool must not be offered: it asks for headers in a way the specification does not allow."""
    seen = set()
    for path, part in _marked(schema):
        name = part[_HEADER]
        if not path:
            return f"{_HEADER} in a place that is no property"
        if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name):
            return f"{_HEADER} of {'.'.join(path)} is no name of a header"
        if part.get("type") not in ("string", "integer", "boolean"):
            return f"{_HEADER} of {'.'.join(path)}, which is no text, integer or boolean"
        if name.lower() in seen:
            return f"{_HEADER} {name} twice"
        seen.add(name.lower())
    return None


def param_headers(schema: Message, arguments: Any) -> dict[str, str]:
    """Return the headers that repeat arguments of a call, as its schema asks for."""
    headers = {}
    for path, part in _marked(schema):
        value = arguments
        for name in path or ():
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if path and isinstance(value, str | int):
            headers[f"mcp-param-{part[_HEADER]}"] = str(value)
    return headers
