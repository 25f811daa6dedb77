"""The agent as every wire drives it: one object, one method per thing a client can ask for.

The work itself is done by its parts: the engine (runs), the conversation (messages and session file), the way of a
prompt, the change of sessions, the model choice, the bash runner. This class holds them together.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from spindle.agent.answers import Answers
from spindle.agent.bash import BashRunner
from spindle.agent.conversation import Conversation
from spindle.agent.engine import Engine
from spindle.agent.errors import AgentError
from spindle.agent.extension_host import ExtensionHost
from spindle.agent.extension_loading import ExtensionOptions
from spindle.agent.host_tools import HostTools
from spindle.agent.hub import Listener
from spindle.agent.lifecycle import Phase
from spindle.agent.model_state import CycledModel, ModelState
from spindle.agent.prompting import Disposition, Prompting
from spindle.agent.session_changes import SessionChanges, Setup
from spindle.agent.stats import ContextUsage, SessionStats
from spindle.agent.stream_rules import StreamRules
from spindle.agent.todos import Todos
from spindle.agent.toolbox import Toolbox
from spindle.config.settings import Todo
from spindle.extensions.hooks import Hooks
from spindle.resources.loader import Resources
from spindle.sessions.index import SessionInfo
from spindle.sessions.manager import SessionManager
from spindle.shapes.content import Image, Text
from spindle.shapes.events import (
    CompactionResult,
    Event,
    ExtensionError,
    SessionChanged,
    SessionInfoChanged,
    StateChanged,
    ThinkingLevelChanged,
)
from spindle.shapes.messages import CustomMessage
from spindle.shapes.models import Model, ThinkingLevel

if TYPE_CHECKING:
    from spindle.agent.approval import Approval
    from spindle.extensions.runtime import Navigated

__all__ = ["AgentSession"]


class AgentSession:
    def __init__(
        self,
        store: SessionManager,
        resources: Resources,
        choice: ModelState,
        toolbox: Toolbox,
        *,
        mode: str = "rpc",
        extensions: ExtensionOptions | None = None,
    ) -> None:
        self.resources = resources
        self.mode = mode
        """Which kind of wire drives it: `rpc`, `json`, `print`, `remote`, or `sdk` for a Python program."""
        self.conversation = Conversation(store)
        self.engine = Engine(self.conversation, choice, toolbox, resources)
        self.bash = BashRunner(self.engine)
        self.answers = Answers()
        # Over RPC the client decides about todos, whatever the user set up for other programs.
        todo = Todo() if mode == "rpc" else resources.settings.todo
        self.todos = Todos(self.engine, todo, resources.settings.tasks.todo_clear_delay)
        self.rules = StreamRules(self.engine, resources.rules, resources.settings.ttsr)
        self.host_tools = HostTools(
            toolbox, self.answers, self.engine.publish, resources.settings.host_tools.timeout_ms
        )
        self.extensions = ExtensionHost(self, extensions or ExtensionOptions())
        self.shutdown_requested = asyncio.Event()
        self.approval: Approval | None = None
        """What the user is asked about; None: nothing."""
        self._changes = SessionChanges(self)
        self._prompting = Prompting(self, self._changes)
        store.on_write_error(self.tell_write_error)
        self.record_choice()
        self.todos.rebuild()
        self.rules.rebuild()

    # -- parts that others need ------------------------------------------------------------------

    @property
    def store(self) -> SessionManager:
        return self.conversation.store

    @property
    def choice(self) -> ModelState:
        return self.engine.choice

    @property
    def toolbox(self) -> Toolbox:
        return self.engine.toolbox

    @property
    def hooks(self) -> Hooks:
        return self.engine.hooks

    @property
    def cwd(self) -> str:
        return self.store.get_cwd()

    def subscribe(self, listener: Listener) -> None:
        self.engine.hub.add(listener)

    def unsubscribe(self, listener: Listener) -> None:
        self.engine.hub.remove(listener)

    def publish(self, event: Event) -> None:
        self.engine.publish(event)

    def tell_change(self, reason: str) -> None:
        """Tell that the conversation has to be read anew."""
        self.publish(SessionChanged(self.store.get_session_id(), reason))

    def tell_write_error(self, error: str) -> None:
        """Tell that the conversation goes on in memory only."""
        self.publish(ExtensionError("", "session_write", error))

    # -- prompting -------------------------------------------------------------------------------

    async def submit(
        self,
        text: str,
        images: Sequence[Any] = (),
        behavior: str | None = None,
        *,
        source: str = "rpc",
        expand: bool = True,
        ordered: Sequence[Text | Image] | None = None,
    ) -> Disposition:
        """Take a prompt. Returns when it is accepted, queued or dealt with; its events follow.

        `expand` says whether commands, skills and templates in it count. `ordered` is the same text and images in an
        order of their own, which holds unless something is changed in them.
        Raises `AgentError` if it is refused: the agent is at work, there is no model, or no key for it.
        """
        return await self._prompting.submit(text, images, behavior, source, expand, ordered)

    async def submit_message(self, message: CustomMessage) -> None:
        """Let the model answer a message of an extension. Raises `AgentError` like `submit`."""
        await self._prompting.submit_message(message)

    async def steer(self, text: str, images: Sequence[Any] = (), *, source: str = "rpc") -> Disposition:
        """Queue a message for before the next model call."""
        return await self._prompting.queue(text, images, source, "steer")

    async def follow_up(self, text: str, images: Sequence[Any] = (), *, source: str = "rpc") -> Disposition:
        """Queue a message for when the run would end."""
        return await self._prompting.queue(text, images, source, "followUp")

    async def abort_and_submit(self, text: str, images: Sequence[Any] = ()) -> Disposition:
        """Stop what runs, then take a prompt."""
        self._prompting.refuse_waiting()
        while self.busy:  # again if somebody else was quicker
            await self.abort()
        return await self.submit(text, images)

    async def regenerate(self) -> None:
        """Drop everything after the last user message and answer it again. Raises `AgentError`."""
        await self._prompting.regenerate()

    # -- stopping --------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Stop the run, a wait for a retry, or a compaction, refuse what waits; return when the agent is idle."""
        self._prompting.refuse_waiting()
        await self.engine.abort()

    def clear_context(self) -> None:
        """Begin anew within the session: what came before stays in the file, on a branch of its own."""
        with self.engine.claimed():
            self.store.reset_leaf()
            self.record_choice()
            self.rebuild()
        self.tell_change("clear")

    def set_approval(self, *, tools: bool, max_turns: int | None) -> None:
        """Ask the user before tools run, or after so many model calls; neither: no more questions."""
        from spindle.agent.approval import Approval

        if self.approval is not None:
            self.engine.guards.remove(self.approval)
        asks = tools or max_turns is not None
        self.approval = Approval(self, tools=tools, max_turns=max_turns) if asks else None
        if self.approval is not None:
            self.engine.guards.insert(0, self.approval)
        self.publish(StateChanged())

    async def abort_retry(self) -> None:
        await self.engine.abort_retry()

    async def close(self) -> None:
        """End all work at once and leave the session file whole."""
        self.host_tools.disconnect()
        self.todos.close()
        if not self.busy:  # what was running has ended by itself, and extensions may see to that
            await self.extensions.finish()
        await self.engine.kill()
        await self.bash.abort_all()
        await self.extensions.close()
        self.conversation.release_held()
        self.store.close()
        await self.conversation.synced()

    # -- models ----------------------------------------------------------------------------------

    async def set_model(self, provider: str, model_id: str) -> Model:
        """Switch to an available model; it answers from the next turn on."""
        for model in self.choice.registry.available():
            if (model.provider, model.id) == (provider, model_id):
                await self.use_model(model, None, "set")
                return model
        raise AgentError(f"Model not found: {provider}/{model_id}")

    async def cycle_model(self) -> CycledModel | None:
        following = self.choice.next_model()
        if following is None:
            return None
        model, level, scoped = following
        await self.use_model(model, level, "cycle")
        return CycledModel(model, self.choice.level, scoped)

    async def use_model(self, model: Model, level: ThinkingLevel | None, source: str) -> None:
        """Switch models, keep it in the session and tell of it."""
        previous, old_level = self.choice.model, self.choice.level
        level_changed = self.choice.use(model, level)
        self.store.append_model_change(model.provider, model.id)
        self.publish(StateChanged())
        if level_changed:
            await self.tell_level(old_level)
        if "model_select" in self.hooks.listening:
            await self.hooks.notify("model_select", model=model, previous_model=previous, source=source)

    async def set_thinking_level(self, level: ThinkingLevel) -> None:
        previous = self.choice.level
        if self.choice.set_level(level):
            await self.tell_level(previous)

    async def cycle_thinking_level(self) -> ThinkingLevel | None:
        level = self.choice.next_level()
        if level is not None:
            await self.set_thinking_level(level)
        return level

    async def tell_level(self, previous: str) -> None:
        """Keep a change of the thinking level in the session and tell of it."""
        self.store.append_thinking_level_change(self.choice.level)
        self.publish(ThinkingLevelChanged(self.choice.level))
        if "thinking_level_select" in self.hooks.listening:
            await self.hooks.notify("thinking_level_select", level=self.choice.level, previous_level=previous)

    # -- sessions --------------------------------------------------------------------------------

    async def new_session(self, parent: str | None = None, setup: Setup | None = None) -> bool:
        """Begin an empty session with the same model. Returns whether an extension cancelled it.

        `setup` may write to the new session before anybody sees it.
        """
        return await self._changes.new(parent, setup)

    async def switch_session(self, path: str) -> bool:
        """Go on with another session file; a path that does not exist yet is a new session there."""
        return await self._changes.switch(path)

    async def fork(self, entry_id: str, *, invalid: str = "Invalid entry ID for forking") -> tuple[str, bool]:
        """Begin a session with everything before that user message. Returns its text, and whether it was cancelled."""
        return await self._changes.fork(entry_id, invalid)

    async def clone(self, entry_id: str | None = None) -> bool:
        """Copy the current branch (or the one that ends at an entry) into a session of its own and go on there."""
        return await self._changes.clone(entry_id)

    def rebuild(self) -> None:
        """Read the context anew after a jump in the session tree."""
        self.conversation.reload()
        self.todos.rebuild()
        self.rules.rebuild()

    def record_choice(self) -> None:
        """A new session begins with the model and level it starts with; an old one lacks at most the level."""
        store, model = self.store, self.choice.model
        if model is not None and store.get_model() is None and not store.has_messages():
            store.append_model_change(model.provider, model.id)
        if store.get_thinking_level() is None:
            store.append_thinking_level_change(self.choice.level)

    def set_host_tools(self, tools: list[Any]) -> list[str]:
        names = self.host_tools.declare(tools)
        self.engine.tools_changed()
        return names

    async def navigate(
        self, entry_id: str, summarize: bool = False, instructions: str | None = None, label: str | None = None
    ) -> "Navigated":
        """Go on from another entry of the session. Raises `AgentError`."""
        from spindle.agent.navigate import Jump, navigate

        return await navigate(self, Jump(entry_id, summarize, instructions, label=label))

    def stored_sessions(self) -> list[SessionInfo]:
        """Return the sessions on disk that belong here. Blocks; call it in a thread."""
        directory = self.store.get_session_dir() or None
        return SessionManager.list(self.cwd, directory)

    def use_system_prompt(self, text: str) -> None:
        """Replace the built-in part of the system prompt."""
        self.resources.prompt = msgspec.structs.replace(self.resources.prompt, custom=text)
        self.engine.tools_changed()

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Label an entry; None or nothing takes its label away. Raises `EntryNotFound`."""
        self.store.append_label_change(entry_id, label)
        self.publish(StateChanged())

    def set_name(self, name: str) -> None:
        if not name.strip():
            raise AgentError("Session name cannot be empty")
        self.store.append_session_info(name)
        self.publish(SessionInfoChanged(self.store.get_session_name()))

    async def compact(self, instructions: str | None = None) -> CompactionResult:
        return await self.engine.compact(instructions)

    async def export_html(self, output: str | None = None) -> str:
        """Write the session as a page. Returns the path, as given if one was given. Raises `AgentError`."""
        from spindle.export import ExportError, export_session

        tools = self.toolbox.active_tools()
        target = Path(self.cwd, output) if output else None
        try:
            written = await asyncio.to_thread(
                export_session, self.store, target, system_prompt=self.engine.system_prompt, tools=tools
            )
        except ExportError as error:
            raise AgentError(str(error)) from None
        return output or str(written)

    # -- questions -------------------------------------------------------------------------------

    async def stats(self) -> SessionStats:
        counted = await self.conversation.stats()
        file = self.store.get_session_file()
        return SessionStats(
            session_file=str(file) if file else None,
            session_id=self.store.get_session_id(),
            user_messages=counted.user,
            assistant_messages=counted.assistant,
            tool_calls=counted.calls,
            tool_results=counted.results,
            total_messages=counted.messages,
            tokens=counted.tokens,
            cost=counted.cost,
            context_usage=self.context_usage(),
        )

    def context_usage(self) -> ContextUsage | None:
        model = self.choice.model
        if model is None or not model.context_window:
            return None
        if not self.conversation.usage_known():
            return ContextUsage(None, model.context_window, None)
        tokens = self.conversation.tokens()
        return ContextUsage(tokens, model.context_window, tokens / model.context_window * 100)

    @property
    def is_streaming(self) -> bool:
        return self.engine.lifecycle.running

    @property
    def is_compacting(self) -> bool:
        return self.engine.lifecycle.compacting

    @property
    def busy(self) -> bool:
        return self.engine.lifecycle.phase is not Phase.IDLE
