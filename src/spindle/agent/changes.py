"""The change to another session: a new one, a stored one, a copy of this one up to some point.

A change is a transaction in a task of the agent's own, so that it goes on even if the client that asked for it leaves.
First the other session is prepared, beside the current one: a failure leaves the agent as it was. Then the current
work is ended, and extensions are told of the end and loaded for the other session. Then everything is swapped, in one
step without an await, and all clients are told.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from spindle.agent import AgentError
from spindle.agent.dialogs import WireDialogs
from spindle.agent.engine import Engine
from spindle.agent.features.place import place_for, read_project
from spindle.agent.lifecycle import SESSION_ENDED, Phase, RequestKind
from spindle.agent.queues import kept_queues
from spindle.agent.shell import Shell
from spindle.base import limits, trace
from spindle.base.flow import Tasks
from spindle.base.user_files import BadFile
from spindle.base.weakly import weakly
from spindle.resources.loader import Resources
from spindle.sessions import open as sessions
from spindle.sessions.entries import Entry, SessionError
from spindle.sessions.session import Session
from spindle.sessions.tree import SessionContext
from spindle.shapes.codec import encode
from spindle.shapes.events import SessionChanged
from spindle.shapes.messages import UserMessage, text_of

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession


T = TypeVar("T")
Setup = Callable[[Session], Awaitable[None] | None]
After = Callable[[], Awaitable[None]]


class SessionChanges:
    def __init__(self, agent: "AgentSession", engine: Engine, shell: Shell) -> None:
        self._agent = agent
        self._engine = engine
        self._shell = shell
        self._one_at_a_time = asyncio.Lock()
        self.tasks = Tasks()

    async def carry_out(self, name: str, change: Coroutine[Any, Any, tuple[T, After | None]]) -> T:
        """Carry out a change in a task of the agent's own: it goes on if the caller is cancelled. Raises `AgentError`.

        `name` is for the trace.
        """
        lifecycle = self._agent.lifecycle
        if not (lifecycle.changes or lifecycle.closed):
            self._engine.queues.demote()  # a prompt that waits for an abort stays in the session that it was sent to
            lifecycle.on_free()
        try:
            lifecycle.begin_change()
        except AgentError:
            change.close()
            raise

        async def change_over() -> T:
            try:
                async with self._one_at_a_time:
                    with trace.span("change", change=name, session=self._agent.session.id) as span:
                        result, after = await change
                        span.set(to=self._agent.session.id)
            finally:
                lifecycle.end_change()
                lifecycle.free()
            if after is not None:
                await after()
            return result

        task = self.tasks.spawn(change_over(), "spindle-change", report=False)
        task.add_done_callback(lambda _: change.close())  # the task may have been cancelled before it began
        try:
            return await _carried_out(task)
        finally:
            # The caller answers its client in this very step, before a prompt that waits for the answer goes on.
            if task.done():
                lifecycle.tell_change()
            else:  # the caller is gone
                task.add_done_callback(lambda _: lifecycle.tell_change())
            del task  # it holds its failure, which holds this frame

    # -- the four changes: each returns its result, and a function that tells extensions ----------

    async def new(self, parent: str | None, setup: Setup | None) -> tuple[bool, After | None]:
        if await self._vetoed("session_before_switch", reason="new"):
            return True, None
        other = sessions.following(self._agent.session, parent=parent)
        try:
            written = None if setup is None else setup(other)
            if written is not None:
                await written
        except BaseException:
            other.close()
            raise
        return False, await self._go_to(other, "new")

    async def switch(self, path: str) -> tuple[tuple[bool, bool], After | None]:
        """Go on with a session file. Returns whether it was cancelled, and whether the session is a new one."""
        agent = self._agent
        if await self._vetoed("session_before_switch", reason="resume", target_session_file=path):
            return (True, False), None
        in_store = agent.session.store is not None
        file = path if in_store else os.path.join(agent.cwd, path)
        created = not in_store and not _exists(file)
        # A file that is open already is read again, but only after the agent has closed it.
        if agent.session.is_same_file(file):
            return (False, created), await self._go_to(file, "resume", path)
        other, context = await self._load(file, created)
        return (False, created), await self._go_to(other, "resume", path, context)

    async def fork(self, entry_id: str, invalid: str) -> tuple[tuple[str, bool], After | None]:
        found = self._user_entry(entry_id)
        if found is None:
            raise AgentError(invalid)
        entry, message = found
        text = text_of(message.content)
        if await self._vetoed("session_before_fork", entry_id=entry_id, position="before"):
            return (text, True), None
        session = self._agent.session
        if entry.parent_id is None:
            other = sessions.following(session, parent=session.name_for_others)
        else:
            other = sessions.branched(session, entry.parent_id)
        return (text, False), await self._go_to(other, "fork")

    async def clone(self, entry_id: str | None) -> tuple[bool, After | None]:
        leaf = entry_id or self._agent.session.leaf_id
        if leaf is None:
            raise AgentError("Cannot clone session: no current entry selected")
        if await self._vetoed("session_before_fork", entry_id=leaf, position="at"):
            return True, None
        return False, await self._go_to(sessions.branched(self._agent.session, leaf), "fork")

    # -- the steps of a change -------------------------------------------------------------------

    async def _vetoed(self, event: str, **fields: Any) -> bool:
        return bool((await self._agent.hooks.ask(event, lambda: fields)).get("cancel"))

    def _user_entry(self, entry_id: str) -> tuple[Entry, UserMessage] | None:
        entry = self._agent.session.entry(entry_id)
        if entry is not None and entry.type == "message" and isinstance(entry.message, UserMessage):
            return entry, entry.message
        return None

    async def _go_to(
        self, other: Session | str, reason: str, target: str | None = None, context: SessionContext | None = None
    ) -> After:
        """Leave the current session for another one, or read the file that is open from the disk again.

        `context` is that of the other session, if it is known already. Returns a function that tells extensions of the
        change: the next change does not wait for them.
        """
        agent = self._agent
        try:
            async with agent.lifecycle.alone(RequestKind.CHANGE, Phase.SWITCHING, self._engine.stop):
                await self._leave(reason, target)
                try:
                    if isinstance(other, str):
                        await agent.session.leave()
                        other, context = await self._load(other, False)
                    resources = await self._load_for(other)
                except BaseException:
                    # Extensions were told that the session ends, but it goes on.
                    self.tasks.spawn(agent.begin(), "spindle-begin")
                    raise
                left = agent.session
                tell_extensions = self._swap(other, context, resources, reason)
                await left.leave()
                with suppress(SessionError):  # it is told, and nothing is lost
                    await self._engine.conversation.safe()
                return tell_extensions
        finally:
            if isinstance(other, Session) and other is not agent.session:
                await other.leave()

    async def _leave(self, reason: str, target: str | None) -> None:
        """End shell commands and extensions, and wait until the session file is on the disk."""
        await self._shell.abort_all()
        self._agent.background.leave()
        await self._leave_extensions(reason, target)
        self._agent.hooks.interrupt()  # a handler that hangs must not go on in the other session
        self._engine.conversation.sync_soon()
        await self._engine.conversation.synced()  # or closing the file would wait for the disk

    async def _leave_extensions(self, reason: str, target: str | None = None) -> None:
        if isinstance(dialogs := self._agent.dialogs, WireDialogs):
            dialogs.withdraw(self._agent.approval.questions.of_run() if reason == "reload" else ())
        else:
            dialogs.withdraw()
        await self._agent.hooks.caught_up(limits.EXTENSIONS_CATCH_UP)
        await self._agent.plugins.leave(reason, target)

    async def _load_for(self, session: Session) -> Resources:
        """Load resources and plugins for a session; they are not in force yet."""
        resources = self._agent.resources.at(session.cwd)
        resources.require_settings()
        resources = await place_for(self._agent, session, resources)
        await self._agent.plugins.load(resources, self._engine.toolbox.builtin, self._agent.mode)
        return resources

    def _swap(self, other: Session, known: SessionContext | None, resources: Resources, reason: str) -> After:
        """Put another session in place of this one, for all parts and clients at once.

        Returns a function that tells extensions of it, and of the model and thinking level that came with it.
        """
        agent, engine, choice, left = self._agent, self._engine, self._engine.choice, self._agent.session
        model, level = choice.model, choice.level
        waiting = kept_queues(left.id, engine.queues.in_queues(), engine.queues.prompted)
        engine.queues.forget()
        engine.refuse_joined("The session was left before the message was delivered; it waits there")
        engine.queues.with_next_prompt.clear()
        choice.registry = resources.registry
        context = engine.conversation.use(other, known)
        if reason == "resume":
            other.on_write_error(weakly(agent.tell_write_error))
            if context.messages:  # the session's own model and level, as far as they are available
                choice.restore(context.model, other.thinking_level())
                engine.toolbox.restore(other.tools())
        self._use(resources, reason, left.name_for_others)
        agent.learn()
        if other.write_error is not None:
            agent.tell_write_error(other.write_error)
        agent.publish(SessionChanged(other.id, reason))
        agent.prompting.offer_again()
        engine.queues.save()
        if not left.is_same_file(
            other.name_for_others or ""
        ):  # its waiting messages are offered when it is opened again
            left.keep_beside(encode(waiting) if waiting.waiting else None)

        async def tell_extensions() -> None:
            await agent.begin()
            if choice.model != model:
                await agent.hooks.notify("model_select", model=choice.model, previous_model=model, source="restore")
            if choice.level != level:
                await agent.hooks.notify("thinking_level_select", level=choice.level, previous_level=level)

        return tell_extensions

    def _use(self, resources: Resources, reason: str, previous: str | None = None) -> None:
        """Put resources in force, and the extensions that were loaded with them."""
        self._agent.resources = self._engine.resources = resources
        self._engine.choice.registry = resources.registry
        self._agent.plugins.bind(self._agent, reason, previous)
        self._engine.forget_prompt()

    async def reload(self) -> None:
        """Load extensions, skills, templates and settings again, when no change of session is under way."""

        async def carry_out() -> None:
            async with self._one_at_a_time:
                with trace.span("change", change="reload", session=self._agent.session.id):
                    await self._leave_extensions("reload")
                    try:
                        if (far := self._agent.resources.far) is not None:
                            await read_project(far)
                        self._agent.resources.reload()
                        self._use(await self._load_for(self._agent.session), "reload")
                    finally:  # if that failed, with the extensions that were there before
                        await self._agent.begin()

        await self.to_the_end(carry_out(), "spindle-reload")

    async def to_the_end(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Do something in a task of the agent's own: it goes on if the caller is cancelled. Raises `AgentError`."""
        return await _carried_out(self.tasks.spawn(work, name, report=False))

    async def _load(self, file: str, is_new: bool) -> tuple[Session, SessionContext]:
        """Open a session file and decode its context, in a thread: a long file takes seconds. Raises `AgentError`."""
        agent = self._agent
        fsync = agent.resources.settings.fsync
        cwd = agent.cwd if is_new else None  # a stored session knows its own

        def read() -> tuple[Session, SessionContext]:
            store = agent.session.store
            if store is not None:
                opened = sessions.loaded_from(store, file)
            else:
                opened = sessions.load(file, cwd=cwd, fsync=fsync)
            return opened, opened.context()

        opened, context = await asyncio.to_thread(read)
        if not os.path.isdir(opened.cwd):
            opened.close()
            raise AgentError(
                f"Stored session working directory does not exist: {opened.cwd}\nSession file: {file}\n"
                f"Current working directory: {agent.cwd}"
            )
        try:
            agent.check_place(opened.cwd)
        except AgentError:
            opened.close()
            raise
        return opened, context


async def _carried_out(task: asyncio.Task[T]) -> T:
    """Wait for a task that goes on if the caller is cancelled.

    Raises `AgentError` if the task itself is cancelled, or if settings cannot be used.
    """
    await asyncio.wait([task])
    if task.cancelled():
        raise AgentError(SESSION_ENDED)
    try:
        return task.result()
    except BadFile as error:
        raise AgentError(str(error)) from None
    finally:
        del task  # it holds its failure, which holds this frame


def _exists(file: str) -> bool:
    try:
        os.stat(file)
    except OSError:
        return False
    except ValueError:
        raise AgentError(f"A file cannot have this name: {file!r}") from None
    return True
