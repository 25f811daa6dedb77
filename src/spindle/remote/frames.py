"""Frames of the remote protocol on their way to one client: in order, and joined while they wait."""

import asyncio
from collections import deque
from typing import Any

from .chat_protocol import response

__all__ = ["FrameQueue"]

HIGH_FRAMES = 1000
HIGH_BYTES = 4 << 20


class FrameQueue:
    def __init__(self) -> None:
        self._waiting: deque[tuple[str, str, str | None]] = deque()
        """Request id, text, and None; or request id, finished frame, and "": a frame that is complete."""
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.closed = False

    def put(self, id: str, content: dict[str, Any], *, error: str | None = None, usage: Any = None) -> None:
        self._append((id, response(id, content, error=error, usage=usage), ""))

    def put_chunk(self, id: str, text: str) -> None:
        """Add a piece of streamed text; joined to the one before it if that still waits."""
        if self._waiting and self._waiting[-1][0] == id and self._waiting[-1][2] is None:
            self._bytes += len(text)
            self._waiting[-1] = (id, self._waiting[-1][1] + text, None)
        else:
            self._append((id, text, None))

    def _append(self, item: tuple[str, str, str | None]) -> None:
        self._waiting.append(item)
        self._bytes += len(item[1])
        self._arrived.set()
        if self.full:
            self._room.clear()

    @property
    def full(self) -> bool:
        return not self.closed and (len(self._waiting) >= HIGH_FRAMES or self._bytes >= HIGH_BYTES)

    async def room(self) -> None:
        await self._room.wait()

    async def take(self) -> str | None:
        """Return the next frame, waiting for one; None when the queue is closed and empty."""
        while not self._waiting:
            if self.closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        id, text, kind = self._waiting.popleft()
        self._bytes -= len(text)
        if not self.full:
            self._room.set()
        return text if kind is not None else response(id, {"Stream": text})

    def close(self) -> None:
        """Let the writer finish what waits, then end."""
        self.closed = True
        self._arrived.set()
        self._room.set()
