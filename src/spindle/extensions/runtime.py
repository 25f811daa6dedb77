"""What extensions may ask of the agent, as the one interface between this package and whoever runs it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spindle.llm.stream import StreamFunction
from spindle.shapes.content import Image, Text, Wire
from spindle.shapes.events import ExtensionUIRequest, ToolResult
from spindle.shapes.messages import CustomMessage
from spindle.shapes.models import Model, ThinkingLevel
from spindle.tools.base import Tool, ToolContext

__all__ = ["Front", "Models", "Navigated", "Replaced", "Runtime", "SessionView", "Surroundings", "UserContent"]

UserContent = str | list[Text | Image]


class Replaced(Wire):
    """What came of a request to go on in another session."""

    cancelled: bool
    text: str | None = None
    """Of a fork: the text of the message it was made at."""


class Navigated(Wire):
    """What came of a jump in the session tree."""

    cancelled: bool
    aborted: bool = False
    editor_text: str | None = None
    """Text of the user message that was jumped to, to be edited and sent again."""
    summary_entry: dict[str, Any] | None = None


class Front(Protocol):
    """Where dialogs are shown: a client behind a wire, a terminal, or nowhere."""

    has_ui: bool

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        """Return the answer's fields, or None for no answer: cancelled, too late, nobody there."""

    def tell(self, request: ExtensionUIRequest) -> None:
        """Show something that needs no answer."""

    def withdraw(self) -> None:
        """Close every open dialog without an answer."""


class SessionView(Protocol):
    """The session tree, to be read. Entries are the objects of the session file."""

    @property
    def id(self) -> str: ...
    @property
    def file(self) -> Path | None: ...
    @property
    def directory(self) -> Path | None: ...
    @property
    def cwd(self) -> Path: ...
    @property
    def name(self) -> str | None: ...
    @property
    def leaf_id(self) -> str | None: ...
    def header(self) -> dict[str, Any]: ...
    def entry(self, entry_id: str) -> dict[str, Any] | None: ...
    def entries(self) -> list[dict[str, Any]]: ...
    def branch(self, from_id: str | None = None) -> list[dict[str, Any]]:
        """Return the entries from the root to `from_id`, or to where the conversation stands."""

    def children(self, entry_id: str | None) -> list[dict[str, Any]]: ...
    def tree(self) -> list[dict[str, Any]]: ...
    def label(self, entry_id: str) -> str | None: ...


class Models(Protocol):
    """The models there are."""

    def all(self, provider: str | None = None) -> list[Model]: ...
    def available(self) -> list[Model]: ...
    def find(self, provider: str, model_id: str) -> Model | None: ...


class Surroundings(Protocol):
    """What there is even before there is an agent, while the project's trust is undecided."""

    front: Front

    @property
    def mode(self) -> str: ...
    @property
    def cwd(self) -> Path: ...
    @property
    def is_aborting(self) -> bool:
        """Whether a run was aborted and is coming to its end."""

    def report(self, path: str, event: str, error: str) -> None:
        """Tell the user that an extension failed."""


class Runtime(Surroundings, Protocol):
    """The agent as extensions see it. Everything here is called on the event loop's thread."""

    # -- where it stands -------------------------------------------------------------------------

    @property
    def session(self) -> SessionView: ...
    @property
    def models(self) -> Models: ...
    @property
    def model(self) -> Model | None: ...
    @property
    def thinking_level(self) -> ThinkingLevel: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def has_pending_messages(self) -> bool: ...
    @property
    def system_prompt(self) -> str: ...
    @property
    def project_trusted(self) -> bool: ...
    def context_usage(self) -> dict[str, Any] | None: ...

    # -- the conversation ------------------------------------------------------------------------

    async def send_message(self, message: CustomMessage, *, trigger_turn: bool, deliver_as: str | None) -> None: ...
    async def send_user_message(self, content: UserContent, *, deliver_as: str | None, expand: bool) -> None: ...
    def append_entry(self, custom_type: str, data: Any) -> str: ...
    def set_label(self, entry_id: str, label: str | None) -> None: ...
    def set_session_name(self, name: str) -> None: ...
    def abort(self) -> None: ...
    def shutdown(self) -> None: ...
    def compact(self, instructions: str | None) -> "asyncio.Task[Any]": ...

    # -- tools, commands, models -----------------------------------------------------------------

    def add_tool(self, tool: Tool) -> None: ...
    def all_tools(self) -> list[Tool]: ...
    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext: ...
    def active_tools(self) -> list[str]: ...
    def set_active_tools(self, names: Sequence[str]) -> None: ...
    def commands(self) -> list[Any]: ...
    async def set_model(self, model: Model) -> bool: ...
    def set_thinking_level(self, level: ThinkingLevel) -> None: ...
    def add_provider(self, name: str, config: Mapping[str, Any], stream: StreamFunction | None) -> None: ...
    def remove_provider(self, name: str) -> None: ...

    # -- only for commands -----------------------------------------------------------------------

    async def wait_for_idle(self) -> None: ...
    async def new_session(
        self, parent: str | None, setup: Callable[[Any], Awaitable[None] | None] | None
    ) -> Replaced: ...
    async def fork(self, entry_id: str, position: str) -> Replaced: ...
    async def switch_session(self, path: str) -> Replaced: ...
    async def navigate_tree(
        self,
        target_id: str,
        *,
        summarize: bool,
        instructions: str | None,
        replace_instructions: bool,
        label: str | None,
    ) -> Navigated: ...
    async def reload(self) -> None: ...
    def command_context(self, path: str) -> Any:
        """Return a fresh context for a command of the extension at `path`."""
