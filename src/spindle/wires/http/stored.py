"""Stored sessions over plain HTTP: listed, read, renamed and deleted without opening them."""

import asyncio
import os
from typing import Any

from msgspec.structs import asdict

from spindle.agent import AgentError
from spindle.agent.library import Search
from spindle.protocol.commands.places import SessionItem, session_item
from spindle.protocol.pool import SessionPool, UnknownSession
from spindle.protocol.registry import LiveInfo
from spindle.sessions.entries import SessionError
from spindle.sessions.lock import SessionLocked
from spindle.sessions.tally import SessionInfo
from spindle.shapes.messages import MessageOnWire, Wire

PAGE = 100
"""Sessions in one answer unless `limit` says otherwise."""
STORED = "stored"
"""The phase of a session that is not live."""


class StoredItem(SessionItem, kw_only=True):
    """A stored session, as a list shows it."""

    interrupted: bool = False
    """Whether a run was cut off, by the end of its process."""
    snippet: str | None = None
    """The text around the words that were searched."""


class StoredList(Wire, kw_only=True):
    """A page of the stored sessions."""

    sessions: list[StoredItem]
    next_cursor: str | None = None
    """The `cursor` of the next page; left out on the last one."""


class StoredSession(StoredItem, kw_only=True):
    """A stored session with the messages of its current branch."""

    messages: list[MessageOnWire]


class StoredName(Wire):
    """The new name of a session."""

    name: str


class StoredQuery(Wire):
    """What a list of stored sessions takes."""

    limit: int = PAGE
    cursor: str | None = None
    search: str | None = None
    """Words that its name, or one message, must have."""
    cwd: str | None = None
    """A working directory; left out: all."""


class StoredSessions:
    def __init__(self, pool: SessionPool) -> None:
        self._pool = pool

    async def page(self, asked: StoredQuery) -> StoredList:
        """Return a page of the sessions, the latest first. Raises `SessionError`."""
        search = Search(asked.search, self._pool.source.store) if asked.search and asked.search.strip() else None
        cwd = None if asked.cwd is None else os.path.abspath(asked.cwd)
        page = await asyncio.to_thread(
            self._pool.source.stored, cwd, limit=asked.limit, cursor=asked.cursor, fits=search
        )
        snippets = {} if search is None else {path: snippet for path, (snippet, _) in search.hits.items()}
        sessions = [StoredItem(**_facts(info), snippet=snippets.get(info.path)) for info in page.sessions]
        return StoredList(sessions=sessions, next_cursor=page.cursor)

    async def read(self, id: str) -> StoredSession:
        """Return a session with its messages. Raises `UnknownSession`, `SessionError`."""
        info = await self._info(id)
        messages = await asyncio.to_thread(self._messages, info.path)
        return StoredSession(**_facts(info), messages=messages)

    async def live_info(self, id: str) -> LiveInfo:
        """Return what a list of live sessions would show. Raises `UnknownSession`."""
        info = await self._info(id)
        return LiveInfo(
            id=info.id,
            current_id=info.id,
            session_file=info.path if self._pool.source.store is None else None,
            name=info.name,
            cwd=info.cwd,
            phase=STORED,
            clients=0,
            queue=0,
            questions=0,
        )

    async def rename(self, id: str, name: str) -> StoredItem:
        """Give a session a name. Raises `UnknownSession`, `AgentError`, `SessionError`."""
        if not name.strip():
            raise AgentError("Session name cannot be empty")
        if (live := self._pool.current(id)) is not None:
            live.agent.set_name(name.strip())
            if (wait := live.agent.session.unsafe()) is not None:
                await asyncio.to_thread(wait)
        else:
            info = await self._info(id)
            await asyncio.to_thread(self._rename, info.path, name.strip())
        return StoredItem(**_facts(await self._info(id)))

    async def delete(self, id: str) -> None:
        """Delete a session for good. Raises `UnknownSession`, `AgentError`."""
        live = self._pool.current(id)
        if live is not None and live.agent.busy:
            raise AgentError(f"Something is running in session {id}: stop it first")
        info = await self._info(id)
        if live is not None:
            await self._pool.close_session(live)
        try:
            await asyncio.to_thread(self._pool.source.delete, info.path)
        except SessionLocked as error:
            raise _held(error) from None
        except OSError as error:
            raise AgentError(f"Cannot delete {info.path}: {error.strerror}") from None

    def _messages(self, path: str) -> list[Any]:
        with self._pool.source.load(path, read_only=True) as session:
            return session.context().stored

    def _rename(self, path: str, name: str) -> None:
        try:
            with self._pool.source.load(path) as session:
                session.append_name(name)
                session.sync()
                if session.write_error:
                    raise SessionError(f"Cannot write {path}: {session.write_error}")
        except SessionLocked as error:
            raise _held(error) from None

    async def _info(self, id: str) -> SessionInfo:
        info = await asyncio.to_thread(self._pool.source.info, id)
        if info is None:
            raise UnknownSession(f"No session {id}")
        return info


def _facts(info: SessionInfo) -> dict[str, Any]:
    return asdict(session_item(info))


def _held(error: SessionLocked) -> AgentError:
    return AgentError(f"{error.what}. End that program first, or ask it")
