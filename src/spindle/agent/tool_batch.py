"""The tool calls of one answer: checked one after another, run together, answered in call order.

A result is in the session file before clients are told that its call ended, so the file has results in the order in
which calls ended.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Container
from typing import Any, Protocol

from msgspec import Struct

from spindle.agent.fences.denials import tell_denial
from spindle.agent.fences.waiting import Held
from spindle.agent.hooks import CALL, Blocked
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.agent.run.options import Chain
from spindle.base import limits, trace
from spindle.base.errors import AgentError, error_text, told
from spindle.base.flow import Tasks
from spindle.shapes.approvals import Denial
from spindle.shapes.builtin_tools import OTHER_NAMES, of_kind
from spindle.shapes.codec import encode
from spindle.shapes.events import (
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
_AT_ONCE = 32
"""Calls of one answer that work here at the same time: on files, or by commands."""
_WORKING = frozenset({"bash", *of_kind("read", "search", "edit")})
_TURN = 8
"""Calls that are handled before others have a turn."""
CHANGED = "[The user changed the input of this call. It ran with: {}]"
"""Ends the result of such a call."""


class ToolPort(Protocol):
    """What a tool batch needs of the engine."""

    hub: Hub
    cut_off: bool
    """Whether the run is left in its middle, because the process ends."""

    @property
    def tool_seconds(self) -> float:
        """How long one call may take."""

    async def store(self, message: AgentMessage) -> AgentMessage:
        """Put a finished message into the session file; hooks may replace it."""

    async def enter(self, message: AgentMessage) -> None:
        """Make a stored message part of the conversation and tell of its end."""

    async def safe(self) -> None:
        """Wait until another process would know of the calls. Raises `SessionError`: then none may run."""

    def offered_tools(self) -> dict[str, Tool]:
        """Return the tools that the model was told of, by name."""

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext: ...

    def interrupting(self) -> bool:
        """Whether a steering message should cut this batch short."""


class _Call(Struct):
    """One call and its progress."""

    call: ToolCall
    tool: Tool | None = None
    args: Any = None
    """Arguments after repair, validation and hooks."""
    changed: bool = False
    """Whether whoever allowed the call has changed its arguments."""
    left_out: str = ""
    """Says which options of the call mean nothing to the tool."""
    started: bool = False
    """Whether `tool_execution_start` was sent."""
    began: float = 0.0
    finished: float = 0.0
    ran: bool = False
    held: bool = False
    """Whether the call stays open and has not run, because a question waits."""
    outcome: ToolResult | None = None
    failed: bool = False
    stored: ToolResultMessage | None = None
    """The result as it is in the session file."""


class ToolBatch:
    def __init__(
        self, port: ToolPort, chain: Chain, message: AssistantMessage, cut: Container[str], signal: AbortSignal
    ) -> None:
        """`cut` are ids of calls whose arguments are not complete: they are not run."""
        self._cut = cut
        self._port = port
        self._chain = chain
        self._message = message
        self._signal = signal
        self._calls = [_Call(block) for block in message.content if isinstance(block, ToolCall)]

    @property
    def held(self) -> list[str]:
        """Ids of the calls that stay open and have not run."""
        return [item.call.id for item in self._calls if item.held]

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
            if self.held:
                item.held = True  # it comes after a call that waits
            elif messages and self._port.interrupting():
                await self._start(item)
                await self._end(item, _error(SKIPPED), failed=True)
            elif await self._prepare(item):
                await self._watch([item])
            messages += (await self._results([item]))[0]
        return messages, self._terminated()

    async def _together(self) -> tuple[list[ToolResultMessage], bool]:
        ready = []
        for number, item in enumerate(self._calls, 1):
            if await self._prepare(item):
                ready.append(item)
            await _give_way(number)
        await self._watch(ready)
        return await self._results(self._calls)

    # -- one call --------------------------------------------------------------------------------

    async def _start(self, item: _Call) -> None:
        item.started = True
        await self._port.hub.emit(ToolExecutionStart(item.call.id, item.call.name, item.call.arguments))

    async def _prepare(self, item: _Call) -> bool:
        """Announce and check a call. Returns whether it may run; if not, it has already ended, or is held."""
        if self._signal.aborted:
            await self._start(item)
            await self._end(item, _error(ABORTED), failed=True)
            return False
        await self._start(item)
        try:
            with self._signal:
                await self._check(item)
            return True
        except Held:
            item.held = True
        except Aborted:
            if self._port.cut_off and item.call.id in self._chain.questions:
                item.held = True
            else:
                await self._end(item, _error(ABORTED), failed=True)
        except Exception as error:  # hooks are foreign code: if one fails, the call is refused
            refusal = _error(error_text(error))
            if isinstance(error, Blocked):
                refusal.terminate = error.terminate
                self._note(item.call, error)
            await self._end(item, refusal, failed=True)
        return False

    def _note(self, call: ToolCall, error: Blocked) -> None:
        """Take note that a call was refused, unless that was done."""
        if error.by is not None:
            denial = Denial(call.name, call.arguments, None, str(error), error.by, error.error)
            self._chain.meter.denied(denial)
            if error.__cause__ is not None and self._chain.run is not None:
                self._chain.run.exceptions.append(error.__cause__)
            tell_denial(self._port.hub.publish, call.id, denial)

    async def _check(self, item: _Call) -> None:
        """Fill in the arguments that the tool gets. Raises an exception with the text of the error result."""
        from spindle.tools.validate import checked_arguments, unknown_options

        if item.tool is None:
            await self._chain.hooks.tool_missing(item.call.name)
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
        item.left_out = unknown_options(item.tool, checked)
        before = CALL.set(item.call.id)
        try:
            item.args = await self._chain.hooks.tool_call(item.call.id, item.tool, checked)
            item.changed = self._chain.hooks.was_changed(item.call.id)
        except (Blocked, Held, Aborted, ToolError):
            raise
        except AgentError as error:
            raise Blocked(str(error), by="error", error=str(error)) from error
        except Exception as error:  # foreign code; what it says is not for the model
            reason = f"This call of {item.tool.name} did not run: what decides about it has failed."
            raise Blocked(reason, by="error", error=told(error)) from error
        finally:
            CALL.reset(before)

    async def _execute(self, item: _Call) -> None:
        """Run the tool and put the outcome into `item`. An error of the tool is its outcome."""
        assert item.tool is not None
        await self._port.safe()
        item.ran, item.began = True, time.monotonic()
        CALL.set(item.call.id)

        def update(partial: ToolResult) -> None:
            # Progress is cumulative, so nothing is lost by leaving some of it out for a slow reader.
            if item.outcome is None and not self._port.hub.congested:
                self._port.hub.publish(ToolExecutionUpdate(item.call.id, item.call.name, item.call.arguments, partial))

        clock = asyncio.timeout(self._port.tool_seconds)
        try:
            with trace.span("tool", tool=item.tool.name, call=item.call.id) as span:
                if item.changed:
                    span.set(changed=True)
                if trace.content:
                    span.set(arguments=item.args)
                async with clock:
                    context = self._port.tool_context(update)
                    outcome = _checked(await item.tool.execute(item.call.id, item.args, context))
                if trace.content:
                    span.set(result=text_of(outcome.content))
            failed = False
        except (Exception, SystemExit) as error:  # a tool fails by raising; the model reads the text
            text = error_text(error)
            if clock.expired():
                text = f"{text}\n\nThe tool was stopped: it took longer than {self._port.tool_seconds:g} s"
            outcome, failed = _error(text, error.details if isinstance(error, ToolError) else None), True
        finally:
            del clock  # it holds this task, whose cancellation would hold this frame
        # Set before hooks see the outcome: an abort from here on does not undo the work of the tool.
        item.outcome, item.failed, item.finished = outcome, failed, time.monotonic()
        item.outcome, item.failed = await self._chain.hooks.tool_result(
            item.call.id, item.tool, item.args, outcome, failed
        )

    async def _end(self, item: _Call, outcome: ToolResult, *, failed: bool) -> None:
        item.outcome, item.failed = outcome, failed
        changed = item.args if item.changed else None
        words = [CHANGED.format(encode(changed).decode())] if item.changed else []
        self._chain.remark(item.call.name, item.call.arguments, outcome, item.left_out)
        message = ToolResultMessage(
            tool_call_id=item.call.id,
            tool_name=item.call.name,
            content=[*outcome.content, *map(Text, words)],
            details=outcome.details,
            is_error=failed,
            timestamp=int(time.time() * 1000),
            changed_input=changed,
        )
        cut = self._message.stop_reason == "length" or item.call.id in self._cut
        self._chain.meter.tool_ended(item.call.name, item.args or item.call.arguments, failed=failed, cut=cut)
        duration = int(((item.finished or time.monotonic()) - item.began) * 1000) if item.ran else None
        end = ToolExecutionEnd(
            item.call.id, item.call.name, ToolResult(message.content, outcome.details), failed, duration, changed
        )
        # Hooks may change the message, so they see these events now; clients see the messages later, in call order.
        await self._port.hub.observe(end)
        await self._port.hub.observe(MessageStart(message))
        stored = await self._port.store(message)
        item.stored = stored if isinstance(stored, ToolResultMessage) else message
        await self._port.hub.tell(end)

    # -- many calls ------------------------------------------------------------------------------

    async def _watch(self, items: list[_Call]) -> None:
        """Run calls and tell of the end of each as it comes. On abort or steering, stop the calls that still run.

        Calls that work here run some at a time. All others run at once: they may wait for each other.
        """
        waiting = deque(item for item in items if _works_here(item))
        running: dict[asyncio.Task[None], _Call] = {}
        ended: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()
        try:
            for item in items:
                if not _works_here(item):
                    self._begin(item, running, ended)
            free = _AT_ONCE
            while running or waiting:
                for _ in range(min(free, len(waiting))):
                    self._begin(waiting.popleft(), running, ended)
                with self._signal:
                    done = [await ended.get()]
                while not ended.empty():
                    done.append(ended.get_nowait())
                done, free = [task for task in done if task in running], 0  # others were skipped
                for task in sorted(done, key=lambda task: running[task].finished):
                    item = running.pop(task)
                    free += _works_here(item)
                    await self._tell_end(item, task)
                if (running or waiting) and self._port.interrupting():
                    await self._end_all(waiting, SKIPPED)
                    await self._skip(running)
        except Aborted:
            await self._stop(list(running))
            for task, item in running.items():
                await self._tell_end(item, task)
            running.clear()
            await self._end_all(waiting, ABORTED)
        finally:
            for task in running:
                task.cancel()

    def _begin(
        self, item: _Call, running: dict[asyncio.Task[None], _Call], ended: asyncio.Queue[asyncio.Task[None]]
    ) -> None:
        task = _calls.spawn(self._execute(item), "spindle-tool", report=False)
        task.add_done_callback(ended.put_nowait)
        running[task] = item

    async def _end_all(self, waiting: deque[_Call], words: str) -> None:
        """End calls that never began."""
        while waiting:
            await self._end(waiting.popleft(), _error(words), failed=True)

    async def _tell_end(self, item: _Call, task: asyncio.Task[None]) -> None:
        if item.outcome is not None:
            await self._end(item, item.outcome, failed=item.failed)
            return
        error = None if not task.done() or task.cancelled() else task.exception()
        await self._end(item, _error(ABORTED if error is None else str(error)), failed=True)

    async def _skip(self, running: dict[asyncio.Task[None], _Call]) -> None:
        """Stop calls that may be interrupted, because a steering message waits. Their results so far are dropped.

        A call whose tool has ended goes on: hooks still look at its result.
        """
        at_work = {task: item for task, item in running.items() if not task.done() and item.outcome is None}
        chosen = [task for task, item in at_work.items() if item.tool and item.tool.interruptible]
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
        for number, item in enumerate(calls, 1):
            await _give_way(number)
            if item.held:
                continue
            assert item.stored is not None
            await self._port.hub.tell(MessageStart(item.stored))
            await self._port.enter(item.stored)
            messages.append(item.stored)
        return messages, self._terminated()

    def _terminated(self) -> bool:
        return bool(self._calls) and all(item.outcome is not None and item.outcome.terminate for item in self._calls)


def _works_here(item: _Call) -> bool:
    return item.tool is not None and item.tool.name in _WORKING


async def _give_way(number: int) -> None:
    """Let other sessions have a turn now and then: an answer may have a thousand calls."""
    if number % _TURN == 0:
        await asyncio.sleep(0)


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
