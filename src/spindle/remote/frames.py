"""Frames of the remote protocol on their way to one client: in order, and pieces of a stream joined while they wait."""

import asyncio
from collections import deque
from typing import Any

from spindle.remote.chat_protocol import response

__all__ = ["FrameQueue"]

# Above a high mark the agent pauses until both figures are below a low one.
HIGH_FRAMES, LOW_FRAMES = 1000, 250
HIGH_CHARS, LOW_CHARS = 4 << 20, 1 << 20
# Many WebSocket clients take no message above a megabyte unless they are told to.
MAX_CHUNK_CHARS = 64 << 10


class _Chunk:
    """Streamed text that has not left yet."""

    __slots__ = ("id", "pieces", "size")

    def __init__(self, id: str, text: str) -> None:
        self.id = id
        self.pieces = [text]
        self.size = len(text)


class FrameQueue:
    def __init__(self) -> None:
        self._waiting: deque[str | _Chunk] = deque()
        """Finished frames, and streamed text that may still grow."""
        self._size = 0
        """Characters in `_waiting`."""
        self._full = False
        self._finished = False
        """Nothing more is put in."""
        self._dropped = False
        self._news = asyncio.Event()
        """Something waits, or nothing ever will."""
        self._room = asyncio.Event()

    # -- the producers' side ---------------------------------------------------------------------

    def put(self, id: str, content: dict[str, Any], *, error: str | None = None, usage: Any = None) -> None:
        """Add a frame. Never waits."""
        frame = response(id, content, error=error, usage=usage)
        self._waiting.append(frame)
        self._grow(len(frame))

    def put_chunk(self, id: str, text: str) -> None:
        """Add a piece of streamed text; joined to the one before it if that still waits."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _Chunk) and last.id == id and last.size < MAX_CHUNK_CHARS:
            last.pieces.append(text)
            last.size += len(text)
        else:
            self._waiting.append(_Chunk(id, text))
        self._grow(len(text))

    def _grow(self, size: int) -> None:
        if self._dropped:
            self._waiting.clear()
            return
        self._size += size
        self._news.set()
        if not self._full and (len(self._waiting) >= HIGH_FRAMES or self._size >= HIGH_CHARS):
            self._full = True
            self._room.clear()

    @property
    def full(self) -> bool:
        """Whether so much waits that the agent should pause, and no more requests should be read."""
        return self._full

    async def room(self) -> None:
        """Return when the queue is not full (any more)."""
        while self._full:
            await self._room.wait()

    def finish(self) -> None:
        """Let the sink take what waits, and tell it that this was all."""
        self._finished = True
        self._news.set()

    def drop(self) -> None:
        """Throw everything away, now and from now on: nobody reads it any more."""
        self._dropped = True
        self._waiting.clear()
        self._size = 0
        self.finish()
        self._make_room()

    # -- the sink's side -------------------------------------------------------------------------

    async def take(self) -> str | None:
        """Return the next frame, waiting for one; None when there will be no more."""
        while not self._waiting:
            if self._finished:
                return None
            self._news.clear()
            await self._news.wait()
        entry = self._waiting.popleft()
        self._size -= entry.size if isinstance(entry, _Chunk) else len(entry)
        if self._full and len(self._waiting) <= LOW_FRAMES and self._size <= LOW_CHARS:
            self._make_room()
        return entry if isinstance(entry, str) else response(entry.id, {"Stream": "".join(entry.pieces)})

    def _make_room(self) -> None:
        self._full = False
        self._room.set()
