"""One WebSocket as the server sees it: read no faster than allowed, written to while the client reads, closed politely.

What the frames mean is the business of the `Client` behind it: the remote protocol or the RPC protocol.
"""

import asyncio
import logging
from typing import Protocol

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from spindle.limits import CLOSE_FRAME, LAST_FRAMES
from spindle.protocol.live import SHUTDOWN, LiveSession

# Close codes.
BYE, GOING_AWAY, FAILED, TRY_AGAIN_LATER, REPLACED, NO_SUCH_SESSION = 1000, 1001, 1011, 1013, 4001, 4004

MAX_REASON_BYTES = 123
"""A close frame holds no more."""
BURST_SECONDS = 5
"""A client may send so many seconds' worth of frames at once."""

MAX_UNREAD_ANSWERS = 256 << 10
"""Bytes of answers to pings that may wait for a client; those who read what they ask for never come near."""

log = logging.getLogger("spindle.remote")


class BoundedConnection(ServerConnection):
    """Ends a client that pings and does not read: the library answers each ping, however many answers wait."""

    _unread_answers = 0

    def data_received(self, data: bytes) -> None:
        if not self.paused:
            self._unread_answers = 0
        before = self.transport.get_write_buffer_size()
        super().data_received(data)
        self._unread_answers += self.transport.get_write_buffer_size() - before
        if self._unread_answers > MAX_UNREAD_ANSWERS:
            self.transport.abort()


class Client(Protocol):
    """One end of a protocol, on top of a peer."""

    def receive(self, message: str | bytes) -> None:
        """Take a frame; never waits."""

    async def room(self) -> None:
        """Return when another frame may be read."""

    async def next_frame(self) -> str | None:
        """Return the next frame to send, waiting for one; None when there will be no more."""

    async def end(self) -> None:
        """The client is gone or has to go: stop what it started. Last frames may still be taken."""

    def drop(self) -> None:
        """Frames are not taken any more: nothing should wait for that."""


class Peer:
    """Also the client of the live session that its connection is about."""

    holds = True
    busy = True

    def __init__(
        self, socket: ServerConnection, *, stall_timeout: float, frames_per_second: float, answers: bool = True
    ) -> None:
        """`answers`: its protocol has words for questions."""
        self.answers = answers
        self._socket = socket
        self._stall_timeout = stall_timeout
        self._throttle = Throttle(frames_per_second)
        self._reading: asyncio.Task[None] | None = None
        self._farewell: tuple[int, str] | None = None
        """Code and reason to close with, once that is decided."""
        self.frames_in = 0
        self.frames_out = 0

    def leave(self, code: int, reason: str) -> None:
        """Make the client go. What it started is stopped first, and it gets its last frames."""
        if self._farewell is None:
            self._farewell = code, reason
        if self._reading is not None:
            self._reading.cancel()

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self.leave(GOING_AWAY if reason == SHUTDOWN else BYE, reason)

    async def run(self, client: Client) -> None:
        """Serve a client until it is gone or has to go; the socket may still be open then."""
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

    async def close(self) -> None:
        """Say goodbye, unless the client has hung up."""
        code, reason = self._farewell or (BYE, "")
        # A reason cut in the middle of a character would not be text any more.
        reason = reason.encode()[:MAX_REASON_BYTES].decode("utf-8", "ignore")
        try:
            async with asyncio.timeout(CLOSE_FRAME):
                await self._socket.close(code, reason)
        except TimeoutError:
            self._socket.transport.abort()

    async def _read(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for message in self._socket:
                self.frames_in += 1
                client.receive(message)
                await client.room()
                if (delay := self._throttle.delay(loop.time())) > 0:
                    await asyncio.sleep(delay)
        except ConnectionClosed:
            pass

    async def _write(self, client: Client) -> None:
        try:
            while (frame := await client.next_frame()) is not None:
                async with asyncio.timeout(self._stall_timeout):
                    await self._socket.send(frame)
                self.frames_out += 1
        except TimeoutError:
            # A client that does not read must not hold up the agent for ever, nor others that listen to it.
            self._farewell = TRY_AGAIN_LATER, "reading too slowly"
        except ConnectionClosed:
            pass

    def _look_for_bugs(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection failed", exc_info=error)
            self._farewell = FAILED, "internal error"


class Throttle:
    """A limit on how fast a client is read: a bucket of credit that fills with time."""

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
