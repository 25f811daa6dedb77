"""The places where extensions can look in and change things, with what happens when nobody does.

The agent calls these methods; `extensions/runner` overrides them. `listening` names the events somebody handles, so
that the hot paths pay nothing for the others.
"""

from collections.abc import Sequence
from typing import Any

from spindle.types.content import Image
from spindle.types.events import Event, ToolResult
from spindle.types.messages import AgentMessage, CustomMessage

__all__ = ["Hooks"]


class Hooks:
    listening: frozenset[str] = frozenset()

    # -- a prompt --------------------------------------------------------------------------------

    async def run_command(self, text: str) -> bool:
        """Run `/name args` if an extension has that command. Returns whether it did."""
        return False

    def has_command(self, name: str) -> bool:
        return False

    def commands(self) -> list[dict[str, Any]]:
        """Return the items extension commands add to `get_commands`."""
        return []

    async def input(
        self, text: str, images: Sequence[Image], source: str, behavior: str | None
    ) -> tuple[str, list[Image]] | None:
        """Return the text and images to go on with, or None if the input was dealt with."""
        return text, list(images)

    async def before_agent_start(
        self, prompt: str, images: Sequence[Image], system_prompt: str
    ) -> tuple[list[CustomMessage], str]:
        """Return messages to add after the prompt, and the system prompt of this run."""
        return [], system_prompt

    # -- a run -----------------------------------------------------------------------------------

    async def observe(self, event: Event) -> None:
        """See an event before it goes out."""

    async def context(self, messages: list[AgentMessage]) -> list[AgentMessage]:
        """Return the conversation as this one model call should see it."""
        return messages

    async def message_end(self, message: AgentMessage) -> AgentMessage:
        """Return the message to keep, of the same role."""
        return message

    async def tool_call(self, call_id: str, name: str, args: Any) -> Any:
        """Return the arguments to run with. Raises to block the call; the text is what the model reads."""
        return args

    async def tool_result(
        self, call_id: str, name: str, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        return result, failed

    async def before_provider_request(self, payload: Any) -> Any:
        return payload

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        """Change request headers in place."""

    async def after_provider_response(self, status: int, headers: Any) -> None:
        """Learn how the server answered."""

    # -- a session -------------------------------------------------------------------------------

    async def veto(self, event: str, payload: dict[str, Any]) -> bool:
        """Ask `session_before_switch` / `session_before_fork`; True cancels."""
        return False

    async def before_compact(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Return `{"cancel": True}`, `{"compaction": {...}}` to replace the summariser, or None."""
        return None

    async def before_tree(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        return None

    async def user_bash(self, command: str, exclude_from_context: bool, cwd: str) -> dict[str, Any] | None:
        """Return a bash result to use instead of running the command."""
        return None

    async def notify(self, event: str, payload: dict[str, Any]) -> None:
        """Tell of something that happened (`session_start`, `model_select`, `session_shutdown`, …)."""
