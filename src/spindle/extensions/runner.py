"""Runs the handlers of extensions: in load order, one after the other, each behind a wall of its own.

A handler that raises, hangs beyond its time-out or returns nonsense is reported (`extension_error`) and the next one
runs. Two are different: a failing `tool_call` handler blocks the call, a failing `user_bash` handler the command.
"""

import asyncio
import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

from spindle.extensions import events
from spindle.extensions.backlog import Backlog
from spindle.extensions.calls import Apply, Calls, as_answer, error_text
from spindle.extensions.context import CommandContext, Context
from spindle.extensions.hooks import BLOCKED, Blocked, Hooks
from spindle.extensions.record import Command, Extension
from spindle.extensions.registry import Registry
from spindle.extensions.threads import call
from spindle.extensions.values import as_content, as_custom_message, as_message, as_messages, require_json
from spindle.resources.sources import CommandItem
from spindle.shapes.content import Image
from spindle.shapes.events import AgentStart, Event, MessageStart, MessageUpdate, ToolResult, TurnEnd, TurnStart
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage

__all__ = ["ExtensionHooks"]

SHUTDOWN_S = 5.0
"""For all handlers of `session_shutdown` together."""
DEAF_S = 1.0
"""For one of them that does not care that its time is over."""


class ExtensionHooks(Hooks):
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.turn = -1
        """Number of the current turn in its run, if somebody wants to know."""
        self._backlog = Backlog(self.observe)
        self._calls = Calls(registry, self._backlog)
        registry.on_change = self._refresh
        self._refresh()

    def _refresh(self) -> None:
        self.listening = self.registry.listening

    def context_for(self, extension: Extension) -> Context:
        return self._calls.context_for(extension)

    def command_context(self, extension: Extension | None) -> CommandContext:
        return self._calls.command_context(extension)

    def report(self, path: str, event: str, error: Exception) -> None:
        """Tell the user of a failure."""
        self._calls.report(path, event, error)

    def interrupt(self) -> None:
        self._calls.interrupt()

    async def each(self, event: Event, apply: Apply | None = None) -> None:
        """Call every handler of an event; `apply` takes in what one returned and says whether that settles it."""
        await self._calls.each(event, apply)

    async def notify(self, event: str, **fields: Any) -> None:
        made = events.EVENTS[event](**fields)
        if event == "session_shutdown":
            await self._shut_down(made)
        else:
            await self.each(made)

    async def _shut_down(self, event: Event) -> None:
        end = time.monotonic() + SHUTDOWN_S
        for handler in self.registry.handlers.get("session_shutdown", ()):
            # Whoever comes after one that used up the time still gets a moment.
            left = max(end - time.monotonic(), 0.1)
            telling = asyncio.create_task(self._calls.invoke(handler, event, min(left, handler.timeout or left)))
            try:
                await asyncio.wait([telling], timeout=left + DEAF_S)
                if not telling.done():
                    raise TimeoutError("The session_shutdown handler does not end")
                telling.result()
            except Exception as error:
                self.report(handler.extension.path, "session_shutdown", error)
            finally:
                telling.cancel()

    # -- commands --------------------------------------------------------------------------------

    def _find_command(self, text: str) -> tuple[Command | None, str]:
        name, _, args = text[1:].partition(" ")
        return self.registry.commands.get(name), args

    async def run_command(self, text: str) -> bool:
        command, args = self._find_command(text)
        if command is None:
            return False
        await self.caught_up()
        ctx = self.command_context(command.extension)
        try:
            await call(command.function, args, ctx)
        except asyncio.CancelledError:
            ctx.cancelled.set()
            raise
        except Exception as error:
            self.report(f"command:{command.name}", "command", error)
        return True

    def has_command(self, name: str) -> bool:
        return name in self.registry.commands

    def commands(self) -> list[Any]:
        return [
            CommandItem.of(name, "extension", command.extension.origin, command.help)
            for name, command in self.registry.commands.items()
        ]

    async def complete_command(self, name: str, prefix: str) -> list[str]:
        command = self.registry.commands.get(name)
        if command is None or command.completer is None:
            return []
        try:
            return [str(item) for item in await call(command.completer, prefix) or ()]
        except Exception as error:
            self.report(f"command:{name}", "complete", error)
            return []

    # -- a prompt --------------------------------------------------------------------------------

    async def input(
        self, text: str, images: Sequence[Image], source: str, behavior: str | None
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

    async def before_agent_start(
        self, prompt: str, images: Sequence[Image], system_prompt: str, options: Mapping[str, Any]
    ) -> tuple[list[CustomMessage], str | None]:
        event = events.BeforeAgentStartEvent(prompt, list(images), system_prompt, dict(options))
        messages: list[CustomMessage] = []

        def apply(answer: dict[str, Any]) -> None:
            if answer.get("message") is not None:
                messages.append(as_custom_message(answer["message"]))
            if answer.get("systemPrompt") is not None:
                event.system_prompt = _str(answer, "systemPrompt")

        await self.each(event, apply)
        return messages, event.system_prompt if event.system_prompt != system_prompt else None

    # -- a run -----------------------------------------------------------------------------------

    def begin_run(self) -> None:
        self._backlog.detach()
        self._calls.detach()

    async def observe(self, event: Event) -> None:
        if isinstance(event, AgentStart):
            self.turn = -1
        elif isinstance(event, TurnStart):
            self.turn += 1
        if event.type in self.registry.handlers:
            await self.each(self._seen(event))

    def observe_soon(self, event: Event) -> None:
        self._backlog.add(event)

    async def caught_up(self, limit: float | None = None) -> None:
        await self._backlog.caught_up(limit)

    async def retire(self) -> None:
        """End this generation of extensions: nothing of it runs or listens afterwards."""
        await self._backlog.close()
        await self.registry.retire()

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
        # Handlers may change what they get in place; the conversation itself must not notice.
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

    async def tool_call(self, call_id: str, name: str, args: Any) -> Any:
        event = events.ToolCallEvent(name, call_id, args)
        for handler in await self._calls.handlers(event):
            try:
                result = await self._calls.invoke(handler, event)
                answer = {} if result is None else as_answer(result)
            except Exception as error:
                # A gate that broke is a closed gate.
                self.report(handler.extension.path, "tool_call", error)
                raise Blocked(error_text(error)) from None
            if answer.get("block"):
                raise Blocked(str(answer.get("reason") or BLOCKED), terminate=answer.get("terminate") is True)
        return event.input

    async def tool_result(
        self, call_id: str, name: str, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        event = events.ToolResultEvent(name, call_id, args, result.content, result.details, failed)

        def apply(answer: dict[str, Any]) -> None:
            # All of it is checked before any of it counts.
            content = as_content(answer["content"]) if answer.get("content") is not None else event.content
            details = require_json(answer["details"], "details") if "details" in answer else event.details
            event.content, event.details = content, details
            if answer.get("isError") is not None:
                event.is_error = bool(answer["isError"])

        await self.each(event, apply)
        return ToolResult(event.content, event.details, result.terminate), event.is_error

    # -- the model's server ----------------------------------------------------------------------

    async def before_provider_request(self, payload: Any) -> Any:
        event = events.BeforeProviderRequestEvent(payload)

        def apply(answer: Any) -> None:
            event.payload = require_json(answer, "The payload")

        await self.each(event, apply)
        return event.payload

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        event = events.BeforeProviderHeadersEvent(dict(headers))
        await self.each(event)
        headers.clear()
        headers.update({name: str(value) for name, value in event.headers.items() if value is not None})

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        await self.each(events.AfterProviderResponseEvent(status, dict(headers)))

    # -- a session -------------------------------------------------------------------------------

    async def veto(self, event: str, **fields: Any) -> bool:
        return bool((await self.ask(event, **fields)).get("cancel"))

    async def ask(self, event: str, **fields: Any) -> dict[str, Any]:
        merged: dict[str, Any] = {}

        def apply(answer: dict[str, Any]) -> bool:
            merged.update(answer)
            return bool(answer.get("cancel"))

        await self.each(events.EVENTS[event](**fields), apply)
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
        for handler in await self._calls.handlers(event):
            result = await self._calls.invoke(handler, event)
            if result is not None and as_answer(result).get("result") is not None:
                found: dict[str, Any] = as_answer(result)["result"]
                return found
        return None


def _str(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str):
        raise TypeError(f'"{key}" must be a str, not {type(value).__name__}')
    return value
