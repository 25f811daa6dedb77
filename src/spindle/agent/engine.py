"""The engine: turns an accepted prompt into runs, and decides what follows each run.

It implements what the loop, the tool batch and the compactor need (`LoopPort`, `ToolPort`, `CompactionPort`) on top
of the conversation, the model choice and the toolbox. One chain of work runs at a time: run, then perhaps a retry or a
compaction, then perhaps another run, until nothing more follows and the agent is settled.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from spindle.extensions.hooks import CONTEXT_EVENTS, Hooks
from spindle.llm.convert import to_model_messages
from spindle.llm.errors import is_overflow
from spindle.llm.live import LiveMessage
from spindle.llm.registry import get_stream
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.resources.settings import Settings
from spindle.tools.base import Tool, ToolContext, ToolSettings
from spindle.types.events import (
    AgentSettled,
    AutoCompactionEnd,
    CompactionEnd,
    CompactionResult,
    Event,
    MessageEnd,
    MessageUpdate,
    QueueUpdate,
    ToolResult,
)
from spindle.types.messages import (
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
)
from spindle.types.models import Model
from spindle.types.paths import agent_dir

from . import loop
from .abort import Aborted, AbortSignal
from .batch import ToolBatch
from .compactor import Compactor
from .conversation import Conversation
from .errors import AgentError
from .estimate import context_tokens, estimate_context
from .guard import Guard
from .hub import Hub
from .lifecycle import Lifecycle, Phase
from .model_state import ModelState
from .queues import Queues
from .retry import Retry
from .toolbox import Toolbox

__all__ = ["Engine"]

RECOVERY_FAILED = (
    "Context overflow recovery failed after one compact-and-retry attempt. "
    "Try reducing context or switching to a larger-context model."
)


class Engine:
    def __init__(
        self,
        conversation: Conversation,
        choice: ModelState,
        toolbox: Toolbox,
        settings: Settings,
        system_prompt: Callable[[list[Tool]], str],
    ) -> None:
        self.hub = Hub()
        self.hooks = Hooks()
        self.conversation = conversation
        self.choice = choice
        self.toolbox = toolbox
        self.settings = settings
        self.lifecycle = Lifecycle()
        self.queues = Queues(self._tell_queues, settings.steering_mode, settings.follow_up_mode)
        self.interrupt_mode: str = settings.interrupt_mode
        self.auto_compaction: bool = settings.compaction.enabled
        self.retry = Retry(settings.retry, self.emit)
        self.compactor = Compactor(self)
        self.guard: Guard | None = None
        self.max_tokens: int | None = None
        """Limit of an answer; None: the model's own."""
        self.next_turn: list[CustomMessage] = []
        """Messages that go out with the next prompt."""
        self.on_piece: Callable[[MessageUpdate], None] | None = None
        """Sees every piece of an answer; may raise `AnswerStopped`."""
        self.on_commit: list[Callable[[AgentMessage], None]] = []
        """Told of every message that enters the conversation."""
        self.continuations: list[Callable[[AssistantMessage], Awaitable[bool]]] = []
        """Asked after a run that would be the last one: true means that another run should follow."""
        self._build_prompt = system_prompt
        self._base_prompt: str | None = None
        self._run_prompt: str | None = None
        """A system prompt that holds for the current chain only."""
        self.signal = AbortSignal()
        """Ends the work in hand."""
        self._chain: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._recovered = False
        """Whether an overflow was already answered by a compaction since the last user message."""

    # -- what the wires see of it ----------------------------------------------------------------

    @property
    def model(self) -> Model | None:
        return self.choice.model

    @property
    def system_prompt(self) -> str:
        """The prompt of the session; it changes only when the active tools do."""
        if self._base_prompt is None:
            self._base_prompt = self._build_prompt(self.toolbox.active_tools())
        return self._base_prompt

    def tools_changed(self) -> None:
        self._base_prompt = None

    def _tell_queues(self) -> None:
        self.publish(QueueUpdate(self.queues.steering.texts(), self.queues.follow_up.texts()))

    # -- events ----------------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        """Tell of something without waiting for anybody."""
        if self.hooks.listening and type(event).__struct_config__.tag in self.hooks.listening:
            self.hooks.observe_soon(event)
        self.hub.publish(event)

    async def emit(self, event: Event) -> None:
        hooks = self.hooks
        if hooks.listening and type(event).__struct_config__.tag in hooks.listening:
            await hooks.observe(event)
        self.hub.publish(event)
        if self.on_piece is not None and type(event) is MessageUpdate:
            self.on_piece(event)
        if self.hub.congested:
            await self.hub.room()

    @property
    def congested(self) -> bool:
        return self.hub.congested

    async def commit(self, message: AgentMessage) -> AgentMessage:
        """Store the message before anybody hears that it is finished."""
        if "message_end" in self.hooks.listening:
            message = await self.hooks.message_end(message)
        self.conversation.append(message)
        for listener in self.on_commit:
            listener(message)
        self.hub.publish(MessageEnd(message))
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            await self.retry.succeeded()
        return message

    # -- a chain of work -------------------------------------------------------------------------

    def claim(self) -> None:
        """Reserve the agent for a prompt. Raises if it is at work."""
        if self.lifecycle.phase is Phase.SUMMARIZING:
            raise AgentError(
                "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."
            )
        if self.lifecycle.running:
            raise AgentError(
                "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
            )
        self._begin(Phase.PREPARING)

    def _begin(self, phase: Phase) -> None:
        self.lifecycle.move(phase)
        self.signal = AbortSignal()
        self._idle.clear()

    def release(self) -> None:
        """Give a claimed agent back without having run."""
        self.lifecycle.move(Phase.IDLE)
        self._idle.set()

    async def make_room(self) -> None:
        """Compact before a prompt if the last answer left too little room."""
        last = self.conversation.last_assistant()
        reason = self._compaction_reason(last) if last is not None and self.auto_compaction else None
        if reason is None or not self.compactor.needed():
            return
        self.lifecycle.move(Phase.COMPACTING)
        try:
            await self.compactor.run(reason, self.signal)
        except AgentError:
            pass  # the events told; the model may still cope
        finally:
            self.lifecycle.move(Phase.PREPARING)

    def start(self, prompt: Sequence[AgentMessage], system_prompt: str | None = None) -> None:
        """Begin to work on a claimed agent's prompt. Events come from a task of their own, after the caller went on."""
        self._recovered = False
        self._run_prompt = system_prompt
        self.lifecycle.move(Phase.STREAMING)
        self._chain = asyncio.create_task(self._work(list(prompt)), name="spindle-run")

    async def _work(self, prompt: list[AgentMessage]) -> None:
        try:
            following: list[AgentMessage] | None = prompt
            while following is not None:
                self.lifecycle.move(Phase.STREAMING)
                answer = await loop.run(following, self, self.signal)
                following = await self._after(answer)
        finally:
            self._settle()

    async def _after(self, answer: AssistantMessage) -> list[AgentMessage] | None:
        """Decide what follows a run: the messages of the next one (none for a mere continuation), or None."""
        if self.signal.aborted:
            await self.retry.failed("Retry cancelled")
            return None
        if answer.stop_reason == "aborted":  # by somebody who may want it tried again, not by the user
            return [] if await self._goes_on(answer) else None
        if answer.stop_reason == "error":
            if self.will_retry(answer):
                self.lifecycle.move(Phase.RETRYING)
                self.conversation.drop_failed(answer)
                return [] if await self.retry.wait(answer, self.signal) else None
            await self.retry.failed(answer.error_message or "Unknown error")
        recovered = self.auto_compaction and await self._compact_after(answer)
        if self.signal.aborted:
            return None
        waiting = answer.stop_reason != "error" and len(self.queues) > 0
        if recovered or waiting or await self._goes_on(answer):
            return []
        if "agent_before_settle" in self.hooks.listening:
            more = await self.hooks.before_settle(answer)
            return None if more is None or self.signal.aborted else list(more)
        return None

    async def _goes_on(self, answer: AssistantMessage) -> bool:
        for wants_more in self.continuations:
            if await wants_more(answer):
                return True
        return False

    async def _compact_after(self, answer: AssistantMessage) -> bool:
        """Compact if the answer asks for it. Returns whether a failed answer may now be tried again."""
        reason = self._compaction_reason(answer)
        overflow = reason == "overflow" and answer.stop_reason == "error"
        if overflow and self._recovered:
            for kind in (AutoCompactionEnd, CompactionEnd):
                await self.emit(kind("overflow", None, False, False, RECOVERY_FAILED))
            return False
        if overflow:
            self._recovered = True
            self.conversation.drop_failed(answer)
        if reason is None or not self.compactor.needed():
            return False
        self.lifecycle.move(Phase.COMPACTING)
        try:
            await self.compactor.run(reason, self.signal, will_retry=overflow)
        except (AgentError, Aborted):
            return False
        return overflow

    def _compaction_reason(self, answer: AssistantMessage) -> str | None:
        """Say why the context should be compacted after this answer, if it should."""
        model = self.model
        messages = self.conversation.messages
        if model is None or self._is_stale(answer):
            return None
        same_model = (answer.provider, answer.model) == (model.provider, model.id)
        if same_model and is_overflow(answer, model.context_window):
            return "overflow"
        if answer.stop_reason == "error":
            used = estimate_context(messages).tokens
        else:
            used = context_tokens(answer.usage)
        limit = model.context_window - self.settings.compaction.reserve_tokens
        return "threshold" if used > limit else None

    def _is_stale(self, answer: AssistantMessage) -> bool:
        """Say whether a compaction happened after this answer, so that its usage tells nothing."""
        newest = next((m for m in self.conversation.messages if isinstance(m, CompactionSummaryMessage)), None)
        return newest is not None and newest.timestamp is not None and answer.timestamp <= newest.timestamp

    def usage_unknown(self) -> bool:
        """Say whether a compaction made the last reported usage worthless."""
        newest = next((m for m in self.conversation.messages if isinstance(m, CompactionSummaryMessage)), None)
        return newest is not None and all(
            self._is_stale(m) or m.stop_reason in ("error", "aborted")
            for m in self.conversation.messages
            if isinstance(m, AssistantMessage)
        )

    def _settle(self) -> None:
        self._chain = None
        self._run_prompt = None
        self.conversation.release_held()
        self.conversation.store.sync()
        self.lifecycle.move(Phase.IDLE)
        self._idle.set()
        self.publish(AgentSettled(self.signal.aborted))

    # -- stopping --------------------------------------------------------------------------------

    async def abort_retry(self) -> None:
        """End a wait for the next attempt; the chain is over then."""
        if self.retry.cancel():
            await self._idle.wait()

    def stop(self) -> None:
        """Stop whatever is running, without waiting for its end."""
        self.signal.abort()
        self.hooks.interrupt()

    async def abort(self) -> None:
        """Stop whatever is running and wait until it has ended."""
        self.stop()
        await self._idle.wait()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def kill(self) -> None:
        """End the work without ceremony: the process is going away."""
        self.stop()
        chain = self._chain
        if chain is not None:
            chain.cancel()
            await asyncio.wait([chain], timeout=2)

    # -- a summary that somebody asked for -------------------------------------------------------

    @asynccontextmanager
    async def summarizing(self) -> AsyncIterator[AbortSignal]:
        """Keep the agent to oneself, outside any run; what was running is aborted first."""
        await self.abort()
        self._begin(Phase.SUMMARIZING)
        try:
            yield self.signal
        finally:
            self.release()

    async def compact(self, instructions: str | None) -> CompactionResult:
        async with self.summarizing() as signal:
            try:
                return await self.compactor.run("manual", signal, instructions=instructions)
            except Aborted:
                raise AgentError("Compaction cancelled") from None

    # -- the loop's port -------------------------------------------------------------------------

    def will_retry(self, message: AssistantMessage) -> bool:
        return not self.signal.aborted and self.retry.worthwhile(message, self.model, self.retry.attempt)

    def empty_answer(self, stop_reason: str, error: str) -> AssistantMessage:
        if self.model is None:
            raise AgentError("No model selected")
        return LiveMessage(self.model).finish(stop_reason, error)

    async def stream(self) -> AsyncGenerator[Chunk, None]:
        if self.guard is not None:
            await self.guard.before_turn()
        messages = self.conversation.messages
        prompt = self._run_prompt if self._run_prompt is not None else self.system_prompt
        if self.hooks.listening & CONTEXT_EVENTS:
            messages, prompt = await self.hooks.context(messages, prompt)
        request = Request(prompt, to_model_messages(messages), self.toolbox.specs())
        return await self.open_stream(request, self.max_tokens)

    async def open_stream(self, request: Request, max_tokens: int | None = None) -> AsyncGenerator[Chunk, None]:
        """Send a request to the current model."""
        model = self.model
        if model is None:
            raise AgentError("No model selected")
        auth = await self.choice.registry.auth_for(model)
        hooks = self.hooks
        timeout = self.settings.http_idle_timeout_ms
        options = StreamOptions(
            api_key=auth.api_key,
            headers=auth.headers,
            reasoning=self.choice.level,
            thinking_budgets=self.settings.thinking_budgets,
            max_tokens=max_tokens,
            session_id=self.conversation.store.get_session_id(),
            idle_timeout=timeout / 1000 if timeout else None,
            proxy=self.settings.http_proxy,
            on_payload=hooks.before_provider_request if "before_provider_request" in hooks.listening else None,
            on_headers=hooks.before_provider_headers if "before_provider_headers" in hooks.listening else None,
            on_response=hooks.after_provider_response if "after_provider_response" in hooks.listening else None,
        )
        return get_stream(model.api)(model, request, options)

    async def run_tools(self, message: AssistantMessage, signal: AbortSignal) -> tuple[list[ToolResultMessage], bool]:
        batch = ToolBatch(self, message, signal)
        if not batch:
            return [], False
        self.lifecycle.move(Phase.TOOLS)
        try:
            return await batch.run()
        finally:
            self.lifecycle.move(Phase.STREAMING)

    # -- the tools' port -------------------------------------------------------------------------

    def find_tool(self, name: str) -> Tool | None:
        return self.toolbox.find(name)

    def interrupting(self) -> bool:
        return self.interrupt_mode == "immediate" and len(self.queues.steering) > 0

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext:
        store = self.conversation.store
        env = {"PI_SESSION_ID": store.get_session_id(), "PI_REASONING_LEVEL": self.choice.level}
        if store.get_session_file():
            env["PI_SESSION_FILE"] = str(store.get_session_file())
        if self.model:
            env |= {"PI_PROVIDER": self.model.provider, "PI_MODEL": self.model.id}
        return ToolContext(
            cwd=store.get_cwd(), update=update, model=self.model, env=env, settings=tool_settings(self.settings)
        )


def tool_settings(settings: Settings) -> ToolSettings:
    return ToolSettings(
        shell_path=settings.shell_path,
        shell_command_prefix=settings.shell_command_prefix,
        auto_resize_images=settings.images.auto_resize,
        bin_dir=str(agent_dir() / "bin"),
    )
