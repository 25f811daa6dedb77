"""Commands about how the agent is set up: model, thinking, modes, switches, tools and plans of the client."""

from typing import Any, Literal

from msgspec import UNSET

from spindle.agent import AgentError
from spindle.agent.fences.options import PermissionState
from spindle.agent.hooks import McpServerState
from spindle.agent.model_choice import CycledModel
from spindle.agent.queues import QueueMode
from spindle.agent.session import AgentSession
from spindle.agent.state import AgentState
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.registry import Call, command
from spindle.resources.sources import CommandItem
from spindle.shapes.approvals import FOR_OWNER, Allow, Answer, Deny, Keep
from spindle.shapes.messages import Wire
from spindle.shapes.model import Model, ThinkingLevel
from spindle.shapes.sandbox import SandboxChoice
from spindle.tools.todo import TodoPhase


@command("get_state", viewer=True)
def get_state(call: Call) -> AgentState:
    """Return the state of the agent."""
    if not call.client.watches:
        call.agent.prompting.look_for_model()
    return call.agent.state()


@command("get_commands", key="commands")
def get_commands(call: Call) -> list[CommandItem]:
    """Return the slash commands: commands of extensions, prompt templates, skills."""
    return call.agent.commands()


class AvailableCommand(Wire):
    name: str
    description: str | None
    source: Literal["extension", "file", "skill"]
    """`file`: a prompt template."""


@command("get_available_commands", key="commands")
def get_available_commands(call: Call) -> list[AvailableCommand]:
    """Return the slash commands as oh-my-pi lists them; `get_commands` tells more."""
    return available_commands(call.agent)


def available_commands(agent: AgentSession) -> list[AvailableCommand]:
    kinds = {"prompt": "file"}
    return [AvailableCommand(c.name, c.description, kinds.get(c.source, c.source)) for c in agent.commands()]


@command("complete_command", key="completions")
async def complete_command(call: Call, name: str, prefix: str = "") -> list[str]:
    """Return completions for the arguments of an extension's command; none if the command offers none."""
    return await call.agent.hooks.complete_command(name, prefix)


@command("get_available_models", key="models")
def get_available_models(call: Call) -> list[Model]:
    """Return the models for which there are credentials."""
    return [model.shown() for model in call.agent.models.available()]


@command("set_model")
async def set_model(call: Call, provider: str, model_id: str) -> Model:
    """Switch models; the new one answers from the next turn on."""
    return (await call.agent.models.set(provider, model_id)).shown()


@command("cycle_model")
async def cycle_model(call: Call) -> CycledModel | None:
    """Switch to the next model of the scope; null if there is no other."""
    return await call.agent.models.cycle()


@command("set_thinking_level")
async def set_thinking_level(call: Call, level: ThinkingLevel) -> None:
    """Set how hard the model thinks, clamped to the levels it supports."""
    await call.agent.models.set_level(level)


class Level(Wire):
    level: str


@command("cycle_thinking_level")
async def cycle_thinking_level(call: Call) -> Level | None:
    """Go to the next level; null if the model has only one."""
    level = await call.agent.models.cycle_level()
    return Level(level) if level is not None else None


@command("get_available_thinking_levels", key="levels", viewer=True)
def get_available_thinking_levels(call: Call) -> list[ThinkingLevel]:
    """Return the levels of the current model."""
    return call.agent.models.levels()


@command("set_steering_mode")
def set_steering_mode(call: Call, mode: QueueMode) -> None:
    """Deliver steering messages one per turn or all together."""
    call.agent.configure(steering_mode=mode)


@command("set_follow_up_mode")
def set_follow_up_mode(call: Call, mode: QueueMode) -> None:
    """Deliver follow-ups one per turn or all together."""
    call.agent.configure(follow_up_mode=mode)


@command("set_interrupt_mode")
def set_interrupt_mode(call: Call, mode: Literal["immediate", "wait"]) -> None:
    """Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`)."""
    call.agent.configure(interrupt_mode=mode)


@command("set_update_mode", viewer=True)
def set_update_mode(call: Call, mode: UpdateMode) -> None:
    """Send the whole answer so far with every update (`full`) or only the new piece (`delta`)."""
    call.client.set_update_mode(mode)


class Negotiated(Wire):
    protocol_version: int


@command("negotiate_protocol")
def negotiate_protocol(call: Call, protocol_version: int) -> Negotiated:
    """Speak version 2 of oh-my-pi's protocol from now on, in all sessions; on stdin and stdout only.

    `prompt_result` tells the end of each prompt, `session_settled` that nothing follows. A line of more than 1 MiB
    comes as `rpc_chunk` frames: `chunkId`, `index`, `count`, `byteLength` of the line, and `data`, a piece in base64.
    """
    if protocol_version != 2:
        raise AgentError(f"Unsupported RPC protocol version: {protocol_version}")
    call.client.negotiate()
    return Negotiated(2)


@command("set_event_filter", key="events")
def set_event_filter(call: Call, events: list[str] | None = None) -> list[str] | None:
    """Send only events of these types, or all (null), in all sessions; on stdin and stdout only.

    Responses, questions, calls of host tools and `prompt_result` are always sent.
    """
    wanted = None if events is None else list(dict.fromkeys(events))
    call.client.set_event_filter(wanted)
    return wanted


@command("set_auto_compaction")
def set_auto_compaction(call: Call, enabled: bool) -> None:
    """Switch automatic compaction and overflow recovery on or off."""
    call.agent.configure(auto_compaction=enabled)


@command("set_auto_retry")
def set_auto_retry(call: Call, enabled: bool) -> None:
    """Switch retries of transient errors on or off."""
    call.agent.configure(auto_retry=enabled)


@command("set_approval")
def set_approval(call: Call, tools: bool = False, max_turns: int | None = None) -> None:
    """Ask with a confirm dialog before every tool call (`tools`), and after every `maxTurns` model calls."""
    call.agent.approval.ask_about(tools=tools, max_turns=max_turns)


@command("set_permissions")
def set_permissions(
    call: Call,
    mode: str | None = None,
    allow: list[str] | None = None,
    ask: list[str] | None = None,
    deny: list[str] | None = None,
    sandbox: SandboxChoice | None = None,
) -> None:
    """Set the permission mode, and replace rules that this command set before; fields left out change nothing.

    `sandbox` is a level, or an object with `level`, `writable` and `network`. It cannot be wider than the command line
    says. If this machine cannot provide it, the command fails and changes nothing.
    """
    call.agent.set_permissions(mode=mode, allow=allow, ask=ask, deny=deny, sandbox=sandbox)


@command("get_permissions")
def get_permissions(call: Call, tool: str | None = None, arguments: Any = None) -> PermissionState:
    """Return the permission mode and all rules; with a tool and its arguments, also the decision on that call."""
    return call.agent.approval.state(tool, arguments)


@command("answer_permission")
async def answer_permission(
    call: Call,
    question: str,
    behavior: Literal["allow", "deny"],
    input: Any = None,
    keep: Keep | None = None,
    rules: list[str] | None = None,
    reason: str | None = None,
    stop: bool = False,
) -> None:
    """Answer the `permission_request` with the id `question`. The first answer counts.

    With `allow`: `input` takes the place of the call's arguments, and is checked by schema and rules; `keep`
    (`session`, `project` or `user`) keeps `rules` there, those of the first suggestion if there are none; on a server
    all but `session` wants its code (`unlock`), and so does a yes to a question of the kind `trust` or `place`. With
    `deny`: `reason` is told to the model, `stop` ends the run. With the kind `trust`, `keep` `user` remembers the
    answer, else it holds for the session. An answer that makes no sense is an error, and the question stays open.
    """
    await call.agent.approval.answer(question, answer_of(call, question, behavior, input, keep, rules, reason, stop))


def answer_of(
    call: Call,
    question: str,
    behavior: str,
    input: Any,
    keep: Keep | None,
    rules: list[str] | None,
    reason: str | None,
    stop: bool,
) -> Answer:
    """Raises `AgentError` for fields that do not go together, and if only the owner may give this answer."""
    kind = call.agent.approval.questions.kind_of(question)
    if keep in ("project", "user") or (behavior == "allow" and kind in FOR_OWNER):
        call.client.check_owner()
    if behavior == "allow":
        if reason or stop:
            raise AgentError('"reason" and "stop" go with the behavior "deny"')
        return Allow(UNSET if input is None else input, keep, rules or ())
    if kind == "trust" and keep == "user" and input is None and not rules:
        return Deny(reason or "", stop, "user")
    if input is not None or keep or rules:
        raise AgentError('"input", "keep" and "rules" go with the behavior "allow"')
    return Deny(reason or "", stop)


@command("set_host_tools", key="toolNames")
def set_host_tools(call: Call, tools: list[Any]) -> list[str]:
    """Declare the tools that run in the client, replacing those declared before."""
    return call.agent.host_tools.declare(tools)


@command("set_host_uri_schemes", key="schemes")
def set_host_uri_schemes(call: Call, schemes: list[Any]) -> list[str]:
    """Declare schemes of addresses that the client serves: objects with `scheme` (such as `db`) and `writable`.

    The tools `read` and `write` then take such addresses (`db://users/1`) as their path, and ask the client with
    `host_uri_request`. The schemes replace those declared before.
    """
    return call.agent.host_tools.serve(schemes)


@command("set_mcp_servers", key="servers")
async def set_mcp_servers(call: Call, servers: dict[str, Any] | list[Any]) -> list[McpServerState]:
    """Set MCP servers, replacing those set before: an object as `mcpServers` of `.mcp.json`, or a list as in ACP."""
    return await call.agent.mcp_servers.set(servers)


@command("set_todos", key="todoPhases")
def set_todos(call: Call, phases: list[Any]) -> list[TodoPhase]:
    """Replace the todo list."""
    return call.agent.todos.set(phases)
