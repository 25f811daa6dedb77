"""Commands about how the agent is set up: model, thinking, modes, switches, tools and plans of the client."""

from typing import Any, Literal

from spindle.agent.conversation import ContextUsage
from spindle.agent.model_choice import CycledModel
from spindle.agent.queues import QueueMode
from spindle.protocol.commands.work import Queued
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.registry import Call, Fields, NoFields, command
from spindle.shapes.content import Wire
from spindle.shapes.models import Model, ThinkingLevel
from spindle.tools.todo import TodoPhase


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


class CommandList(Wire):
    commands: list[Any]


@command("get_commands", data=CommandList)
async def get_commands(call: Call, f: NoFields) -> CommandList:
    """Return what may follow a slash: commands of extensions, prompt templates, skills."""
    return CommandList([*call.agent.hooks.commands(), *call.agent.resources.commands()])


# -- models and thinking --------------------------------------------------------------------------


class ModelList(Wire):
    models: list[Model]


@command("get_available_models", data=ModelList)
async def get_available_models(call: Call, f: NoFields) -> ModelList:
    """Return the models for which there are credentials."""
    return ModelList(call.agent.choice.registry.available())


class SetModelFields(Fields):
    provider: str
    model_id: str


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


# -- modes and switches ---------------------------------------------------------------------------


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


class ApprovalFields(Fields):
    tools: bool = False
    max_turns: int | None = None


@command("set_approval", fields=ApprovalFields)
async def set_approval(call: Call, f: ApprovalFields) -> None:
    """Ask with a confirm dialog before every tool call, and again after so many model calls."""
    call.agent.set_approval(tools=f.tools, max_turns=f.max_turns)


# -- what the client lends and plans --------------------------------------------------------------


class HostToolsFields(Fields):
    tools: list[Any]


class ToolNames(Wire):
    tool_names: list[str]


@command("set_host_tools", fields=HostToolsFields, data=ToolNames)
async def set_host_tools(call: Call, f: HostToolsFields) -> ToolNames:
    """Declare the tools that run in the client, replacing those declared before."""
    return ToolNames(call.agent.set_host_tools(f.tools))


class TodoFields(Fields):
    phases: list[Any]


class TodoData(Wire):
    todo_phases: list[TodoPhase]


@command("set_todos", fields=TodoFields, data=TodoData)
async def set_todos(call: Call, f: TodoFields) -> TodoData:
    """Replace the todo list."""
    return TodoData(call.agent.todos.set(f.phases))
