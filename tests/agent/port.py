"""A world for the loop: a scripted model, tools that are functions, and a list of everything that was told."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from spindle.agent.features.text_calls import with_calls
from spindle.agent.hooks import HookChain, NeverFull
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import AbortSignal, Lifecycle
from spindle.agent.queues import Queues
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain, RunOptions
from spindle.agent.tool_batch import ToolBatch
from spindle.base.settings import Runaway
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Finished, Started
from spindle.shapes.events import (
    AgentEnd,
    AgentStart,
    Event,
    MessageEnd,
    MessageStart,
    QueueUpdate,
    ToolResult,
)
from spindle.shapes.messages import AgentMessage, AssistantMessage, Text, ToolResultMessage, UserMessage
from spindle.shapes.model import Model, ModelCost
from spindle.shapes.run_limits import RunLimits
from spindle.tools.base import Tool, ToolContext

MODEL = Model(
    id="m1",
    name="M1",
    api="scripted",
    provider="test",
    base_url="",
    reasoning=False,
    input=["text"],
    cost=ModelCost(0, 0, 0, 0),
    context_window=1000,
    max_tokens=100,
)
Step = Callable[[LiveMessage], AsyncGenerator[Chunk, None]]


def says(*pieces: str, stop: str = "stop", gate: asyncio.Event | None = None) -> Step:
    """An answer of text; with a gate it pauses before the last piece."""

    async def step(live: LiveMessage) -> AsyncGenerator[Chunk, None]:
        yield Started(live)
        yield live.start_text()
        for index, piece in enumerate(pieces):
            if gate is not None and index == len(pieces) - 1:
                await gate.wait()
            yield live.append(0, piece)
        for event in live.end_all():
            yield event
        yield Finished(live.finish(stop))

    return step


def calls(*wanted: tuple[str, str, str], stop: str = "toolUse") -> Step:
    """An answer with tool calls: (id, name, arguments as JSON)."""

    async def step(live: LiveMessage) -> AsyncGenerator[Chunk, None]:
        yield Started(live)
        for index, (id, name, arguments) in enumerate(wanted):
            yield live.start_tool_call(id, name)
            yield live.append(index, arguments)
        for event in live.end_all():
            yield event
        yield Finished(live.finish(stop))

    return step


def fails(text: str) -> Step:
    async def step(live: LiveMessage) -> AsyncGenerator[Chunk, None]:
        yield Finished(live.finish("error", text))

    return step


def tool(name: str, body: Callable[[Any, ToolContext], Awaitable[str]], **options: Any) -> Tool:
    async def execute(call_id: str, args: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult([Text(await body(args, ctx))], terminate=options.get("terminate", False))

    kept = {key: value for key, value in options.items() if key != "terminate"}
    return Tool(name, name, {"type": "object", "properties": {}}, execute, **kept)


def user(text: str) -> UserMessage:
    return UserMessage(content=[Text(text)], timestamp=1)


class _Told(NeverFull):
    def __init__(self, world: "World") -> None:
        self._world = world

    def put(self, event: Event) -> None:
        self._world.see(event)


class World:
    """Implements `LoopPort` and `ToolPort`, with a real hub that it listens to."""

    cut_off = False
    failure = None
    tool_seconds = 3600.0

    def __init__(self, steps: Sequence[Step], tools: Sequence[Tool] = (), interrupt: bool = True) -> None:
        self.steps = list(steps)
        self.tools = {item.name: item for item in tools}
        self.events: list[Event] = []
        self.messages: list[AgentMessage] = []
        self.created: list[AgentMessage] = []
        self.stored: list[AgentMessage] = []
        """The same in the order of the file."""
        self.seen: list[list[AgentMessage]] = []
        """The conversation at each model call."""
        self.interrupt = interrupt
        self.hub = Hub(HookChain(), Lifecycle())
        self.hub.add(_Told(self))
        self.chain = Chain(RunOptions(), Meter(RunLimits(), Runaway()), None, self.hub.hooks)
        self.queues = Queues(self._queues_changed, "one-at-a-time", "one-at-a-time")
        self._waiters: list[tuple[Callable[[Event], bool], asyncio.Future[Event]]] = []

    def _queues_changed(self) -> None:
        self.hub.publish(QueueUpdate(self.queues.steering.texts(), self.queues.follow_up.texts()))

    async def safe(self) -> None:
        """Nothing is kept on a disk here."""

    def see(self, event: Event) -> None:
        self.events.append(event)
        for wanted, future in self._waiters:
            if not future.done() and wanted(event):
                future.set_result(event)

    async def until(self, kind: type[Event], wanted: Callable[[Any], bool] = lambda event: True) -> Event:
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiters.append((lambda event: isinstance(event, kind) and wanted(event), future))
        return await asyncio.wait_for(future, 20)

    async def commit(self, message: AgentMessage) -> AgentMessage:
        await self.enter(await self.store(message))
        return message

    async def store(self, message: AgentMessage) -> AgentMessage:
        self.stored.append(message)
        return message

    async def enter(self, message: AgentMessage) -> None:
        self.messages.append(message)
        self.hub.publish(MessageEnd(message))

    async def stream(self) -> AsyncGenerator[Chunk, None]:
        self.seen.append(list(self.messages))
        return self.steps.pop(0)(LiveMessage(MODEL))

    def empty_answer(self, stop_reason: str, error: str) -> AssistantMessage:
        return LiveMessage(MODEL).finish(stop_reason, error)

    async def run_tools(
        self, message: AssistantMessage, cut: Any, signal: AbortSignal
    ) -> tuple[list[ToolResultMessage], bool]:
        return await ToolBatch(self, self.chain, message, cut, signal).run()

    async def begin_try(self) -> list[AgentMessage]:
        self.hub.publish(AgentStart())
        return self.created

    async def end_run(self) -> None:
        self.hub.publish(AgentEnd(self.created, will_retry=False))

    @property
    def unanswered(self) -> bool:
        return bool(self.messages) and not isinstance(self.messages[-1], AssistantMessage)

    def broke(self, error: Exception) -> AssistantMessage:
        answer = self.empty_answer("error", f"{type(error).__name__}: {error}")
        self.hub.publish(MessageStart(answer))
        self.hub.publish(MessageEnd(answer))
        return answer

    def offered_tools(self) -> dict[str, Tool]:
        return self.tools

    async def with_text_calls(self, answer: AssistantMessage) -> AssistantMessage:
        return await with_calls(answer, MODEL, self.offered_tools)

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext:
        return ToolContext(cwd="/", update=update)

    def interrupting(self) -> bool:
        return self.interrupt and len(self.queues.steering) > 0

    def names(self) -> list[str]:
        """The events as short words, updates left out."""
        words = []
        for event in self.events:
            kind = str(type(event).__struct_config__.tag)
            if kind == "message_update":
                continue
            message = getattr(event, "message", None)
            role = (
                getattr(message, "role", None) or type(message).__struct_config__.tag
                if kind in ("message_end",)
                else ""
            )
            words.append(
                f"{kind} {role}".strip() + (f" {event.tool_call_id}" if hasattr(event, "tool_call_id") else "")
            )
        return words
