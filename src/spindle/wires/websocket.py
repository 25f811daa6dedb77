"""The RPC protocol over a WebSocket: the same commands and events as on stdio, one frame each."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from spindle.agent import AgentError
from spindle.agent.run.handle import Run
from spindle.base.flow import Tasks
from spindle.base.limits import TASKS_END
from spindle.base.version import __version__
from spindle.base.weakly import weakly
from spindle.protocol.dialect import SPINDLE, Dialect, UpdateMode
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.live_session import LiveSession
from spindle.protocol.outbox import Outbox
from spindle.protocol.pool import SessionPool
from spindle.protocol.registry import LiveInfo, WantedSession
from spindle.protocol.render import Renderer
from spindle.protocol.router import Router
from spindle.protocol.seat import Seat
from spindle.shapes.codec import encode
from spindle.wires.network.peer import BYE, Peer

if TYPE_CHECKING:
    from spindle.server.passage import Passage

GATHER_SECONDS = 0.016
"""For about a frame of a screen."""


class RpcSeat(Seat):
    """One client of a live session. A session may have several; all get its events."""

    holds = True
    busy = True

    def __init__(
        self,
        peer: Peer,
        pool: SessionPool,
        dialect: Dialect,
        *,
        gathers: bool = False,
        passage: "Passage | None" = None,
    ) -> None:
        """With `gathers`, deltas come together about sixty times a second, for a client that shows them to a person.

        `passage`: the way to sessions of other nodes.
        """
        self._passage = passage
        self._peer = peer
        self._pool = pool
        self.account = pool.account
        self.dialect = dialect
        self._gathers = gathers
        self._gathered = 0.0
        """When deltas were sent last."""
        self._outbox = Outbox(Renderer(dialect), counts=gathers)
        self._doorbell = asyncio.Event()
        self._outbox.on_waiting = self._doorbell.set
        self._tasks = Tasks()
        self._ended = False

    def begin(self, live: LiveSession, since: int | None) -> None:
        """Listen to the session. `since` is the number of the last event the client saw before its connection broke."""
        self._live = live
        self._router = Router(self._pool, live, self, self._outbox)
        self._router.passage = self._passage
        self._router.terms = {"dialect": self.dialect.name, "deltas": "gathered" if self._gathers else "all"}
        self._dispatcher = Dispatcher(live.agent, self, self._outbox, self._router.route)
        self._router.to_first = weakly(self._dispatcher.receive_value)
        # A dialect leaves events out, so its clients cannot count them.
        replay = live.log.after(since) if since is not None and self.dialect is SPINDLE else None
        # Without a replay, open questions are asked again: there may be no other client to answer them.
        first = [encode(request) for request in live.agent.open_questions()] if replay is None else replay
        hello = {
            "type": "ready",
            "version": __version__,
            "sessionId": live.session_id,
            "cwd": live.agent.cwd,
            "eventCount": live.log.count - len(first),
            "replay": replay is not None,
        }
        self._first = deque([encode(hello), *first])
        """Frames that are sent before all others."""
        # No await since the look into the log: an event in between would be lost.
        live.agent.subscribe(self._outbox)
        self._tasks.spawn(live.begin(), "spindle-begin")

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self._peer.session_ended(reason)

    # -- for commands ----------------------------------------------------------------------------

    def accepted(self, run: Run) -> None:
        self._outbox.hold(run.kept)

    def set_update_mode(self, mode: UpdateMode) -> None:
        self._outbox.set_update_mode(mode)

    def request_shutdown(self) -> None:
        # A client ends its own connection; the server and the other clients go on.
        self._peer.leave(BYE, "bye")

    async def open_session(self, wanted: WantedSession) -> LiveInfo:
        return await self._router.open(wanted)

    async def close_session(self) -> None:
        raise AgentError("This is the first session of the connection, and ends with it")

    async def live_sessions(self) -> list[LiveInfo]:
        return await self._router.live_sessions()

    # -- for the peer ----------------------------------------------------------------------------

    def receive(self, message: str | bytes) -> None:
        self._dispatcher.receive(message.encode() if isinstance(message, str) else message)

    async def room(self) -> None:
        if self._outbox.flooded:
            await self._outbox.room()

    async def next_frame(self) -> bytes | None:
        while True:
            if self._gathers and not self._first and self._outbox.begins_with_delta:
                await self._gather()
            # Else deltas are not merged: a client that counts its events must get the same number as the log.
            frame = self._first.popleft() if self._first else self._outbox.take(1, merge=self._gathers)
            if frame:
                return frame.rstrip(b"\n")
            if self._ended:
                return None
            self._doorbell.clear()
            await self._doorbell.wait()

    async def _gather(self) -> None:
        """Let deltas come together for a moment, unless the last ones were sent longer ago than that."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._gathered + GATHER_SECONDS - clock()))
        self._gathered = clock()

    async def end(self) -> None:
        """Detach the client. The run goes on: other clients may watch it, and this one may come back."""
        self._live.agent.unsubscribe(self._outbox)
        await self._tasks.end(TASKS_END)
        await self._dispatcher.close()
        await self._router.close()
        self._ended = True
        self._doorbell.set()

    def drop(self) -> None:
        self._first.clear()
        self._outbox.close()
