"""Commands about how the agent is set up: model, thinking, modes, switches, tools and plans of the client."""

from typing import Any, Literal

from spindle.agent.approval import PermissionState
from spindle.agent.model_choice import CycledModel
from spindle.agent.queues import QueueMode
from spindle.agent.snapshot import State
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.registry import Call, Fields, NoFields, command
from spindle.shapes.content import Wire
from spindle.shapes.models import Model, ThinkingLevel
from spindle.tools.todo import TodoPhase


@command("get_state", data=State)
async def get_state(call: Call, f: NoFields) -> State:
    """Return where the agent stands."""
    return call.agent.state()


class CommandList(Wire):
    commands: list[Any]


@command("get_commands", data=CommandList)
async def get_commands(call: Call, f: NoFields) -> CommandList:
    """Return what may follow a slash: commands of extensions, prompt templates, skills."""
    return CommandList(call.agent.commands())


# -- models and thinking --------------------------------------------------------------------------


class ModelList(Wire):
    models: list[Model]


@command("get_available_models", data=ModelList)
async def get_available_models(call: Call, f: NoFields) -> ModelList:
    """Return the models for which there are credentials."""
    return ModelList(call.agent.available_models())


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
    return Levels(call.agent.thinking_levels())


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
    call.agent.configure(steering_mode=f.mode)


@command("set_follow_up_mode", fields=ModeFields)
async def set_follow_up_mode(call: Call, f: ModeFields) -> None:
    """Deliver follow-ups one per turn or all together."""
    call.agent.configure(follow_up_mode=f.mode)


@command("set_interrupt_mode", fields=InterruptFields)
async def set_interrupt_mode(call: Call, f: InterruptFields) -> None:
    """Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`)."""
    call.agent.configure(interrupt_mode=f.mode)


@command("set_update_mode", fields=UpdateFields)
async def set_update_mode(call: Call, f: UpdateFields) -> None:
    """Send whole snapshots with every update (`full`) or only what is new (`delta`)."""
    call.client.set_update_mode(f.mode)


@command("set_auto_compaction", fields=EnabledFields)
async def set_auto_compaction(call: Call, f: EnabledFields) -> None:
    """Switch automatic compaction and overflow recovery on or off."""
    call.agent.configure(auto_compaction=f.enabled)


@command("set_auto_retry", fields=EnabledFields)
async def set_auto_retry(call: Call, f: EnabledFields) -> None:
    """Switch retries of transient errors on or off."""
    call.agent.configure(auto_retry=f.enabled)


class ApprovalFields(Fields):
    tools: bool = False
    max_turns: int | None = None


@command("set_approval", fields=ApprovalFields)
async def set_approval(call: Call, f: ApprovalFields) -> None:
    """Ask with a confirm dialog before every tool call, and again after so many model calls."""
    call.agent.set_approval(tools=f.tools, max_turns=f.max_turns)


class PermissionFields(Fields):
    mode: str | None = None
    allow: list[str] | None = None
    ask: list[str] | None = None
    deny: list[str] | None = None


@command("set_permissions", fields=PermissionFields)
async def set_permissions(call: Call, f: PermissionFields) -> None:
    """Set the permission mode, and replace the rules this command has set before; what is not given stays."""
    call.agent.set_permissions(f.mode, f.allow, f.ask, f.deny)


class ToolCallFields(Fields):
    tool: str | None = None
    arguments: Any = None


@command("get_permissions", fields=ToolCallFields, data=PermissionState)
async def get_permissions(call: Call, f: ToolCallFields) -> PermissionState:
    """Return the permission mode and all rules; with a tool and its arguments also what they say about that call."""
    return call.agent.permissions(f.tool, f.arguments)


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
    return TodoData(call.agent.set_todos(f.phases))
