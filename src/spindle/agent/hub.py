"""The listeners of an agent: who is told of its events, and when.

Nobody is told of a message that is not kept yet. With files it is kept at once. A store takes a moment: events wait
here behind the end of a message until it is there, while the agent goes on.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from spindle.agent.hooks import Listener
from spindle.base import trace
from spindle.shapes.events import Event, MessageEnd

WhenSafe = Callable[[Callable[[], None]], None]
"""Calls a function once everything that was saved before is safe."""


class _Afterwards(NamedTuple):
    call: Callable[[], None]
    if_lost: Callable[[str], None]


class Hub:
    def __init__(self) -> None:
        self.foresee: Callable[[Event, int], None] = lambda event, place: None
        """Called with an event that has to wait: it is that many events away from being told."""
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

    def publish(self, event: Event) -> None:
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
        for listener in self._listeners:  # noqa: SIM110 - asked for every event
            if listener.full:
                return True
        return False

    async def room(self) -> None:
        for listener in self._listeners:
            if listener.full:
                await listener.room()

    # -- what is not kept yet --------------------------------------------------------------------

    def hold(self, when_safe: WhenSafe, event: Event) -> None:
        """Publish an event about something that was just saved once that is safe; later events wait behind it."""
        mark = object()
        self._behind.add(mark)
        self._waiting.append(event)
        self.foresee(event, sum(isinstance(one, Event) for one in self._waiting))
        when_safe(lambda: self._kept(mark))

    def then(self, call: Callable[[], None], if_lost: Callable[[str], None]) -> None:
        """Call a function when the events so far were told, or another one with the reason why they will not be."""
        if self._waiting:
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

        `lost`: why it never will; then its messages are not told.
        """
        self._behind.clear()
        while self._waiting and not self._behind:  # telling may lead to more
            one = self._waiting.popleft()
            if isinstance(one, _Afterwards):
                one.call() if lost is None else one.if_lost(lost)
            elif lost is None or not isinstance(one, MessageEnd):
                self._tell(one)
