"""The agent as extensions may use it: `spindle.extensions.runtime.Runtime` on top of an `AgentSession`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.agent.lifecycle import Phase
from spindle.extensions.runner import ExtensionHooks
from spindle.extensions.runtime import Front, Models, Navigated, Replaced, SessionView, UserContent
from spindle.llm.stream import StreamFunction
from spindle.sessions.manager import SessionManager
from spindle.shapes.codec import decode, to_builtins
from spindle.shapes.content import Image, text_of
from spindle.shapes.events import EntryAppended, ExtensionError, MessageStart, ToolResult
from spindle.shapes.messages import CustomMessage
from spindle.shapes.models import THINKING_LEVELS, Model, ThinkingLevel
from spindle.tools.base import Tool, ToolContext

if TYPE_CHECKING:
    from spindle.agent.extension_host import ExtensionHost
    from spindle.agent.session import AgentSession

__all__ = ["ExtensionRuntime"]


class ExtensionRuntime:
    def __init__(self, session: "AgentSession", host: "ExtensionHost", front: Front) -> None:
        self._session = session
        self._host = host
        self.front = front

    # -- where it stands -------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        return self._session.mode

    @property
    def cwd(self) -> Path:
        return Path(self._session.cwd)

    @property
    def session(self) -> SessionView:
        return StoreView(self._session.store)

    @property
    def models(self) -> Models:
        return self._session.resources.registry

    @property
    def model(self) -> Model | None:
        return self._session.choice.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._session.choice.level

    @property
    def is_idle(self) -> bool:
        return self._session.engine.lifecycle.phase is Phase.IDLE

    @property
    def is_aborting(self) -> bool:
        return self._session.engine.signal.aborted and not self.is_idle

    @property
    def has_pending_messages(self) -> bool:
        return len(self._session.engine.queues) > 0

    @property
    def system_prompt(self) -> str:
        return self._session.engine.system_prompt

    @property
    def project_trusted(self) -> bool:
        return self._session.resources.trust.trusted

    def context_usage(self) -> dict[str, Any] | None:
        usage: dict[str, Any] | None = to_builtins(self._session.context_usage())
        return usage

    def report(self, path: str, event: str, error: str) -> None:
        self._session.publish(ExtensionError(path, event, error))

    # -- the conversation ------------------------------------------------------------------------

    async def send_message(self, message: CustomMessage, *, trigger_turn: bool, deliver_as: str | None) -> None:
        engine = self._session.engine
        if deliver_as == "nextTurn":
            engine.next_turn.append(message)
        elif engine.lifecycle.running:
            (engine.queues.follow if deliver_as == "followUp" else engine.queues.steer)(message)
        elif trigger_turn:
            await self._session.submit_message(message)
        else:
            await engine.emit(MessageStart(message))
            await engine.commit(message)

    async def send_user_message(self, content: UserContent, *, deliver_as: str | None, expand: bool) -> None:
        images = [] if isinstance(content, str) else [block for block in content if isinstance(block, Image)]
        text = text_of(content, "\n")
        await self._session.submit(text, images, deliver_as, source="extension", expand=expand)

    def append_entry(self, custom_type: str, data: Any) -> str:
        store = self._session.store
        entry_id = store.append_custom_entry(custom_type, data)
        if entry := store.get_entry(entry_id):
            self._session.publish(EntryAppended(entry.value))
        return entry_id

    def set_label(self, entry_id: str, label: str | None) -> None:
        self._session.set_label(entry_id, label)

    def set_session_name(self, name: str) -> None:
        self._session.set_name(name)

    def abort(self) -> None:
        self._session.engine.stop()

    def shutdown(self) -> None:
        self._session.shutdown_requested.set()

    def compact(self, instructions: str | None) -> "asyncio.Task[Any]":
        return self._host.spawn(self._session.compact(instructions))

    # -- tools, commands, models -----------------------------------------------------------------

    def add_tool(self, tool: Tool) -> None:
        self._session.toolbox.add_extension_tool(tool)
        self._session.engine.tools_changed()

    def all_tools(self) -> list[Tool]:
        return self._session.toolbox.all()

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext:
        return self._session.engine.tool_context(update)

    def active_tools(self) -> list[str]:
        return list(self._session.toolbox.active)

    def set_active_tools(self, names: Sequence[str]) -> None:
        self._session.toolbox.activate(names)
        self._session.engine.tools_changed()

    def commands(self) -> list[Any]:
        items: list[Any] = to_builtins([*self._session.hooks.commands(), *self._session.resources.commands()])
        return items

    async def set_model(self, model: Model) -> bool:
        if not self._session.resources.registry.has_credentials(model.provider):
            return False
        await self._session.use_model(model, None, "set")
        return True

    def set_thinking_level(self, level: ThinkingLevel) -> None:
        if level not in THINKING_LEVELS:
            raise ValueError(f"Unknown thinking level {level!r}. Known are: {', '.join(THINKING_LEVELS)}")
        previous = self._session.choice.level
        if self._session.choice.set_level(level):
            self._host.spawn(self._session.tell_level(previous))

    def add_provider(self, name: str, config: Mapping[str, Any], stream: StreamFunction | None) -> None:
        self._session.resources.registry.register_provider(name, config, stream)

    def remove_provider(self, name: str) -> None:
        self._session.resources.registry.unregister_provider(name)

    # -- only for commands -----------------------------------------------------------------------

    async def wait_for_idle(self) -> None:
        await self._session.engine.wait_idle()

    async def new_session(self, parent: str | None, setup: Callable[[Any], Awaitable[None] | None] | None) -> Replaced:
        return Replaced(await self._session.new_session(parent, setup))

    async def fork(self, entry_id: str, position: str) -> Replaced:
        if position == "at":
            return Replaced(await self._session.clone(entry_id))
        text, cancelled = await self._session.fork(entry_id)
        return Replaced(cancelled, text)

    async def switch_session(self, path: str) -> Replaced:
        return Replaced(await self._session.switch_session(path))

    async def navigate_tree(
        self,
        target_id: str,
        *,
        summarize: bool,
        instructions: str | None,
        replace_instructions: bool,
        label: str | None,
    ) -> Navigated:
        from spindle.agent.navigate import Jump, navigate

        return await navigate(self._session, Jump(target_id, summarize, instructions, replace_instructions, label))

    async def reload(self) -> None:
        await self._host.reload()

    def command_context(self, path: str) -> Any:
        hooks = self._session.hooks
        assert isinstance(hooks, ExtensionHooks)
        same = next((extension for extension in hooks.registry.extensions if extension.path == path), None)
        return hooks.command_context(same)


class StoreView:
    """A session, to be read: entries are plain dicts."""

    def __init__(self, store: SessionManager) -> None:
        self._store = store

    @property
    def id(self) -> str:
        return self._store.get_session_id()

    @property
    def file(self) -> Path | None:
        file = self._store.get_session_file()
        return Path(file) if file else None

    @property
    def directory(self) -> Path | None:
        directory = self._store.get_session_dir()
        return Path(directory) if directory else None

    @property
    def cwd(self) -> Path:
        return Path(self._store.get_cwd())

    @property
    def name(self) -> str | None:
        return self._store.get_session_name()

    @property
    def leaf_id(self) -> str | None:
        return self._store.get_leaf_id()

    def header(self) -> dict[str, Any]:
        return self._store.get_header().value

    def entry(self, entry_id: str) -> dict[str, Any] | None:
        entry = self._store.get_entry(entry_id)
        return None if entry is None else entry.value

    def entries(self) -> list[dict[str, Any]]:
        return [entry.value for entry in self._store.get_entries()]

    def branch(self, from_id: str | None = None) -> list[dict[str, Any]]:
        return [entry.value for entry in self._store.get_branch(from_id)]

    def children(self, entry_id: str | None) -> list[dict[str, Any]]:
        return [entry.value for entry in self._store.get_children(entry_id)]

    def tree(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = decode(self._store.tree_json())
        return nodes

    def label(self, entry_id: str) -> str | None:
        return self._store.get_label(entry_id)
