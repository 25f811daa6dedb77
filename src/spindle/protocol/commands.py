"""Every command a client can send: its fields, what it answers, and the one method of the agent it calls."""

import asyncio
from typing import Any, Literal

import msgspec

from spindle.agent.model_state import CycledModel
from spindle.agent.stats import ContextUsage, SessionStats
from spindle.sessions.ids import iso_time
from spindle.tools.todo import TodoPhase
from spindle.types.content import Wire
from spindle.types.events import CompactionResult
from spindle.types.models import Model, ThinkingLevel

from .dialect import UpdateMode
from .registry import COMMANDS, Call, Fields, NoFields, command

__all__ = ["COMMANDS"]

QueueMode = Literal["all", "one-at-a-time"]
IDLE_ABORT_S = 0.01


# -- prompting -----------------------------------------------------------------------------------


class Accepted(Wire):
    disposition: Literal["started", "queued", "handled"]


class PromptFields(Fields):
    message: str
    images: list[Any] = msgspec.field(default_factory=list)
    streaming_behavior: str | None = None
    """`steer` or `followUp`: what to do if the agent is at work."""


class MessageFields(Fields):
    message: str
    images: list[Any] = msgspec.field(default_factory=list)


@command("prompt", fields=PromptFields, data=Accepted)
async def prompt(call: Call, f: PromptFields) -> Accepted:
    """Send a message. Answered once it is accepted, queued or handled; the run's events follow."""
    return Accepted(await call.agent.submit(f.message, f.images, f.streaming_behavior))


@command("steer", fields=MessageFields, data=Accepted)
async def steer(call: Call, f: MessageFields) -> Accepted:
    """Queue a message for before the next model call of this run, or for the next run."""
    return Accepted(await call.agent.steer(f.message, f.images))


@command("follow_up", fields=MessageFields, data=Accepted)
async def follow_up(call: Call, f: MessageFields) -> Accepted:
    """Queue a message for when the run would end."""
    return Accepted(await call.agent.follow_up(f.message, f.images))


@command("abort")
async def abort(call: Call, f: NoFields) -> None:
    """Stop the run, a retry or a compaction. Answered when the agent is idle; queues are kept."""
    idle = not call.agent.busy
    await call.agent.abort()
    if idle:
        # As in pi, commands that were sent along with an idle abort are seen before its answer.
        await asyncio.sleep(IDLE_ABORT_S)


@command("abort_and_prompt", fields=MessageFields, data=Accepted)
async def abort_and_prompt(call: Call, f: MessageFields) -> Accepted:
    """Stop what runs, then send a message."""
    return Accepted(await call.agent.abort_and_submit(f.message, f.images))


class Queued(Wire):
    steering: list[str]
    follow_up: list[str]


@command("clear_queue", data=Queued)
async def clear_queue(call: Call, f: NoFields) -> Queued:
    """Empty both queues and return what was waiting."""
    return Queued(*call.agent.engine.queues.clear())


# -- state ---------------------------------------------------------------------------------------


class Asked(Wire):
    tools: bool
    max_turns: int | None = None


class State(Wire, kw_only=True):
    model: Model | None
    thinking_level: str
    is_streaming: bool
    is_compacting: bool
    steering_mode: str
    follow_up_mode: str
    interrupt_mode: str
    session_file: str | None = None
    session_id: str
    session_name: str | None = None
    auto_compaction_enabled: bool
    auto_retry_enabled: bool
    message_count: int
    pending_message_count: int
    queued_message_count: int
    queue: Queued
    """The texts that wait; messages of extensions are only counted."""
    approval: Asked
    """As `set_approval` set it."""
    todo_phases: list[TodoPhase]
    system_prompt: str
    dump_tools: list[dict[str, Any]]
    """The active tools as the model is told of them."""
    context_usage: ContextUsage | None = None


@command("get_state", data=State)
async def get_state(call: Call, f: NoFields) -> State:
    """Return where the agent stands."""
    agent, engine = call.agent, call.agent.engine
    file = agent.store.get_session_file()
    waiting, asks = len(engine.queues), agent.approval
    return State(
        model=agent.choice.model,
        thinking_level=agent.choice.level,
        is_streaming=agent.is_streaming,
        is_compacting=agent.is_compacting,
        steering_mode=engine.queues.steering.mode,
        follow_up_mode=engine.queues.follow_up.mode,
        interrupt_mode=engine.interrupt_mode,
        session_file=str(file) if file else None,
        session_id=agent.store.get_session_id(),
        session_name=agent.store.get_session_name(),
        auto_compaction_enabled=engine.compactor.automatic,
        auto_retry_enabled=engine.retry.enabled,
        message_count=len(agent.conversation.messages),
        pending_message_count=waiting,
        queued_message_count=waiting,
        queue=Queued(engine.queues.steering.texts(), engine.queues.follow_up.texts()),
        approval=Asked(False) if asks is None else Asked(asks.tools, asks.max_turns),
        todo_phases=agent.todos.phases,
        system_prompt=engine.system_prompt,
        dump_tools=[
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in agent.toolbox.active_tools()
        ],
        context_usage=agent.context_usage(),
    )


class Messages(Wire):
    messages: list[Any]


@command("get_messages", data=Messages)
async def get_messages(call: Call, f: NoFields) -> Messages:
    """Return the current context."""
    return Messages(call.agent.conversation.messages)


class LastText(Wire, omit_defaults=False):
    text: str | None


@command("get_last_assistant_text", data=LastText)
async def get_last_assistant_text(call: Call, f: NoFields) -> LastText:
    """Return the text of the last answer, or null."""
    return LastText(call.agent.conversation.last_assistant_text())


@command("get_session_stats", data=SessionStats)
async def get_session_stats(call: Call, f: NoFields) -> SessionStats:
    """Return counts, tokens and cost of the whole session, and how full the context is."""
    return call.agent.stats()


class EntriesFields(Fields):
    since: str | None = None
    """Only entries after this one."""


class EntriesData(Wire, omit_defaults=False):
    entries: list[Any]
    leaf_id: str | None


@command("get_entries", fields=EntriesFields, data=EntriesData)
async def get_entries(call: Call, f: EntriesFields) -> Any:
    """Return the session's entries in the order they were appended."""
    entries = msgspec.Raw(call.agent.store.entries_json(f.since))
    return {"entries": entries, "leafId": call.agent.store.get_leaf_id()}


class TreeData(Wire, omit_defaults=False):
    tree: list[Any]
    leaf_id: str | None


@command("get_tree", data=TreeData)
async def get_tree(call: Call, f: NoFields) -> Any:
    """Return the session's entries as a tree."""
    return {"tree": msgspec.Raw(call.agent.store.tree_json()), "leafId": call.agent.store.get_leaf_id()}


class CommandList(Wire):
    commands: list[Any]


@command("get_commands", data=CommandList)
async def get_commands(call: Call, f: NoFields) -> CommandList:
    """Return what may follow a slash: commands of extensions, prompt templates, skills."""
    return CommandList([*call.agent.hooks.commands(), *call.agent.resources.commands()])


# -- models and thinking -------------------------------------------------------------------------


class SetModelFields(Fields):
    provider: str
    model_id: str


class ModelList(Wire):
    models: list[Model]


@command("get_available_models", data=ModelList)
async def get_available_models(call: Call, f: NoFields) -> ModelList:
    """Return the models for which there are credentials."""
    return ModelList(call.agent.choice.registry.available())


@command("set_model", fields=SetModelFields, data=Model)
async def set_model(call: Call, f: SetModelFields) -> Model:
    """Switch models; the new one answers from the next turn on."""
    return await call.agent.set_model(f.provider, f.model_id)


@command("cycle_model", data=CycledModel | None)
async def cycle_model(call: Call, f: NoFields) -> CycledModel | None:
    """Switch to the next model of the scope; null if there is no other."""
    return await call.agent.cycle_model()


class LevelFields(Fields):
    level: ThinkingLevel


class Level(Wire):
    level: str


class Levels(Wire):
    levels: list[ThinkingLevel]


@command("set_thinking_level", fields=LevelFields)
async def set_thinking_level(call: Call, f: LevelFields) -> None:
    """Set how hard the model thinks, clamped to what it supports."""
    await call.agent.set_thinking_level(f.level)


@command("cycle_thinking_level", data=Level | None)
async def cycle_thinking_level(call: Call, f: NoFields) -> Level | None:
    """Go to the next level; null if the model has only one."""
    level = await call.agent.cycle_thinking_level()
    return Level(level) if level is not None else None


@command("get_available_thinking_levels", data=Levels)
async def get_available_thinking_levels(call: Call, f: NoFields) -> Levels:
    """Return the levels of the current model."""
    return Levels(call.agent.choice.levels())


# -- modes and switches --------------------------------------------------------------------------


class ModeFields(Fields):
    mode: QueueMode


class InterruptFields(Fields):
    mode: Literal["immediate", "wait"]


class UpdateFields(Fields):
    mode: UpdateMode


class EnabledFields(Fields):
    enabled: bool


@command("set_steering_mode", fields=ModeFields)
async def set_steering_mode(call: Call, f: ModeFields) -> None:
    """Deliver steering messages one per turn or all together."""
    call.agent.engine.queues.steering.mode = f.mode


@command("set_follow_up_mode", fields=ModeFields)
async def set_follow_up_mode(call: Call, f: ModeFields) -> None:
    """Deliver follow-ups one per turn or all together."""
    call.agent.engine.queues.follow_up.mode = f.mode


@command("set_interrupt_mode", fields=InterruptFields)
async def set_interrupt_mode(call: Call, f: InterruptFields) -> None:
    """Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`)."""
    call.agent.engine.interrupt_mode = f.mode


@command("set_update_mode", fields=UpdateFields)
async def set_update_mode(call: Call, f: UpdateFields) -> None:
    """Send whole snapshots with every update (`full`) or only what is new (`delta`)."""
    call.client.set_update_mode(f.mode)


@command("set_auto_compaction", fields=EnabledFields)
async def set_auto_compaction(call: Call, f: EnabledFields) -> None:
    """Switch automatic compaction and overflow recovery on or off."""
    call.agent.engine.compactor.automatic = f.enabled


@command("set_auto_retry", fields=EnabledFields)
async def set_auto_retry(call: Call, f: EnabledFields) -> None:
    """Switch retries of transient errors on or off."""
    call.agent.engine.retry.enabled = f.enabled


@command("abort_retry")
async def abort_retry(call: Call, f: NoFields) -> None:
    """End the wait for a retry; the run is over then."""
    await call.agent.abort_retry()


class CompactFields(Fields):
    custom_instructions: str | None = None


@command("compact", fields=CompactFields, data=CompactionResult)
async def compact(call: Call, f: CompactFields) -> CompactionResult:
    """Replace the older part of the context by a summary."""
    return await call.agent.compact(f.custom_instructions)


# -- bash ----------------------------------------------------------------------------------------


class BashFields(Fields):
    command: str
    exclude_from_context: bool = False


class BashData(Wire, kw_only=True):
    output: str
    exit_code: int | None = None
    cancelled: bool
    truncated: bool
    full_output_path: str | None = None
    total_lines: int = 0
    total_bytes: int = 0
    output_lines: int = 0
    output_bytes: int = 0


@command("bash", fields=BashFields, data=BashData)
async def bash(call: Call, f: BashFields) -> BashData:
    """Run a shell command as the user; the model sees it with the next prompt."""
    result = await call.agent.bash.run(f.command, call.id, exclude_from_context=f.exclude_from_context)
    return BashData(
        output=result.output,
        exit_code=result.exit_code,
        cancelled=result.cancelled,
        truncated=result.truncated,
        full_output_path=result.full_output_path,
        total_lines=result.total_lines,
        total_bytes=result.total_bytes,
        output_lines=result.output_lines,
        output_bytes=result.output_bytes,
    )


@command("abort_bash")
async def abort_bash(call: Call, f: NoFields) -> None:
    """Kill every running `bash` command."""
    call.agent.bash.stop_all()


# -- sessions ------------------------------------------------------------------------------------


class Cancelled(Wire):
    cancelled: bool


class NewSessionFields(Fields):
    parent_session: str | None = None


class SwitchFields(Fields):
    session_path: str


class ForkFields(Fields):
    entry_id: str


class Forked(Wire):
    text: str
    cancelled: bool


class NameFields(Fields):
    name: str


class ExportFields(Fields):
    output_path: str | None = None


class ExportedTo(Wire):
    path: str


class ForkMessage(Wire):
    entry_id: str
    text: str


class ForkMessages(Wire):
    messages: list[ForkMessage]


@command("new_session", fields=NewSessionFields, data=Cancelled)
async def new_session(call: Call, f: NewSessionFields) -> Cancelled:
    """Begin an empty session."""
    return Cancelled(await call.agent.new_session(f.parent_session))


@command("switch_session", fields=SwitchFields, data=Cancelled)
async def switch_session(call: Call, f: SwitchFields) -> Cancelled:
    """Go on with another session file."""
    return Cancelled(await call.agent.switch_session(f.session_path))


@command("fork", fields=ForkFields, data=Forked)
async def fork(call: Call, f: ForkFields) -> Forked:
    """Begin a session with everything before a user message, and return that message's text."""
    return Forked(*await call.agent.fork(f.entry_id))


@command("branch", fields=ForkFields, data=Forked)
async def branch(call: Call, f: ForkFields) -> Forked:
    """The same as `fork`, under the name other clients know."""
    return Forked(*await call.agent.fork(f.entry_id, invalid="Invalid entry ID for branching"))


@command("clone", data=Cancelled)
async def clone(call: Call, f: NoFields) -> Cancelled:
    """Copy the current branch into a session of its own and go on there."""
    return Cancelled(await call.agent.clone())


@command("get_fork_messages", "get_branch_messages", data=ForkMessages)
async def get_fork_messages(call: Call, f: NoFields) -> ForkMessages:
    """Return every user message of the session, to choose where to fork."""
    return ForkMessages([ForkMessage(*pair) for pair in call.agent.conversation.user_messages()])


class SessionItem(Wire, kw_only=True):
    id: str
    path: str
    name: str | None = None
    first_message: str
    modified: str
    message_count: int


class SessionList(Wire):
    sessions: list[SessionItem]


@command("list_sessions", data=SessionList)
async def list_sessions(call: Call, f: NoFields) -> SessionList:
    """Return the stored sessions of this working directory, the latest first."""
    found = await asyncio.to_thread(call.agent.stored_sessions)
    return SessionList(
        [
            SessionItem(
                id=info.id,
                path=info.path,
                name=info.name,
                first_message=info.first_message,
                modified=iso_time(info.modified),
                message_count=info.message_count,
            )
            for info in found
        ]
    )


class NavigateFields(Fields):
    entry_id: str
    summarize: bool = False
    custom_instructions: str | None = None
    label: str | None = None


class NavigatedTo(Wire, kw_only=True):
    editor_text: str | None = None
    cancelled: bool


@command("navigate_tree", fields=NavigateFields, data=NavigatedTo)
async def navigate_tree(call: Call, f: NavigateFields) -> NavigatedTo:
    """Go on from another entry of the session; the branch that is left may be summarised."""
    done = await call.agent.navigate(f.entry_id, f.summarize, f.custom_instructions, f.label)
    return NavigatedTo(editor_text=done.editor_text, cancelled=done.cancelled)


class ApprovalFields(Fields):
    tools: bool = False
    max_turns: int | None = None


@command("set_approval", fields=ApprovalFields)
async def set_approval(call: Call, f: ApprovalFields) -> None:
    """Ask with a confirm dialog before every tool call, and again after so many model calls."""
    call.agent.set_approval(tools=f.tools, max_turns=f.max_turns)


class LabelFields(Fields):
    entry_id: str
    label: str | None = None


@command("set_label", fields=LabelFields)
async def set_label(call: Call, f: LabelFields) -> None:
    """Label an entry of the session, to find it in the tree; without a label the entry loses its own."""
    call.agent.set_label(f.entry_id, f.label)


@command("set_session_name", fields=NameFields)
async def set_session_name(call: Call, f: NameFields) -> None:
    """Name the session."""
    call.agent.set_name(f.name)


@command("export_html", fields=ExportFields, data=ExportedTo)
async def export_html(call: Call, f: ExportFields) -> ExportedTo:
    """Write the session as one HTML page."""
    return ExportedTo(await call.agent.export_html(f.output_path))


# -- what the client lends and plans --------------------------------------------------------------


class HostToolsFields(Fields):
    tools: list[Any]


class ToolNames(Wire):
    tool_names: list[str]


class TodoFields(Fields):
    phases: list[Any]


class TodoData(Wire):
    todo_phases: list[TodoPhase]


@command("set_host_tools", fields=HostToolsFields, data=ToolNames)
async def set_host_tools(call: Call, f: HostToolsFields) -> ToolNames:
    """Declare the tools that run in the client, replacing those declared before."""
    return ToolNames(call.agent.set_host_tools(f.tools))


@command("set_todos", fields=TodoFields, data=TodoData)
async def set_todos(call: Call, f: TodoFields) -> TodoData:
    """Replace the todo list."""
    return TodoData(call.agent.todos.set(f.phases))


@command("shutdown")
async def shutdown(call: Call, f: NoFields) -> None:
    """Answer, then end the process with code 0."""
    call.client.request_shutdown()
