"""Asks the user before tools run, and when a run gets long: one policy, whichever wire has the user."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from spindle.agent.hooks import Blocked, Hooks
from spindle.shapes.codec import encode
from spindle.shapes.messages import AgentMessage, UserMessage
from spindle.tools.base import Tool

__all__ = ["Approval", "Ask", "Question"]


class Question(Struct, frozen=True):
    """What the user is asked: may this tool run, or (no tool) may the model go on?"""

    tool: Tool | None = None
    arguments: Any = None
    turns: int = 0
    """Model calls since the user was last asked, or sent a message."""

    def title(self) -> str:
        return "Go on?" if self.tool is None else f"Allow {self.tool.name}?"

    def text(self) -> str:
        if self.tool is None:
            return f"The model has been called {self.turns} times in a row."
        if isinstance(self.arguments, dict) and len(self.arguments) == 1:
            (value,) = self.arguments.values()
            if isinstance(value, str):
                return value  # a lone text is shown as it is
        return encode(self.arguments).decode()


Ask = Callable[[Question], Awaitable[bool]]
"""Puts a question to the user; anything but a clear yes is False. May raise `Blocked` to refuse in its own words."""


class Approval(Hooks):
    def __init__(self, ask: Callable[[], Ask]) -> None:
        """`ask` gives the way to the user of the run that is going on."""
        self._ask = ask
        self.tools = False
        """Ask before every tool call."""
        self.max_turns: int | None = None
        """Ask after so many model calls in a row."""
        self._turns = 0
        """Model calls since the user last agreed, or sent a message."""

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, UserMessage):
            self._turns = 0

    async def before_turn(self) -> bool:
        if self.max_turns is not None and self._turns >= self.max_turns:
            if not await self._ask()(Question(turns=self._turns)):
                return False
            self._turns = 0
        self._turns += 1
        return True

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if self.tools and not await self._ask()(Question(tool, args)):
            raise Blocked(f"The user did not allow this call of {tool.name}.")
        return args
