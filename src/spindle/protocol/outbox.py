"""What waits to be sent to one client.

Producers put events and responses in, a sink takes bytes out, in the same order. Everything is rendered when it
is put, so it says what was true then; only updates of an answer stay as they are until they leave: they then show
the newest state of the answer, and a sink that is behind may have neighbouring ones joined.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from spindle.protocol.dialect import UpdateMode
from spindle.protocol.render import DELTAS, Item, Renderer
from spindle.shapes.events import MessageUpdate

# Above a high mark the agent pauses until both figures are below a low one.
HIGH_ITEMS: Final = 256
LOW_ITEMS: Final = 64
HIGH_BYTES: Final = 4 << 20
LOW_BYTES: Final = 1 << 20
# So much unread means that a client only writes; then its commands are not read either.
FLOOD_ITEMS: Final = 8192
FLOOD_BYTES: Final = 64 << 20


class Outbox:
    def __init__(self, renderer: Renderer) -> None:
        self.on_waiting: Callable[[], None] = lambda: None
        """Called when something waits after nothing did; the sink's doorbell."""
        self._renderer = renderer
        self._waiting: deque[bytes | MessageUpdate | UpdateMode] = deque()
        """Lines, updates that are not lines yet, and changes of their form at the place where they were asked for."""
        self._bytes = 0
        """Length of the lines in `_waiting`."""
        self.full = False
        """So much is waiting that the agent should pause."""
        self._room = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    # -- the producers' side ---------------------------------------------------------------------

    def put(self, item: Item) -> None:
        """Add an event or a response. Never waits."""
        if self._closed:
            return
        if type(item) is MessageUpdate:
            self._append(item)
            return
        line = self._renderer.render(item)
        if line:
            self._bytes += len(line)
            self._append(line)

    def set_update_mode(self, mode: UpdateMode) -> None:
        """Change the form of updates that are put from now on."""
        if not self._closed:
            self._append(mode)

    @property
    def flooded(self) -> bool:
        """Whether so much is waiting that no more commands should be read."""
        return len(self._waiting) >= FLOOD_ITEMS or self._bytes >= FLOOD_BYTES

    async def room(self) -> None:
        """Return when the outbox is not full (any more)."""
        while self.full:
            await self._room.wait()

    def close(self) -> None:
        """Throw everything away, now and from now on: the reader is gone."""
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        self._make_room()

    def _append(self, entry: bytes | MessageUpdate | UpdateMode) -> None:
        self._waiting.append(entry)
        if not self.full and (len(self._waiting) >= HIGH_ITEMS or self._bytes >= HIGH_BYTES):
            self.full = True
            self._room.clear()
        if len(self._waiting) == 1:
            self.on_waiting()

    # -- the sink's side -------------------------------------------------------------------------

    def take(self, max_bytes: int, *, merge: bool = False) -> bytes:
        """Return whole lines, until `max_bytes` is reached or passed; nothing if nothing waits.

        With `merge` (the reader is behind), deltas of one block that stand next to each other become one.
        """
        lines: list[bytes] = []
        size = 0
        while self._waiting and size < max_bytes:
            entry = self._waiting.popleft()
            if isinstance(entry, bytes):
                self._bytes -= len(entry)
                line = entry
            elif isinstance(entry, MessageUpdate):
                line = self._renderer.render(self._merged(entry) if merge else entry)
            else:
                self._renderer.set_update_mode(entry)
                continue
            lines.append(line)
            size += len(line)
        if self.full and len(self._waiting) <= LOW_ITEMS and self._bytes <= LOW_BYTES:
            self._make_room()
        return lines[0] if len(lines) == 1 else b"".join(lines)

    def _merged(self, update: MessageUpdate) -> MessageUpdate:
        """Return `update` with the deltas that follow it directly, taking them out of the queue."""
        piece = update.assistant_message_event
        if not isinstance(piece, DELTAS):
            return update
        deltas = [piece.delta]
        while self._waiting:
            following = self._waiting[0]
            if not isinstance(following, MessageUpdate) or following.message is not update.message:
                break
            other = following.assistant_message_event
            if type(other) is not type(piece) or other.content_index != piece.content_index:
                break
            deltas.append(other.delta)
            self._waiting.popleft()
        return MessageUpdate(type(piece)(piece.content_index, "".join(deltas)), update.message)

    def _make_room(self) -> None:
        self.full = False
        self._room.set()
