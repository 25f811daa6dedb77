"""`ctx`: the object that a handler, a tool or a command gets besides its event or arguments."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.agent.navigate import Jump, Navigated
from spindle.models.model_registry import ModelRegistry
from spindle.plugins.extensions.generation import Binding
from spindle.plugins.extensions.threads import HERE, Home
from spindle.plugins.extensions.ui import UI
from spindle.sessions import SessionManager
from spindle.sessions.session import Session
from spindle.shapes.codec import decode, to_builtins
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Wire
from spindle.shapes.model import Model, ThinkingLevel
from spindle.tools.base import ToolError

if TYPE_CHECKING:
    from spindle.plugins.extensions.api import Agent


WithSession = Callable[["CommandContext"], Any]


class Replaced(Wire):
    """The outcome of a request to go on in another session."""

    cancelled: bool
    text: str | None = None
    """After a fork: the text of the message it was made at."""


class AskedModel(Model, dict=True):
    """The current model, which can be asked."""

    async def complete(self, prompt: str, *, system: str = "", max_tokens: int | None = None) -> str:
        """Return the model's answer to a prompt alone, without the conversation and without tools.

        It counts for the limits and the cost of the run and the session. Raises `AgentError` if there is none.
        """
        binding: Binding = self.__dict__["binding"]
        return await binding.carry_out(lambda agent: agent.complete(prompt, system=system, max_tokens=max_tokens))


class Context:
    """The state of the agent, and a few ways to change it."""

    __slots__ = ("_binding", "_cancelled", "_home", "agent", "ui")

    def __init__(self, binding: Binding, ui: UI, agent: "Agent | None", home: Home = HERE) -> None:
        self._binding = binding
        self._home = home
        self._cancelled: threading.Event | None = None
        self.ui = ui
        self.agent = agent
        """The extension's own facade."""

    # -- state -----------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """Who drives the agent: `rpc`, `remote`, `json`, `print` or `sdk`."""
        return self._binding.here.mode

    @property
    def has_ui(self) -> bool:
        """Whether there is a user to ask."""
        return self._binding.here.dialogs.has_ui

    @property
    def cwd(self) -> Path:
        return Path(self._binding.here.cwd)

    @property
    def session(self) -> "SessionView":
        """The session tree, read-only."""
        return SessionView(self._binding.agent.session)

    @property
    def models(self) -> ModelRegistry:
        """The known models: `all()`, `available()`, `find(provider, id)`."""
        return self._binding.agent.resources.registry

    @property
    def model(self) -> AskedModel | None:
        """The current model; `await ctx.model.complete(prompt)` asks it."""
        model = self._binding.agent.model
        if model is None:
            return None
        asked = AskedModel(**{name: getattr(model, name) for name in model.__struct_fields__})
        asked.__dict__["binding"] = self._binding
        return asked

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as they are in force: those of the user, the project and the command line. A copy."""
        settings: dict[str, Any] = to_builtins(self._binding.agent.resources.settings)
        return settings

    async def execute_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool that the model may use. Rules, other extensions and the user decide as for the model's calls.

        Raises `ToolError` if the call is refused or the tool fails.
        """
        return await self._binding.carry_out(lambda agent: agent.execute_tool(name, arguments))

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._binding.agent.thinking_level

    @property
    def is_idle(self) -> bool:
        return not self._binding.agent.busy

    @property
    def has_pending_messages(self) -> bool:
        """Whether messages wait to be delivered."""
        return len(self._binding.agent.queues) > 0

    @property
    def system_prompt(self) -> str:
        return self._binding.agent.system_prompt

    @property
    def project_trusted(self) -> bool:
        return self._binding.agent.resources.trust.trusted

    def context_usage(self) -> dict[str, Any] | None:
        """Return `{"tokens", "contextWindow", "percent"}`; unknown figures are None."""
        usage: dict[str, Any] | None = to_builtins(self._binding.agent.context_usage())
        return usage

    # -- actions ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """Stop the current run."""
        self._binding.do(lambda agent: agent.stop())

    def shutdown(self) -> None:
        """End the process (or under `--remote` only this session) once the agent is idle."""
        self._binding.do(lambda agent: agent.shutdown_requested.set())

    def compact(self, instructions: str | None = None) -> "asyncio.Task[Any]":
        """Begin to replace the older part of the context by a summary, ending the current run.

        A command may await the task; a handler of that very run would wait for itself.
        """
        return self._binding.begin(lambda agent: agent.compact(instructions), "spindle-compact")

    # -- for work in threads ---------------------------------------------------------------------

    @property
    def cancelled(self) -> threading.Event:
        """Set when this call was aborted or its time ran out."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
        return self._cancelled

    def raise_if_aborted(self) -> None:
        """Raise `ToolError` if the result is not wanted any more. For loops in threads."""
        if self.cancelled.is_set():
            raise ToolError("Operation aborted")


class CommandContext(Context):
    """More actions, for slash commands. After a change of session only the context of `with_session` is valid."""

    __slots__ = ()

    async def wait_for_idle(self) -> None:
        """Return when the agent has nothing more to do."""
        await self._binding.carry_out(lambda agent: agent.wait_idle())

    async def new_session(
        self,
        *,
        parent_session: str | None = None,
        setup: Callable[[SessionManager], Awaitable[None] | None] | None = None,
        with_session: WithSession | None = None,
    ) -> Replaced:
        """Begin an empty session. `setup(session)`, with a `SessionManager`, may write to it before it is used."""
        prepare = None if setup is None else (lambda session: self._home.call(setup, SessionManager(session)))
        cancelled = await self._binding.carry_out(lambda agent: agent.new_session(parent_session, prepare))
        return await self._replaced(Replaced(cancelled), with_session)

    async def fork(
        self, entry_id: str, *, position: str = "before", with_session: WithSession | None = None
    ) -> Replaced:
        """Go on in a copy of the session that ends `before` a user message, or `at` an entry."""
        if position == "at":
            cancelled = await self._binding.carry_out(lambda agent: agent.clone(entry_id))
            return await self._replaced(Replaced(cancelled), with_session)
        text, cancelled = await self._binding.carry_out(lambda agent: agent.fork(entry_id))
        return await self._replaced(Replaced(cancelled, text), with_session)

    async def switch_session(self, path: str | Path, *, with_session: WithSession | None = None) -> Replaced:
        """Go on with another session file."""
        cancelled, _ = await self._binding.carry_out(lambda agent: agent.switch_session(str(path)))
        return await self._replaced(Replaced(cancelled), with_session)

    async def navigate_tree(
        self,
        target_id: str,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
    ) -> Navigated:
        """Jump to another entry of the session tree; on request, the branch left is summarised."""
        return await self._binding.carry_out(
            lambda agent: agent.navigate(Jump(target_id, summarize, custom_instructions, replace_instructions, label))
        )

    async def reload(self) -> None:
        """Load all extensions, skills and templates again. This context is stale afterwards."""
        await self._binding.carry_out(lambda agent: agent.reload())

    async def _replaced(self, outcome: Replaced, with_session: WithSession | None) -> Replaced:
        if with_session is not None and not outcome.cancelled:
            # This context is stale now; the same extension has another one in the next generation.
            path = self.agent.path if self.agent is not None else ""
            await HERE.call(with_session, self._binding.successor(path))
        return outcome


class SessionView:
    """A session, read-only: entries are plain dicts."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def file(self) -> Path | None:
        return self._session.path

    @property
    def directory(self) -> Path | None:
        return self._session.directory

    @property
    def cwd(self) -> Path:
        return Path(self._session.cwd)

    @property
    def name(self) -> str | None:
        return self._session.name

    @property
    def leaf_id(self) -> str | None:
        return self._session.leaf_id

    def header(self) -> dict[str, Any]:
        return self._session.header.value

    def entry(self, entry_id: str) -> dict[str, Any] | None:
        entry = self._session.entry(entry_id)
        return None if entry is None else entry.value

    def entries(self) -> list[dict[str, Any]]:
        return [entry.value for entry in self._session.entries]

    def branch(self, from_id: str | None = None) -> list[dict[str, Any]]:
        """Return the entries from the root to `from_id`, or to the leaf."""
        return [entry.value for entry in self._session.branch(from_id)]

    def children(self, entry_id: str | None) -> list[dict[str, Any]]:
        return [entry.value for entry in self._session.children(entry_id)]

    def tree(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = decode(self._session.tree_json())
        return nodes

    def label(self, entry_id: str) -> str | None:
        return self._session.label(entry_id)
