"""How frames get to an agent and back: through the pipes of a child process, or over a WebSocket.

A frame is one JSON object. This module does not know what the frames mean.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from urllib.parse import urlencode, urlsplit, urlunsplit

from spindle.base.flow import Mailbox, Tasks
from spindle.base.limits import CHILD_LINGER, CONNECT
from spindle.client.errors import AgentCrashed, ConnectionFailed, ConnectionLost, RpcError
from spindle.shapes import codec

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

Json: TypeAlias = dict[str, Any]

log = logging.getLogger(__name__)

STDERR_KEPT = 8 << 10
UNSENT_FRAMES, UNSENT_BYTES = 1024, 1 << 20
HEARTBEAT = 40.0
"""Seconds after which a silent server is asked whether it is there; it may take half as long to answer."""


class AgentProcess(asyncio.SubprocessProtocol):
    """An agent in a child process: frames are lines on its stdin and stdout."""

    def __init__(self) -> None:
        self.error: RpcError | None = None
        """Why it ended; set before `frames` ends."""
        self._child: asyncio.SubprocessTransport
        self._frames: Mailbox[Json] = Mailbox(sys.maxsize)
        self._pieces: list[bytes] = []
        """The beginning of a line whose end has not come yet."""
        self._stderr = b""
        self._open_pipes = {1, 2}
        self._exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def start(
        cls, command: Sequence[str], cwd: str | Path | None, env: Mapping[str, str] | None
    ) -> "AgentProcess":
        """Start a command line. Raises `OSError` if there is no such program."""
        _, process = await asyncio.get_running_loop().subprocess_exec(cls, *command, cwd=cwd, env=env)
        return process

    @property
    def stderr(self) -> str:
        """The end of its stderr."""
        return self._stderr.decode("utf-8", "replace").strip()

    def send(self, line: bytes) -> None:
        """Send one encoded frame, without waiting. It is dropped if the agent is gone."""
        self._stdin.write(line + b"\n")

    async def room(self) -> None:
        """Wait until the agent has taken most of the frames that were sent, or is gone."""
        await self._writable.wait()

    def frames(self) -> AsyncIterator[Json]:
        """Give the frames of the agent, until it ends. Call this once."""
        return self._frames

    async def close(self, grace: float) -> None:
        """Close its stdin; if it does not end in `grace` seconds, terminate it, then kill it. If cancelled, kill it."""
        self._stdin.close()
        try:
            for insist in (self._child.terminate, self._child.kill):
                try:
                    async with asyncio.timeout(grace):
                        await self._exited.wait()
                    return
                except TimeoutError:
                    with contextlib.suppress(ProcessLookupError):
                        insist()
            await self._exited.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
            raise

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast(asyncio.WriteTransport, self._child.get_pipe_transport(0))

    def _finish(self) -> None:
        if self.error is None:
            self._child.close()
            self.error = AgentCrashed(cast(int, self._child.get_returncode()), self.stderr)
            self._frames.close()

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._child = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-STDERR_KEPT:]
            return
        first, *rest = data.split(b"\n")
        self._pieces.append(first)
        for piece in rest:
            if (frame := _read(b"".join(self._pieces))) is not None:
                self._frames.put(frame)
            self._pieces = [piece]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if fd == 0:
            self._writable.set()
        elif not self._open_pipes and self._exited.is_set():
            self._finish()

    def process_exited(self) -> None:
        self._writable.set()
        self._exited.set()
        if self._open_pipes:  # a child of the agent may hold them for a long time
            asyncio.get_running_loop().call_later(CHILD_LINGER, self._finish)
        else:
            self._finish()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class WebSocket:
    """An agent behind a WebSocket, with the methods of `AgentProcess`."""

    def __init__(self, session: "ClientSession", socket: "ClientWebSocketResponse[bool]") -> None:
        self.error: RpcError | None = None
        self._session = session
        self._socket = socket
        self._closing = False
        self._unsent: Mailbox[bytes] = Mailbox(UNSENT_FRAMES, UNSENT_BYTES)
        self._tasks = Tasks()
        self._tasks.spawn(self._write(), "client-write")

    @classmethod
    async def connect(cls, url: str, token: str | None, options: Mapping[str, Any]) -> "WebSocket":
        """Connect. `options` are those of aiohttp's `ws_connect`. Raises `ConnectionFailed`."""
        from aiohttp import ClientError, ClientSession, WSServerHandshakeError

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        wanted = {
            "max_msg_size": 0,
            "heartbeat": HEARTBEAT,
            **options,
            "headers": {**headers, **options.get("headers", {})},
        }
        session = ClientSession(trust_env="proxy" not in options)
        try:
            async with asyncio.timeout(CONNECT):
                return cls(session, await session.ws_connect(url, **wanted))
        except WSServerHandshakeError as refused:
            await session.close()
            reason = dict(refused.headers or {}).get("X-Reason") or HTTPStatus(refused.status).phrase
            raise ConnectionFailed(f"{refused.status} {reason}", refused.status) from None
        except (OSError, TimeoutError, ClientError) as error:
            await session.close()
            raise ConnectionFailed(f"Cannot connect to {url}: {error or type(error).__name__}") from None
        except BaseException:
            await session.close()
            raise

    def send(self, line: bytes) -> None:
        self._unsent.put(line, len(line))

    async def room(self) -> None:
        await self._unsent.room()

    async def frames(self) -> AsyncIterator[Json]:
        from aiohttp import WSMsgType

        while (message := await self._socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            if (frame := _read(message.data)) is not None:
                yield frame
        is_goodbye = message.type is WSMsgType.CLOSE
        self.error = ConnectionLost(message.data, message.extra or "") if is_goodbye else ConnectionLost()
        if not self._closing:  # if we close, frames that were sent before are still on their way
            self._unsent.drop()
            await self._session.close()

    async def close(self, grace: float) -> None:
        self._closing = True
        self._unsent.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._tasks.join()
                    await self._socket.close()
        finally:
            connection = self._socket._conn
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            await self._session.close()

    async def _write(self) -> None:
        from aiohttp import WSMsgType

        with contextlib.suppress(ConnectionError):  # `frames` ends and tells why
            while await self._unsent.wait():
                line = self._unsent.waiting[0]
                self._unsent.pop(len(line))
                await self._socket.send_frame(line, WSMsgType.TEXT)


class Transport(Protocol):
    """A running agent, as far as frames are concerned; `AgentProcess` says what the methods do."""

    error: RpcError | None

    def send(self, line: bytes) -> None: ...

    async def room(self) -> None: ...

    def frames(self) -> AsyncIterator[Json]: ...

    async def close(self, grace: float) -> None: ...


def _read(data: bytes | str) -> Json | None:
    """Read a frame. Returns None if it is not a JSON object."""
    try:
        frame = codec.decode(data)
    except codec.DecodeError:
        frame = None
    if isinstance(frame, dict):
        return frame
    log.debug("not a frame: %r", data[:200])
    return None


def websocket_url(url: str, path: str, **query: str) -> str:
    """Return a URL for a WebSocket. `http` becomes `ws`; `path` is used if the URL has none; `query` is added.

    Raises `ValueError` if it is not a URL of a server.
    """
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.netloc:
        raise ValueError(f'"{url}" is not a URL of a server; a command line is given as a list of words')
    path = path if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, "&".join(filter(None, (parts.query, urlencode(query)))), ""))
