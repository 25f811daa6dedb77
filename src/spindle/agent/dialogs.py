"""Questions and notices for the user, on whatever client there is: of extensions, and of `Approval`.

Approval asks before tools run, and when a run gets long: one policy, whichever wire has the user.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.submission import Question, RunOptions
from spindle.shapes.codec import encode
from spindle.shapes.events import Event, ExtensionUIRequest
from spindle.shapes.messages import AgentMessage, UserMessage
from spindle.tools.base import Tool


class Dialogs(Protocol):
    """Where dialogs are shown: a client behind a wire, a terminal, or nowhere."""

    has_ui: bool

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        """Return the answer's fields, or None for no answer: cancelled, too late, no client."""

    def tell(self, request: ExtensionUIRequest) -> None:
        """Show something that needs no answer."""

    def withdraw(self) -> None:
        """Close every open dialog without an answer."""

    def open_requests(self) -> list[ExtensionUIRequest]:
        """Return the dialogs that wait for an answer, for a client that has just come."""


class NoDialogs:
    """There is no one to ask."""

    has_ui = False

    async def ask(self, request: ExtensionUIRequest) -> None:
        return None

    def tell(self, request: ExtensionUIRequest) -> None: ...

    def withdraw(self) -> None: ...

    def open_requests(self) -> list[ExtensionUIRequest]:
        return []


class WireDialogs:
    """Asks clients: requests go out as events, answers come back as frames."""

    has_ui = True

    def __init__(self, publish: Callable[[Event], None], *, shared: bool = False) -> None:
        """`shared`: several clients are asked, and those who did not answer are told that it is over."""
        self._publish = publish
        self._shared = shared
        self._open: dict[str, tuple[ExtensionUIRequest, asyncio.Future[dict[str, Any] | None]]] = {}

    def open_requests(self) -> list[ExtensionUIRequest]:
        return [request for request, _ in self._open.values()]

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request, answer
        self._publish(request)
        withdrawn = True
        try:
            async with asyncio.timeout(None if request.timeout is None else request.timeout / 1000):
                given = await answer
            withdrawn = given is None
            return given
        except TimeoutError:
            withdrawn = False  # the client was told when to expect this
            return None
        finally:
            del self._open[request.id]
            if withdrawn or self._shared:
                self._publish(ExtensionUIRequest(id=str(uuid.uuid4()), method="cancel", target_id=request.id))

    def tell(self, request: ExtensionUIRequest) -> None:
        self._publish(request)

    def receive(self, frame: dict[str, Any]) -> bool:
        """Take an `extension_ui_response`. Unknown and late ids are ignored; it is never a command."""
        id = frame.get("id")
        _, answer = self._open.get(id, (None, None)) if isinstance(id, str) else (None, None)
        if answer is not None and not answer.done():
            answer.set_result(frame)
        return True

    def withdraw(self) -> None:
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_result(None)


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
