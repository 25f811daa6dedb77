"""Requests of the agent to the program that drives it: calls of its functions, and questions for its user."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from spindle.base.flow import Tasks
from spindle.base.limits import TOOL_END
from spindle.base.signature import read_signature
from spindle.client.transport import Json
from spindle.shapes import codec

QUESTIONS = frozenset({"select", "confirm", "input", "editor"})
CALL, DIALOG = "host_tool_call", "extension_ui_request"

log = logging.getLogger(__name__)


class Event(dict[str, Any]):
    """One event: the object that the agent wrote, as in `event["toolName"]`. Unknown types are handed on unchanged."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """Its name, such as `agent_end`."""
        return str(self.get("type"))

    @property
    def text_delta(self) -> str:
        """The new piece of the answer's text; empty for every other event."""
        piece = self.get("assistantMessageEvent") if self.type == "message_update" else None
        return str(piece.get("delta", "")) if isinstance(piece, dict) and piece.get("type") == "text_delta" else ""


UiHandler: TypeAlias = Callable[[Event], Any]
"""Gets the request; returns (or is a coroutine that returns) a text, a bool for `confirm`, or None to cancel."""


class Update:
    """Reports progress of a call. A parameter of this type is filled in by the client and not shown to the model."""

    def __init__(self, report: Callable[[Json], None]) -> None:
        self._report = report
        self.cancelled = False
        """Whether the agent has cancelled the call. A coroutine is cancelled too; a plain function has to look here."""

    def __call__(self, progress: Any) -> None:
        """Show `progress`: the whole result so far, in any form that a tool may return. Works from any thread."""
        self._report(_result(progress))


class HostTool:
    """A function of this program, and its description for the model."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        parameters: Any = None,
        safe_to_retry: bool = False,
    ) -> None:
        self.name = name or function.__name__
        self._function = function
        self._signature = read_signature(function, parameters, is_injected=lambda _, kind: kind is Update, closed=True)
        self.definition: Json = {
            "name": self.name,
            "description": description or inspect.getdoc(function) or "",
            "parameters": self._signature.parameters,
            **({"safeToRetry": True} if safe_to_retry else {}),
        }
        """The form that `set_host_tools` takes."""

    async def run(self, arguments: Any, update: Update) -> Json:
        """Check the arguments, call the function, return its result. A plain function runs in a thread."""
        positional, named = self._signature.bind(arguments)
        named |= dict.fromkeys(self._signature.injected, update)
        if inspect.iscoroutinefunction(self._function):
            return _result(await self._function(*positional, **named))
        return _result(await asyncio.to_thread(self._function, *positional, **named))


class Callbacks:
    """Serves the requests of one agent, each in a task of its own that the agent may cancel."""

    def __init__(
        self,
        post: Callable[[Json], None],
        ui_handler: Callable[[], UiHandler | None],
        permission_handler: Callable[[], UiHandler | None],
    ) -> None:
        self._permission_handler = permission_handler
        self._questions: set[str] = set()
        """Ids of open questions about calls, which are not asked again as dialogs."""
        self.answering: set[str] = set()
        """Ids of those that the program is answering: its handler is not cancelled because of its own answer."""
        self.tools: dict[str, HostTool] = {}
        self._ui_handler = ui_handler
        self._post = post
        self._tasks = Tasks()
        self._open: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By the kind and id of the request."""

    def receive(self, event: Event) -> None:
        """Serve an event, if it is a request. Calls of tools that were declared by hand are left to the program."""
        match event.type:
            case "host_tool_call":
                if tool := self.tools.get(str(event.get("toolName"))):
                    self._begin(CALL, event, self._call(tool, event))
            case "host_tool_cancel":
                self._call_off(CALL, event)
            case "permission_request" if (handler := self._permission_handler()) is not None:
                self._questions.add(str(event.get("id")))
                self._begin(DIALOG, event, self._ask_permission(handler, event))
            case "permission_answered":
                self._questions.discard(str(event.get("id")))
                self._call_off(DIALOG, Event(targetId=event.get("id")))
            case "extension_ui_request" if event.get("method") == "cancel":
                self._call_off(DIALOG, event)
            case "extension_ui_request" if event.get("id") in self._questions:
                pass  # the same question, for clients that know only dialogs
            case "extension_ui_request":
                self._begin(DIALOG, event, self._ask(event))

    async def close(self) -> None:
        """Cancel all open requests."""
        await self._tasks.end(TOOL_END)

    def _begin(self, kind: str, event: Event, work: Coroutine[Any, Any, None]) -> None:
        key = kind, str(event.get("id"))
        self._open[key] = task = self._tasks.spawn(work, kind)
        task.add_done_callback(lambda _: self._open.pop(key, None))

    def _call_off(self, kind: str, event: Event) -> None:
        id = str(event.get("targetId"))
        if (task := self._open.get((kind, id))) and id not in self.answering:
            task.cancel()

    async def _call(self, tool: HostTool, event: Event) -> None:
        id = event.get("id")
        update = Update(lambda partial: self._post({"type": "host_tool_update", "id": id, "partialResult": partial}))
        try:
            result = await tool.run(event.get("arguments", {}), update)
            self._post({"type": "host_tool_result", "id": id, "result": result})
        except (Exception, asyncio.CancelledError) as error:  # the model reads the error of a tool
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the agent does not wait for an answer any more
                update.cancelled = True
                raise
            log.debug("host tool %s failed", tool.name, exc_info=True)
            failure = _result(str(error) or type(error).__name__)
            self._post({"type": "host_tool_result", "id": id, "result": failure, "isError": True})

    async def _ask_permission(self, handler: UiHandler, request: Event) -> None:
        """Let the handler answer a question about a call. If it fails, the agent is told so."""
        try:
            given = handler(request)
            if inspect.isawaitable(given):
                await given
        except Exception as error:
            log.exception("the handler of permission requests failed")
            text = f"{type(error).__name__}: {error}"
            self._post({"type": "extension_ui_response", "id": request["id"], "error": text})
        finally:
            self.answering.discard(str(request.get("id")))

    async def _ask(self, request: Event) -> None:
        """Let the handler answer. If there is none, or it fails, cancel the question: the agent waits for a reply."""
        handler = self._ui_handler()
        try:
            answer = handler(request) if handler is not None else None
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            log.exception("the handler of %s requests failed", request.get("method"))
            answer = None
        if request.get("method") not in QUESTIONS:
            return
        reply: Json = {"type": "extension_ui_response", "id": request["id"]}
        if answer is None:
            reply["cancelled"] = True
        elif request["method"] == "confirm":
            reply["confirmed"] = bool(answer)
        else:
            reply["value"] = str(answer)
        self._post(reply)


def _result(value: Any) -> Json:
    """Return the value of a function in the form of a tool result."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return value
    text = "done" if value is None else value if isinstance(value, str) else codec.encode(value).decode()
    return {"content": [{"type": "text", "text": text}]}
