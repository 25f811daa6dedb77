"""The tool calls of one answer: checked one after another, run together, answered in call order.

A result is in the session file before clients are told that its call ended, so the file has results in the order in
which calls ended.
"""

import asyncio
import time
from collections.abc import Callable, Container
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct

from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.base import limits, trace
from spindle.base.flow import Tasks
from spindle.shapes.builtin_tools import OTHER_NAMES
from spindle.shapes.codec import encode
from spindle.shapes.events import (
    Event,
    MessageStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
)
from spindle.shapes.messages import AgentMessage, AssistantMessage, Text, ToolCall, ToolResultMessage, text_of
from spindle.tools.base import Tool, ToolContext, ToolError, text_result

SKIPPED = "Skipped due to queued user message."
ABORTED = "Operation aborted"
AS_TEXT = "[The call in your text was run. This is its result.]"
"""Ends the result of a call that the model wrote into its text."""
CALL: ContextVar[str | None] = ContextVar("spindle_tool_call", default=None)
"""Id of the call that the running code is part of: its hooks, or its tool."""


class ToolPort(Protocol):
    """What a tool batch needs of the engine."""

    async def emit(self, event: Event) -> None: ...

    async def observe(self, event: Event) -> None:
        """Let hooks see an event, before `tell` tells listeners of it."""

    async def tell(self, event: Event) -> None: ...

    def publish(self, event: Event) -> None:
        """Tell the listeners without waiting for them."""

    @property
    def tool_seconds(self) -> float:
        """How long one call may take."""

    @property
    def congested(self) -> bool:
        """Whether listeners are behind, so that progress is better left out."""

    async def store(self, message: AgentMessage) -> AgentMessage:
        """Put a finished message into the session file; hooks may replace it."""

    async def enter(self, message: AgentMessage) -> None:
        """Make a stored message part of the conversation and tell of its end."""

    def offered_tools(self) -> dict[str, Tool]:
        """Return the tools that the model was told of, by name."""

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext: ...

    def remarks(self, name: str, arguments: Any, result: ToolResult) -> list[str]:
        """Return words for the model that go below the result of a call."""

    def tool_ended(self, name: str, arguments: Any, *, failed: bool, cut: bool) -> None:
        """Count a call; `cut` if it never ran because its answer was cut off."""

    def interrupting(self) -> bool:
        """Whether a steering message should cut this batch short."""


class _Call(Struct):
    """One call and its progress."""

    call: ToolCall
    tool: Tool | None = None
    args: Any = None
    """Arguments after repair, validation and hooks."""
    started: bool = False
    """Whether `tool_execution_start` was sent."""
    began: float = 0.0
    finished: float = 0.0
    ran: bool = False
    outcome: ToolResult | None = None
    failed: bool = False
    stored: ToolResultMessage | None = None
    """The result as it is in the session file."""


class ToolBatch:
    def __init__(
        self, port: ToolPort, hooks: Hooks, message: AssistantMessage, cut: Container[str], signal: AbortSignal
    ) -> None:
        """`cut` are ids of calls whose arguments are not complete: they are not run."""
        self._cut = cut
        self._port = port
        self._hooks = hooks
        self._message = message
        self._signal = signal
        self._calls = [_Call(block) for block in message.content if isinstance(block, ToolCall)]

    async def run(self) -> tuple[list[ToolResultMessage], bool]:
        """Run every call. Returns the result messages, and whether all of them ask to end the run."""
        tools = self._port.offered_tools()
        for item in self._calls:
            item.tool = tools.get(item.call.name) or tools.get(OTHER_NAMES.get(item.call.name, ""))
        if self._message.stop_reason == "length":
            return await self._refuse_all()
        if any(item.tool is not None and item.tool.sequential for item in self._calls):
            return await self._one_by_one()
        return await self._together()

    # -- three ways to run the calls -------------------------------------------------------------

    async def _refuse_all(self) -> tuple[list[ToolResultMessage], bool]:
        for item in self._calls:
            await self._start(item)
            await self._end(
                item,
                _error(
                    f'Tool call "{item.call.name}" was not executed: the response hit the output token limit, so its '
                    "arguments may be truncated. Re-issue the tool call with complete arguments."
                ),
                failed=True,
            )
        return await self._results(self._calls)

    async def _one_by_one(self) -> tuple[list[ToolResultMessage], bool]:
        messages: list[ToolResultMessage] = []
        for item in self._calls:
            if messages and self._port.interrupting():
                await self._start(item)
                await self._end(item, _error(SKIPPED), failed=True)
            elif await self._prepare(item):
                await self._watch({_calls.spawn(self._execute(item), "spindle-tool", report=False): item})
            messages += (await self._results([item]))[0]
        return messages, self._terminated()

    async def _together(self) -> tuple[list[ToolResultMessage], bool]:
        ready = [item for item in self._calls if await self._prepare(item)]
        await self._watch({_calls.spawn(self._execute(item), "spindle-tool", report=False): item for item in ready})
        return await self._results(self._calls)

    # -- one call --------------------------------------------------------------------------------

    async def _start(self, item: _Call) -> None:
        item.started = True
        await self._port.emit(ToolExecutionStart(item.call.id, item.call.name, item.call.arguments))

    async def _prepare(self, item: _Call) -> bool:
        """Announce and check a call. Returns whether it may run; if not, it has already ended."""
        if self._signal.aborted:
            await self._start(item)
            await self._end(item, _error(ABORTED), failed=True)
            return False
        await self._start(item)
        try:
            with self._signal:
                await self._check(item)
            return True
        except Aborted:
            await self._end(item, _error(ABORTED), failed=True)
        except Exception as error:  # hooks are foreign code: if one fails, the call is refused
            refusal = _error(str(error) or type(error).__name__)
            refusal.terminate = isinstance(error, Blocked) and error.terminate
            await self._end(item, refusal, failed=True)
        return False

    async def _check(self, item: _Call) -> None:
        """Fill in the arguments that the tool gets. Raises an exception with the text of the error result."""
        from spindle.tools.validate import checked_arguments

        if item.tool is None:
            await self._hooks.tool_missing(item.call.name)
            item.tool = self._port.offered_tools().get(item.call.name)
        if item.tool is None:
            from spindle.tools.nearest import near_tools

            raise ToolError(f"Tool {item.call.name} not found{near_tools(item.call.name, self._port.offered_tools())}")
        if item.call.id in self._cut:
            raise ToolError(
                f'Tool call "{item.call.name}" was not executed: its arguments are not complete JSON. '
                "Re-issue the tool call with complete arguments."
            )
        checked = await checked_arguments(item.tool, item.call.arguments)
        before = CALL.set(item.call.id)
        try:
            item.args = await self._hooks.tool_call(item.call.id, item.tool, checked)
        finally:
            CALL.reset(before)

    async def _execute(self, item: _Call) -> None:
        """Run the tool and put the outcome into `item`. An error of the tool is its outcome."""
        assert item.tool is not None
        item.ran, item.began = True, time.monotonic()
        CALL.set(item.call.id)

        def update(partial: ToolResult) -> None:
            # Progress is cumulative, so nothing is lost by leaving some of it out for a slow reader.
            if item.outcome is None and not self._port.congested:
                self._port.publish(ToolExecutionUpdate(item.call.id, item.call.name, item.call.arguments, partial))

        clock = asyncio.timeout(self._port.tool_seconds)
        try:
            with trace.span("tool", tool=item.tool.name, call=item.call.id) as span:
                if trace.content:
                    span.set(arguments=item.args)
                async with clock:
                    context = self._port.tool_context(update)
                    outcome = _checked(await item.tool.execute(item.call.id, item.args, context))
                if trace.content:
                    span.set(result=text_of(outcome.content))
            failed = False
        except (Exception, SystemExit) as error:  # a tool fails by raising; the model reads the text
            text = str(error) or type(error).__name__
            if clock.expired():
                text = f"{text}\n\nThe tool was stopped: it took longer than {self._port.tool_seconds:g} s"
            outcome, failed = _error(text, error.details if isinstance(error, ToolError) else None), True
        finally:
            del clock  # it holds this task, whose cancellation would hold this frame
        # Set before hooks see the outcome: an abort from here on does not undo the work of the tool.
        item.outcome, item.failed, item.finished = outcome, failed, time.monotonic()
        item.outcome, item.failed = await self._hooks.tool_result(item.call.id, item.tool, item.args, outcome, failed)

    async def _end(self, item: _Call, outcome: ToolResult, *, failed: bool) -> None:
        item.outcome, item.failed = outcome, failed
        words = [AS_TEXT] if item.call.as_text and item.ran else []
        words += self._port.remarks(item.call.name, item.call.arguments, outcome)
        message = ToolResultMessage(
            tool_call_id=item.call.id,
            tool_name=item.call.name,
            content=[*outcome.content, *map(Text, words)],
            details=outcome.details,
            is_error=failed,
            timestamp=int(time.time() * 1000),
        )
        cut = self._message.stop_reason == "length" or item.call.id in self._cut
        self._port.tool_ended(item.call.name, item.args or item.call.arguments, failed=failed, cut=cut)
        duration = int(((item.finished or time.monotonic()) - item.began) * 1000) if item.ran else None
        end = ToolExecutionEnd(
            item.call.id, item.call.name, ToolResult(outcome.content, outcome.details), failed, duration
        )
        # Hooks may change the message, so they see these events now; clients see the messages later, in call order.
        await self._port.observe(end)
        await self._port.observe(MessageStart(message))
        stored = await self._port.store(message)
        item.stored = stored if isinstance(stored, ToolResultMessage) else message
        await self._port.tell(end)

    # -- many calls ------------------------------------------------------------------------------

    async def _watch(self, running: dict[asyncio.Task[None], _Call]) -> None:
        """Tell of the end of each call as it comes. On abort or steering, stop the calls that still run."""
        try:
            while running:
                with self._signal:
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: running[task].finished):
                    await self._tell_end(running.pop(task), task)
                if running and self._port.interrupting():
                    await self._skip(running)
        except Aborted:
            await self._stop(list(running))
            for task, item in running.items():
                await self._tell_end(item, task)
            running.clear()
        finally:
            for task in running:
                task.cancel()

    async def _tell_end(self, item: _Call, task: asyncio.Task[None]) -> None:
        if item.outcome is not None:
            await self._end(item, item.outcome, failed=item.failed)
            return
        error = None if not task.done() or task.cancelled() else task.exception()
        await self._end(item, _error(ABORTED if error is None else str(error)), failed=True)

    async def _skip(self, running: dict[asyncio.Task[None], _Call]) -> None:
        """Stop calls that may be interrupted, because a steering message waits. Their results so far are dropped."""
        chosen = [t for t, item in running.items() if not t.done() and item.tool and item.tool.interruptible]
        await self._stop(chosen)
        for task in chosen:
            item = running.pop(task)
            details = item.outcome.details if item.outcome is not None and item.failed else None
            await self._end(item, _error(SKIPPED, details), failed=True)

    async def _stop(self, chosen: list[asyncio.Task[None]]) -> None:
        """Cancel running calls and wait for their end. A call that ignores the cancellation goes on by itself."""
        for task in chosen:
            task.cancel()
        if chosen:
            await asyncio.wait(chosen, timeout=limits.TOOL_END)

    async def _results(self, calls: list[_Call]) -> tuple[list[ToolResultMessage], bool]:
        messages = []
        for item in calls:
            assert item.stored is not None
            await self._port.tell(MessageStart(item.stored))
            await self._port.enter(item.stored)
            messages.append(item.stored)
        return messages, self._terminated()

    def _terminated(self) -> bool:
        return bool(self._calls) and all(item.outcome is not None and item.outcome.terminate for item in self._calls)


_calls = Tasks()
"""Calls at work. A call that ignores its cancellation is held here until it ends."""


def _checked(result: ToolResult) -> ToolResult:
    """Return the result of a tool. Raises an exception if it could be neither shown nor stored."""
    if not isinstance(result, ToolResult):
        raise TypeError(f"The tool returned {type(result).__name__} instead of a ToolResult")
    if result.details is not None:
        encode(result.details)
    return result


def _error(text: str, details: Any = None) -> ToolResult:
    return text_result(text, details or {})
