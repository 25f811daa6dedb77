"""The engine: turns an accepted prompt into runs, and decides what follows each run.

It implements what the loop, the tool batch and the compactor need (`LoopPort`, `ToolPort`, `CompactionPort`) on top
of the conversation, the model choice and the toolbox. One chain of work runs at a time: run, then perhaps a retry or a
compaction, then perhaps another run, until nothing more follows and the agent is settled.
"""

import asyncio
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from spindle.agent import loop
from spindle.agent.abort import Aborted, AbortSignal
from spindle.agent.batch import ToolBatch
from spindle.agent.compactor import Compactor
from spindle.agent.conversation import Conversation
from spindle.agent.errors import AgentError
from spindle.agent.guard import Guard
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Lifecycle, Phase
from spindle.agent.model_state import ModelState
from spindle.agent.queues import Queues
from spindle.agent.retry import Retry
from spindle.agent.toolbox import Toolbox
from spindle.agent_dir import agent_dir
from spindle.config.settings import Settings
from spindle.extensions.hooks import CONTEXT_EVENTS, Hooks
from spindle.llm.history import to_model_messages, without_images
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Request, StreamOptions
from spindle.resources.loader import Resources
from spindle.shapes.events import (
    AgentEnd,
    AgentSettled,
    CompactionResult,
    Event,
    ExtensionError,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    QueueUpdate,
    ToolResult,
)
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage, ToolResultMessage, UserMessage
from spindle.shapes.models import Model
from spindle.tools.base import Tool, ToolContext, ToolSettings

__all__ = ["ABORTED_EARLY", "Engine"]

RECOVERY_FAILED = (
    "Context overflow recovery failed after one compact-and-retry attempt. "
    "Try reducing context or switching to a larger-context model."
)
TRUNCATED_AGAIN = "Truncated response recovery failed after one compact-and-retry attempt."
ABORTED_EARLY = "The prompt was aborted before the run began"
KILL_S = 2.0


class Engine:
    def __init__(self, conversation: Conversation, choice: ModelState, toolbox: Toolbox, resources: Resources) -> None:
        self.hub = Hub()
        self.hooks = Hooks()
        self.conversation = conversation
        self.choice = choice
        self.toolbox = toolbox
        self.resources = resources
        self.lifecycle = Lifecycle()
        settings = resources.settings
        self.queues = Queues(self._tell_queues, settings.steering_mode, settings.follow_up_mode)
        self.interrupt_mode: str = settings.interrupt_mode
        self.retry = Retry(lambda: self.settings.retry, self.emit)
        self.compactor = Compactor(self, automatic=settings.compaction.enabled)
        self.guards: list[Guard] = []
        """All of them must agree; they are asked in this order."""
        self.max_tokens: int | None = None
        """Limit of an answer; None: the model's own."""
        self.provider_session_id: str | None = None
        """Under this name the provider keeps what it can use again; None: the session's own id."""
        self.next_turn: list[CustomMessage] = []
        """Messages that go out with the next prompt."""
        self.on_piece: Callable[[MessageUpdate], None] | None = None
        """Sees every piece of an answer; may raise `AnswerStopped`."""
        self.on_commit: list[Callable[[AgentMessage], None]] = []
        """Told of every message that enters the conversation."""
        self.on_compaction: list[Callable[[], None]] = []
        """Told when a summary has taken the place of older messages."""
        self.continuations: list[Callable[[AssistantMessage], Awaitable[bool]]] = []
        """Asked after a run that would be the last one: true means that another run should follow."""
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
    def settings(self) -> Settings:
        """Those of the working directory; they change with it."""
        return self.resources.settings

    @property
    def system_prompt(self) -> str:
        """The prompt of the session; it changes only when the active tools do."""
        if self._base_prompt is None:
            cwd = self.conversation.store.get_cwd()
            self._base_prompt = self.resources.system_prompt(self.toolbox.active_tools(), cwd)
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
        """Tell of something, to extensions first, and wait while listeners cannot keep up."""
        hooks = self.hooks
        try:
            if hooks.listening and type(event).__struct_config__.tag in hooks.listening:
                await hooks.observe(event)
        finally:  # also if an abort came meanwhile: every start has its end
            self.hub.publish(event)
        if self.on_piece is not None and type(event) is MessageUpdate:
            self.on_piece(event)
        if self.hub.congested and not self.signal.aborted:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        """Let listeners catch up. An abort ends the wait: what still comes then is little, and must not be held up."""
        waits = [asyncio.create_task(self.hub.room()), asyncio.create_task(self.signal.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

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
        if isinstance(message, UserMessage):
            self._recovered = False
        elif isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            await self.retry.succeeded()
        return message

    # -- a chain of work -------------------------------------------------------------------------

    async def wait_ended(self) -> None:
        """Wait while a run that has told of its end may still be followed by another: many clients prompt again then.

        Raises `AgentError` if the wait was aborted, and what waited for it with it.
        """
        signal, aborted = self.signal, self.signal.aborted
        while self._chain is not None and self.lifecycle.phase in (Phase.ENDING, Phase.COMPACTING):
            await self.lifecycle.moved()
        if signal.aborted and not aborted:
            raise AgentError(ABORTED_EARLY)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Reserve the agent for a prompt; unless `start` is called it is given back. Raises if it is at work."""
        if self.lifecycle.phase is Phase.SUMMARIZING:
            raise AgentError(
                "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."
            )
        if self.lifecycle.phase is Phase.SWITCHING:
            raise AgentError("Cannot submit a prompt while the session is being replaced.")
        if self.lifecycle.running:
            raise AgentError(
                "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
            )
        self._begin(Phase.PREPARING)
        try:
            yield
        except Aborted:
            raise AgentError(ABORTED_EARLY) from None
        finally:
            if self.lifecycle.phase is Phase.PREPARING:
                self._release()

    def _begin(self, phase: Phase) -> None:
        self.lifecycle.move(phase)
        self.signal = AbortSignal()
        self._idle.clear()

    def _release(self) -> None:
        self.lifecycle.move(Phase.IDLE)
        self._idle.set()

    async def make_room(self) -> None:
        """Compact before a prompt if the last answer left too little room. Raises `Aborted`."""
        last = self.conversation.last_assistant()
        reason = self.compactor.reason(last) if last is not None else None
        if reason is None or not self.compactor.possible():
            return
        self.lifecycle.move(Phase.COMPACTING)
        try:
            await self.compactor.run(reason, self.signal)
        except (AgentError, Aborted):
            self.signal.check()  # otherwise it failed or was cancelled, as the events told; the model may still cope
        finally:
            self.lifecycle.move(Phase.PREPARING)

    def start(self, prompt: Sequence[AgentMessage], system_prompt: str | None = None) -> None:
        """Begin to work on a claimed agent's prompt. Events come from a task of their own, after the caller went on."""
        self._recovered = False
        self._run_prompt = system_prompt
        self.lifecycle.move(Phase.STREAMING)
        self._chain = asyncio.create_task(self._work(list(prompt)), name="spindle-run")

    async def _work(self, prompt: list[AgentMessage]) -> None:
        self.hooks.begin_run()
        try:
            following: list[AgentMessage] | None = prompt
            while following is not None:
                self.lifecycle.move(Phase.STREAMING)
                ending = await loop.run(following, self, self.signal)
                following = await self._after(ending)
                if following is None and self._is_awaited(ending.answer):
                    following = []  # a message was queued in the last moment; nothing waits between this and the end
        except Exception as error:  # a bug of ours: the session must outlive it, and the client must hear of it
            traceback.print_exception(error, file=sys.stderr)
            self.publish(ExtensionError("", "agent", f"{type(error).__name__}: {error}"))
        finally:
            self._settle()

    async def _after(self, ending: loop.Ending) -> list[AgentMessage] | None:
        """Decide what follows a run: the messages of the next one (none for a mere continuation), or None."""
        answer = ending.answer
        if self.signal.aborted:
            await self.retry.gave_up()
            return None
        if answer.stop_reason == "aborted":  # by somebody who may want it tried again, not by the user
            if await self._goes_on(answer):
                return []
            await self.retry.gave_up()
            return None
        if ending.will_retry:
            self.lifecycle.move(Phase.RETRYING)
            self.conversation.drop_failed(answer)
            return [] if await self.retry.wait(answer, self.signal) else None
        if answer.stop_reason == "error":
            await self.retry.failed(answer.error_message or "Unknown error")
        recovered = await self._compact_after(answer)
        if self.signal.aborted:
            return None
        if recovered or self._is_awaited(answer) or await self._goes_on(answer):
            return []
        if "agent_before_settle" in self.hooks.listening:
            more = await self.hooks.before_settle(answer, self.conversation.messages)
            return None if more is None or self.signal.aborted else list(more)
        return None

    def _is_awaited(self, answer: AssistantMessage) -> bool:
        """Say whether queued messages are to be delivered now; after an abort or an error they wait for the user."""
        return len(self.queues) > 0 and not self.signal.aborted and answer.stop_reason not in ("error", "aborted")

    async def _goes_on(self, answer: AssistantMessage) -> bool:
        for wants_more in self.continuations:
            if await wants_more(answer):
                return True
        return False

    async def _compact_after(self, answer: AssistantMessage) -> bool:
        """Compact if the answer asks for it. Returns whether an answer that had no room may now be tried again."""
        reason = self.compactor.reason(answer)
        if reason is None:
            return False
        again = reason == "overflow" and answer.stop_reason in ("error", "length")
        if again and self._recovered:
            await self.compactor.refuse(RECOVERY_FAILED if answer.stop_reason == "error" else TRUNCATED_AGAIN)
            return False
        if not self.compactor.possible():
            return False
        if again:
            self._recovered = True
            self.conversation.drop_failed(answer)
        self.lifecycle.move(Phase.COMPACTING)
        try:
            await self.compactor.run(reason, self.signal, will_retry=again)
        except (AgentError, Aborted):
            return False
        finally:
            self.lifecycle.move(Phase.ENDING)
        return again

    def _settle(self) -> None:
        """End the chain. Whatever went wrong before, the agent is idle afterwards."""
        self._chain = None
        self._run_prompt = None
        self.queues.put_back()
        try:
            self.conversation.release_held()
            self.conversation.sync_soon()
        finally:
            self._release()
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
        """End the work for good: the process is going away."""
        self.stop()
        chain = self._chain
        if chain is None:
            return
        _, late = await asyncio.wait([chain], timeout=KILL_S)
        if late:
            chain.cancel()
            await asyncio.wait(late, timeout=KILL_S)

    # -- work outside any run --------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self, phase: Phase) -> AsyncIterator[AbortSignal]:
        """Keep the agent to oneself; what was running is aborted first."""
        while self.lifecycle.phase is not Phase.IDLE:  # somebody else may have been quicker
            await self.abort()
        self._begin(phase)
        try:
            yield self.signal
        finally:
            self._release()

    async def compact(self, instructions: str | None) -> CompactionResult:
        async with self.alone(Phase.SUMMARIZING) as signal:
            try:
                return await self.compactor.run("manual", signal, instructions=instructions)
            except Aborted:
                raise AgentError("Compaction cancelled") from None

    # -- the loop's port -------------------------------------------------------------------------

    @property
    def unanswered(self) -> bool:
        messages = self.conversation.messages
        return bool(messages) and not isinstance(messages[-1], AssistantMessage)

    def broke(self, error: Exception) -> AssistantMessage:
        message = self.empty_answer("error", f"{type(error).__name__}: {error}")
        try:
            self.conversation.append(message)
        except Exception:  # if the file is what is broken, memory has to do
            self.conversation.messages.append(message)
        self.hub.publish(MessageStart(message))
        self.hub.publish(MessageEnd(message))
        return message

    def will_retry(self, message: AssistantMessage) -> bool:
        return not self.signal.aborted and self.retry.worthwhile(message, self.model, self.retry.attempt)

    async def end(self, created: list[AgentMessage], will_retry: bool) -> None:
        self.lifecycle.move(Phase.ENDING)
        await self.emit(AgentEnd(created, will_retry))

    def empty_answer(self, stop_reason: str, error: str) -> AssistantMessage:
        if self.model is None:
            raise AgentError("No model selected")
        return LiveMessage(self.model).finish(stop_reason, error)

    async def stream(self) -> AsyncGenerator[Chunk, None]:
        for guard in tuple(self.guards):
            await guard.before_turn()
        messages = self.conversation.messages
        prompt = self._run_prompt if self._run_prompt is not None else self.system_prompt
        if self.hooks.listening & CONTEXT_EVENTS:
            messages, prompt = await self.hooks.context(messages, prompt)
        history = to_model_messages(messages)
        if self.settings.images.block_images:
            history = without_images(history)
        request = Request(prompt, history, self.toolbox.specs())
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
            session_id=self.provider_session_id or self.conversation.store.get_session_id(),
            idle_timeout=timeout / 1000 if timeout else None,
            proxy=self.settings.http_proxy,
            on_payload=hooks.before_provider_request if "before_provider_request" in hooks.listening else None,
            on_headers=hooks.before_provider_headers if "before_provider_headers" in hooks.listening else None,
            on_response=hooks.after_provider_response if "after_provider_response" in hooks.listening else None,
        )
        return self.choice.registry.stream_for(model)(model, request, options)

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
