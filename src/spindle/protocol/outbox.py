"""The outbox: events and responses that are to be sent to one client.

Producers put them in, a sink takes bytes out, in the same order. An item is rendered when it is put in, so it shows
the state of that moment. Only updates of an answer are rendered when they are taken out: they show the newest state
of the answer, and neighbouring ones are merged if the reader is behind, or if each would repeat a long answer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from spindle.protocol.dialect import Dialect, UpdateMode
from spindle.protocol.render import Item, Renderer, Response, Wishes
from spindle.shapes.events import MessageUpdate
from spindle.shapes.pieces import DELTAS

# Above a high mark the agent pauses until both figures are below their low marks.
HIGH_ITEMS: Final = 256
LOW_ITEMS: Final = 64
HIGH_BYTES: Final = 4 << 20
LOW_BYTES: Final = 1 << 20
# A client that leaves this much unread only writes; its commands are not read then.
FLOOD_ITEMS: Final = 8192
FLOOD_BYTES: Final = 64 << 20
# About the length of an update in delta form without its delta.
FRAME_BYTES: Final = 256

# From this length of an update on, which in full form has the whole answer so far, updates that wait are merged.
DEAR_BYTES: Final = 16 << 10

Entry: TypeAlias = bytes | tuple[Renderer, MessageUpdate | UpdateMode]
"""A line, an update that is not rendered yet, or a change of the form of the updates behind it."""


class HeldAnswer(NamedTuple):
    """The response to a prompt that is not kept yet."""

    response: Response
    kept: asyncio.Future[str | None]

    def said(self) -> Response:
        """Return the response as it is true now."""
        failure = self.kept.result() if self.kept.done() else None
        return self.response if failure is None else replace(self.response, success=False, data=UNSET, error=failure)


class Outbox:
    def __init__(self, renderer: Renderer, *, counts: bool = False) -> None:
        """With `counts`, an update that stands for several says for how many, as its `events`."""
        self._counts = counts
        self.on_waiting: Callable[[], None] = lambda: None
        """Called when the outbox is no longer empty; wakes the sink."""
        self._renderer = renderer
        self.update_mode = renderer.update_mode
        """As the client last asked for it."""
        self._waiting: deque[Entry] = deque()
        self._held: dict[Renderer, tuple[asyncio.Future[str | None], deque[Entry | HeldAnswer]]] = {}
        """Entries of sessions whose prompt is not kept yet; see `hold`."""
        self._unanswered: set[Renderer] = set()
        """Those whose next response is that to such a prompt."""
        self._bytes = 0
        """Length of the lines in `_waiting` and `_held`."""
        self.full = False
        """So much is unread that the agent should pause."""
        self._room = asyncio.Event()
        self._dear = False
        """Whether the last update was long."""
        self._closed = False

    def __len__(self) -> int:
        held = sum(len(entries) for _, entries in self._held.values()) if self._held else 0
        return len(self._waiting) + held

    # -- the producers' side ---------------------------------------------------------------------

    def put(self, item: Item, renderer: Renderer | None = None) -> None:
        """Add an event or a response. Never waits."""
        if self._closed:
            return
        renderer = renderer or self._renderer
        if type(item) is MessageUpdate:
            if renderer.wishes.cut is not None:
                renderer.waits(item)
            self._append((renderer, item), renderer)
        elif renderer in self._unanswered and type(item) is Response:
            self._unanswered.discard(renderer)
            kept, entries = self._held[renderer]
            entries.append(HeldAnswer(item, kept))
        else:
            for line in renderer.lines(item):
                self._bytes += len(line)
                self._append(line, renderer)

    def put_line(self, line: bytes) -> None:
        """Add a line that is already rendered."""
        if not self._closed:
            self._bytes += len(line)
            self._append(line, self._renderer)

    def set_update_mode(self, mode: UpdateMode) -> None:
        """Change the form of updates that are put in from now on."""
        self.update_mode = mode
        self.change_mode(self._renderer, mode)

    def set_filter(self, only: Collection[str] | None) -> None:
        """Send only events of these types; None: all."""
        self._renderer.wishes.only = only

    @property
    def wishes(self) -> Wishes:
        return self._renderer.wishes

    @property
    def cuts(self) -> bool:
        """Whether long lines are cut: the client has negotiated version 2."""
        return self._renderer.wishes.cut is not None

    def cut_long_lines(self, cut: Callable[[bytes], bytes]) -> None:
        self._renderer.wishes.cut = cut

    def use_dialect(self, dialect: Dialect) -> None:
        """Render what is put in from now on in this dialect."""
        self._renderer.use_dialect(dialect)

    def change_mode(self, renderer: Renderer, mode: UpdateMode) -> None:
        """Let a renderer use this form for updates that are put in from now on."""
        if not self._closed:
            self._append((renderer, mode), renderer)

    def hold(self, kept: asyncio.Future[str | None], renderer: Renderer | None = None) -> None:
        """Hold what a session puts in from now on until its prompt is kept. Other sessions do not wait.

        The response to the prompt comes next. If the prompt cannot be kept, it says so in place of success.
        """
        renderer = renderer or self._renderer
        if not kept.done() and not self._closed:
            self._held[renderer] = kept, self._held[renderer][1] if renderer in self._held else deque()
            self._unanswered.add(renderer)
            kept.add_done_callback(lambda kept: self._let_go(renderer, kept))

    def lane(self, session_id: str) -> "Lane":
        """Return the lane of a session other than the client's first."""
        return Lane(self, Renderer(self._renderer.dialect, self.update_mode, session_id, self._renderer.wishes))

    @property
    def flooded(self) -> bool:
        """Whether so much is unread that no more commands should be taken."""
        return len(self) >= FLOOD_ITEMS or self._bytes >= FLOOD_BYTES

    async def room(self) -> None:
        """Wait until the outbox is not full."""
        while self.full:
            await self._room.wait()

    def close(self) -> None:
        """Drop all entries, now and later: the reader is gone."""
        self._closed = True
        self._waiting.clear()
        self._held.clear()
        self._unanswered.clear()
        self._bytes = 0
        self._make_room()

    def _append(self, entry: Entry, renderer: Renderer) -> None:
        if renderer in self._held:
            self._held[renderer][1].append(entry)
            return
        self._waiting.append(entry)
        if not self.full and (len(self._waiting) >= HIGH_ITEMS or self._bytes >= HIGH_BYTES):
            self.full = True
            self._room.clear()
        if len(self._waiting) == 1:
            self.on_waiting()

    def _let_go(self, renderer: Renderer, kept: asyncio.Future[str | None]) -> None:
        if renderer not in self._held or self._held[renderer][0] is not kept:
            return  # a newer prompt holds the entries
        self._unanswered.discard(renderer)
        for entry in self._held.pop(renderer)[1]:
            if isinstance(entry, HeldAnswer):
                self.put(entry.said(), renderer)
            else:
                self._append(entry, renderer)

    # -- the sink's side -------------------------------------------------------------------------

    def take(self, max_bytes: int, *, merge: bool = False) -> bytes:
        """Return whole lines, until `max_bytes` is reached or passed; nothing if the outbox is empty.

        With `merge` (the reader is behind), neighbouring deltas of one block become one; and without, once updates are
        long.
        """
        lines: list[bytes] = []
        size = 0
        while self._waiting and size < max_bytes:
            entry = self._waiting.popleft()
            if isinstance(entry, bytes):
                self._bytes -= len(entry)
                line = entry
            else:
                renderer, what = entry
                if not isinstance(what, MessageUpdate):
                    renderer.set_update_mode(what)
                    continue
                line = self._update(renderer, what, None if merge or self._dear else max_bytes - size)
                self._dear = renderer.update_mode == "full" and len(line) > DEAR_BYTES
            lines.append(line)
            size += len(line)
        if self.full and len(self._waiting) <= LOW_ITEMS and self._bytes <= LOW_BYTES:
            self._make_room()
        return lines[0] if len(lines) == 1 else b"".join(lines)

    def _update(self, renderer: Renderer, update: MessageUpdate, max_bytes: int | None) -> bytes:
        """Render an update; in delta form, or to merge them, together with the deltas of the same block that follow.

        `max_bytes` is as for `take`; None: merge them.
        """
        piece, live = update.assistant_message_event, update.message
        one_by_one = renderer.update_mode == "full" or self.cuts or renderer.wishes.only is not None
        if not isinstance(piece, DELTAS) or (max_bytes is not None and one_by_one):
            return renderer.render(update)
        kind, index, waiting = type(piece), piece.content_index, self._waiting
        deltas, size = [piece.delta], len(piece.delta) + FRAME_BYTES
        while waiting and (max_bytes is None or size < max_bytes):
            entry = waiting[0]
            if type(entry) is bytes or entry[0] is not renderer:
                break
            following = entry[1]
            if type(following) is not MessageUpdate or following.message is not live:
                break
            other = following.assistant_message_event
            if type(other) is not kind or other.content_index != index:
                break
            deltas.append(other.delta)
            size += len(other.delta) + FRAME_BYTES
            waiting.popleft()
        if max_bytes is None:
            line = renderer.render(MessageUpdate(kind(index, "".join(deltas)), live))
            is_counted = self._counts and len(deltas) > 1 and line and not self.cuts
            return b'%b,"events":%d}\n' % (line[:-2], len(deltas)) if is_counted else line
        return renderer.render_deltas(piece, deltas, live)

    @property
    def begins_with_delta(self) -> bool:
        """Whether a delta comes next: more deltas may follow at once, so it is worth waiting for them."""
        entry = self._waiting[0] if self._waiting else b""
        if isinstance(entry, bytes) or not isinstance(entry[1], MessageUpdate):
            return False
        return isinstance(entry[1].assistant_message_event, DELTAS)

    def _make_room(self) -> None:
        self.full = False
        self._room.set()


class Lane:
    """The way of one session into the outbox of a client that has several; a listener of its agent.

    A renderer keeps the JSON of the answer so far, so each session has its own renderer.
    """

    def __init__(self, outbox: Outbox, renderer: Renderer) -> None:
        self._outbox = outbox
        self._renderer = renderer

    def put(self, item: Item) -> None:
        self._outbox.put(item, self._renderer)

    def use_dialect(self, dialect: Dialect) -> None:
        self._renderer.use_dialect(dialect)

    def hold(self, kept: asyncio.Future[str | None]) -> None:
        self._outbox.hold(kept, self._renderer)

    @property
    def full(self) -> bool:
        return self._outbox.full

    async def room(self) -> None:
        await self._outbox.room()

    def set_update_mode(self, mode: UpdateMode) -> None:
        self._outbox.change_mode(self._renderer, mode)
