"""How a message gets to the model: it is accepted or refused at once, then prepared, then it starts a run or waits.

Acceptance depends only on facts that are known without waiting: the admission table, and whether there is a model and
a key. Everything that may take time (hooks, extensions that still load, a compaction) comes after the response to the
client.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from spindle.agent import AgentError
from spindle.agent.engine import Engine
from spindle.agent.hooks import Plugins, Start
from spindle.agent.lifecycle import Aborted, Phase, RequestKind, Verdict
from spindle.agent.queues import KeptQueues
from spindle.agent.run.handle import Disposition, Run
from spindle.agent.run.meter import Meter, check_limits
from spindle.agent.run.options import Chain, RunOptions, Submission
from spindle.agent.run.result import without_run
from spindle.base import limits
from spindle.base.flow import Tasks, beginnings
from spindle.models.credentials import MissingCredentials
from spindle.sessions.entries import SessionError
from spindle.shapes.events import AgentSettled, ExtensionError, MessageStart, Notice, StateChanged
from spindle.shapes.messages import AgentMessage, CustomMessage, Image, UserMessage
from spindle.shapes.model import Model
from spindle.shapes.tool_lists import may_match


class NotReady(AgentError):
    """There is no model to ask, or no key for it."""


class Prompting:
    def __init__(self, engine: Engine, plugins: Plugins) -> None:
        self._engine = engine
        self._plugins = plugins
        self._in_order = asyncio.Lock()
        """Held while hooks look at a message: messages are queued in the order in which they were sent."""
        self._beginning = asyncio.Lock()
        """Held while extensions learn of the session: prompts and commands then go on in the order they were sent."""
        self._told_tools = False
        """Whether the user was told what is wrong with the lists of tools."""
        self._undelivered = False
        """A prompt came to its queue during a change of session, and started no run."""
        self._unseen: list[Submission] = []
        """Messages kept from before, which hooks have yet to look at."""
        self.commands = Tasks()
        """Slash commands of extensions at work, and messages that hooks look at before they are queued."""
        self._running: dict[asyncio.Task[None], str] = {}
        """Names of the slash commands at work."""
        engine.lifecycle.on_free = self.arrive

    async def submit(self, submission: Submission, run: Run, *, wait: bool) -> None:
        """Accept a prompt, or raise `AgentError`. With `wait`, wait until it would not be refused for what goes on."""
        engine, request = self._engine, request_of(submission)
        # A program that sends a prompt cannot know that the end of a command has started a run.
        woken = engine.chain is not None and engine.chain.meter.follows
        if (wait or (woken and request is RequestKind.OWN)) and not self._command(submission):
            await engine.lifecycle.admissible(request)
        behind_abort = engine.lifecycle.aborting
        run.disposition = self.take(submission)
        if run.disposition == "queued":
            await engine.conversation.safe()
        if run.disposition != "started":
            run.keep()
        if behind_abort and run.disposition == "queued" and request is not RequestKind.OWN:
            # So that a client does not take the end of the aborted run for the end of this one.
            await engine.lifecycle.wait_idle()

    def take(self, submission: Submission) -> Disposition:
        """Accept a submission, or raise `AgentError`. Never waits."""
        engine, hooks = self._engine, self._engine.hooks
        engine.lifecycle.check_open()
        name = self._command(submission)
        if name and not submission.is_prompt:
            raise AgentError(
                f'Extension command "/{name}" cannot be queued. Use prompt() or execute the command when not streaming.'
            )
        if name and not engine.lifecycle.changes:
            task = self.commands.spawn(self._run_command(submission), f"spindle-command-{name}")
            self._running[task] = name
            task.add_done_callback(self._running.pop)
            if (run := submission.run) is not None:
                session = engine.conversation.session
                task.add_done_callback(lambda _: run.end(without_run(session)))
            return "handled"
        verdict = engine.lifecycle.admit(request_of(submission))
        if verdict is Verdict.WAIT:
            engine.queues.keep(submission)
            return "queued"
        if verdict is Verdict.QUEUE:
            self._claim()
            if hooks.wants_input:
                engine.queues.accept(submission)
                self.commands.spawn(self._queue_later(submission), "spindle-queue")
            else:
                self._queue(submission, self._expand(submission.text, submission), submission.images)
            return "queued"
        self.require_model(submission.options.fallback)
        if engine.model is not None:
            check_limits(submission.options.limits.over(engine.limits), engine.model)
        self._claim()
        engine.queues.accept_start(submission)
        engine.start(lambda chain: self._prepare(submission, chain), submission.options, submission.run)
        return "started"

    def _command(self, submission: Submission) -> str:
        """Return the name of the extension's command in a submission; an empty text if there is none."""
        name = submission.text[1:].split(" ", 1)[0] if submission.expand and submission.text.startswith("/") else ""
        return name if name and self._engine.hooks.has_command(name) else ""

    async def read_images(self, images: Sequence[Any]) -> list[Image]:
        if not images:
            return []
        from spindle.agent.prompt_images import read_images

        return await read_images(images, self._engine.settings.http_proxy)

    async def queue(self, text: str, images: Sequence[Any], name: str, source: str) -> Disposition:
        """Accept a message that starts no run. `name` is that of its queue. Returns when it is kept.

        Raises `AgentError`.
        """
        taken = self.take(Submission(text, await self.read_images(images), name, source, is_prompt=False))
        await self._engine.conversation.safe()
        return taken

    def arrive(self) -> None:
        """Accept the submissions that were held back until a change of session, an abort or a run was over."""
        engine = self._engine
        arrived = engine.queues.arrived()
        for submission in arrived:
            waits = submission.is_prompt and engine.lifecycle.running and not self._command(submission)
            if waits and request_of(submission) is RequestKind.OWN:
                engine.queues.keep(submission)
                continue
            if waits:  # it was accepted already, so it waits for the prompt before it
                self._queue(submission, self._expand(submission.text, submission), submission.images)
                continue
            try:
                self.take(submission)
            except AgentError as error:
                is_end = submission.is_prompt
                engine.hub.publish(
                    AgentSettled(False, "error", str(error)) if is_end else Notice(str(error), "warning")
                )
                if submission.run is not None:
                    submission.run.refuse(str(error))
        if arrived:
            engine.queues.save()
        if self._undelivered and engine.queues.prompted:  # the change of session failed
            self.deliver()

    def offer_again(self) -> None:
        """Put messages back into the queues that were there when the session was left or its process was killed."""
        engine, session = self._engine, self._engine.conversation.session
        kept = KeptQueues.read(session.read_beside(), session.id)
        if kept is None:
            return
        messages = (entry.message for entry in session.entries if entry.type == "message")
        delivered = {message.timestamp for message in messages if isinstance(message, UserMessage)}
        self._unseen = engine.queues.offer(kept, delivered)
        if not engine.hooks.wants_input:
            for submission in self._take_unseen():
                self._queue(submission, self._expand(submission.text, submission), submission.images)
                engine.queues.let_go(submission)

    def begun(self) -> None:
        """Let hooks look at messages kept from before, now that extensions know the session."""
        if not self._engine.lifecycle.closed:
            for submission in self._take_unseen():
                self.commands.spawn(self._queue_later(submission), "spindle-queue")

    def _take_unseen(self) -> list[Submission]:
        unseen, self._unseen = self._unseen, []
        return unseen

    async def send(self, message: CustomMessage, *, trigger_turn: bool, deliver_as: str | None) -> None:
        """Put a message of an extension into the conversation, or into a queue if the agent is at work."""
        engine = self._engine
        if deliver_as == "nextTurn":
            engine.queues.with_next_prompt.append(message)
        elif engine.lifecycle.running:
            engine.queues.put(message, deliver_as or "steer")
        elif trigger_turn:
            self.start_with(message)
        else:
            await engine.hub.emit(MessageStart(message))
            await engine.commit(message)

    def send_queued(self, id: str) -> None:
        """Deliver a message that waits before all others; if there is no run, start one. Raises `AgentError`."""
        self._engine.lifecycle.admit(RequestKind.PROMPT_OR_QUEUE)
        self.require_model()
        self._engine.queues.hurry(id)
        self.deliver()

    def start_with(
        self,
        message: CustomMessage,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        after: Meter | None = None,
    ) -> None:
        """Let the model answer a message that is not the user's. Raises `AgentError`.

        `after`: meter of the run that the message follows from, whose limits hold.
        """
        self._engine.lifecycle.admit(RequestKind.INSIDE)
        self.require_model()

        async def prepare(chain: Chain) -> list[AgentMessage]:
            await self._engine.make_room()
            self._engine.lifecycle.signal.check()
            return [message]

        self._engine.start(prepare, options, meter=None if after is None else after.go_on())

    def deliver(self) -> None:
        """Start a run with the messages in the queues, unless there is a run that will deliver them."""
        lifecycle = self._engine.lifecycle
        self._undelivered = lifecycle.changes > 0
        if not (lifecycle.running or lifecycle.changes or lifecycle.closed):
            self._engine.start(with_nothing_new)

    def require_model(self, fallback: Sequence[str | Model] | None = None) -> None:
        """Raise `AgentError` if there is no model, or no key for it and no other model that may answer."""
        choice = self._engine.choice
        self.look_for_model()
        if choice.model is None:
            raise NotReady(choice.registry.no_model_text())
        try:
            choice.registry.require_credentials(choice.model)
        except MissingCredentials as error:
            if not choice.chain(choice.role, self._engine.settings, fallback):
                raise NotReady(str(error)) from None

    def look_for_model(self) -> None:
        """Choose a model if there was none and there is one now: a key may have been stored since."""
        engine, choice = self._engine, self._engine.choice
        if choice.model is None and choice.look_again(engine.settings):
            choice.record(engine.conversation.session)
            engine.hub.publish(StateChanged())

    def stop_commands(self) -> list[str]:
        """Cancel slash commands of extensions; return their names."""
        for task in self._running:
            task.cancel()
        return list(self._running.values())

    # -- after acceptance ------------------------------------------------------------------------

    def _tell_tools(self, of_request: Sequence[str]) -> None:
        """Tell the user what is wrong with the lists of tools: clients and extensions have brought theirs by now."""
        engine, toolbox, first = self._engine, self._engine.toolbox, not self._told_tools
        self._told_tools = True
        entries = toolbox.unmatched((*toolbox.lists, *of_request) if first else of_request)
        if toolbox.gone:
            engine.hub.publish(Notice(f"The session had tools that are not here: {', '.join(toolbox.gone)}"))
            toolbox.gone = []
        # The tools of MCP servers may not be known yet.
        if lost := [entry for entry in entries if not may_match(entry, "mcp__")]:
            engine.hub.publish(Notice(f"There are no tools for these entries of tool lists: {', '.join(lost)}"))
        if (first and toolbox.lost_all) or (of_request and not toolbox.active_tools(of_request)):
            engine.hub.publish(Notice("The model has no tools: the tool lists leave none"))

    async def _run_command(self, submission: Submission) -> None:
        await self._until_begun(submission)
        await self._engine.hooks.run_command(submission.text)

    async def _until_begun(self, submission: Submission) -> None:
        """Wait until extensions know the session, unless one of them sent the message: they may be waiting for it."""
        if submission.source != "extension":
            async with self._beginning:
                await self._plugins.begin()

    async def _take_turn(self, run: Run) -> None:
        """Wait while many other prompts begin. A prompt that is held up after that is kept beside the session file."""
        gate = beginnings()
        await gate.acquire()
        late = asyncio.get_running_loop().call_later(limits.PROMPT_KEPT, self._engine.queues.save)

        def make_way(_: object) -> None:
            late.cancel()
            gate.release()

        run.kept.add_done_callback(make_way)

    async def _prepare(self, submission: Submission, chain: Chain) -> list[AgentMessage] | None:
        """Make the first messages of a run. Raises `AgentError`, `Aborted`."""
        engine, signal = self._engine, self._engine.lifecycle.signal
        ready: tuple[str, list[Image]] | None = submission.text, submission.images
        try:
            with signal:
                if chain.run is not None:
                    await self._take_turn(chain.run)
                await self._until_begun(submission)
                self._tell_tools(submission.options.tools or ())
                if submission.source != "extension":
                    await engine.lifecycle.change_told.wait()
                ready = await chain.hooks.input(submission.text, submission.images, submission.source, None)
        except Aborted:
            if chain.hooks.wants_input:
                raise
        if ready is None:
            return None
        text, images = self._expand(ready[0], submission), ready[1]
        engine.conversation.release_held()
        if signal.aborted:  # before it began: the message was accepted, so it is stored, with an aborted answer
            return [submission.message(text, images)]
        if chain.hooks.wants_input:
            self.require_model(chain.options.fallback)  # hooks may have taken long, and a key or a provider may be gone
        await engine.make_room()
        made_of = {"cwd": engine.workdir, "selectedTools": list(engine.toolbox.active)}
        before = engine.run_prompt()
        start = Start(text, images, before, made_of)
        with signal:
            await chain.hooks.before_agent_start(start)
        if start.system_prompt != before:
            chain.system_prompt = start.system_prompt
        return [submission.message(text, images), *engine.queues.take_next_prompt(), *start.messages]

    async def _queue_later(self, submission: Submission) -> None:
        """Let hooks look at a message, then put it in its queue; if the run has ended, a prompt starts another."""
        run = submission.run
        async with self._in_order:
            await self._until_begun(submission)
            ready = await self._engine.hooks.input(
                submission.text, submission.images, submission.source, submission.behavior
            )
            while self._engine.lifecycle.phase is Phase.SUMMARIZING:  # the run has ended, and another cannot begin yet
                await self._engine.lifecycle.wait_idle()
            if run is not None and ready is None:
                run.end(without_run(self._engine.conversation.session))
            if ready is not None and not (run is not None and run.over):  # its sender may have taken it back
                self._queue(submission, self._expand(ready[0], submission), ready[1])
            self._engine.queues.let_go(submission)

    def _claim(self) -> None:
        """Reserve the file of a new session. Raises `AgentError` if a message could not be saved in it.

        A store is asked when the message is sent there, which its sender waits for.
        """
        session = self._engine.conversation.session
        try:
            if session.store is None:
                session.claim()
        except SessionError as error:
            raise AgentError(str(error)) from None

    def _queue(self, submission: Submission, text: str, images: list[Image]) -> None:
        engine = self._engine
        message = submission.message(text, images)
        if submission.run is not None:
            engine.join(submission.run)
        engine.queues.put(message, submission.behavior, prompt=submission.is_prompt, sender=submission.run)
        if submission.is_prompt:
            self.deliver()

    def _expand(self, text: str, submission: Submission) -> str:
        if not submission.expand:
            return text
        return self._engine.resources.expand(
            text, lambda error: self._engine.hub.publish(ExtensionError("", "skill_expansion", error))
        )


async def with_nothing_new(chain: Chain) -> list[AgentMessage]:
    """Begin a run with the messages that are in the conversation or in the queues already."""
    return []


def request_of(submission: Submission) -> RequestKind:
    if not submission.is_prompt:
        return RequestKind.QUEUE
    if submission.source == "extension":
        return RequestKind.INSIDE_OR_QUEUE if submission.behavior else RequestKind.INSIDE
    if submission.source in ("sdk", "remote"):
        return RequestKind.OWN
    return RequestKind.PROMPT_OR_QUEUE if submission.behavior else RequestKind.PROMPT
