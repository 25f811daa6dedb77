"""One WebSocket as the server sees it: read no faster than allowed, written to while the client reads, closed politely.

The `Client` behind it knows what the frames mean: it speaks the remote protocol or the RPC protocol.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import WSMsgType
from aiohttp.web import BaseRequest, WebSocketResponse

from spindle.base.limits import CLOSE_FRAME, LAST_FRAMES
from spindle.protocol.pool import SHUTDOWN
from spindle.wires.network.options import RemoteOptions

# Close codes.
BYE, GOING_AWAY, TOO_BIG, FAILED, TRY_AGAIN_LATER = 1000, 1001, 1009, 1011, 1013
REPLACED, NOT_ALLOWED, NO_SUCH_SESSION, IN_USE = 4001, 4003, 4004, 4009

MAX_REASON_BYTES = 123
"""The most that a close frame holds."""
BURST_SECONDS = 5
"""A client may send the frames of so many seconds at once."""

MAX_UNREAD_ANSWERS = 256 << 10
"""Bytes of answers to pings that may wait for a client; a client that reads never comes near."""

log = logging.getLogger("spindle.remote")


class Client(Protocol):
    """One end of a protocol, on top of a peer."""

    def receive(self, message: str | bytes) -> None:
        """Take a frame; never waits."""

    async def room(self) -> None:
        """Wait until another frame may be read."""

    async def next_frame(self) -> bytes | None:
        """Wait for the next frame to send and return it; None after the last."""

    async def end(self) -> None:
        """Stop the client's work: it is gone, or is being disconnected. Last frames may still be taken."""

    def drop(self) -> None:
        """Drop all frames: none is taken any more, and nothing should wait for it."""


class Peer:
    def __init__(
        self,
        socket: WebSocketResponse[Any],
        request: BaseRequest,
        options: RemoteOptions,
        *,
        stall_timeout: float,
    ) -> None:
        self._socket = socket
        self._wire = request.protocol
        self._stall_timeout = stall_timeout
        self._ping_seconds = options.ping_seconds
        self._max_bytes = options.max_message_bytes
        self._throttle = Throttle(options.frames_per_second)
        self._unread_answers = 0
        self._reading: asyncio.Task[None] | None = None
        self._farewell: tuple[int, str] | None = None
        """Code and reason to close with, once that is decided."""
        self.frames_in = 0
        self.frames_out = 0
        self.users: set[str | None] = set()
        """The user whose token came, and the one whose sessions are used."""
        self.grounds: list[Callable[[], bool]] = []
        """What has to stay true for the client to stay, beside a token. May block."""

    def leave(self, code: int, reason: str) -> None:
        """Disconnect the client. Its work is stopped first, and it gets its last frames."""
        if self._farewell is None:
            self._farewell = code, reason
        if self._reading is not None:
            self._reading.cancel()

    def session_ended(self, reason: str) -> None:
        """Disconnect the client because its session leaves memory."""
        self.leave(GOING_AWAY if reason == SHUTDOWN else BYE, reason)

    async def run(self, client: Client) -> None:
        """Serve a client until it leaves or is disconnected; the socket may still be open afterwards."""
        if self._farewell is not None:
            await client.end()
            return
        self._reading = asyncio.create_task(self._read(client))
        writing = asyncio.create_task(self._write(client))
        try:
            await asyncio.wait([self._reading, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reading.cancel()
            ending = asyncio.create_task(client.end())
            await asyncio.wait([ending], timeout=LAST_FRAMES)
            await asyncio.wait([writing], timeout=LAST_FRAMES)
            client.drop()
            writing.cancel()
            await asyncio.wait([self._reading, writing, ending])
            for task in (self._reading, writing, ending):
                self._look_for_bugs(task)
            self._reading = None  # a task that was cancelled keeps its frames, and they keep the connection

    async def close(self) -> None:
        """Say goodbye, unless the client has hung up."""
        code, reason = self._farewell or (BYE, "")
        # A reason cut in the middle of a character would not be text any more.
        text = reason.encode()[:MAX_REASON_BYTES].decode("utf-8", "ignore")
        try:
            async with asyncio.timeout(CLOSE_FRAME):
                await self._socket.close(code=code, message=text.encode())
        except TimeoutError:
            if self._wire.transport is not None:
                self._wire.transport.abort()

    async def _read(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        while (message := await self._next_message()) is not None:
            self.frames_in += 1
            client.receive(message)
            await client.room()
            if (delay := self._throttle.delay(loop.time())) > 0:
                await asyncio.sleep(delay)

    async def _next_message(self) -> str | bytes | None:
        """Return the client's next message; None if it is gone. A silent client gets a ping."""
        asked = False
        while True:
            try:
                message = await self._socket.receive(self._ping_seconds)
            except TimeoutError:
                if asked:
                    self._farewell = self._farewell or (FAILED, "no answer to a ping")
                    return None
                asked = True
                if not self._wire.writing_paused:  # otherwise the writer notices that the client does not read
                    await self._socket.ping()
                continue
            asked = False
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    data: str | bytes = message.data
                    if len(data) <= self._max_bytes:
                        return data
                    self._farewell = self._farewell or (TOO_BIG, f"a message may have {self._max_bytes} bytes")
                    return None
                case WSMsgType.PING:
                    self._answer_ping(message.data)
                case WSMsgType.PONG:
                    pass
                case _:
                    return None

    def _answer_ping(self, data: bytes) -> None:
        """Answer at once, even if earlier answers wait; a client that does not read them is disconnected."""
        transport = self._wire.transport
        if transport is None:
            return
        if not self._wire.writing_paused:
            self._unread_answers = 0
        # The library would wait until the client reads, and our reader would have to wait too.
        transport.write(bytes((0x8A, len(data))) + data)
        self._unread_answers += len(data) + 2
        if self._unread_answers > MAX_UNREAD_ANSWERS:
            transport.abort()

    async def _write(self, client: Client) -> None:
        try:
            while (frame := await client.next_frame()) is not None:
                async with asyncio.timeout(self._stall_timeout):
                    await self._socket.send_frame(frame, WSMsgType.TEXT)
                self.frames_out += 1
        except TimeoutError:
            # A client that does not read must not hold up the agent, and with it other clients, for ever.
            self._farewell = TRY_AGAIN_LATER, "reading too slowly"
        except ConnectionError:
            pass

    def _look_for_bugs(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection failed", exc_info=error)
            self._farewell = FAILED, "internal error"


class Throttle:
    """Bounds how fast a client is read: a bucket of credit that fills with time."""

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._credit = self._most = per_second * BURST_SECONDS
        self._last: float | None = None
        """When the last frame came."""

    def delay(self, now: float) -> float:
        """Count a frame that came at `now`; return how many seconds the next one should wait."""
        if self._last is not None:
            self._credit = min(self._most, self._credit + (now - self._last) * self._rate)
        self._last = now
        self._credit -= 1
        return max(0.0, -self._credit / self._rate)
