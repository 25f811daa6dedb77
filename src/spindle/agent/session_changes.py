"""The change to another session: a new one, a stored one, a copy of this one up to some point.

What runs is ended first and its last events go out; then extensions hear of the end, the file changes, and everything
that was learned from the old session is learned anew. Nobody else has the agent meanwhile.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from spindle.agent.errors import AgentError
from spindle.agent.lifecycle import Phase
from spindle.sessions.manager import SessionManager
from spindle.shapes.content import text_of

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

__all__ = ["SessionChanges", "Setup"]

Setup = Callable[[SessionManager], Awaitable[None] | None]


class SessionChanges:
    def __init__(self, session: "AgentSession") -> None:
        self._session = session
        self._one_at_a_time = asyncio.Lock()

    @property
    def under_way(self) -> bool:
        return self._one_at_a_time.locked()

    async def wait(self) -> None:
        """Return when no change is under way: what is sent right behind one is meant for the session it leads to."""
        async with self._one_at_a_time:
            pass

    async def new(self, parent: str | None, setup: Setup | None) -> bool:
        if await self._vetoed("session_before_switch", reason="new"):
            return True
        async with self._change("new"):
            self._session.store.new_session(parent_session=parent)
            written = None if setup is None else setup(self._session.store)
            if written is not None:
                await written
        return False

    async def switch(self, path: str) -> bool:
        if await self._vetoed("session_before_switch", reason="resume", target_session_file=path):
            return True
        session = self._session
        file = os.path.join(session.cwd, path)
        async with self._change("resume", path, file) as opened:
            if opened is None:
                session.store.set_session_file(file)
            else:
                session.conversation.use(opened)
        return False

    async def fork(self, entry_id: str, invalid: str) -> tuple[str, bool]:
        await self.wait()
        session = self._session
        found = session.conversation.user_entry(entry_id)
        if found is None:
            raise AgentError(invalid)
        entry, message = found
        text = text_of(message.content)
        if await self._vetoed("session_before_fork", entry_id=entry_id, position="before"):
            return text, True
        async with self._change("fork"):
            if entry.parent_id is None:
                session.store.new_session(parent_session=session.store.get_session_file())
            else:
                session.store.create_branched_session(entry.parent_id)
        return text, False

    async def clone(self, entry_id: str | None) -> bool:
        await self.wait()
        session = self._session
        leaf = entry_id or session.store.get_leaf_id()
        if leaf is None:
            raise AgentError("Cannot clone session: no current entry selected")
        if await self._vetoed("session_before_fork", entry_id=leaf, position="at"):
            return True
        async with self._change("fork"):
            session.store.create_branched_session(leaf)
        return False

    # -- how -------------------------------------------------------------------------------------

    async def _vetoed(self, event: str, **fields: Any) -> bool:
        hooks = self._session.hooks
        return event in hooks.listening and await hooks.veto(event, **fields)

    @asynccontextmanager
    async def _change(
        self, reason: str, target: str | None = None, file: str | None = None
    ) -> AsyncIterator[SessionManager | None]:
        """Leave the current session, let the body turn to another one, and take up what is there then.

        `file` is opened first: if that fails, the current session goes on untouched. It is the body's then.
        """
        session = self._session
        async with self._one_at_a_time:
            opened = await self._open(file) if file is not None else None
            try:
                async with session.engine.alone(Phase.SWITCHING):
                    await session.bash.abort_all()
                    await session.extensions.leave(reason, target)
                    session.hooks.interrupt()  # a handler that hangs is not taken along
                    session.engine.queues.forget()
                    session.engine.next_turn.clear()
                    session.conversation.sync_soon()
                    await session.conversation.synced()  # or closing the file would keep everybody waiting for the disk
                    previous = session.store.get_session_file()
                    choice = session.choice.model, session.choice.level
                    yield opened
                    self._take_up(reason)
                    await session.extensions.replace()
            finally:
                if opened is not None and opened is not session.store:
                    opened.close()
        session.tell_change(reason)
        await session.extensions.announce(reason, previous)
        await session.extensions.tell_restored(*choice)

    async def _open(self, file: str) -> SessionManager | None:
        """Open a session file and decode its context, in a thread: a long one takes seconds.

        None if it is open already: that must not be locked twice.
        """
        session = self._session
        cwd = None
        try:
            os.stat(file)
        except OSError:
            cwd = session.cwd  # a stored session knows its own
        except ValueError:
            raise AgentError(f"A file cannot have this name: {file!r}") from None
        if session.store.is_same_file(file):
            return None
        fsync = session.resources.settings.fsync

        def read() -> SessionManager:
            manager = SessionManager.open(file, cwd=cwd, fsync=fsync)
            manager.build_session_context()
            return manager

        reading = asyncio.get_running_loop().run_in_executor(None, read)
        try:
            opened = await asyncio.shield(reading)
        except asyncio.CancelledError:  # whoever asked has left; the file must not stay locked for nobody
            reading.add_done_callback(_close_again)
            raise
        opened.on_write_error(session.tell_write_error)
        if opened.write_error is not None:
            session.tell_write_error(opened.write_error)
        if not os.path.isdir(opened.get_cwd()):
            opened.close()
            raise AgentError(
                f"Stored session working directory does not exist: {opened.get_cwd()}\nSession file: {file}\n"
                f"Current working directory: {session.cwd}"
            )
        return opened

    def _take_up(self, reason: str) -> None:
        """Learn the context of the session that is open now, its model, its thinking level, its directory."""
        session = self._session
        context = session.conversation.arrive()
        if reason == "resume" and context.messages:
            # The session's own model and level, as far as they are still to be had.
            session.choice.restore(context.model, session.store.get_thinking_level())
        session.record_choice()
        session.todos.rebuild()
        session.rules.rebuild()
        session.resources.move_to(session.cwd)
        session.engine.tools_changed()


def _close_again(reading: asyncio.Future[SessionManager]) -> None:
    if reading.exception() is None:
        reading.result().close()
