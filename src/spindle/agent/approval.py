"""Asks the user before tools run, and when a run gets long: one policy, whichever wire has the user."""

import uuid
from collections.abc import Callable
from typing import Any

from spindle.agent.dialogs import Dialogs
from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.submission import Question, RunOptions
from spindle.shapes.codec import encode
from spindle.shapes.events import ExtensionUIRequest
from spindle.shapes.messages import AgentMessage, UserMessage
from spindle.tools.base import Tool

__all__ = ["Approval"]


class Approval(Hooks):
    def __init__(self, dialogs: Dialogs, options: Callable[[], RunOptions]) -> None:
        """`options` are those of the run that is going on: it may have a user of its own."""
        self._dialogs = dialogs
        self._options = options
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
            if not await self._ask(Question(turns=self._turns)):
                return False
            self._turns = 0
        self._turns += 1
        return True

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        if (self.tools or self._options().ask_before_tools) and not await self._ask(Question(tool, args)):
            raise Blocked(f"The user did not allow this call of {tool.name}.")
        return args

    async def _ask(self, question: Question) -> bool:
        ask = self._options().ask
        if ask is not None:
            return await ask(question)
        answer = await self._dialogs.ask(
            ExtensionUIRequest(id=str(uuid.uuid4()), method="confirm", title=_title(question), message=_text(question))
        )
        return answer is not None and answer.get("confirmed") is True


def _title(question: Question) -> str:
    return "Go on?" if question.tool is None else f"Allow {question.tool.name}?"


def _text(question: Question) -> str:
    if question.tool is None:
        return f"The model has been called {question.turns} times in a row."
    if isinstance(question.arguments, dict) and len(question.arguments) == 1:
        (value,) = question.arguments.values()
        if isinstance(value, str):
            return value  # a lone text is shown as it is
    return encode(question.arguments).decode()
