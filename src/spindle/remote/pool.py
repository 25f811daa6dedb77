"""Sessions that are alive on the server: shared by clients, kept for a while when the last one is gone."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from weakref import WeakValueDictionary

from spindle import limits
from spindle.agent.session import AgentSession
from spindle.flow import Tasks
from spindle.protocol.render import Renderer
from spindle.remote.options import RemoteOptions
from spindle.remote.peer import BYE, REPLACED, Peer
from spindle.shapes.events import Event, ExtensionUIRequest

LOG_BYTES = 4 << 20

MakeAgent = Callable[[str | None], Awaitable[AgentSession]]
"""Makes an agent on a new session, or on the stored one with that id. Raises `UnknownSession`."""

log = logging.getLogger("spindle.remote")


class UnknownSession(Exception):
    """There is no session with that id, alive or on disk."""


class EventLog:
    """The last events of a session, numbered, for clients that lost their connection.

    Updates are kept in delta form: they add up to the same answer, and a long one does not fill the log with copies.
    """

    full = False

    def __init__(self, first: int = 0) -> None:
        self._renderer = Renderer(update_mode="delta")
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.count = first
        """The number of the last event."""

    def put(self, event: Event) -> None:
        line = self._renderer.render(event)
        self._lines.append(line)
        self._bytes += len(line)
        self.count += 1
        while self._bytes > LOG_BYTES:
            self._bytes -= len(self._lines.popleft())

    async def room(self) -> None:
        """There is always room: old events make way."""

    def after(self, number: int) -> list[bytes] | None:
        """Return the events after that number; None if some of them are gone, or never were."""
        missing = self.count - number
        if not 0 <= missing <= len(self._lines):
            return None
        return list(islice(self._lines, len(self._lines) - missing, None))


class LiveSession:
    full = False

    def __init__(self, agent: AgentSession, first_event: int = 0) -> None:
        self.agent = agent
        self.log = EventLog(first_event)
        self.clients: set[Peer] = set()
        self._chat: Peer | None = None
        """The newest client of the remote protocol."""
        self._chatting = asyncio.Lock()
        self._alone: asyncio.TimerHandle | None = None
        """Ends questions that no client is there to answer."""
        agent.subscribe(self.log)
        agent.subscribe(self)

    def put(self, event: Event) -> None:
        """Look whether a dialog can be answered."""
        if isinstance(event, ExtensionUIRequest):
            self._withdraw_unanswerable()
            self._wait_for_client()

    async def room(self) -> None:
        """Dialogs need none."""

    def join(self, client: Peer) -> None:
        self.clients.add(client)
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None

    def leave(self, client: Peer) -> None:
        self.clients.discard(client)
        self._withdraw_unanswerable()
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        if not self.clients and self._alone is None:
            self._alone = asyncio.get_running_loop().call_later(limits.CLIENT_RETURN, self._give_up)

    def _give_up(self) -> None:
        self._alone = None
        if not self.clients:
            self.agent.give_up_questions()

    def _withdraw_unanswerable(self) -> None:
        """Close dialogs if only a client of the remote protocol is left, which has no words for them."""
        if self.clients == {self._chat}:
            self.agent.dialogs.withdraw()

    @property
    def id(self) -> str:
        return self.agent.session.id

    @asynccontextmanager
    async def only_chat(self, peer: Peer) -> AsyncIterator[None]:
        """Make this the one client of the remote protocol; the one before it has stopped its work then."""
        older, self._chat = self._chat, peer
        if older is not None:
            older.leave(REPLACED, "this session was opened elsewhere")
        try:
            async with self._chatting:
                yield
        finally:
            if self._chat is peer:
                self._chat = None


class SessionPool:
    def __init__(self, make_agent: MakeAgent, options: RemoteOptions) -> None:
        self._make_agent = make_agent
        self._keep_seconds = options.keep_seconds
        self._max_kept = options.max_kept
        self._tasks = Tasks()
        self._live: dict[LiveSession, asyncio.Task[None]] = {}
        """Every session, and the task that waits for an extension to end it."""
        self._kept: dict[LiveSession, asyncio.TimerHandle] = {}
        """Sessions without clients, the one left longest first, and when they end."""
        self._closing: dict[str, asyncio.Task[None]] = {}
        """Id → the end of a session, while it takes."""
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Id → held while that session is looked for; two clients must not open it twice."""

    async def join(self, client: Peer, session_id: str | None) -> LiveSession:
        """Give a client its session: the live one of that id, the one on disk, or a new one."""
        if session_id is None:
            live = LiveSession(await self._make_agent(None))
        else:
            async with self._opening.setdefault(session_id, asyncio.Lock()):
                live = self._find(session_id) or await self._open(session_id)
        if live not in self._live:
            self._live[live] = self._tasks.spawn(self._end_on_request(live), "spindle-session-end")
        if (timer := self._kept.pop(live, None)) is not None:
            timer.cancel()
        live.join(client)
        return live

    def _find(self, session_id: str) -> LiveSession | None:
        return next((live for live in self._live if live.id == session_id), None)

    async def _open(self, session_id: str) -> LiveSession:
        if (closing := self._closing.get(session_id)) is not None:
            await asyncio.wait([closing])  # until then it holds the file
        # A client may remember event numbers of this session's former life; they must not fit by accident.
        return LiveSession(await self._make_agent(session_id), first_event=secrets.randbelow(1 << 40))

    def leave(self, client: Peer, live: LiveSession) -> None:
        """Take a client out; a session without clients is kept for a while, then closed."""
        live.leave(client)
        if live.clients or live not in self._live:
            return
        self._kept[live] = asyncio.get_running_loop().call_later(self._keep_seconds, self._expire, live)
        while len(self._kept) > self._max_kept:
            self._expire(next(iter(self._kept)))

    async def _end_on_request(self, live: LiveSession) -> None:
        """End a session when an extension asks for it, once the agent is idle. The server goes on."""
        await live.agent.shutdown_requested.wait()
        await live.agent.wait_idle()
        for client in live.clients:
            client.leave(BYE, "an extension ended the session")
        self._expire(live)

    def _expire(self, live: LiveSession) -> None:
        self._live.pop(live).cancel()
        if (timer := self._kept.pop(live, None)) is not None:
            timer.cancel()
        id = live.id
        task = self._closing[id] = self._tasks.spawn(self._close_one(live), "spindle-session-close")
        task.add_done_callback(lambda _: self._closing.pop(id, None))

    async def _close_one(self, live: LiveSession) -> None:
        try:
            await live.agent.close()
        except Exception:  # of an extension, or of the disk: the other sessions go on
            log.exception("session %s did not end cleanly", live.id)

    async def interrupt(self) -> None:
        """Stop every run; clients get to see its end."""
        for live in self._live:
            live.agent.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.SESSIONS_INTERRUPT):
                for live in list(self._live):
                    await live.agent.wait_idle()

    async def close(self) -> None:
        """End every session: runs are stopped, children killed, files flushed."""
        for live in list(self._live):
            self._expire(live)
        if self._closing:
            await asyncio.wait(self._closing.values(), timeout=limits.SESSIONS_CLOSE)
