"""Several sessions on one wire: a frame that names a session goes to it, and lines of that session carry its name.

Frames of a client's first session have no name, so a client with one session need not know that there may be more.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import proxy

from msgspec import UNSET, convert

from spindle.agent import AgentError
from spindle.agent.lifecycle import SESSION_ENDED
from spindle.agent.run.handle import Run
from spindle.base.flow import Tasks
from spindle.base.limits import TASKS_END
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.live_session import LiveSession
from spindle.protocol.outbox import Outbox
from spindle.protocol.pool import SessionPool
from spindle.protocol.registry import REPLIES, LiveInfo, WantedSession
from spindle.protocol.render import Response
from spindle.protocol.seat import Seat
from spindle.sessions.entries import SessionError
from spindle.sessions.store import SessionHeld
from spindle.shapes.events import SessionClosed

if TYPE_CHECKING:  # loaded only if the client asks for what they do
    from spindle.protocol.negotiated import Outcomes
    from spindle.protocol.passed import PassedSeat
    from spindle.server.passage import Passage

PASSES = 3
"""How often the node that has a session is looked for, if that changes meanwhile."""


class Router:
    """The sessions of one client beside its first."""

    def __init__(self, pool: SessionPool, first: LiveSession, seat: Seat, outbox: Outbox) -> None:
        """Serve `seat`, the client's seat in its first session, which the router does not keep alive."""
        self.pool = pool
        self.seat: Seat = proxy(seat)
        self.outbox = outbox
        self.tasks = Tasks()
        self._first = first
        self.to_first: Callable[[dict[str, Any]], None] = lambda frame: None
        """Takes frames of a seat whose session turns out to be the first."""
        self.passage: Passage | None = None
        """The way to sessions of other nodes, if there are any."""
        self.terms: dict[str, str] = {}
        """What a connection to another node asks for, as this one did."""
        self._seats: dict[str, RoutedSeat | PassedSeat] = {}
        """By the handle of the session; while it is being opened, by the name that the client has used."""

    def route(self, frame: dict[str, Any]) -> bool:
        """Pass a frame on to the session that it names; False if that is the first."""
        name = frame["sessionId"]
        if not isinstance(name, str):
            self._refuse(frame, "Invalid sessionId: expected string")
            return True
        if (seat := self._seats.get(name)) is None:
            live = self.pool.find(name)
            if live is self._first:
                return False
            seat = None if live is None else self._seats.get(live.handle)
            if seat is None:
                kind = frame.get("type")
                if kind in REPLIES:
                    return True
                if kind == "close_session" and live is None:
                    self._refuse(frame, f"Session {name} is not open")
                    return True
                seat = self._seats[name] = RoutedSeat(self)
                self.tasks.spawn(self._open(seat, name), "spindle-session-join")
        seat.receive(frame)
        return True

    async def _open(self, seat: "RoutedSeat", name: str) -> None:
        """Open the session that a client has named."""
        try:
            found = await self._here_or_there(partial(self.pool.get, name, seat))
            if isinstance(found, LiveSession):
                self._place(seat, found)
            else:
                for frame in self.forget(seat):
                    self._seats[found.id].receive(frame)
        except (AgentError, SessionError) as error:
            self._give_up(seat, str(error))
        except Exception as error:  # of an extension, or of the disk
            self._give_up(seat, f"{type(error).__name__}: {error}")

    async def open(self, wanted: WantedSession) -> LiveInfo:
        """Open a session for the client. Raises the errors of `SessionPool.open`."""
        seat = RoutedSeat(self)
        try:
            found = await self._here_or_there(partial(self.pool.open, wanted, seat))
            if not isinstance(found, LiveSession):
                return found
            info = await found.info()
        except asyncio.CancelledError:
            self.pool.forsake(seat)
            raise
        self._place(seat, found)  # no await after this: the response goes out before the first event
        return info

    async def _here_or_there(self, opened: Callable[[], Coroutine[Any, Any, LiveSession]]) -> LiveSession | LiveInfo:
        """Open a session here, or take a seat at the node that has it. Raises the errors of `SessionPool.open`."""
        for _ in range(PASSES):
            try:
                return await opened()
            except SessionHeld as error:
                held = error
                if self.passage is None:
                    break
                if (info := await self._seated(self.passage, str(held.path))) is not None:
                    return info
        raise held

    async def _seated(self, passage: "Passage", session: str) -> LiveInfo | None:
        """Take a seat in a session of another node; None: no other node has it any more."""
        if (found := await passage.info(session)) is None:
            return None
        from spindle.protocol.passed import PassedSeat

        info = convert(found, LiveInfo)
        if not isinstance(self._seats.get(info.id), PassedSeat):
            link = await passage.link(session, "/rpc", {"session": session, **self.terms})
            if link is None:
                return None
            if isinstance(self._seats.get(info.id), PassedSeat):  # the client has asked for it twice at once
                await link.close()
            else:
                self._seats[info.id] = PassedSeat(self, passage, info.id, link)
        return info

    async def live_sessions(self) -> list[LiveInfo]:
        """Return the live sessions, those of other nodes as well. Raises `SessionError`."""
        found, _ = ([], []) if self.passage is None else await self.passage.live()
        return [*await self.pool.infos(), *(convert(one, LiveInfo) for one in found)]

    def negotiate(self) -> None:
        """Speak version 2 in all sessions that are open; later ones do so from their beginning."""
        for seat in set(self._seats.values()):
            seat.negotiated()

    def _place(self, seat: "RoutedSeat", live: LiveSession) -> None:
        other = self._seats.get(live.handle)
        if seat.ended:
            self._give_up(seat, SESSION_ENDED)
        elif live is self._first or (other is not None and other is not seat):
            # The client has this session already, or has asked for it twice at once.
            self.pool.leave(seat, live)
            receive = self.to_first if other is None else other.receive
            for frame in self.forget(seat):
                receive({name: value for name, value in frame.items() if name != "sessionId"})
        else:
            self.forget(seat)  # its name was that of a conversation, which may change; its handle stays
            self._seats[live.handle] = seat
            seat.begin(live)

    def _give_up(self, seat: "RoutedSeat", error: str) -> None:
        for frame in self.forget(seat):
            if frame.get("type") not in REPLIES:
                self._refuse(frame, error)

    def _refuse(self, frame: dict[str, Any], error: str) -> None:
        name = frame["sessionId"]
        lane = self.outbox.lane(name) if isinstance(name, str) else self.outbox
        lane.put(Response(id=frame.get("id", UNSET), command=frame.get("type", "parse"), success=False, error=error))

    def forget(self, seat: "RoutedSeat | PassedSeat") -> list[dict[str, Any]]:
        """Remove a seat, and return the frames that wait in it."""
        self._seats = {name: other for name, other in self._seats.items() if other is not seat}
        return seat.waiting

    async def finish(self, timeout: float) -> None:
        """Wait until commands are answered, for at most `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.tasks.join()
                for seat in set(self._seats.values()):
                    await seat.finish(timeout)

    async def close(self) -> None:
        """Leave all sessions: the client is gone. They go on for a while: others may use them, and it may come back."""
        await self.tasks.end(TASKS_END)
        seats, self._seats = set(self._seats.values()), {}
        for seat in seats:
            await seat.leave()


class RoutedSeat(Seat):
    """A client's seat in one of its other sessions."""

    def __init__(self, router: Router) -> None:
        self.ended = False
        """The session has left memory."""
        self.waiting: list[dict[str, Any]] = []
        """Frames that came before the session was open."""
        self._router = router
        self._live: LiveSession | None = None
        self._outcomes: Outcomes | None = None
        self.account = router.seat.account
        self.dialect = router.seat.dialect

    def check_owner(self) -> None:
        self._router.seat.check_owner()

    def unlock(self) -> None:
        self._router.seat.unlock()

    def begin(self, live: LiveSession) -> None:
        """Listen to the session, and pass it the frames that wait."""
        self._live = live
        self._lane = self._router.outbox.lane(live.handle)
        self._dispatcher = Dispatcher(live.agent, self, self._lane)
        live.agent.subscribe(self._lane)
        if self._router.outbox.cuts:
            self.negotiated()
        for request in live.agent.open_questions():  # there may be no other client to answer them
            self._lane.put(request)
        self._router.tasks.spawn(live.begin(), "spindle-begin")
        waiting, self.waiting = self.waiting, []
        for frame in waiting:
            self.receive(frame)

    def negotiated(self) -> None:
        """Speak version 2, and tell the client how its prompts end."""
        if self._live is not None:
            self.dialect = self._router.seat.dialect
            self._lane.use_dialect(self.dialect)
        if self._live is not None and self._outcomes is None:
            from spindle.protocol.negotiated import Outcomes

            self._outcomes = Outcomes(self._live.agent, self._lane.put, self._router.outbox.wishes)

    def receive(self, frame: dict[str, Any]) -> None:
        if self._live is None:
            self.waiting.append(frame)
        else:
            self._live.touch()
            self._dispatcher.receive_value(frame)

    async def finish(self, timeout: float) -> None:
        if self._live is not None:
            await self._dispatcher.finish(timeout)

    async def leave(self) -> None:
        """Leave the session: the client is gone."""
        if (live := self._live) is not None:
            live.agent.unsubscribe(self._lane)
            await self._close()
            self._router.pool.leave(self, live)

    async def _close(self) -> None:
        await self._dispatcher.close()
        if self._outcomes is not None:
            await self._outcomes.close()

    # -- what the session asks -------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._live is None or self._dispatcher.busy

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self.ended = True
        if self._live is None:
            live.clients.discard(self)
            return
        live.agent.unsubscribe(self._lane)
        self._lane.put(SessionClosed(reason))
        self._router.forget(self)
        self._router.tasks.spawn(self._end(live), "spindle-session-leave")

    async def _end(self, live: LiveSession) -> None:
        """Leave a session that has ended, once all commands are answered."""
        try:
            await self._dispatcher.finish()
        finally:
            await self._close()
            live.clients.discard(self)

    # -- what commands ask -----------------------------------------------------------------------

    def accepted(self, run: Run) -> None:
        self._lane.hold(run.kept)

    def follow(self, run: Run, id: Any) -> None:
        if self._outcomes is not None:
            self._outcomes.follow(run, id)

    def negotiate(self) -> None:
        self._router.seat.negotiate()

    def set_subagent_subscription(self, level: Literal["off", "progress", "events"]) -> None:
        self._router.seat.set_subagent_subscription(level)

    def set_event_filter(self, events: Collection[str] | None) -> None:
        self._router.seat.set_event_filter(events)

    def set_update_mode(self, mode: UpdateMode) -> None:
        self._lane.set_update_mode(mode)

    def request_shutdown(self) -> None:
        self._router.seat.request_shutdown()

    async def open_session(self, wanted: WantedSession) -> LiveInfo:
        return await self._router.open(wanted)

    async def close_session(self) -> None:
        assert self._live is not None
        await self._router.pool.close_session(self._live)

    async def live_sessions(self) -> list[LiveInfo]:
        return await self._router.live_sessions()
