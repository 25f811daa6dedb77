"""The connection under a `RemoteClient`: requests out, frames back to whoever waits for them, and a way back in."""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from spindle.client.commands import Json
from spindle.client.errors import ClientClosed, ConnectionFailed, ConnectionLost, RpcError
from spindle.client.events import read_frame
from spindle.shapes import codec

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["Exchange", "RemoteWire"]

TAKEN_OVER, NO_SUCH_SESSION = 4001, 4004
TOO_MANY_CONNECTIONS = 503
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 2.0

log = logging.getLogger(__name__)


class Exchange:
    """One request, and the frames that answer it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._frames: asyncio.Queue[Json | RpcError] = asyncio.Queue()

    def put(self, frame: Json | RpcError) -> None:
        self._frames.put_nowait(frame)

    async def frame(self) -> Json:
        """Return the next frame. Raises `RpcError` if none will come."""
        frame = await self._frames.get()
        if isinstance(frame, RpcError):
            raise frame
        return frame


class RemoteWire:
    def __init__(
        self, url: str, token: str | None, session: str | None, patience: float, options: Mapping[str, Any]
    ) -> None:
        """`patience` is how many seconds a lost server is looked for; `options` are those of `websockets.connect`."""
        self.session_id = session
        """The session on the server; None until it is known."""
        self.has_history = session is not None
        """Whether it would be a loss if the session were not found again."""
        self._url = url
        self._token = token
        self._patience = patience
        self._options = options
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._error: RpcError | None = ClientClosed()
        """Why there is no connection and none will be made; None: one is made when it is needed."""
        self._numbers = itertools.count(1)
        self._open: dict[str, Exchange] = {}

    async def connect(self) -> None:
        """Connect, and learn the id of the session. Raises `ConnectionFailed`."""
        self._error = None
        async with self._connecting:
            if self._socket is None:
                await self._connect()

    async def close(self) -> None:
        self._error = ClientClosed()
        if self._socket is not None:
            await self._socket.close()
        if self._reading is not None:
            await self._reading

    # -- requests --------------------------------------------------------------------------------

    async def request(self, input: Any, fields: Mapping[str, Any] | None = None) -> Exchange:
        """Send a request, on a new connection if need be; `forget` it in the end.

        Raises `ConnectionFailed`, `ConnectionLost`, `ClientClosed`.
        """
        async with self._connecting:
            if self._socket is None:
                await self._reconnect()
        return await self._send(input, fields or {})

    async def post(self, input: Any) -> None:
        """Send a request whose answer says nothing new. Does nothing without a connection."""
        try:
            self.forget(await self._send(input, {}))
        except RpcError as error:
            log.debug("not sent: %s", error)

    def forget(self, exchange: Exchange) -> None:
        self._open.pop(exchange.id, None)

    async def _send(self, input: Any, fields: Mapping[str, Any]) -> Exchange:
        from websockets.exceptions import ConnectionClosed

        if self._socket is None:
            raise self._error or ConnectionLost(None, "")
        exchange = Exchange(f"req_{next(self._numbers)}")
        self._open[exchange.id] = exchange
        try:
            await self._socket.send(codec.encode({"request_id": exchange.id, "input": input, **fields}).decode())
        except BaseException as error:
            self.forget(exchange)
            if isinstance(error, ConnectionClosed):
                raise _lost(error) from None
            raise
        return exchange

    # -- connecting ------------------------------------------------------------------------------

    async def _reconnect(self) -> None:
        """Look for the server for a while. Raises `ConnectionFailed` if it does not come back, or refuses."""
        if self._error is not None:
            raise self._error
        loop = asyncio.get_running_loop()
        delay, deadline = FIRST_DELAY_S, loop.time() + self._patience
        while True:
            try:
                await self._connect()
                return
            except ConnectionFailed as failed:
                if failed.status == NO_SUCH_SESSION and not self.has_history:
                    self.session_id = None  # the server does not keep what nobody has said a word in
                    continue
                if failed.status not in (None, TOO_MANY_CONNECTIONS) or loop.time() + delay > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY_S)

    async def _connect(self) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus

        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        options = {"additional_headers": headers, "max_size": None, **self._options}
        try:
            socket = await connect(_with_session(self._url, self.session_id), **options)
        except InvalidStatus as refused:
            response = refused.response
            reason = (response.body or b"").decode("utf-8", "replace").strip() or response.reason_phrase
            raise ConnectionFailed(f"{response.status_code} {reason}", response.status_code) from None
        except (OSError, EOFError, InvalidHandshake) as error:
            raise ConnectionFailed(f"Cannot connect to {self._url}: {error or type(error).__name__}") from None
        self._socket = socket
        self._reading = asyncio.create_task(self._read(socket))
        try:
            await self._learn_session()
        except ConnectionLost as lost:  # it let us in, and then had no such session, or no agent
            raise ConnectionFailed(lost.reason or str(lost), lost.code) from None

    async def _learn_session(self) -> None:
        """Ask for the id of the session, to find it again. Other servers have none."""
        exchange = await self._send({"Instruction": {"command": "config", "parameters": None}}, {})
        try:
            frame = await exchange.frame()
            self.session_id = codec.decode(frame["response"]["Text"])["session"]
        except (codec.DecodeError, KeyError, TypeError):
            log.debug("the server does not tell its session")
        finally:
            self.forget(exchange)

    # -- reading ---------------------------------------------------------------------------------

    async def _read(self, socket: "ClientConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                self._receive(await socket.recv())
        except ConnectionClosed as closed:
            lost = _lost(closed)
        self._socket = None
        if self._error is None and lost.code == TAKEN_OVER:
            self._error = lost  # coming back by itself would start a tug of war
        for exchange in self._open.values():
            exchange.put(self._error or lost)

    def _receive(self, message: str | bytes) -> None:
        frame = read_frame(message) or {}
        exchange = self._open.get(str(frame.get("request_id")))
        if exchange is not None:
            exchange.put(frame)


def _with_session(url: str, session: str | None) -> str:
    if session is None:
        return url
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode({"session": session}))))
    return urlunsplit(parts._replace(path=parts.path or "/", query=query))


def _lost(closed: Any) -> ConnectionLost:
    """Turn the library's exception into ours."""
    received = closed.rcvd
    return ConnectionLost(received.code, received.reason) if received is not None else ConnectionLost(None, "")
