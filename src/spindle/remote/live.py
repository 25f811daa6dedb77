"""Sessions that are alive on the server: shared by clients, kept for a while when the last one is gone."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from spindle.agent.session import AgentSession
from spindle.protocol.render import Renderer
from spindle.types.events import Event

__all__ = ["EventLog", "LiveSession", "SessionPool", "UnknownSession"]

LOG_BYTES = 4 << 20


class UnknownSession(Exception):
    """There is no session with that id, alive or on disk."""


class EventLog:
    """The last events of a session, numbered, for clients that lost their connection.

    Updates are kept in delta form: they add up to the same answer, and a long one does not fill the log with copies.
    """

    full = False

    def __init__(self) -> None:
        self._renderer = Renderer(update_mode="delta")
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.count = 0
        """Events so far; the number of the last one."""

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
        """Return the events after that number; None if some of them are gone."""
        missing = self.count - number
        if not 0 <= missing <= len(self._lines):
            return None
        return [self._lines[i] for i in range(len(self._lines) - missing, len(self._lines))]


class LiveSession:
    def __init__(self, agent: AgentSession) -> None:
        self.agent = agent
        self.log = EventLog()
        self.clients: set[object] = set()
        self.expiry: asyncio.TimerHandle | None = None
        agent.subscribe(self.log)

    @property
    def id(self) -> str:
        return self.agent.store.get_session_id()


class SessionPool:
    def __init__(self, make_agent: Callable[[str | None], Awaitable[AgentSession]], keep_s: float) -> None:
        self._make_agent = make_agent
        """Makes an agent on a new session, or on the stored one with that id; raises `UnknownSession`."""
        self._keep_s = keep_s
        self._live: set[LiveSession] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._live)

    async def join(self, client: object, session_id: str | None) -> LiveSession:
        """Give a client its session: the live one of that id, the one on disk, or a new one."""
        async with self._opening:
            live = self.find(session_id) if session_id else None
            if live is None:
                live = LiveSession(await self._make_agent(session_id))
                self._live.add(live)
        if live.expiry is not None:
            live.expiry.cancel()
            live.expiry = None
        live.clients.add(client)
        return live

    def find(self, session_id: str) -> LiveSession | None:
        return next((live for live in self._live if live.id == session_id), None)

    def leave(self, client: object, live: LiveSession) -> None:
        """Take a client out; a session without clients is kept for a while, then closed."""
        live.clients.discard(client)
        if not live.clients and live in self._live:
            live.expiry = asyncio.get_running_loop().call_later(self._keep_s, self._expire, live)

    def _expire(self, live: LiveSession) -> None:
        self._live.discard(live)
        task = asyncio.create_task(live.agent.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End every session: runs are stopped, children killed, files flushed."""
        for live in list(self._live):
            if live.expiry is not None:
                live.expiry.cancel()
            self._expire(live)
        if self._closing:
            await asyncio.wait(self._closing, timeout=5)
