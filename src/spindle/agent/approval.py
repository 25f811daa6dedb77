"""Asks the user, through whatever front the client has, before tools run and when a run gets long."""

import uuid
from typing import TYPE_CHECKING, Any

from spindle.agent.abort import Aborted
from spindle.extensions.hooks import Blocked
from spindle.shapes.codec import encode
from spindle.shapes.events import ExtensionUIRequest
from spindle.shapes.messages import UserMessage
from spindle.tools.base import Tool

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

__all__ = ["Approval"]


class Approval:
    """A guard whose questions are ordinary confirm dialogs."""

    def __init__(self, session: "AgentSession", *, tools: bool, max_turns: int | None) -> None:
        self._session = session
        self.tools = tools
        self.max_turns = max_turns
        self._turns = 0
        """Model calls since the user last agreed, or sent a message."""
        self._last_message: UserMessage | None = None

    async def before_turn(self) -> None:
        messages = self._session.conversation.messages
        message = next((m for m in reversed(messages) if isinstance(m, UserMessage)), None)
        if message is not self._last_message:
            self._last_message, self._turns = message, 0
        if self.max_turns is not None and self._turns >= self.max_turns:
            if not await self._confirm("Go on?", f"The model has been called {self._turns} times in a row."):
                raise Aborted
            self._turns = 0
        self._turns += 1

    async def before_tool(self, tool: Tool, arguments: Any) -> None:
        if self.tools and not await self._confirm(f"Allow {tool.name}?", _shown(arguments)):
            raise Blocked(f"The user did not allow this call of {tool.name}.")

    async def _confirm(self, title: str, message: str) -> bool:
        request = ExtensionUIRequest(id=str(uuid.uuid4()), method="confirm", title=title, message=message)
        answer = await self._session.extensions.front.ask(request)
        return answer is not None and answer.get("confirmed") is True


def _shown(arguments: Any) -> str:
    """Show a lone text argument as it is, anything else as JSON."""
    if isinstance(arguments, dict) and len(arguments) == 1:
        (value,) = arguments.values()
        if isinstance(value, str):
            return value
    return encode(arguments).decode()
