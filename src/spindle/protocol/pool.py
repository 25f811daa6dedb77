"""The sessions that are alive in this process, for every wire: opened, found again, shared by clients, ended.

Each has an agent of its own, with its own directory, settings, trust, extensions and tools; none waits for another.
A session that no client holds leaves memory after a while: its file stays, and its id opens it again.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.base.flow import Tasks, turnstile
from spindle.protocol.live_session import LiveSession
from spindle.protocol.registry import LiveInfo, WantedSession
from spindle.protocol.seat import NO_ACCOUNT, NoAccount, Seat
from spindle.sessions.entries import SessionError
from spindle.sessions.store import SessionHeld, StoreGone

if TYPE_CHECKING:  # loaded only if they are needed
    from spindle.server.account import Account, Terms
    from spindle.server.users import User
    from spindle.sessions.pages import Page
    from spindle.sessions.session import Session
    from spindle.sessions.store import SessionStore
    from spindle.sessions.tally import SessionInfo

REMEMBERED = 10_000
"""Handles of sessions that left memory."""
RECOVER_AGAIN = 60.0
"""Seconds until another try to resume a run, if that failed."""
LOOK_AGAIN = 1.0
"""Seconds until the next look at a session that is at work, at least."""
FIRST_LOOK = 0.2
"""Seconds until a session that was just opened may leave memory, at least: who asked for it has not used it yet."""
IDLE, SHUTDOWN, MOVED = "idle", "the server is shutting down", "the session has left this node"
"""Why a session leaves memory: it was not used; all have to go; its lease was lost, or its store."""

log = logging.getLogger("spindle.live")


class UnknownSession(AgentError):
    """There is no session with that id, alive or on disk."""


class TooManySessions(AgentError):
    """As many sessions are alive as there may be, and all are in use."""


class PoolBounds(Struct, frozen=True, kw_only=True):
    max_sessions: int = 2000
    """How many sessions may be alive; 0: no limit."""
    keep_seconds: float = 600
    """How long a session that no client holds and that has nothing to do stays in memory."""
    max_kept: int = 256
    """How many sessions without clients stay in memory; the ones left longest go first."""


class AgentSource(Protocol):
    """Makes the agents of live sessions, and knows the stored ones."""

    @property
    def store(self) -> "SessionStore | None":
        """Where the sessions are, if they are not in files."""

    def stored(
        self,
        cwd: str | None,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        fits: "Callable[[SessionInfo], bool] | None" = None,
    ) -> "Page":
        """Return a page of the stored sessions of a directory, or of all that sessions may work in. Blocks.

        Sessions that do not `fits` are left out. Raises `BadCursor`.
        """

    def info(self, session: str) -> "SessionInfo | None":
        """Return what a list shows of the stored session with this id; None if there is none. Blocks."""

    def delete(self, path: str) -> None:
        """Remove a session that no process writes to. Raises `SessionError`. Blocks."""

    def find(self, session: str, cwd: str | None) -> str | None:
        """Return the file of the stored session with this id or path, or in a store its id; None: none. Blocks."""

    def interrupted(self) -> list[str]:
        """Return the stored sessions with a run that was cut off. Blocks."""

    def load(self, path: str, *, read_only: bool = False) -> "Session":
        """Open a stored session without an agent. Raises `SessionError`. Blocks."""

    async def make(self, wanted: WantedSession) -> AgentSession:
        """Make the agent of a new session, or of the one at the path `wanted.session`.

        Raises `AgentError` or `SessionError`.
        """

    def for_user(
        self, name: str, user: "User", others: Callable[[], Sequence[str]] = tuple
    ) -> "tuple[AgentSource, Terms]":
        """Return the source of this user's agents, and what holds for them. `others`: the roots of other users now."""


class SessionPool:
    def __init__(
        self,
        source: AgentSource,
        limits: PoolBounds = PoolBounds(),  # noqa: B008 - frozen
        *,
        numbered: bool = False,
        account: "Account | NoAccount" = NO_ACCOUNT,
        beside: "list[SessionPool] | None" = None,
        recovers: bool = False,
    ) -> None:
        """`numbered`: events are kept for clients that come back. `recovers`: runs that were cut off go on when their
        session is opened.

        `account`: that of the user whose sessions these are. `beside`: pools that share the bound on sessions; the
        pool joins them.
        """
        self.account = account
        self._beside = [] if beside is None else beside
        self._beside.append(self)
        self.source = source
        self._limits = limits
        self._numbered = numbered
        self._closed = False
        self._tasks = Tasks()
        self._live: dict[str, LiveSession] = {}
        """Handle → session."""
        self._watching: dict[LiveSession, asyncio.Task[None]] = {}
        """Waits for an extension to end the session."""
        self._timers: dict[LiveSession, asyncio.TimerHandle] = {}
        """When to look whether a session that no client holds may leave memory."""
        self._opening = 0
        """Sessions that are being made."""
        self._trimming: asyncio.TimerHandle | None = None
        """Gives the memory of sessions that have ended back."""
        self._closing: dict[LiveSession, asyncio.Task[None]] = {}
        """Sessions that are ending."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Path → held while that session is opened; two clients must not open it twice."""
        self._moved: dict[str, str] = {}
        """Handle → session id, of sessions that left memory in another conversation than their handle says.

        Clients were told these handles: as long as they are here they mean nothing else.
        """
        self._recovers = recovers
        self._not_again: dict[str, float] = {}
        """Session → until when its run is not resumed again, because that failed."""
        self._unsaved: dict[str, WantedSession] = {}
        """Handle → how to begin it again, of sessions that left memory unused before anything was said."""

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSession]:
        """Go through the live sessions in the order they were opened in."""
        return iter(list(self._live.values()))

    # -- opening ---------------------------------------------------------------------------------

    def adopt(self, agent: AgentSession) -> LiveSession:
        """List an agent that was made elsewhere, and is ended there."""
        live = self._live[agent.session.id] = LiveSession(agent, first_event=None)
        return live

    async def open(self, wanted: WantedSession, client: Seat | None = None) -> LiveSession:
        """Return a new session, or the stored one: as it is if it is alive. The client joins it.

        Raises `UnknownSession`, `TooManySessions`, and what keeps an agent from being made; no other session is
        touched. A client that goes away meanwhile does not stop it. `begin()` of the agent is for the caller, once
        it sees events.
        """
        work = self._open(wanted, client) if wanted.id is None else self._open_or_create(wanted, wanted.id, client)
        return await self._shielded(work, client)

    async def recover(self) -> int:
        """Go on with every run that the end of another process cut off. Returns how many go on.

        In a store, also with those that lost the store for a while, here.
        """
        count = 0
        for path in await asyncio.to_thread(self.source.interrupted):
            if self._not_again.get(path, 0.0) > monotonic():
                continue
            try:
                live = await self.open(WantedSession(session=path))
                count += self._recovers or await self._go_on(live)
            except SessionHeld:
                pass  # another node was quicker
            except (AgentError, SessionError) as error:
                self._not_resumed(path, error)
        for live in self if self._recovers else ():
            agent, id = live.agent, live.session_id
            if agent.was_cut_off and not agent.busy and self._not_again.get(id, 0.0) < monotonic():
                count += agent.session.unsafe() is None and await self._go_on(live)
        return count

    async def _go_on(self, live: LiveSession) -> bool:
        """Resume the run of a session. Returns whether it goes on."""
        try:
            await live.begin()
            if not live.agent.was_cut_off or live.agent.busy:
                return False  # a client was quicker
            await self.account.counted(live.agent, live.agent.resume_run())
        except (AgentError, SessionError) as error:
            self._not_resumed(live.session_id, error)
            return False
        return True

    def _not_resumed(self, session: str, error: Exception) -> None:
        if not isinstance(error, StoreGone):
            self._not_again[session] = monotonic() + RECOVER_AGAIN
        log.warning("The run in %s is not resumed: %s", session, error)

    def find(self, id: str) -> LiveSession | None:
        return self._live.get(id) or (None if id in self._moved else self.current(id))

    async def get(self, id: str, client: Seat | None = None, cwd: str | None = None) -> LiveSession:
        """Return the session with this handle or id: the live one, else the stored one. The client joins it.

        A stored one is opened in `cwd`; None: where its file says.
        """
        if (live := self.find(id)) is None:
            open_it = self._open_or_create if id in self._unsaved else self._open_named
            return await self._shielded(open_it(WantedSession(cwd=cwd), id, client), client)
        return self.joined(live, client)

    async def _shielded(self, work: Coroutine[Any, Any, LiveSession], client: Seat | None) -> LiveSession:
        """Open a session also if the client goes away meanwhile; then it is taken out again."""
        opening = self._tasks.spawn(work, "spindle-session-open", report=False)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if client is not None:
                opening.add_done_callback(lambda _: self.forsake(client))
            raise
        finally:
            del opening  # it holds its failure, which holds this frame

    def forsake(self, client: Seat) -> None:
        """Take a client out wherever it is."""
        for live in self:
            if client in live.clients or client in live.viewers:
                self.leave(client, live)

    async def _open_named(self, wanted: WantedSession, name: str, client: Seat | None) -> LiveSession:
        """Open what a handle or id leads to."""
        return await self._open(replace(wanted, session=self._moved.get(name, name)), client, name)

    async def _open(self, wanted: WantedSession, client: Seat | None, name: str | None = None) -> LiveSession:
        if wanted.session is None:
            return self.joined(await self._make(wanted), client)
        live = None if wanted.copy else self.current(wanted.session)
        if live is None:
            path = await asyncio.to_thread(self.source.find, wanted.session, wanted.cwd)
            if path is not None and wanted.copy:
                live = await self._make(replace(wanted, session=path))
            elif path is not None:
                live = await self._open_file(replace(wanted, session=path), name)
            else:
                live = self.current(wanted.session) or self._live.get(wanted.session)
        if live is None:
            raise UnknownSession(f"No session {name or wanted.session}")
        return self.joined(live, client)

    async def _open_or_create(self, wanted: WantedSession, id: str, client: Seat | None) -> LiveSession:
        async with self._locks.setdefault(f"id {id}", asyncio.Lock()):
            if (live := self.find(id)) is not None:
                return self.joined(live, client)
            try:
                return await self._open_named(wanted, id, client)
            except UnknownSession:
                return self.joined(await self._make(self._unsaved.get(id, wanted), id), client)

    async def _open_file(self, wanted: WantedSession, name: str | None) -> LiveSession:
        path = wanted.session
        assert path is not None
        async with self._locks.setdefault(path, asyncio.Lock()):
            if name is not None and (live := self.find(name)) is not None:
                return live  # another client was quicker, and may have gone on in another file
            for live in self:
                if live.agent.session.is_same_file(path):
                    return live
            while closing := [task for live, task in self._closing.items() if live.agent.session.is_same_file(path)]:
                await asyncio.wait(closing)  # until then it holds the file
            return await self._make(wanted, name)

    async def _make(self, wanted: WantedSession, name: str | None = None) -> LiveSession:
        if self._closed:
            raise AgentError(SHUTDOWN)
        self._make_room()
        self._opening += 1
        try:
            agent = await self.source.make(wanted)
        finally:
            self._opening -= 1
        self.account.bind(agent)
        id = agent.session.id
        handles = [handle for handle, current in self._moved.items() if current == id]
        handle = name if name in (*handles, id) else (*handles, id)[0]
        if handle in self._live or (handle != name and self._moved.get(handle, id) != id):
            handle = secrets.token_hex(16)  # a session that began as this one has it
        # A client may remember event numbers of this session's former life; they must not fit by accident.
        first = 0 if wanted.session is None else secrets.randbelow(1 << 40)
        live = self._enter(LiveSession(agent, handle, first if self._numbered else None))
        if self._recovers and agent.was_cut_off:
            self._tasks.spawn(self._go_on(live), "spindle-go-on")
        return live

    def _make_room(self) -> None:
        """Let the session that was not used for longest go if there are too many. Raises `TooManySessions`."""
        most = self._limits.max_sessions
        if not most or sum(len(pool._live) + pool._opening for pool in self._beside) < most:
            return
        found = [(live.used, pool, live) for pool in self._beside if (live := pool._least_used(pool._timers))]
        if not found:
            raise TooManySessions(f"{most} sessions are open and in use; no more are allowed at a time")
        _, pool, unused = min(found, key=lambda one: one[0])
        pool._end(unused, IDLE)

    def _enter(self, live: LiveSession) -> LiveSession:
        self._live[live.handle] = live
        live.on_lost = self._lost
        self._moved.pop(live.handle, None)
        self._unsaved.pop(live.handle, None)
        self._watching[live] = self._tasks.spawn(self._end_on_request(live), "spindle-session-end")
        self._look_later(live, max(self._limits.keep_seconds, FIRST_LOOK))
        return live

    def joined(self, live: LiveSession, client: Seat | None) -> LiveSession:
        if client is not None:
            live.join(client)
        if live.held and (timer := self._timers.pop(live, None)) is not None:
            timer.cancel()
        return live

    def current(self, id: str) -> LiveSession | None:
        """Return the live session that holds the conversation with this id now."""
        return next((live for live in self._live.values() if live.session_id == id), None)

    # -- leaving ---------------------------------------------------------------------------------

    def leave(self, client: Seat, live: LiveSession) -> None:
        """Take a client out; a session that no client holds stays in memory for a while."""
        live.leave(client)
        if client.watches and (live.begun or live.viewers or not live.idle):
            return
        if live.held or self._live.get(live.handle) is not live:
            return
        if client.watches:  # it was opened for viewers alone: others may want its file
            self._end(live, IDLE)
            return
        self._look_later(live, self._limits.keep_seconds)
        if len(self._timers) > self._limits.max_kept:
            left = [live for live in self._timers if not live.clients]
            if len(left) > self._limits.max_kept and (unused := self._least_used(left)) is not None:
                self._end(unused, IDLE)

    async def close_session(self, live: LiveSession) -> None:
        """End a session: its run is stopped, its children killed, its file flushed. Clients are told."""
        if self._live.get(live.handle) is live:
            self._end(live, "closed")
        if (closing := self._closing.get(live)) is not None:
            await asyncio.wait([closing])

    def _look_later(self, live: LiveSession, delay: float) -> None:
        if (timer := self._timers.pop(live, None)) is not None:
            timer.cancel()
        if not live.held:
            self._timers[live] = asyncio.get_running_loop().call_later(delay, self._look, live)

    def _look(self, live: LiveSession) -> None:
        """Let a session go that was not used for long enough."""
        left = live.used + self._limits.keep_seconds - monotonic()
        if left <= 0 and live.idle:
            self._end(live, IDLE)
        else:
            self._look_later(live, left if left > 0 else max(LOOK_AGAIN, self._limits.keep_seconds))

    def _least_used(self, among: Iterable[LiveSession]) -> LiveSession | None:
        return min((live for live in among if live.idle), key=lambda live: live.used, default=None)

    def _lost(self, live: LiveSession) -> None:
        """Let a session go that another node has now."""
        if self._live.get(live.handle) is live:
            keeper = live.agent.session.of_store
            self._end(live, MOVED if keeper is None else f"{MOVED}: {keeper.lost}")

    async def _end_on_request(self, live: LiveSession) -> None:
        """End a session when an extension asks for it, once the agent is idle. The others go on."""
        await live.agent.shutdown_requested.wait()
        await live.agent.wait_idle()
        self._end(live, "an extension ended the session")

    def _end(self, live: LiveSession, reason: str) -> None:
        del self._live[live.handle]
        self._watching.pop(live).cancel()
        if (timer := self._timers.pop(live, None)) is not None:
            timer.cancel()
        again = live.begun_again()
        if live.session_id != live.handle and (again is None or reason == IDLE):
            self._moved[live.handle] = live.session_id
        if again is not None and reason == IDLE:
            self._unsaved[live.handle] = again
        for remembered in (self._moved, self._unsaved):
            if len(remembered) > REMEMBERED:
                del remembered[first := next(iter(remembered))]
                self._let_go(first)
        live.end(reason)
        self._closing[live] = self._tasks.spawn(self._close_one(live), "spindle-session-close")

    def _let_go(self, handle: str) -> None:
        """Let other nodes have the session that a handle says, once the handle says no other here."""
        if (store := self.source.store) is not None and handle not in self._live and handle not in self._moved:
            from spindle.sessions.store_keeper import let_go

            asyncio.get_running_loop().run_in_executor(None, let_go, store, handle)

    async def _close_one(self, live: LiveSession) -> None:
        try:
            await live.agent.close()
        except Exception:  # of an extension, or of the disk: the other sessions go on
            log.exception("session %s did not end cleanly", live.session_id)
        finally:
            del self._closing[live]
            live.closed()
            self._let_go(live.handle)
            if self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(LOOK_AGAIN, self._trim)

    def _trim(self) -> None:
        self._trimming = None
        asyncio.get_running_loop().run_in_executor(None, _give_memory_back)

    async def infos(self) -> list[LiveInfo]:
        """Return what a list shows of every live session. Others get their turn in between."""
        infos = []
        for live in self:
            await turnstile().turn()
            if not live.ended:
                infos.append(await live.info())
        return infos

    async def interrupt(self) -> None:
        """Stop every run because the process ends; clients get to see that, and it can be resumed."""
        for live in self:
            live.agent.leave_off()
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.SESSIONS_INTERRUPT):
                for live in self:
                    await live.agent.wait_idle()

    async def close(self) -> None:
        """End every session: runs are stopped, children killed, files flushed."""
        self._closed = True
        for live in list(self._watching):
            self._end(live, SHUTDOWN)
        if self._closing:
            await asyncio.wait(self._closing.values(), timeout=limits.SESSIONS_CLOSE)


def _give_memory_back() -> None:
    """Ask the allocator for memory that it keeps though nothing uses it: 5 of 49 MiB after 1,000 sessions.

    Only glibc can be asked.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
