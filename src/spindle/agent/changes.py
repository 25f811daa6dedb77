"""The change to another session: a new one, a stored one, a copy of this one up to some point.

A change is a transaction in a task of the agent's own, so that it does not matter whether the one who asked for it is
still there. First the other session is prepared, beside the current one: whatever fails there leaves the agent as it
was. Then what runs is ended, and extensions are told of the end and loaded for the other session. Then everything is
swapped, in one step without an await, and all clients are told.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from spindle.agent import AgentError
from spindle.agent.lifecycle import Phase, Request
from spindle.flow import Tasks
from spindle.sessions import open as sessions
from spindle.sessions.entries import Entry
from spindle.sessions.session import Session
from spindle.shapes.content import text_of
from spindle.shapes.messages import UserMessage

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

__all__ = ["SessionChanges", "Setup"]

T = TypeVar("T")
Setup = Callable[[Session], Awaitable[None] | None]


class SessionChanges:
    def __init__(self, agent: "AgentSession") -> None:
        self._agent = agent
        self._one_at_a_time = asyncio.Lock()
        self._tell: Callable[[], Awaitable[None]] | None = None
        """Tells extensions of the change that has just been made."""
        self.tasks = Tasks()

    async def new(self, parent: str | None, setup: Setup | None) -> bool:
        return await self._owned(self._new(parent, setup))

    async def switch(self, path: str) -> tuple[bool, bool]:
        """Return whether it was cancelled, and whether there was no such session before."""
        return await self._owned(self._switch(path))

    async def fork(self, entry_id: str, invalid: str) -> tuple[str, bool]:
        return await self._owned(self._fork(entry_id, invalid))

    async def clone(self, entry_id: str | None) -> bool:
        return await self._owned(self._clone(entry_id))

    async def reload(self, load: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Load extensions and resources again, when no change of session is under way."""

        async def carry_out() -> None:
            async with self._one_at_a_time:
                await load()

        await asyncio.shield(self.tasks.spawn(carry_out(), "spindle-reload", report=False))

    async def _owned(self, change: Awaitable[T]) -> T:
        """Carry a change out in a task of the agent's: it goes on if the caller is cancelled."""
        lifecycle = self._agent.lifecycle
        lifecycle.changes += 1  # from now on prompts are meant for the session that this leads to

        async def carry_out() -> T:
            try:
                async with self._one_at_a_time:
                    outcome = await change
                    tell, self._tell = self._tell, None
                if tell is not None:  # a beginning that takes for ever must not keep others from leaving
                    await tell()
                return outcome
            finally:
                lifecycle.changes -= 1
                if not lifecycle.changes:
                    self._agent.take_arrivals()

        return await asyncio.shield(self.tasks.spawn(carry_out(), "spindle-change", report=False))

    # -- the four changes ------------------------------------------------------------------------

    async def _new(self, parent: str | None, setup: Setup | None) -> bool:
        if await self._vetoed("session_before_switch", reason="new"):
            return True
        other = sessions.following(self._agent.session, parent=parent)
        try:
            written = None if setup is None else setup(other)
            if written is not None:
                await written
        except BaseException:
            other.close()
            raise
        await self._go_to(other, "new")
        return False

    async def _switch(self, path: str) -> tuple[bool, bool]:
        agent = self._agent
        if await self._vetoed("session_before_switch", reason="resume", target_session_file=path):
            return True, False
        file = os.path.join(agent.cwd, path)
        created = not _exists(file)
        # A file that is open already is read again, but only when the agent has let go of it.
        other = None if agent.session.is_same_file(file) else await self._load(file, created)
        await self._go_to(other or file, "resume", path)
        return False, created

    async def _fork(self, entry_id: str, invalid: str) -> tuple[str, bool]:
        found = self._user_entry(entry_id)
        if found is None:
            raise AgentError(invalid)
        entry, message = found
        text = text_of(message.content)
        if await self._vetoed("session_before_fork", entry_id=entry_id, position="before"):
            return text, True
        session = self._agent.session
        if entry.parent_id is None:
            other = sessions.following(session, parent=session.path)
        else:
            other = sessions.branched(session, entry.parent_id)
        await self._go_to(other, "fork")
        return text, False

    async def _clone(self, entry_id: str | None) -> bool:
        leaf = entry_id or self._agent.session.leaf_id
        if leaf is None:
            raise AgentError("Cannot clone session: no current entry selected")
        if await self._vetoed("session_before_fork", entry_id=leaf, position="at"):
            return True
        await self._go_to(sessions.branched(self._agent.session, leaf), "fork")
        return False

    # -- how -------------------------------------------------------------------------------------

    async def _vetoed(self, event: str, **fields: Any) -> bool:
        return bool((await self._agent.hooks.ask(event, lambda: fields)).get("cancel"))

    def _user_entry(self, entry_id: str) -> tuple[Entry, UserMessage] | None:
        entry = self._agent.session.entry(entry_id)
        if entry is not None and entry.type == "message" and isinstance(entry.message, UserMessage):
            return entry, entry.message
        return None

    async def _go_to(self, other: Session | str, reason: str, target: str | None = None) -> None:
        """Leave the current session for another one, or read the file that is open from the disk again."""
        agent = self._agent
        previous = agent.session.path
        try:
            async with agent.lifecycle.alone(Request.CHANGE, Phase.SWITCHING, agent.stop):
                await agent.leave(reason, target)
                try:
                    if isinstance(other, str):
                        agent.session.close()
                        other = await self._load(other, False)
                    resources = await agent.load_for(other.cwd)
                except BaseException:
                    # Extensions were told of an end that did not come.
                    self.tasks.spawn(agent.begin("reload"), "spindle-begin")
                    raise
                restored = agent.swap(other, resources, reason)
        finally:
            if isinstance(other, Session) and other is not agent.session:
                other.close()

        async def tell() -> None:
            await agent.begin(reason, str(previous) if previous else None)
            await restored()

        self._tell = tell

    async def _load(self, file: str, is_new: bool) -> Session:
        """Open a session file and decode its context, in a thread: a long one takes seconds."""
        agent = self._agent
        fsync = agent.resources.settings.fsync
        cwd = agent.cwd if is_new else None  # a stored session knows its own

        def read() -> Session:
            opened = sessions.load(file, cwd, fsync=fsync)
            opened.context()
            return opened

        opened = await asyncio.to_thread(read)
        if not os.path.isdir(opened.cwd):
            opened.close()
            raise AgentError(
                f"Stored session working directory does not exist: {opened.cwd}\nSession file: {file}\n"
                f"Current working directory: {agent.cwd}"
            )
        return opened


def _exists(file: str) -> bool:
    try:
        os.stat(file)
    except OSError:
        return False
    except ValueError:
        raise AgentError(f"A file cannot have this name: {file!r}") from None
    return True
