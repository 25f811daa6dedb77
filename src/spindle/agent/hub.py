"""Tells hooks and listeners of an agent what happens: who is told, in which order, and when.

Hooks see an event before listeners do. Nobody is told of a message that is not kept yet. With files it is kept at once.
A store takes a moment: events wait here behind the end of a message until it is there, while the agent goes on.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spindle.agent.hooks import HookChain, Listener
from spindle.agent.lifecycle import Lifecycle
from spindle.base import trace
from spindle.llm.live import LiveMessage
from spindle.sessions.session import Session
from spindle.shapes.events import Event, ExtensionError, MessageEnd, MessageUpdate
from spindle.shapes.pieces import StreamEvent

PIECES_AT_ONCE = 32
"""Pieces of an answer that are published before the hub checks again whether listeners keep up."""


class _Afterwards(NamedTuple):
    call: Callable[[], None]
    if_lost: Callable[[str], None]


class Hub:
    def __init__(self, hooks: HookChain, lifecycle: Lifecycle) -> None:
        self.hooks = hooks
        """The hooks that hold now: those of the session, and those of the request that is going on."""
        self._lifecycle = lifecycle
        self.foresee: Callable[[Event, int], None] | None = None
        """Called with an event that has to wait: it is that many events away from being told.

        So events are numbered, and who misses some gets them elsewhere: nothing is told before what has to wait.
        """
        self._listeners: tuple[Listener, ...] = ()
        self._waiting: deque[Event | _Afterwards] = deque()
        """Events that are not told yet, and calls between them."""
        self._behind: set[object] = set()
        """What they wait for."""

    def add(self, listener: Listener) -> None:
        self._listeners += (listener,)

    def remove(self, listener: Listener) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)

    def close(self) -> None:
        """Let go of the listeners: no more events will come."""
        self.let_go()
        self._listeners = ()

    # -- telling ---------------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        """Tell hooks and listeners without waiting."""
        self.observe_soon(event)
        self.pass_on(event)

    def observe_soon(self, event: Event) -> None:
        """Tell hooks alone, without waiting."""
        if self.hooks.hears(type(event).__struct_config__.tag):
            self.hooks.observe_soon(event)

    async def emit(self, event: Event) -> None:
        """Tell hooks first, then listeners. After an update of an answer, wait while listeners cannot keep up."""
        hooks = self.hooks
        try:
            if hooks.hears(type(event).__struct_config__.tag):
                await hooks.observe(event)
        finally:  # also if an abort came meanwhile: every start has its end
            self.pass_on(event)
        if type(event) is not MessageUpdate:
            return
        if hooks.sees_pieces:
            hooks.piece(event)
        if self.congested:
            await self._wait_for_room()

    async def emit_pieces(self, pieces: Sequence[StreamEvent], live: LiveMessage | None) -> None:
        """Tell of pieces of an answer. Whether hooks want them and whether there is room is checked once for many."""
        if self.hooks.sees_pieces or self.hooks.hears("message_update"):
            for piece in pieces:
                await self.emit(MessageUpdate(piece, live))
            return
        for at in range(0, len(pieces), PIECES_AT_ONCE):
            for piece in pieces[at : at + PIECES_AT_ONCE]:
                self.pass_on(MessageUpdate(piece, live))
            if self.congested:
                await self._wait_for_room()

    async def observe(self, event: Event) -> None:
        """Let hooks see an event before listeners do."""
        if self.hooks.hears(type(event).__struct_config__.tag):
            await self.hooks.observe(event)

    async def tell(self, event: Event) -> None:
        """Tell listeners of an event that hooks have seen already, and wait while they cannot keep up."""
        self.pass_on(event)
        if self.congested:
            await self._wait_for_room()

    def tell_kept(self, event: Event, session: Session) -> None:
        """Tell listeners of something that was just saved, once that is safe or known not to be."""
        if session.store is None:  # a file is safe at once
            self.pass_on(event)
            return
        is_strict = self.foresee is not None
        if is_strict and session.is_lost:
            return
        if (is_strict or session.write_error is None) and session.unsafe() is not None:
            self._hold(session, event)
        else:
            self.pass_on(event)

    def tell_write_error(self, error: str, session: Session) -> None:
        """Tell that the conversation goes on in memory only, or elsewhere."""
        is_strict, is_lost = self.foresee is not None, session.is_lost
        if is_lost or not is_strict:
            self.let_go(error if is_lost else None)
        if not (is_lost and is_strict):
            self.publish(ExtensionError("", "session_write", error))

    def pass_on(self, event: Event) -> None:
        """Tell listeners alone, without waiting."""
        if self._waiting:
            self._waiting.append(event)
        else:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener.put(event)
            except Exception as error:  # a listener that fails must not keep the event from the others
                trace.bug(error)

    @property
    def congested(self) -> bool:
        """Whether a listener cannot keep up."""
        for listener in self._listeners:  # noqa: SIM110 - asked for every event
            if listener.full:
                return True
        return False

    async def room(self) -> None:
        """Wait until all listeners have room."""
        for listener in self._listeners:
            if listener.full:
                await listener.room()

    async def _wait_for_room(self) -> None:
        """Let listeners catch up. An abort ends the wait: only a few events follow, and they must not be held up."""
        signal = self._lifecycle.signal
        if signal.aborted:
            return
        await asyncio.sleep(0)  # mostly they have written everything after this
        if not self.congested:
            return
        waits = [asyncio.create_task(self.room()), asyncio.create_task(signal.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # -- what is not kept yet --------------------------------------------------------------------

    def _hold(self, session: Session, event: Event) -> None:
        """Keep an event back until what was just saved is safe; later events wait behind it."""
        mark = object()
        self._behind.add(mark)
        self._waiting.append(event)
        if self.foresee is not None:
            self.foresee(event, sum(isinstance(one, Event) for one in self._waiting))
        session.when_safe(lambda: self._kept(mark))

    def then(self, call: Callable[[], None], if_lost: Callable[[str], None], session: Session) -> None:
        """Call a function when the events so far were told, or another one with the reason why they will not be."""
        if self.foresee is not None and session.is_lost:
            if_lost(session.write_error or "")
        elif self._waiting:
            self._waiting.append(_Afterwards(call, if_lost))
        else:
            call()

    def _kept(self, mark: object) -> None:
        if mark in self._behind:
            self._behind.discard(mark)
            if not self._behind:
                self.let_go()

    def let_go(self, lost: str | None = None) -> None:
        """Tell what waits: it is kept, or nobody knows when it will be.

        `lost`: why it never will; then its messages are not told, nor anything else with a number behind theirs.
        """
        self._behind.clear()
        while self._waiting and not self._behind:  # telling may lead to more
            one = self._waiting.popleft()
            if isinstance(one, _Afterwards):
                one.call() if lost is None else one.if_lost(lost)
            elif lost is None or not (isinstance(one, MessageEnd) or self.foresee is not None):
                self._tell(one)
