"""The RPC protocol over a WebSocket: the same commands and events as on stdio, one frame each."""

import asyncio

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from spindle import __version__
from spindle.protocol.dialect import DIALECTS, UpdateMode
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.types.codec import encode

from .live import LiveSession

__all__ = ["RpcConnection"]

STALLED_S = 10.0
TRY_AGAIN_LATER = 1013


class RpcConnection:
    """One client of a live session. Several may be attached; all see its events."""

    def __init__(self, socket: ServerConnection, live: LiveSession, *, dialect: str, since: int | None) -> None:
        self._socket = socket
        self._live = live
        self._since = since
        """The last event the client saw before its connection broke."""
        self._outbox = Outbox(Renderer(DIALECTS[dialect]))
        self._dispatcher = Dispatcher(live.agent, self, self._outbox)
        self._waiting = asyncio.Event()
        self._outbox.on_waiting = self._waiting.set
        self._leaving = False

    # -- what commands may ask of the wire -------------------------------------------------------

    def set_update_mode(self, mode: UpdateMode) -> None:
        self._outbox.set_update_mode(mode)

    def request_shutdown(self) -> None:
        # A client ends its own connection; the server and the other clients go on.
        self._leaving = True
        self._waiting.set()

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client until it leaves."""
        replay = self._live.log.after(self._since) if self._since is not None else None
        hello = {
            "type": "ready",
            "version": __version__,
            "sessionId": self._live.id,
            "eventCount": self._live.log.count - len(replay or ()),
            "replay": replay is not None,
        }
        # No await between this and subscribing: no event may fall into the gap.
        self._live.agent.subscribe(self._outbox)
        writing = asyncio.create_task(self._write([encode(hello), *(replay or ())]))
        try:
            await self._read()
        finally:
            self._live.agent.unsubscribe(self._outbox)
            self._outbox.close()
            writing.cancel()
            await asyncio.wait([writing])
            await self._dispatcher.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                self._dispatcher.receive(message.encode() if isinstance(message, str) else message)
                if self._outbox.flooded:
                    await self._outbox.room()
        except ConnectionClosed:
            pass

    async def _write(self, first: list[bytes]) -> None:
        try:
            for line in first:
                await self._socket.send(line.decode())
            while True:
                # Nothing is merged: a client that counts its events must come to the same number as the log.
                line = self._outbox.take(1)
                if line:
                    async with asyncio.timeout(STALLED_S):
                        await self._socket.send(line.rstrip(b"\n").decode())
                elif self._leaving:
                    await self._socket.close()
                    return
                else:
                    self._waiting.clear()
                    await self._waiting.wait()
        except TimeoutError:
            # Somebody who does not read must not hold up the agent for the others.
            await self._socket.close(TRY_AGAIN_LATER, "reading too slowly")
        except ConnectionClosed:
            pass
