"""Runs the handlers of extensions: in load order, one after the other; a failure of one does not affect the others.

A handler that raises, exceeds its time limit or returns nonsense is reported (`extension_error`) and the next one
runs. Two events differ: a failing `tool_call` handler blocks the call, a failing `user_bash` handler the command.
"""

import asyncio
import copy
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeAlias
from weakref import proxy

import msgspec

from spindle.agent.hooks import Blocked, ExtensionInForce, Fields, Hooks, Start
from spindle.base import limits
from spindle.base.errors import error_text, told
from spindle.base.flow import Tasks
from spindle.base.spelling import nearest
from spindle.plugins.extensions import events
from spindle.plugins.extensions.context import CommandContext, Context
from spindle.plugins.extensions.generation import Extension, Generation, Handler
from spindle.plugins.extensions.tools import as_content, as_custom_message, as_message, as_messages, require_json
from spindle.plugins.extensions.ui import UI
from spindle.resources.sources import CommandItem
from spindle.shapes.events import (
    AgentStart,
    Event,
    ExtensionError,
    MessageStart,
    MessageUpdate,
    ToolExecutionUpdate,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage, Image
from spindle.tools.base import Tool

BLOCKED = "Tool execution was blocked"
CONTEXT_EVENTS = frozenset(("context", "context_with_system"))
ANSWERS: dict[str, tuple[str, ...]] = {
    "project_trust": ("trusted", "remember"),
    "resources_discover": ("skillPaths", "promptPaths", "themePaths"),
    "session_before_switch": ("cancel",),
    "session_before_fork": ("cancel", "skipConversationRestore"),
    "session_before_compact": ("cancel", "compaction"),
    "session_before_tree": ("cancel", "summary", "customInstructions", "replaceInstructions", "label"),
    "input": ("action", "text", "images"),
    "before_agent_start": ("message", "systemPrompt"),
    "agent_before_settle": ("entries", "continue"),
    "message_end": ("message",),
    "context": ("messages",),
    "context_with_system": ("messages", "systemPrompt"),
    "tool_call": ("block", "reason", "terminate"),
    "tool_result": ("content", "details", "isError"),
    "user_bash": ("result",),
}
"""Keys of the answers that handlers may give; other events take no answer, or (a request body) any."""
Apply: TypeAlias = Callable[[dict[str, Any]], bool | None]
_own_call: ContextVar[object] = ContextVar("own_call", default=None)
"""Names the call of a handler whose code is running. It is only a name, because timers keep it for longer."""
_part_of: ContextVar[asyncio.Task[None] | None] = ContextVar("part_of", default=None)
"""The delivery whose handlers the running code belongs to."""


class Backlog:
    """Events that nothing waits for, on their way to handlers: one after the other, in their order.

    Later events that something waits for come after them (`caught_up`), so that an extension does not learn of a fork
    before it learns that the run before the fork has settled.
    """

    def __init__(self, tell: Callable[[Event], Awaitable[None]]) -> None:
        self._tell = tell
        self._waiting: deque[Event] = deque()
        self._empty = asyncio.Event()
        """Set when all events are delivered."""
        self._empty.set()
        self._worker: asyncio.Task[None] | None = None
        self._deliveries = Tasks()
        """Deliveries at work, also those that took too long to wait for."""

    def add(self, event: Event) -> None:
        if self._waiting and _replaces(event, self._waiting[-1]):
            self._waiting[-1] = event
            return
        self._waiting.append(event)
        if self._empty.is_set():
            self._empty.clear()
            self._worker = asyncio.create_task(self._work_off(), name="spindle-backlog")

    async def caught_up(self, limit: float | None = None) -> None:
        """Return when all events are delivered, or after `limit` seconds. Handlers do not wait for themselves."""
        inside = _part_of.get()
        if inside is None or inside.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await self._empty.wait()

    async def close(self) -> None:
        """Drop events that were not delivered and stop the handlers at work."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
        self._empty.set()
        await self._deliveries.end(limits.TASKS_END, _part_of.get())

    async def _work_off(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            delivery = self._deliveries.spawn(self._deliver(event), "spindle-handlers")
            _, late = await asyncio.wait([delivery], timeout=limits.EVENT_HANDLERS)
            if late:
                seconds = f"{limits.EVENT_HANDLERS:g} s"
                print(
                    f"Handlers of {event.type} take longer than {seconds}; what comes next does not wait for them",
                    file=sys.stderr,
                )
        self._empty.set()

    async def _deliver(self, event: Event) -> None:
        _part_of.set(asyncio.current_task())
        await self._tell(event)


def _replaces(event: Event, before: Event) -> bool:
    """Say whether only the later event needs delivery: progress is the whole result so far."""
    if not isinstance(event, ToolExecutionUpdate) or not isinstance(before, ToolExecutionUpdate):
        return False
    return event.tool_call_id == before.tool_call_id


class ExtensionHooks(Hooks):
    """One generation of extensions, as the agent calls it."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.turn = -1
        """Number of the current turn in its run, if a handler wants to know."""
        self._binding = generation.binding
        me: ExtensionHooks = proxy(self)
        self._backlog = Backlog(lambda event: me.observe(event))
        self._clocks: dict[object, asyncio.Timeout] = {}
        """Clocks of the handlers at work, by their calls."""
        self._traced: set[tuple[str, str]] = set()
        """Extensions and events with a traceback on stderr: one each, so that a broken handler does not flood it."""

    @property
    def listening(self) -> frozenset[str]:  # type: ignore[override]
        return self.generation.listening

    async def retire(self) -> None:
        """End this generation: nothing of it runs or listens afterwards."""
        await self._backlog.close()
        await self.generation.retire()

    # -- calling handlers ------------------------------------------------------------------------

    def context_for(self, extension: Extension) -> Context:
        return Context(self._binding, self._ui(), extension.agent)

    def command_context(self, extension: Extension | None) -> CommandContext:
        if extension is None:
            return CommandContext(self._binding, self._ui(), None)
        return CommandContext(self._binding, self._ui(), extension.agent, extension.home)

    def _ui(self) -> UI:
        return UI(self._binding, lambda event, kind, title: self.each(events.EVENTS[event](kind, title)))

    async def handlers(self, event: Event) -> list[Handler]:
        """Return the handlers of an event, after all earlier events are delivered."""
        found = self.generation.handlers.get(event.type, ())
        if found:
            await self.caught_up()
        tool = getattr(event, "tool_name", None)
        return [handler for handler in found if handler.tools is None or tool in handler.tools]

    async def each(self, event: Event, apply: Apply | None = None) -> None:
        """Call every handler; `apply` takes an answer and says whether to stop there."""
        for handler in await self.handlers(event):
            try:
                result = await self.invoke(handler, event)
                if result is not None and apply is not None and apply(as_answer(result, event.type)):
                    return
            except Exception as error:
                self.report(handler.extension.path, event.type, error)

    async def invoke(self, handler: Handler, event: Event, timeout: float | None = None) -> Any:
        """Call one handler, within its time limit. Raises what it raises."""
        limit = handler.timeout if timeout is None else timeout
        here = self._binding.surroundings
        if here is not None and here.aborting:
            limit = min(limit or limits.HANDLER_AFTER_ABORT, limits.HANDLER_AFTER_ABORT)
        end = None if limit is None else time.monotonic() + limit
        ctx = self.context_for(handler.extension)
        call, clock = object(), asyncio.timeout(limit)
        before = _own_call.set(call)
        self._clocks[call] = clock
        try:
            async with clock:
                return await handler.extension.home.call(handler.function, event, ctx)
        except asyncio.CancelledError:
            ctx.cancelled.set()
            raise
        except TimeoutError:
            if not clock.expired():
                raise
            ctx.cancelled.set()
            if end is None or time.monotonic() < end:
                raise TimeoutError(f"The {event.type} handler was stopped by an abort") from None
            raise TimeoutError(f"The {event.type} handler took longer than {limit:g} s") from None
        finally:
            del self._clocks[call]
            _own_call.reset(before)
            del clock  # it holds this task, whose cancellation would hold this frame

    def interrupt(self) -> None:
        """End the handlers at work and close their dialogs."""
        now = asyncio.get_running_loop().time()
        own = _own_call.get()  # a handler that itself aborts the run may finish
        for call, clock in self._clocks.items():
            if call is not own and not clock.expired():
                clock.reschedule(now)
        if self._binding.surroundings is not None:
            self._binding.surroundings.dialogs.withdraw()

    def report(self, path: str, event: str, error: Exception) -> None:
        """Tell clients about a failure, and stderr where it happened."""
        where = None
        if error.__traceback__ is not None:
            import traceback

            where = "".join(traceback.format_exception(error))
            if (path, event) not in self._traced:
                self._traced.add((path, event))
                print(where, end="", file=sys.stderr)
        if self._binding.surroundings is not None:
            self._binding.surroundings.publish(ExtensionError(path, event, error_text(error), where))

    async def notify(self, event: str, **fields: Any) -> None:
        if event not in self.listening:
            return
        made = events.EVENTS[event](**fields)
        if event == "session_shutdown":
            await self._shut_down(made)
        else:
            await self.each(made)

    async def _shut_down(self, event: Event) -> None:
        end = time.monotonic() + limits.SESSION_SHUTDOWN
        for handler in self.generation.handlers.get("session_shutdown", ()):
            # A handler behind one that used up the time still gets a moment.
            left = max(end - time.monotonic(), 0.1)
            telling = asyncio.create_task(self.invoke(handler, event, min(left, handler.timeout or left)))
            try:
                await asyncio.wait([telling], timeout=left + limits.HANDLER_END)
                if not telling.done():
                    raise TimeoutError("The session_shutdown handler does not end")
                telling.result()
            except Exception as error:
                self.report(handler.extension.path, "session_shutdown", error)
            finally:
                telling.cancel()

    # -- commands --------------------------------------------------------------------------------

    async def run_command(self, text: str) -> None:
        name, _, args = text[1:].partition(" ")
        command = self.generation.commands[name]
        await self.caught_up()
        ctx = self.command_context(command.extension)
        try:
            await command.extension.home.call(command.function, args, ctx)
        except asyncio.CancelledError:
            ctx.cancelled.set()
            raise
        except Exception as error:
            self.report(f"command:{command.name}", "command", error)

    def has_command(self, name: str) -> bool:
        return name in self.generation.commands

    def commands(self) -> list[Any]:
        return [
            CommandItem.of(name, "extension", command.extension.origin, command.help)
            for name, command in self.generation.commands.items()
        ]

    def loaded(self) -> list[ExtensionInForce]:
        return [
            ExtensionInForce(path=one.path, scope=one.origin.scope, tools=[*one.tools], commands=[*one.commands])
            for one in self.generation.extensions
        ]

    async def complete_command(self, name: str, prefix: str) -> list[str]:
        command = self.generation.commands.get(name)
        if command is None or command.completer is None:
            return []
        try:
            async with asyncio.timeout(limits.EVENT_HANDLERS):
                found = await command.extension.home.call(command.completer, prefix)
                return [str(item) for item in found or ()]
        except Exception as error:
            self.report(f"command:{name}", "complete", error)
            return []

    # -- a prompt --------------------------------------------------------------------------------

    @property
    def wants_input(self) -> bool:
        return "input" in self.generation.handlers

    async def input(
        self, text: str, images: list[Image], source: str, behavior: str | None
    ) -> tuple[str, list[Image]] | None:
        event = events.InputEvent(text, list(images), source, behavior)
        handled = False

        def apply(answer: dict[str, Any]) -> bool:
            nonlocal handled
            action = answer.get("action", "continue")
            if action == "transform":
                event.text = _str(answer, "text")
                if answer.get("images") is not None:
                    event.images = [item for item in as_content(answer["images"]) if isinstance(item, Image)]
            elif action not in ("continue", "handled"):
                raise ValueError(f'"action" must be continue, transform or handled, not {action!r}')
            handled = bool(action == "handled")
            return handled

        await self.each(event, apply)
        return None if handled else (event.text, event.images)

    async def before_agent_start(self, start: Start) -> None:
        event = events.BeforeAgentStartEvent(start.prompt, list(start.images), start.system_prompt, dict(start.made_of))

        def apply(answer: dict[str, Any]) -> None:
            if answer.get("message") is not None:
                start.messages.append(as_custom_message(answer["message"]))
            if answer.get("systemPrompt") is not None:
                event.system_prompt = _str(answer, "systemPrompt")

        await self.each(event, apply)
        start.system_prompt = event.system_prompt

    # -- a run -----------------------------------------------------------------------------------

    def begin_run(self) -> None:
        _part_of.set(None)  # a run waits for events like any other code,
        _own_call.set(None)  # and its abort ends every handler

    async def observe(self, event: Event) -> None:
        if isinstance(event, AgentStart):
            self.turn = -1
        elif isinstance(event, TurnStart):
            self.turn += 1
        if event.type in self.generation.handlers:
            await self.each(self._seen(event))

    def observe_soon(self, event: Event) -> None:
        self._backlog.add(event)

    async def caught_up(self, limit: float | None = None) -> None:
        await self._backlog.caught_up(limit)

    def _seen(self, event: Event) -> Event:
        """Return the event as handlers get it: a copy, so that fields they assign to are theirs alone."""
        match event:
            case TurnStart():
                return events.TurnStartEvent(self.turn, int(time.time() * 1000))
            case TurnEnd():
                return events.TurnEndEvent(self.turn, event.message, event.tool_results)
            case MessageStart():
                return events.MessageStartEvent(event.message)
            case MessageUpdate():
                return events.MessageUpdateEvent(event.message, event.assistant_message_event)
        return copy.copy(event)

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        if not self.listening & CONTEXT_EVENTS:
            return messages, system_prompt
        # Handlers may change the messages in place; the conversation itself must not change.
        plain = events.ContextEvent(copy.deepcopy(messages))

        def replace(answer: dict[str, Any]) -> None:
            if answer.get("messages") is not None:
                plain.messages = as_messages(answer["messages"])

        await self.each(plain, replace)
        full = events.ContextWithSystemEvent(system_prompt, plain.messages)

        def replace_all(answer: dict[str, Any]) -> None:
            if answer.get("messages") is not None:
                full.messages = as_messages(answer["messages"])
            if answer.get("systemPrompt") is not None:
                full.system_prompt = _str(answer, "systemPrompt")

        await self.each(full, replace_all)
        return full.messages, full.system_prompt

    async def message_end(self, message: AgentMessage) -> AgentMessage:
        if "message_end" not in self.listening:
            return message
        event = events.MessageEndEvent(message)

        def apply(answer: dict[str, Any]) -> None:
            if answer.get("message") is None:
                return
            other = as_message(answer["message"])
            if type(other) is not type(message):
                raise ValueError("A message can only be replaced by one of the same role")
            event._message = other

        await self.each(event, apply)
        return event.message

    async def before_settle(
        self, answer: AssistantMessage, context: Sequence[AgentMessage]
    ) -> list[CustomMessage] | None:
        event = events.AgentBeforeSettleEvent(answer.stop_reason, answer, list(context), [], False)

        def apply(result: dict[str, Any]) -> None:
            event.entries += [as_custom_message(entry) for entry in result.get("entries") or ()]
            event.continue_ = event.continue_ or result.get("continue") is True

        await self.each(event, apply)
        return event.entries if event.continue_ else None

    # -- tools -----------------------------------------------------------------------------------

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        event = events.ToolCallEvent(tool.name, call_id, args)
        for handler in await self.handlers(event):
            try:
                result = await self.invoke(handler, event)
                answer = {} if result is None else as_answer(result, "tool_call")
            except Exception as error:
                # A handler that fails blocks the call.
                self.report(handler.extension.path, "tool_call", error)
                raise Blocked(error_text(error), by="error", error=told(error)) from None
            if answer.get("block"):
                reason, ends = str(answer.get("reason") or BLOCKED), answer.get("terminate") is True
                raise Blocked(reason, terminate=ends, by="extension")
        return event.input

    async def tool_result(
        self, call_id: str, tool: Tool, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        event = events.ToolResultEvent(tool.name, call_id, args, result.content, result.details, failed)

        def apply(answer: dict[str, Any]) -> None:
            # The whole answer is checked before any part of it is used.
            content = as_content(answer["content"]) if answer.get("content") is not None else event.content
            details = require_json(answer["details"], "details") if "details" in answer else event.details
            event.content, event.details = content, details
            if answer.get("isError") is not None:
                event.is_error = bool(answer["isError"])

        await self.each(event, apply)
        return ToolResult(event.content, event.details, result.terminate), event.is_error

    # -- the model's server ----------------------------------------------------------------------

    @property
    def wants_payload(self) -> bool:
        return "before_provider_request" in self.listening

    async def before_provider_request(self, payload: Any) -> Any:
        event = events.BeforeProviderRequestEvent(payload)

        def apply(answer: Any) -> None:
            event.payload = require_json(answer, "The payload")

        await self.each(event, apply)
        return event.payload

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        if "before_provider_headers" not in self.listening:
            return
        event = events.BeforeProviderHeadersEvent(dict(headers))
        await self.each(event)
        headers.clear()
        headers.update({name: str(value) for name, value in event.headers.items() if value is not None})

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        await self.each(events.AfterProviderResponseEvent(status, dict(headers)))

    # -- a session -------------------------------------------------------------------------------

    async def ask(self, event: str, fields: Fields) -> dict[str, Any]:
        merged: dict[str, Any] = {}

        def apply(answer: dict[str, Any]) -> bool:
            merged.update(answer)
            return bool(answer.get("cancel"))

        if event in self.listening:
            await self.each(events.EVENTS[event](**fields()), apply)
        return merged

    async def project_trust(self, cwd: str) -> tuple[bool, bool] | None:
        verdict: tuple[bool, bool] | None = None

        def apply(answer: dict[str, Any]) -> bool:
            nonlocal verdict
            if answer.get("trusted") in ("yes", "no"):
                verdict = answer["trusted"] == "yes", answer.get("remember") is True
            return verdict is not None

        await self.each(events.ProjectTrustEvent(cwd), apply)
        return verdict

    async def resources_discover(self, cwd: str, reason: str) -> tuple[list[str], list[str]]:
        skills: list[str] = []
        prompts: list[str] = []

        def apply(answer: dict[str, Any]) -> None:
            skills.extend(str(path) for path in answer.get("skillPaths") or ())
            prompts.extend(str(path) for path in answer.get("promptPaths") or ())

        await self.each(events.ResourcesDiscoverEvent(cwd, reason), apply)
        return skills, prompts

    async def user_bash(self, command: str, exclude_from_context: bool, cwd: str) -> dict[str, Any] | None:
        event = events.UserBashEvent(command, exclude_from_context, cwd)
        for handler in await self.handlers(event):
            result = await self.invoke(handler, event)
            if result is not None and (found := as_answer(result, "user_bash").get("result")) is not None:
                replaced: dict[str, Any] = found
                return replaced
        return None


def as_answer(result: Any, event: str) -> dict[str, Any]:
    """Return what a handler returned as a dict. Raises `TypeError` if it is not one, and for unknown keys."""
    if isinstance(result, Mapping):
        answer = dict(result)
    elif isinstance(result, msgspec.Struct):
        answer = dict(msgspec.structs.asdict(result))
    else:
        raise TypeError(f"A {event} handler must return None or a dict, not {type(result).__name__}")
    known = ANSWERS.get(event)
    for key in answer:
        if known is not None and key not in known:
            near = nearest(str(key), known)
            advice = f'did you mean "{near}"?' if near else f"it may have {', '.join(known)}"
            raise TypeError(f'The answer of a {event} handler has an unknown key "{key}": {advice}')
    return answer


def _str(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str):
        raise TypeError(f'"{key}" must be a str, not {type(value).__name__}')
    return value
