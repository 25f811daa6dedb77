"""The agent as every wire drives it: one object, with one name per thing a client can ask for.

Its parts do the work: engine, conversation, prompting, changes of session, choice of models, shell. This class holds
them together; wires, extensions and programs need to know only this class.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import proxy

from spindle.agent import AgentError
from spindle.agent.changes import SessionChanges, Setup
from spindle.agent.conversation import Conversation
from spindle.agent.dialogs import Dialogs, dialogs_of
from spindle.agent.engine import Engine
from spindle.agent.features import Titles, chosen_features
from spindle.agent.features.background import Background
from spindle.agent.features.stream_rules import StreamRules
from spindle.agent.features.subagent_list import SubagentList
from spindle.agent.features.todos import Todos
from spindle.agent.features.undo.checkpoints import Checkpoints
from spindle.agent.fences.approval import Approval
from spindle.agent.fences.options import PermissionOptions
from spindle.agent.hooks import (
    ExtensionInForce,
    HookChain,
    Hooks,
    Listener,
    McpServers,
    NoMcpServers,
    PluginChain,
    Plugins,
)
from spindle.agent.host_tools import HostTools, Replies
from spindle.agent.lifecycle import SESSION_ENDED, Phase, RequestKind
from spindle.agent.model_choice import ModelState, ModelSwitch
from spindle.agent.prompting import Prompting, with_nothing_new
from spindle.agent.queues import NOT_BEGUN, QueueMode
from spindle.agent.run.handle import Disposition, Run
from spindle.agent.run.options import RunOptions, Submission
from spindle.agent.run.record import interruption
from spindle.agent.run.result import WAITING
from spindle.agent.shell import Shell
from spindle.agent.state import AgentState, ContextUsage, SessionStats, agent_state, context_usage, session_stats
from spindle.agent.toolbox import Toolbox
from spindle.agent.welcome import Welcome
from spindle.base import limits as times
from spindle.base.agent_dir import agent_dir
from spindle.base.settings import Retention, Todo
from spindle.base.weakly import weakly
from spindle.programs.children import kill_all
from spindle.resources.loader import ClientPrompt, Resources
from spindle.sessions.session import Session
from spindle.shapes import events
from spindle.shapes.approvals import Answer, InterruptedRun, PermissionRequest, QuestionKind
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import AgentMessage, Image, Text, Usage, UserMessage
from spindle.shapes.model import Model, ThinkingLevel
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.run_result import RunResult
from spindle.tools.base import Files, Terminals, Tool, ToolContext

if TYPE_CHECKING:
    from spindle.agent.features.undo.undo import Undo
    from spindle.agent.navigate import Jump, Navigated
    from spindle.workspace.pipe import Pipe


T = TypeVar("T")


class AgentSession:
    """One conversation at work: takes prompts, runs them, and tells every listener what happens.

    Its parts do the work, and callers that need one alone name it: `conversation` for what was said, `prompting` and
    `queues` for prompts on their way, `lifecycle` for where the agent stands, `models`, `toolbox`, `todos`, `approval`
    and `dialogs` for questions to the user, `host_tools` and `replies` for what the client lends, `shell` for
    commands of the user, `background`, `checkpoints`, `undo`, `changes`, `subagents`, `mcp_servers`, `hooks`,
    `hub`, `plugins`, `welcome`.
    """

    def __init__(
        self,
        session: Session,
        resources: Resources,
        choice: ModelState,
        toolbox: Toolbox,
        *,
        mode: str = "rpc",
        plugins: Plugins | None = None,
        dialogs: Dialogs | None = None,
        provider_session_id: str | None = None,
        permissions: PermissionOptions = PermissionOptions(),  # noqa: B008 - frozen
        limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
    ) -> None:
        self.resources = resources
        self.mode = mode
        """What drives it: `rpc`, `json`, `print`, `batch`, `chat`, `acp`, `remote`, or `sdk` for a Python program."""
        self.plugins = plugins or PluginChain()
        self.shutdown_requested = asyncio.Event()
        """Set when an extension wants the session to end."""
        self.pipe: Pipe | None = None
        """Leads to the far side where tools work, if the agent has opened it; it ends with the agent."""
        self.has_given_place = False
        """Whether it was told where tools work: then all its sessions work there."""
        self.check_place: Callable[[str], None] = lambda cwd: None
        """Raises `AgentError` if no session may work in that directory."""
        self.mcp_servers: McpServers = NoMcpServers()
        self.subagents = SubagentList()
        self.conversation = Conversation(session)
        self._extension_hooks, self.hooks = Hooks(), HookChain()
        self._engine = engine = Engine(self.conversation, choice, toolbox, resources, self.hooks)
        engine.provider_session_id, engine.limits = provider_session_id, limits
        self.hub, self.queues, self.lifecycle = engine.hub, engine.queues, engine.lifecycle
        self.toolbox, self.models, self.shell = toolbox, ModelSwitch(engine.port), Shell(engine.port)
        self.replies = replies = Replies()
        # Over RPC the client decides about todos, whatever the user set up for other programs.
        todo = Todo() if mode == "rpc" else resources.settings.todo
        self.todos = Todos(engine.port, todo, resources.settings.tasks.todo_clear_delay)
        self._rules = StreamRules(engine.port, resources.settings.ttsr)
        self.dialogs = dialogs or dialogs_of(mode, weakly(self.hub.publish), replies)
        self.approval = Approval(engine.port, self.dialogs, permissions, of_server=mode == "remote")
        self.background = Background(engine.port, mode)
        self.checkpoints = Checkpoints(engine.port, self.shell)
        own = (self._rules, self.todos, self.background, self._extension_hooks, self.approval, self.checkpoints)
        self._titles = Titles(engine.port, mode)
        self.hooks.use(*own, *chosen_features(engine.port), self._titles)
        self.host_tools = HostTools(engine.port, replies, resources.settings.host_tools.timeout_ms)
        self.port: AgentSession = proxy(self)
        """The agent as plugins and changes of session hold it: they do not keep it alive."""
        self.welcome = Welcome(self.port, choice)
        self.changes = SessionChanges(self.port, engine.port, self.shell)
        self.prompting = Prompting(engine.port, self.plugins)
        self.background.start_run = weakly(self.prompting.start_with)
        session.on_write_error(weakly(self.tell_write_error))
        self.learn()

    def learn(self) -> None:
        """Learn from the session what its parts keep there; write model and thinking level into a new one."""
        self._engine.choice.record(self.session)
        for part in (self.todos, self._rules, self.approval, self.background):
            part.rebuild()
        self._engine.left = left = interruption(self.session)
        if left is not None and (run := self.interrupted_run) is not None:
            text = self.conversation.last_assistant_text() or ""
            self._engine.last_result = left.result(self.session, text, run.questions)

    # -- events ----------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Tell a listener of every event from now on."""
        self.hub.add(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Tell a listener of no more events."""
        self.hub.remove(listener)

    def publish(self, event: events.Event) -> None:
        """Tell hooks and listeners of an event."""
        self.hub.publish(event)

    def tell_write_error(self, error: str) -> None:
        """Tell clients that the conversation goes on in memory only, or elsewhere."""
        self.hub.tell_write_error(error, self.session)

    # -- prompting -------------------------------------------------------------------------------

    async def submit(
        self,
        text: str,
        images: Sequence[Any] = (),
        behavior: str | None = None,
        *,
        source: str = "rpc",
        expand: bool = True,
        ordered: Sequence[Text | Image] | None = None,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        wait: bool = False,
    ) -> Run:
        """Take a prompt. Returns when it is accepted; its events follow.

        `behavior` is the queue it may wait in if the agent is at work. `expand` says whether commands, skills and
        templates in it count. `ordered` is the same text and images in an order of their own. With `wait`, a prompt
        that would be refused because the agent is at work waits until it can be accepted.
        Raises `AgentError` if the prompt is refused: the agent is at work, there is no model, or no key for it.
        """
        pictures, run = await self.prompting.read_images(images), Run(self)
        sent = Submission(text, pictures, behavior, source, expand, ordered, options, run=run)
        await self.prompting.submit(sent, run, wait=wait)
        return run

    async def steer(self, text: str, images: Sequence[Any] = (), *, source: str = "rpc") -> Disposition:
        """Queue a message to be delivered before the next model call."""
        return await self.prompting.queue(text, images, "steer", source)

    async def follow_up(self, text: str, images: Sequence[Any] = (), *, source: str = "rpc") -> Disposition:
        """Queue a message to be delivered when the run would end."""
        return await self.prompting.queue(text, images, "followUp", source)

    async def abort_and_submit(self, text: str, images: Sequence[Any] = ()) -> Run:
        """Abort what goes on, then take a prompt. Raises `AgentError` as `submit` does."""
        self.stop()
        while self.busy:  # again if another client was quicker
            await self.abort()
        return await self.submit(text, images)

    async def regenerate(self, options: RunOptions = RunOptions(), *, wait: bool = False) -> Run:  # noqa: B008 - frozen
        """Drop everything after the last user message and answer it again. Raises `AgentError`."""
        if wait:
            await self.lifecycle.admissible(RequestKind.REGENERATE)
        self.lifecycle.admit(RequestKind.REGENERATE)
        branch = reversed(self.session.branch())
        entry = next((e for e in branch if e.type == "message" and isinstance(e.message, UserMessage)), None)
        if entry is None:
            raise AgentError("Nothing to regenerate")
        self.prompting.require_model()
        self.session.move(entry.id)
        self.rebuild("regenerate")
        run = Run(self)
        run.keep()
        self._engine.start(with_nothing_new, options, run)
        return run

    @property
    def was_cut_off(self) -> bool:
        """Whether a run was cut off by the end of its process, and does not wait for an answer."""
        left = self._engine.left
        return left is not None and left.record.state != WAITING

    async def resume_run(self) -> Run:
        """Go on with the run that the end of its process cut off. Raises `AgentError`."""
        self.prompting.require_model()
        from spindle.agent.resuming import resume

        run = Run(self)
        resume(self._engine, run)
        return run

    async def abandon_run(self) -> None:
        """Give up the run that was cut off; the conversation stays. Raises `AgentError`."""
        from spindle.agent.resuming import abandon

        await abandon(self._engine)
        self.publish(events.StateChanged())

    @property
    def interrupted_run(self) -> InterruptedRun | None:
        """The run that the end of its process cut off."""
        if self._engine.left is None:
            return None
        from spindle.agent.resuming import shown

        return shown(self._engine)

    def lend(self, subagent: "AgentSession", call_id: str, name: str) -> RunOptions:
        """Let a subagent work for the current run. Returns options for its prompt."""
        from spindle.agent.features.lending import lend

        return lend(self._engine, self.approval, subagent._engine, call_id, name)

    def clear_context(self) -> None:
        """Begin with an empty context in the same session; the old messages stay in the file, on another branch.

        Raises `AgentError`.
        """
        self.lifecycle.admit(RequestKind.REGENERATE)
        self.session.move(None)
        self._engine.choice.record(self.session)
        self.rebuild("clear")

    def commands(self) -> list[Any]:
        """Return all slash commands: those of extensions, prompt templates, skills."""
        return [*self.hooks.commands(), *self.resources.commands()]

    def extensions(self) -> list[ExtensionInForce]:
        """Return the extensions that are in force."""
        return self._extension_hooks.loaded()

    # -- state -----------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session that the conversation is kept in; another one after a change of session."""
        return self.conversation.session

    @property
    def cwd(self) -> str:
        """The working directory of the session on this machine."""
        return self.session.cwd

    @property
    def workdir(self) -> str:
        """The working directory of tools: that of the session, or one at the far side."""
        return self.resources.workdir(self.session.cwd)

    @property
    def model(self) -> Model | None:
        """The model that is asked; None if there is none."""
        return self._engine.choice.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        """How much the model thinks."""
        return self._engine.choice.level

    @property
    def messages(self) -> list[AgentMessage]:
        """The current context, oldest first."""
        return self.conversation.messages

    @property
    def phase(self) -> str:
        """The phase, in words for people."""
        return self.lifecycle.phase.value

    @property
    def busy(self) -> bool:
        """Whether anything goes on: a run, a compaction, a change of session."""
        return self.lifecycle.phase is not Phase.IDLE

    @property
    def aborting(self) -> bool:
        """Whether a run or a summary was aborted and is coming to its end."""
        return self.lifecycle.aborting

    @property
    def undo(self) -> "Undo":
        """What compares checkpoints of the files, and puts them back."""
        from spindle.agent.features.undo.undo import Undo  # with all that git needs

        return Undo(self)

    @property
    def limits(self) -> RunLimits:
        """The limits of runs whose prompts set no others."""
        return self._engine.limits

    @property
    def system_prompt(self) -> str:
        """The system prompt of the next model call."""
        return self._engine.system_prompt

    def state(self) -> AgentState:
        """Return what `get_state` tells."""
        return agent_state(self._engine, self.approval, self.todos, self.background, self.mcp_servers)

    def context_usage(self) -> ContextUsage | None:
        """Return how full the context is; None if the model's limit is not known."""
        return context_usage(self._engine)

    async def stats(self) -> SessionStats:
        """Return messages, tokens and cost of the whole session file, and how full the context is."""
        return session_stats(self._engine, await self.conversation.stats())

    def last_result(self) -> RunResult | None:
        """Return the result of the last run of this process."""
        return self._engine.last_result

    def tool_context(self, update: Callable[[ToolResult], None]) -> ToolContext:
        """Return what a tool gets that is called now; it hands progress to `update`."""
        return self._engine.tool_context(update)

    # -- setup -----------------------------------------------------------------------------------

    def configure(
        self,
        *,
        steering_mode: QueueMode | None = None,
        follow_up_mode: QueueMode | None = None,
        interrupt_mode: str | None = None,
        auto_compaction: bool | None = None,
        auto_retry: bool | None = None,
    ) -> None:
        """Change how the agent works, and tell every client."""
        engine = self._engine
        engine.queues.steering.mode = steering_mode or engine.queues.steering.mode
        engine.queues.follow_up.mode = follow_up_mode or engine.queues.follow_up.mode
        engine.interrupt_mode = interrupt_mode or engine.interrupt_mode
        if auto_compaction is not None:
            engine.compactor.automatic = auto_compaction
        if auto_retry is not None:
            engine.retry.enabled = auto_retry
        self.publish(events.StateChanged())

    async def answer_question(self, id: str, answer: Answer) -> bool:
        """Answer a question, also one that waits in the session. Raises `AgentError`; then the question still waits.

        Returns whether `resume_run` goes on with the answer: it does if the run is over and no other question waits.
        """
        if self._engine.left is None:
            await self.approval.answer(id, answer)
            return False
        from spindle.agent.resuming import answer_kept

        ready = await answer_kept(self._engine, id, answer, self.approval.check_kept)
        self.publish(events.StateChanged())
        return ready

    async def confirm(self, kind: QuestionKind, title: str, message: str, **fields: Any) -> bool | None:
        """Ask the user a yes-or-no question that is not about a call. None: there is no answer."""
        return await self.approval.confirm(kind, title, message, **fields)

    def open_questions(self) -> list[PermissionRequest | ExtensionUIRequest]:
        """Return what waits for an answer of the user, for a client that has just connected."""
        return [*self.approval.questions.open_requests(), *self.dialogs.open_requests()]

    def set_permissions(self, *, sandbox: Any = None, **given: str | Sequence[str] | None) -> None:
        """Set `mode` and `sandbox`, and replace `allow`, `ask`, `deny` and `directories`. Raises `AgentError`, changing
        nothing."""
        self.approval.configure(sandbox=sandbox, check_place=self.check_place, **given)
        self.publish(events.StateChanged())

    async def complete(self, prompt: str, *, system: str = "", max_tokens: int | None = None) -> str:
        """Return what the model answers to a prompt alone, beside the conversation. Raises `AgentError`."""
        from spindle.agent.requests import complete

        return await complete(self._engine, prompt, system, max_tokens)

    async def execute_tool(
        self, name: str, arguments: Any, update: Callable[[ToolResult], None] = lambda result: None
    ) -> ToolResult:
        """Call a tool that the model may use, as the model would. Raises `ToolError`."""
        from spindle.agent.requests import execute_tool

        return await execute_tool(self._engine, name, arguments, update)

    def use_extensions(self, hooks: Hooks, tools: Iterable[Tool]) -> None:
        """Replace the hooks and tools of extensions."""
        self.hooks.replace(self._extension_hooks, hooks)
        self._extension_hooks = hooks
        self.toolbox.use_extension_tools(tools)

    def set_active_tools(self, names: Sequence[str]) -> None:
        """Set the tools that the model may use; unknown and excluded names are ignored."""
        self.toolbox.activate(names)
        self.publish(events.StateChanged())

    def use_editor(self, files: Files | None, terminals: Terminals | None) -> None:
        """Let read, edit and write use files as another program has them, and bash its terminals."""
        self._engine.files, self._engine.terminals = files, terminals

    def use_client_prompt(self, given: ClientPrompt) -> None:
        """Use the instructions of the client from the next model call on."""
        self.resources.use_client_prompt(given)
        self._engine.forget_prompt()

    def add_resources(self, skills: list[str], prompts: list[str]) -> None:
        """Use skills and templates that extensions have found."""
        self.resources.set_extension_paths(skills=skills, prompts=prompts)
        self._engine.forget_prompt()

    # -- the session -----------------------------------------------------------------------------

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Label an entry; None or an empty text removes its label. Raises `EntryNotFound`."""
        self.session.append_label(entry_id, label)
        self.publish(events.StateChanged())

    def set_name(self, name: str, usage: Usage | None = None) -> None:
        """Name the session; `usage` is what the model used to find the name. Raises `AgentError`."""
        if not name.strip():
            raise AgentError("Session name cannot be empty")
        self.session.append_name(name, usage)
        self.publish(events.SessionInfoChanged(self.session.name))

    async def make_name(self) -> str:
        """Let the model name the session, and return the name. Raises `AgentError`."""
        from spindle.agent.naming import name_for

        self.set_name(*await name_for(self._engine))
        return self.session.name or ""

    def append_entry(self, custom_type: str, data: Any) -> str:
        """Keep `data` in the session, out of the model's sight. Returns the entry's id."""
        entry_id = self.session.append_custom(custom_type, data)
        if entry := self.session.entry(entry_id):
            self.publish(events.EntryAppended(entry.value))
        return entry_id

    async def compact(self, instructions: str | None = None) -> events.CompactionResult:
        """Replace the older part of the context by a summary. Raises `AgentError`."""
        return await self._engine.compact(instructions)

    async def navigate(self, jump: "Jump") -> "Navigated":
        """Go on from another entry of the session. Raises `AgentError`."""
        from spindle.agent.navigate import navigate

        return await navigate(self, self._engine, jump)

    def rebuild(self, reason: str) -> None:
        """Read the context again after a jump in the session tree, and tell clients."""
        self.conversation.reload()
        self.todos.rebuild()
        self._rules.rebuild()
        self.publish(events.SessionChanged(self.session.id, reason))

    # -- other sessions --------------------------------------------------------------------------

    async def new_session(self, parent: str | None = None, setup: Setup | None = None) -> bool:
        """Begin an empty session with the same model; `setup` may write to it. Returns whether it was cancelled."""
        return await self.changes.carry_out("new", self.changes.new(parent, setup))

    async def switch_session(self, path: str) -> tuple[bool, bool]:
        """Go on with another session file; a path that does not exist yet is a new session there.

        Returns whether an extension cancelled it, and whether the session is a new one.
        """
        return await self.changes.carry_out("switch", self.changes.switch(path))

    async def fork(self, entry_id: str, *, invalid: str = "Invalid entry ID for forking") -> tuple[str, bool]:
        """Begin a session with everything before a user message. Raises `AgentError`.

        Returns the text of the message, and whether an extension cancelled the fork.
        """
        return await self.changes.carry_out("fork", self.changes.fork(entry_id, invalid))

    async def clone(self, entry_id: str | None = None) -> bool:
        """Copy the current branch (or the one that ends at an entry) into a session of its own and go on there."""
        return await self.changes.carry_out("clone", self.changes.clone(entry_id))

    async def reload(self) -> None:
        """Load extensions, skills, templates and settings again in mid-session."""
        await self.changes.reload()

    async def begin(self) -> None:
        """Tell a client that is there what was not loaded or restored, and extensions that the session has begun."""
        self.welcome.tell()
        await self.plugins.begin()
        self.prompting.begun()

    # -- stopping --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop whatever is running, without waiting for its end."""
        if self.queues.demote() and not self.lifecycle.running:
            self.publish(events.AgentSettled(True, "aborted", NOT_BEGUN))
        self._engine.stop()

    def leave_off(self) -> None:
        """Stop whatever is running because the process ends: a run that nobody has stopped can be resumed later."""
        self.lifecycle.closed = True
        self._engine.leave_off()

    async def abort(self) -> None:
        """Stop the run, a wait for a retry, or a compaction; return when the agent is idle. Queued messages stay."""
        self.stop()
        await self.wait_idle()

    async def abort_retry(self) -> None:
        """End a wait for the next attempt, and with it the work that waits."""
        await self._engine.abort_retry()

    async def wait_idle(self) -> None:
        """Return when there is no run, no compaction and no change of session."""
        await self.lifecycle.wait_idle()

    async def finished(self) -> None:
        """Return when nothing goes on any more: no run, no command of an extension, no event on its way to one."""
        while True:
            await self.wait_idle()
            await self.prompting.commands.join()
            await self.hooks.caught_up()
            if not self.busy and not len(self.prompting.commands):
                return

    async def close(self) -> None:
        """End all work at once and leave the session file whole."""
        from spindle.programs.process import all_gone

        self.lifecycle.closed = True
        self.host_tools.disconnect()
        self.todos.close()
        await self._titles.close()
        await self.welcome.close()
        if not self.busy:  # the last run has ended by itself, and extensions may handle its last events
            self.dialogs.withdraw()
            await self.hooks.caught_up(times.EXTENSIONS_CATCH_UP)
        await self._engine.kill()
        if self.queues.starting:
            self.publish(events.AgentSettled(True, "aborted", SESSION_ENDED))
        await self.checkpoints.leave()
        await self.shell.abort_all()
        self.background.leave()
        self.approval.end_sandbox(self._engine.owner)
        kill_all(self._engine.owner)
        await all_gone(self._engine.owner, times.CHILD_KILLED)
        await self.changes.tasks.end(times.TASKS_END)
        await self.prompting.commands.end(times.TASKS_END)
        self.queues.refuse(SESSION_ENDED)
        self._engine.refuse_joined(SESSION_ENDED)
        try:
            await self.plugins.close()
            if self.pipe is not None:
                await self.pipe.close()
        finally:
            self.conversation.release_held()
            self.conversation.sync_soon()
            await self.conversation.synced()
            await self.session.leave()
            self.hub.close()
        retention, options = self.resources.retention, self.resources.options
        if retention != Retention():
            from spindle.sessions.retention import once_a_day

            wanted = options.session_dir, self.resources.settings.session_dir
            await asyncio.to_thread(once_a_day, retention, agent_dir(), *wanted)
