"""An editor on a WebSocket of the server: one JSON-RPC object a frame, as the SDKs of the protocol send it."""

import asyncio

from spindle.protocol.pool import AgentSource, SessionPool
from spindle.server.passage import Passage
from spindle.wires.acp.editor import Editor


class EditorSocket:
    """One connection. Its sessions are those of the user, and stay in memory for a while when it is gone."""

    def __init__(self, source: AgentSource, pool: SessionPool, passage: Passage | None) -> None:
        self._editor = Editor(source, pool, signs_in=False, passage=passage)
        self._outbox = self._editor.connection.outbox
        self._doorbell = asyncio.Event()
        self._outbox.on_waiting = self._doorbell.set
        self._ended = False

    def receive(self, message: str | bytes) -> None:
        self._editor.connection.receive(message.encode() if isinstance(message, str) else message)

    async def room(self) -> None:
        if self._outbox.flooded:
            await self._outbox.room()

    async def next_frame(self) -> bytes | None:
        while True:
            if frame := self._outbox.take(1, merge=False):
                return frame.rstrip(b"\n")
            if self._ended:
                return None
            self._doorbell.clear()
            await self._doorbell.wait()

    async def end(self) -> None:
        """Detach the editor. Runs go on: it may come back with `session/load`, and others may watch."""
        await self._editor.leave()
        self._ended = True
        self._doorbell.set()

    def drop(self) -> None:
        self._outbox.close()
