"""A viewer of a conversation on a WebSocket: sees it live, by a link, and cannot do anything.

Nothing that a viewer does, or leaves undone, reaches the owner: it holds no session in memory, answers no question, and
the agent never waits for it.
"""

from collections import deque

from spindle.agent.hooks import NeverFull
from spindle.base.version import __version__
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.live_session import LiveSession
from spindle.protocol.pool import IDLE, SessionPool
from spindle.protocol.viewing import SHARED, VIEWER, is_hidden, viewer_commands
from spindle.server.account import Account
from spindle.server.links import SharedLink
from spindle.shapes.codec import encode
from spindle.shapes.events import Event, SessionChanged
from spindle.wires.network.peer import BYE, NO_SUCH_SESSION, TRY_AGAIN_LATER, Peer
from spindle.wires.websocket import RpcSeat

GONE = "this link leads nowhere any more"


class ViewerSeat(RpcSeat, NeverFull):
    holds = False
    answers = False
    watches = True

    def __init__(self, peer: Peer, pool: SessionPool, account: Account, link: SharedLink, *, gathers: bool) -> None:
        """`pool`: that of the owner. `account`: that of the viewer."""
        super().__init__(peer, pool, VIEWER, gathers=gathers)
        self.account = account
        self._link = link

    def begin(self, live: LiveSession, since: int | None) -> None:
        """Look on from now. Nothing is replayed: events that a viewer does not get cannot be counted."""
        self._live = live
        self._dispatcher = Dispatcher(live.agent, self, self._outbox)
        hello = {
            "type": "ready",
            "version": __version__,
            "sessionId": SHARED + self._link.text,
            "cwd": live.agent.cwd,
            "eventCount": 0,
            "replay": False,
            "commands": viewer_commands(),
        }
        self._first = deque([encode(hello)])
        live.agent.subscribe(self)

    def put(self, event: Event) -> None:
        """Take an event of the agent."""
        if not self._is_there() or is_hidden(event):
            return
        if isinstance(event, SessionChanged):
            event = SessionChanged(SHARED + self._link.text, event.reason)
        self._outbox.put(event)
        if self._outbox.flooded:
            self._peer.leave(TRY_AGAIN_LATER, "reading too slowly")

    def _is_there(self) -> bool:
        """Say whether the agent still holds the conversation; if it does not, the viewer leaves at once."""
        if self._live.agent.session.id == self._link.session:
            return True
        self._outbox.close()
        self._peer.leave(NO_SUCH_SESSION, GONE)
        return False

    def session_ended(self, live: LiveSession, reason: str) -> None:
        if reason == IDLE:
            self._peer.leave(BYE, "nothing has happened there for a while")
        else:
            super().session_ended(live, reason)

    def receive(self, message: str | bytes) -> None:
        if self._is_there():
            super().receive(message)

    async def end(self) -> None:
        self._live.agent.unsubscribe(self)
        await self._dispatcher.close()
        self._ended = True
        self._doorbell.set()
