"""`ctx`: what a handler, a tool or a command gets besides its event or arguments."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.extensions.binding import Binding
from spindle.extensions.runtime import Models, Navigated, Replaced, Runtime, SessionView
from spindle.extensions.threads import call
from spindle.extensions.ui import UI
from spindle.shapes.models import Model, ThinkingLevel
from spindle.tools.base import ToolError

if TYPE_CHECKING:
    from spindle.extensions.api import Agent

__all__ = ["CommandContext", "Context"]

WithSession = Callable[["CommandContext"], Any]


class Context:
    """The agent as it stands, and a few things one may do to it."""

    __slots__ = ("_binding", "_cancelled", "agent", "ui")

    def __init__(self, binding: Binding, ui: UI, agent: "Agent | None") -> None:
        self._binding = binding
        self._cancelled: threading.Event | None = None
        self.ui = ui
        self.agent = agent
        """The extension's own facade."""

    # -- where we are ----------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """Who drives the agent: `rpc`, `remote`, `json`, `print` or `sdk`."""
        return self._binding.here.mode

    @property
    def has_ui(self) -> bool:
        """Whether there is somebody to ask."""
        return self._binding.here.front.has_ui

    @property
    def cwd(self) -> Path:
        return self._binding.here.cwd

    @property
    def session(self) -> SessionView:
        """The session tree, to be read."""
        return self._binding.runtime.session

    @property
    def models(self) -> Models:
        return self._binding.runtime.models

    @property
    def model(self) -> Model | None:
        return self._binding.runtime.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._binding.runtime.thinking_level

    @property
    def is_idle(self) -> bool:
        return self._binding.runtime.is_idle

    @property
    def has_pending_messages(self) -> bool:
        """Whether messages wait to be delivered."""
        return self._binding.runtime.has_pending_messages

    @property
    def system_prompt(self) -> str:
        return self._binding.runtime.system_prompt

    @property
    def project_trusted(self) -> bool:
        return self._binding.runtime.project_trusted

    def context_usage(self) -> dict[str, Any] | None:
        """Return `{"tokens", "contextWindow", "percent"}`; unknown figures are None."""
        return self._binding.runtime.context_usage()

    # -- what one may do -------------------------------------------------------------------------

    def abort(self) -> None:
        """Stop the run that is going on."""
        self._binding.do(lambda runtime: runtime.abort())

    def shutdown(self) -> None:
        """End the process (or under `--remote` only this session) once the agent is idle."""
        self._binding.do(lambda runtime: runtime.shutdown())

    def compact(self, instructions: str | None = None) -> "asyncio.Task[Any]":
        """Begin to replace the older part of the context by a summary, ending a run that is going on.

        A command may await the task; a handler of that very run would wait for itself.
        """
        return self._binding.do(lambda runtime: runtime.compact(instructions))

    # -- for work in threads ---------------------------------------------------------------------

    @property
    def cancelled(self) -> threading.Event:
        """Set when this very call was aborted or its time ran out."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
        return self._cancelled

    def raise_if_aborted(self) -> None:
        """Raise `ToolError` if nobody wants the result any more. For loops in threads."""
        if self.cancelled.is_set():
            raise ToolError("Operation aborted")


class CommandContext(Context):
    """What slash commands may do in addition. After a change of session only the context of `with_session` is valid."""

    __slots__ = ()

    async def wait_for_idle(self) -> None:
        """Return when the agent has nothing more to do."""
        await self._binding.runtime.wait_for_idle()

    async def new_session(
        self,
        *,
        parent_session: str | None = None,
        setup: Callable[[Any], Awaitable[None] | None] | None = None,
        with_session: WithSession | None = None,
    ) -> Replaced:
        """Begin an empty session. `setup(session)` may write to it before extensions see it."""
        runtime = self._binding.runtime
        return await self._replace(runtime, runtime.new_session(parent_session, setup), with_session)

    async def fork(
        self,
        entry_id: str,
        *,
        position: str = "before",
        with_session: WithSession | None = None,
    ) -> Replaced:
        """Go on in a copy that ends `before` a user message, or `at` an entry."""
        runtime = self._binding.runtime
        return await self._replace(runtime, runtime.fork(entry_id, position), with_session)

    async def switch_session(self, path: str | Path, *, with_session: WithSession | None = None) -> Replaced:
        """Go on with another session file."""
        runtime = self._binding.runtime
        return await self._replace(runtime, runtime.switch_session(str(path)), with_session)

    async def navigate_tree(
        self,
        target_id: str,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
    ) -> Navigated:
        """Jump to another place of the session tree, with a summary of the branch that is left if asked for."""
        return await self._binding.runtime.navigate_tree(
            target_id,
            summarize=summarize,
            instructions=custom_instructions,
            replace_instructions=replace_instructions,
            label=label,
        )

    async def reload(self) -> None:
        """Load all extensions, skills and templates anew. This context is stale afterwards."""
        await self._binding.runtime.reload()

    async def _replace(
        self, runtime: Runtime, request: Awaitable[Replaced], with_session: WithSession | None
    ) -> Replaced:
        path = self.agent.path if self.agent is not None else ""
        outcome = await request
        if with_session is not None and not outcome.cancelled:
            # This context is stale now; the runtime knows who took its place.
            await call(with_session, runtime.command_context(path))
        return outcome
