"""The places where extensions can look in and change things, with what happens when nobody does.

The agent calls these methods; `extensions/runner` overrides them. `listening` names the events somebody handles, so
that nothing is even put together for the others: callers test it first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spindle.shapes.content import Image
from spindle.shapes.events import Event, ToolResult
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage

__all__ = ["BLOCKED", "CONTEXT_EVENTS", "Blocked", "Hooks"]

BLOCKED = "Tool execution was blocked"
CONTEXT_EVENTS = frozenset(("context", "context_with_system"))


class Blocked(Exception):
    """A tool call must not run; the text is what the model reads."""

    def __init__(self, reason: str, *, terminate: bool = False) -> None:
        super().__init__(reason)
        self.terminate = terminate
        """Whether the run should end as well."""


class Hooks:
    listening: frozenset[str] = frozenset()

    # -- a prompt --------------------------------------------------------------------------------

    async def run_command(self, text: str) -> bool:
        """Run `/name args` if an extension has that command. Returns whether it did."""
        return False

    def has_command(self, name: str) -> bool:
        return False

    def commands(self) -> list[Any]:
        """Return the items extension commands add to `get_commands`."""
        return []

    async def complete_command(self, name: str, prefix: str) -> list[str]:
        """Return what the arguments of a command may become."""
        return []

    async def input(
        self, text: str, images: Sequence[Image], source: str, behavior: str | None
    ) -> tuple[str, list[Image]] | None:
        """Return the text and images to go on with, or None if the input was dealt with."""
        return text, list(images)

    async def before_agent_start(
        self, prompt: str, images: Sequence[Image], system_prompt: str, options: Mapping[str, Any]
    ) -> tuple[list[CustomMessage], str | None]:
        """Return messages to add after the prompt, and the system prompt of this run if it is another."""
        return [], None

    # -- a run -----------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """The task that calls this runs for itself, even if it was a handler that began it."""

    async def observe(self, event: Event) -> None:
        """See an event before it goes out."""

    def observe_soon(self, event: Event) -> None:
        """See an event for which nobody waits."""

    async def caught_up(self, limit: float | None = None) -> None:
        """Return when those events have been seen, too, or after `limit` seconds."""

    def interrupt(self) -> None:
        """The user aborted: handlers at work and open dialogs should end."""

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        """Return the conversation and the system prompt as this one model call should see them."""
        return messages, system_prompt

    async def message_end(self, message: AgentMessage) -> AgentMessage:
        """Return the message to keep, of the same role."""
        return message

    async def tool_call(self, call_id: str, name: str, args: Any) -> Any:
        """Return the arguments to run with. Raises `Blocked`."""
        return args

    async def tool_result(
        self, call_id: str, name: str, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        """Return the result to keep, and whether it is an error."""
        return result, failed

    async def before_provider_request(self, payload: Any) -> Any:
        """Return the request body to send."""
        return payload

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        """Change request headers in place."""

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        """Learn how the server answered."""

    async def before_settle(
        self, answer: AssistantMessage, context: Sequence[AgentMessage]
    ) -> list[CustomMessage] | None:
        """Return messages (perhaps none) if the model should go on, or None if all is done."""
        return None

    # -- a session -------------------------------------------------------------------------------

    async def veto(self, event: str, **fields: Any) -> bool:
        """Ask `session_before_switch` / `session_before_fork`; True cancels."""
        return False

    async def ask(self, event: str, **fields: Any) -> dict[str, Any]:
        """Ask `session_before_compact` / `session_before_tree`; return what was answered, merged."""
        return {}

    async def project_trust(self, cwd: str) -> tuple[bool, bool] | None:
        """Return whether to trust a project and whether to remember it; None if nobody knows."""
        return None

    async def resources_discover(self, cwd: str, reason: str) -> tuple[list[str], list[str]]:
        """Return paths of more skills and of more prompt templates."""
        return [], []

    async def user_bash(self, command: str, exclude_from_context: bool, cwd: str) -> dict[str, Any] | None:
        """Return a bash result to use instead of running the command. Errors of handlers come out."""
        return None

    async def notify(self, event: str, **fields: Any) -> None:
        """Tell of something that happened (`session_start`, `model_select`, `session_shutdown`, …)."""
