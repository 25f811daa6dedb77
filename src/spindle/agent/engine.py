"""The engine: turns an accepted prompt into runs, and decides what follows each run.

It implements the ports of the loop and of the tool batch (`LoopPort`, `ToolPort`) on top of the conversation, the
model choice and the toolbox. One chain goes on at a time: prepare the prompt, run, then perhaps a retry or a
compaction, then perhaps another run, until nothing more follows and the agent is settled.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import proxy

from spindle.agent import AgentError
from spindle.agent.compaction import Compactor
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import HookChain
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Aborted, AbortSignal, Lifecycle, Phase, RequestKind
from spindle.agent.model_choice import ModelState
from spindle.agent.queues import Queues
from spindle.agent.retry import Retry
from spindle.agent.run.handle import Run
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain, RunOptions
from spindle.agent.run.record import Interruption, Recording, interruption
from spindle.agent.run.result import WAITING
from spindle.agent.toolbox import Toolbox
from spindle.base import limits, trace
from spindle.base.settings import Settings
from spindle.base.weakly import weakly
from spindle.llm import stream as llm
from spindle.llm.live import LiveMessage
from spindle.resources.loader import Resources
from spindle.sessions.entries import SessionError
from spindle.shapes.codec import encode
from spindle.shapes.events import (
    AgentSettled,
    AgentStart,
    CompactionResult,
    ExtensionError,
    MessageEnd,
    MessageStart,
    QueueUpdate,
    ToolResult,
)
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.run_result import RunResult
from spindle.tools.base import Files, StartBackground, Terminals, Tool, ToolContext, session_variables

if TYPE_CHECKING:  # loaded if there is a chain of models
    from spindle.agent.failover import Failover, ModelLine

Prepare = Callable[[Chain], Awaitable[list[AgentMessage] | None]]
"""Makes the messages that a run begins with; None: there is nothing to run. Raises `AgentError`, `Aborted`."""


class Engine:
    def __init__(
        self, conversation: Conversation, choice: ModelState, toolbox: Toolbox, resources: Resources, hooks: HookChain
    ) -> None:
        self.hooks = hooks
        """Hooks of the session."""
        self.conversation = conversation
        self.choice = choice
        self.toolbox = toolbox
        toolbox.on_change = weakly(self.forget_prompt)
        self.resources = resources
        self.lifecycle = Lifecycle()
        self.hub = Hub(hooks, self.lifecycle)
        settings = resources.settings
        self.port: Engine = proxy(self)
        """The engine as its parts hold it: they do not keep it alive, so that a closed agent is freed at once."""
        tell, save = weakly(self._tell_queues), weakly(self._save_queues)
        self.queues = Queues(tell, settings.steering_mode, settings.follow_up_mode, save)
        self.interrupt_mode: str = settings.interrupt_mode or "immediate"
        self.retry = Retry(self.port)
        self.compactor = Compactor(self.port, automatic=settings.compaction.enabled)
        self.limits = RunLimits()
        """Limits of every run, unless its request sets others."""
        self.provider_session_id: str | None = None
        """Id under which the provider may cache requests; None: the session's own id."""
        self.files: Files | None = None
        self.terminals: Terminals | None = None  # both of another program, an editor for example
        self.may_read: Callable[[str], bool] = lambda path: True
        self.start_background: StartBackground | None = None
        self.count_background: Callable[[], int] = lambda: 0
        self.sandbox: Callable[[], Any] = lambda: None
        self.owner = object()
        """Owner of the agent's processes. A process that is kept running outlives the agent."""
        self.failure: llm.Failure | None = None
        self.chain: Chain | None = None
        """The chain that is going on."""
        self.joined: list[Run] = []
        """Prompts that end with this chain."""
        self.last_result: RunResult | None = None
        """The result of the last chain."""
        self.left: Interruption | None = None
        """The run that the end of an earlier process cut off."""
        self._base_prompt: tuple[bool, str] | None = None
        """Whether it is for a small model, and its text."""
        self._task: asyncio.Task[None] | None = None
        self.cut_off = False
        """Whether the agent was closed in the middle of a run."""

    # -- setup -----------------------------------------------------------------------------------

    @cached_property
    def failover(self) -> "Failover":
        """Loaded with the first chain of models."""
        from spindle.agent.failover import Failover

        return Failover(self.port)

    @property
    def model(self) -> Model | None:
        """The model that is asked now."""
        return self.choice.answering

    @property
    def settings(self) -> Settings:
        """Settings of the working directory; they change with it."""
        return self.resources.store.settings

    @property
    def max_tokens(self) -> int | None:
        return self.chain.options.max_tokens if self.chain is not None else None

    @property
    def system_prompt(self) -> str:
        """The prompt of the session. It stays the same until tools, resources or instructions of the client change, or
        a small model takes the place of a large one."""
        model = self.choice.answering
        small = model is not None and model.small
        if self._base_prompt is None or self._base_prompt[0] is not small:
            text = self.resources.system_prompt(self.toolbox.active_tools(), self.workdir, small=small)
            self._base_prompt = small, text
        return self._base_prompt[1]

    @property
    def workdir(self) -> str:
        return self.resources.workdir(self.conversation.session.cwd)

    def run_prompt(self) -> str:
        """Return the system prompt of the current run."""
        chain = self.chain
        if chain is None or (chain.options.system_prompt is None and chain.options.tools is None):
            return self.system_prompt
        small = self.model is not None and self.model.small
        return self.resources.system_prompt(self._tools(), self.workdir, chain.options.system_prompt, small)

    def forget_prompt(self) -> None:
        """Let the system prompt be made again for the next model call."""
        self._base_prompt = None

    def _tools(self) -> list[Tool]:
        tools = self.toolbox.active_tools(self.chain.options.tools if self.chain is not None else None)
        structured = self.chain.structured if self.chain is not None else None
        return tools if structured is None else [*tools, structured.tool]

    # -- events ----------------------------------------------------------------------------------

    def _tell_queues(self) -> None:
        self.hub.publish(QueueUpdate(*self.queues.texts(), self.queues.items()))

    def _save_queues(self) -> None:
        """Keep messages beside the session file that were accepted but are not in it yet."""
        session = self.conversation.session
        kept = self.queues.kept(session.id)
        session.keep_beside(encode(kept) if kept.waiting else None)
        self._tell_kept()

    def _tell_kept(self) -> None:
        """Tell the sender of the chain's prompt that it is in a file now."""
        if self.chain is not None and self.chain.run is not None:
            self.conversation.session.when_safe(self.chain.run.keep)

    async def commit(self, message: AgentMessage) -> AgentMessage:
        """Store the message, then tell that it is finished."""
        message = await self.store(message)
        await self.enter(message)
        return message

    async def store(self, message: AgentMessage) -> AgentMessage:
        stored = await self.hub.hooks.message_end(message)
        with self.conversation.session.together():
            if self.choice.routed is not None:
                self.failover.note_route(self.choice.routed)
            self.conversation.store(stored)
            self.record_begin(self.conversation.entry_id(stored))
        self.queues.stored(message)
        if isinstance(message, UserMessage):
            self._tell_kept()
        return stored

    def record_begin(self, prompt: str | None = None) -> None:
        """Note in the session that a run has begun, unless that was done."""
        recording = None if self.chain is None else self.chain.recording
        if recording is not None and not recording.begun and self.left is None:
            recording.begin(prompt)

    async def enter(self, message: AgentMessage) -> None:
        self.conversation.messages.append(message)
        self.hub.hooks.committed(message)
        self.hub.tell_kept(MessageEnd(message, self.conversation.entry_id(message)), self.conversation.session)
        if self.chain is not None:
            self.chain.entered(message)
        if isinstance(message, UserMessage):
            self.conversation.sync_soon()
            await asyncio.sleep(0)  # the thread gets its turn now: the disk works while the request is made
        elif isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            await self.retry.succeeded()
            if self.choice.line is not None:
                await self.failover.succeeded(self.choice.line)

    @property
    def run_limits(self) -> RunLimits:
        return self.limits if self.chain is None else self.chain.meter.limits

    def limit_reached(self) -> str | None:
        """Return the limit of the run that forbids another model call, if one does; the run then ends because of it."""
        return self.chain.meter.stopped if self.chain is not None and self.chain.meter.exhausted() else None

    @property
    def counts_spending(self) -> bool:
        """Whether money or tokens of the run are limited."""
        return self.chain is not None and self.chain.meter.limits.on_spending

    def spent(self, usage: Usage, estimated: int = 0) -> None:
        """Count a request that is not part of the conversation, such as a summary, if there is a run."""
        if self.chain is not None:
            self.chain.spent(usage, estimated)

    # -- a chain ---------------------------------------------------------------------------------

    def start(
        self,
        prepare: Prepare,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        run: Run | None = None,
        meter: Meter | None = None,
        goes_on: Interruption | None = None,
    ) -> None:
        """Begin a chain, on an idle agent. It works in a task of its own, so its events come after this has returned.

        `run` is held by the sender of the prompt. `meter`: of a chain that follows from an earlier one. `goes_on`: what
        it goes on with; otherwise that is given up.
        """
        structured = None
        if options.schema is not None:
            from spindle.agent.features.structured import StructuredAnswer

            structured = StructuredAnswer(options.schema)
        self.lifecycle.begin(Phase.PREPARING)
        self.choice.begin(self.settings, options.fallback)
        own = [hooks for hooks in (options.hooks, structured) if hooks is not None]
        self.hub.hooks = HookChain(self.hooks, *own) if own else self.hooks
        outer = None if options.inside is None else options.inside.meter
        meter = meter or Meter(options.limits.over(self.limits), self.settings.runaway, outer)
        self.chain = Chain(options, meter, run, self.hub.hooks, structured=structured, resumes=goes_on is not None)
        session = self.conversation.session
        if session.is_kept and options.inside is None:  # the run of a subagent is part of another
            record = goes_on.again() if goes_on else options.record(self.chain.id, session, meter)
            self.chain.recording = Recording(session, record)
        if goes_on is not None:
            self.chain.id, self.left = goes_on.record.id, None
        if run is not None:
            self.join(run)
        work, context = self._work_in_span(self.chain, prepare), run.context if run is not None else None
        self._task = asyncio.create_task(work, name="spindle-run", context=context)

    async def _work_in_span(self, chain: Chain, prepare: Prepare) -> None:
        with trace.span("run", session=self.conversation.session.id, model=self.choice.name) as chain.span:
            await self._work(chain, prepare)

    def join(self, run: Run) -> None:
        """Make a prompt part of the chain, so that its sender is told of the end."""
        run.begin()
        self.joined.append(run)

    async def _work(self, chain: Chain, prepare: Prepare) -> None:
        from spindle.agent import following, loop, resuming

        chain.hooks.begin_run()
        clock = self._start_clock(chain)
        try:
            if self.left is not None:
                await resuming.give_up(self, self.left)
            messages = await prepare(chain)
            chain.tell_prompt(messages or [])
            if messages is None:
                chain.stop_reason = "handled"
                # A hook may have sent another prompt in its place.
                messages = [] if self.queues.prompted and not chain.meter.stopped else None
            if messages is not None and chain.resumes and not await resuming.catch_up(self, chain):
                messages = None
            while messages is not None:
                self.lifecycle.move(Phase.STREAMING)
                answer = await loop.run(messages, chain, self, self.lifecycle.signal)
                messages = await following.after(chain, answer, self)
                if messages is None and self.is_awaited(answer):
                    messages = []  # a message was queued at the last moment; there is no await between this and the end
        except Aborted:
            pass  # before a run had begun
        except AgentError as error:
            chain.broke(error)
        except Exception as error:  # a bug of ours: the session outlives it, and the client is told
            trace.bug(error)
            self.hub.publish(ExtensionError("", "agent", chain.broke(error)))
        finally:
            if clock is not None:
                clock.cancel()
            self._settle(chain)

    def _start_clock(self, chain: Chain) -> asyncio.TimerHandle | None:
        """Start a timer that ends the run when its time is over, even during a model call."""
        if (left := chain.meter.seconds_left()) is None:
            return None

        def expire() -> None:
            chain.meter.stopped = chain.meter.stopped or "maxTime"
            self.stop()

        return asyncio.get_running_loop().call_later(left, expire)

    async def make_room(self) -> None:
        """Compact before a prompt if the last answer left too little room. Raises `Aborted`, `AgentError`."""
        last = self.conversation.last_assistant()
        reason = self.compactor.reason(last) if last is not None else None
        if reason is None or not self.compactor.possible():
            return
        self.lifecycle.move(Phase.MAKING_ROOM)
        try:
            await self.compactor.run(reason, self.lifecycle.signal)
        except (AgentError, Aborted):
            # Otherwise it failed or was cancelled, and events told so; the model may still cope.
            self.lifecycle.signal.check()
        finally:
            self.lifecycle.move(Phase.PREPARING)
        if (limit := self.limit_reached()) is not None:
            raise AgentError(f"Compacting the conversation used up {limit}, so the prompt was not sent")

    def is_awaited(self, answer: AssistantMessage) -> bool:
        """Say whether queued messages are to be delivered now.

        After an abort they wait for the user, after an error too, unless one of them is a prompt.
        """
        if self.lifecycle.signal.aborted or self.lifecycle.changes or not self.queues.deliverable:
            return False
        if self.chain is not None and self.chain.meter.stopped:
            return False
        return self.queues.prompted or answer.stop_reason not in ("error", "aborted")

    def _settle(self, chain: Chain) -> None:
        """End the chain. Whatever went wrong before, the agent is idle afterwards."""
        self._task = None
        try:
            if (end := chain.end_run()) is not None:  # something broke or was cancelled outside of a try
                self.hub.publish(end)
            if self.lifecycle.closed:
                self.queues.save()  # a prompt that is not in the session yet is offered when that is opened again
            else:
                self.queues.requeue()
            self.conversation.release_held()
            self.conversation.sync_later()
        finally:
            self.chain = None
            self.choice.end()
            chain.meter.end()
            limit = chain.meter.stopped
            cut_off = self.cut_off and not self.lifecycle.closed
            aborted = self.lifecycle.signal.aborted and limit is None and not cut_off
            chain.stop_reason = limit or ("aborted" if aborted else chain.stop_reason)
            if chain.recording is not None and not self.cut_off:
                chain.recording.end(chain.stop_reason, chain.meter, chain.held)
            if cut_off or chain.stop_reason == WAITING:
                self.left, self.cut_off = interruption(self.conversation.session), False
            text = (self.conversation.last_assistant_text() or "") if chain.meter.turns else ""
            self.last_result = chain.result(text, self.conversation.session)
            chain.tell_end(self.last_result, self.failure)
            self.lifecycle.end()
            settled = AgentSettled(aborted, chain.stop_reason, chain.error, self.count_background())
            self.hub.observe_soon(settled)
            self.hub.tell_kept(settled, self.conversation.session)
            for joined in self._leave():
                self.hub.then(partial(joined.end, self.last_result), joined.refuse, self.conversation.session)
            self.queues.senders.clear()
            self.hub.hooks = self.hooks
            self.lifecycle.free()

    def _leave(self) -> list[Run]:
        joined, self.joined = self.joined, []
        return joined

    def refuse_joined(self, why: str) -> None:
        """Refuse the prompts that wait in the queues, because the agent leaves their session."""
        for joined in self._leave():
            joined.refuse(why)
        self.queues.senders.clear()

    # -- stopping --------------------------------------------------------------------------------

    async def abort_retry(self) -> None:
        """End a wait for the next attempt, and with it the chain."""
        if self.retry.cancel():
            await self.lifecycle.wait_idle()

    def stop(self) -> None:
        """Stop whatever is running, without waiting for its end."""
        self.lifecycle.signal.abort()
        self.hub.hooks.interrupt()

    def leave_off(self) -> None:
        """Stop the work, but not the run: unless somebody has stopped it, it can be resumed later."""
        self.cut_off = self.cut_off or not self.lifecycle.signal.aborted
        self.stop()

    async def kill(self) -> None:
        """End the work for good: the agent is being closed. A run that nobody has stopped can be resumed later."""
        self.leave_off()
        chain = self._task
        if chain is None:
            return
        _, late = await asyncio.wait([chain], timeout=limits.RUN_END)
        if late:
            chain.cancel()
            await asyncio.wait(late, timeout=limits.RUN_END)

    async def compact(self, instructions: str | None) -> CompactionResult:
        if (refusal := self.compactor.refusal()) is not None:
            self.compactor.refuse(refusal, "manual")  # without stopping the current run
            raise AgentError(refusal)
        async with self.lifecycle.alone(RequestKind.SUMMARY, Phase.SUMMARIZING, self.stop) as signal:
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
        except Exception:  # the session file may be broken: keep the message in memory
            self.conversation.messages.append(message)
        self.hub.pass_on(MessageStart(message))
        self.hub.pass_on(MessageEnd(message, self.conversation.entry_id(message)))
        return message

    async def will_retry(self, message: AssistantMessage) -> bool:
        retry = self.retry
        if self.lifecycle.signal.aborted or not retry.worthwhile(message, self.failure, self.model, retry.attempt):
            return False
        line = self.choice.line
        return line is None or not await self.failover.is_in_vain(line, message, self.failure)

    async def has_spare(self, answer: AssistantMessage) -> bool:
        line = self.choice.line
        return line is not None and await self.failover.has_spare(line, answer, self.failure)

    async def fall_back(self, answer: AssistantMessage) -> None:
        assert self.choice.line is not None
        await self.failover.stand_in(self.choice.line, answer, self.failure)

    async def begin_try(self) -> list[AgentMessage]:
        chain = self.chain
        assert chain is not None
        if chain.created is None:
            chain.created = []
            await self.hub.emit(AgentStart())
            if self.choice.line is not None:
                await self.failover.begin(self.choice.line)
        return chain.created

    async def end_run(self) -> None:
        if self.chain is not None and (end := self.chain.end_run()) is not None:
            self.lifecycle.move(Phase.ENDING)
            await self.hub.emit(end)

    def empty_answer(self, stop_reason: str, error: str) -> AssistantMessage:
        if self.model is None:
            raise AgentError("No model selected")
        return LiveMessage(self.model).finish(stop_reason, error)

    async def with_text_calls(self, answer: AssistantMessage) -> AssistantMessage:
        model = self.model
        if answer.stop_reason != "stop" or model is None:
            return answer
        from spindle.agent.features.text_calls import with_calls

        return await with_calls(answer, model, self.offered_tools)

    async def what_is_missing(self, answer: AssistantMessage) -> str | None:
        # Clients with a person, or a program of their own, see the text and decide.
        if not self.resources.prompt.unattended or (model := self.model) is None or (chain := self.chain) is None:
            return None
        from spindle.agent.features.unfinished import what_is_missing

        denied = bool(chain.meter.denials)
        return await what_is_missing(answer, self.conversation.messages, model, self.offered_tools(), denied)

    async def stream(self) -> AsyncGenerator[llm.Chunk, None]:
        from spindle.llm.history import to_model_messages, without_images

        def convert(part: Sequence[AgentMessage], _: int) -> list[llm.ModelMessage]:
            converted = to_model_messages(part)
            return without_images(converted) if blind else converted

        chain = self.chain
        assert chain is not None
        self.record_begin()
        if not await chain.hooks.before_turn():
            self.lifecycle.signal.abort()
        self.lifecycle.signal.check()
        prompt = chain.system_prompt if chain.system_prompt is not None else self.run_prompt()
        messages, prompt = await chain.hooks.context(self.conversation.messages, prompt)
        blind, memory = self.settings.images.block_images, self.conversation.memory
        history = memory.parts("model", messages, convert, blind)
        specs = [llm.ToolSpec(tool.name, tool.description, tool.parameters) for tool in self._tools()]
        request = llm.Request(prompt, history, specs, memory)
        chain.meter.asks(request)
        return await self.open_stream(request, chain.options.max_tokens)

    async def open_stream(
        self, request: llm.Request, max_tokens: int | None = None, line: "ModelLine | None" = None
    ) -> AsyncGenerator[llm.Chunk, None]:
        """Send a request to the current model, or to that of the line for a job beside the conversation. Its answer is
        told once the user's message is on the disk."""
        line = line or self.choice.line
        model = self.model if line is None else line.now.model
        if model is not None:
            self.hub.hooks.model_call(model)
        session_id = self.provider_session_id or self.conversation.session.id
        settings, hooks = self.settings, self.hub.hooks
        opening = self.choice.ask(request, settings, hooks, session_id, self._on_disk, max_tokens, line)
        if not trace.listeners:
            return await opening
        return llm.in_span(opening, session=self.conversation.session.id, model=model and model.full_name)

    async def _on_disk(self) -> None:
        await self.conversation.on_disk()
        await self.safe()

    async def safe(self) -> None:
        """Wait until another process could go on from here. If that will not be, the run is cut off, and it raises."""
        try:
            await self.conversation.safe()
        except SessionError as error:
            if self.chain is not None:
                self.chain.broke(error)
                self.cut_off = True
            self.stop()
            raise

    async def run_tools(
        self, message: AssistantMessage, cut: Container[str], signal: AbortSignal
    ) -> tuple[list[ToolResultMessage], bool]:
        if not any(isinstance(block, ToolCall) for block in message.content):
            return [], False
        from spindle.agent.tool_batch import ToolBatch

        self.lifecycle.move(Phase.TOOLS)
        chain = self.chain
        assert chain is not None
        batch = ToolBatch(self, chain, message, cut, signal)
        try:
            return await batch.run()
        finally:
            chain.hold(batch.held)
            self.lifecycle.move(Phase.STREAMING)

    # -- the tools' port -------------------------------------------------------------------------

    @property
    def tool_seconds(self) -> float:
        return self.settings.runaway.tool_seconds

    def offered_tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self._tools()}

    def interrupting(self) -> bool:
        return self.interrupt_mode == "immediate" and len(self.queues.steering) > 0

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext:
        session = self.conversation.session
        settings, start = self.resources.tool_settings(self.owner, self.sandbox()), self.start_background
        own = session_variables(session.id, session.path, self.model, self.choice.level)
        env = {**settings.variables, **own}
        # What an editor offers is of this machine.
        files, terminals = (self.files, self.terminals) if self.resources.far is None else (None, None)
        return ToolContext(self.workdir, update, self.model, env, settings, files, start, self.may_read, terminals)
