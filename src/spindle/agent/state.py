"""The state of the agent and the figures of its session, for clients."""

from typing import Any

from msgspec import field

from spindle.agent.conversation import StatsCounter, SubagentTotals, TokenTotals
from spindle.agent.engine import Engine
from spindle.agent.features.background import Background, RunningCommand
from spindle.agent.features.place import FarState, far_state
from spindle.agent.features.todos import Todos
from spindle.agent.fences.approval import Approval
from spindle.agent.fences.fencing import SandboxState
from spindle.agent.hooks import McpServers, McpServerState
from spindle.agent.lifecycle import Phase
from spindle.agent.resuming import shown as interrupted
from spindle.shapes.approvals import InterruptedRun
from spindle.shapes.events import Fallback, QueuedItem
from spindle.shapes.messages import Wire, joint_source
from spindle.shapes.model import Model
from spindle.tools.todo import TodoPhase


class ContextUsage(Wire):
    """How full the model's window is; unknown (null) right after a compaction."""

    tokens: int | None
    context_window: int
    percent: float | None


class SessionStats(Wire, kw_only=True):
    session_file: str | None = None
    session_id: str
    user_messages: int
    assistant_messages: int
    tool_calls: int
    tool_results: int
    total_messages: int
    tokens: TokenTotals
    cost: int | float
    """US dollars: the known part, 0 if no part is known."""
    cost_source: str
    """`billed` by the provider, `computed` from the price list (or in part), or `unknown`."""
    context_usage: ContextUsage | None = None
    subagents: SubagentTotals | None = None
    """The share of subagents in `tokens` and `cost`; left out if there were none."""
    fallbacks: list[Fallback] = field(default_factory=list)
    """Switches to other models because one could not answer; left out if there were none."""


class Asked(Wire):
    tools: bool
    max_turns: int | None = None


class Queued(Wire):
    steering: list[str]
    follow_up: list[str]


class AgentState(Wire, kw_only=True):
    model: Model | None
    thinking_level: str
    is_streaming: bool
    is_compacting: bool
    is_settled: bool
    """Nothing runs, waits or follows by itself."""
    steering_mode: str
    follow_up_mode: str
    interrupt_mode: str
    session_file: str | None = None
    session_id: str
    session_name: str | None = None
    session_saved: bool
    """Whether messages are written to a session file; false for a session in memory."""
    save_error: str | None = None
    """Why the session file lacks the latest messages."""
    auto_compaction_enabled: bool
    auto_retry_enabled: bool
    message_count: int
    pending_message_count: int
    queued_message_count: int
    queue: Queued
    """Texts of messages that wait; messages of extensions are only counted."""
    queue_items: list[QueuedItem]
    """The same, message by message."""
    approval: Asked
    """As `set_approval` set it."""
    permission_mode: str
    sandbox: SandboxState
    exec: FarState | None = None
    """Where tools work, if it is not this machine."""
    todo_phases: list[TodoPhase]
    system_prompt: str
    dump_tools: list[dict[str, Any]]
    """The active tools as the model is told of them."""
    context_usage: ContextUsage | None = None
    untrusted_resources: list[str] = field(default_factory=list)
    """Files of the project that were not loaded, because it is not trusted."""
    mcp_servers: list[McpServerState] = field(default_factory=list)
    background: list[RunningCommand] = field(default_factory=list)
    """Commands that run in the background."""
    interrupted_run: InterruptedRun | None = None
    """A run that the end of its process cut off."""


def agent_state(
    engine: Engine, approval: Approval, todos: Todos, background: Background, servers: McpServers
) -> AgentState:
    session, queues = engine.conversation.session, engine.queues
    waiting = len(queues)
    return AgentState(
        model=engine.choice.model and engine.choice.model.shown(),
        thinking_level=engine.choice.level,
        is_streaming=engine.lifecycle.running or queues.starting,
        is_compacting=engine.lifecycle.compacting,
        is_settled=engine.lifecycle.phase is Phase.IDLE and not queues.starting and not waiting,
        steering_mode=queues.steering.mode,
        follow_up_mode=queues.follow_up.mode,
        interrupt_mode=engine.interrupt_mode,
        session_file=str(session.path) if session.path else None,
        session_id=session.id,
        session_name=session.name,
        session_saved=session.is_saved,
        save_error=session.write_error,
        auto_compaction_enabled=engine.compactor.automatic,
        auto_retry_enabled=engine.retry.enabled,
        message_count=len(engine.conversation.messages),
        pending_message_count=waiting,
        queued_message_count=waiting,
        queue=Queued(*queues.texts()) if waiting else Queued([], []),
        queue_items=queues.items() if waiting else [],
        approval=Asked(approval.tools, approval.max_turns),
        permission_mode=approval.mode,
        sandbox=approval.fencing.state(approval.sandbox()),
        exec=far_state(engine.resources.far),
        todo_phases=todos.phases,
        system_prompt=engine.system_prompt,
        dump_tools=[
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in engine.toolbox.active_tools()
        ],
        context_usage=context_usage(engine),
        untrusted_resources=[str(path) for path in engine.resources.trust.skipped],
        mcp_servers=servers.states(),
        background=background.running(),
        interrupted_run=interrupted(engine),
    )


def context_usage(engine: Engine) -> ContextUsage | None:
    model, conversation = engine.model, engine.conversation
    if model is None or not model.context_window:
        return None
    if not conversation.usage_known():
        return ContextUsage(None, model.context_window, None)
    tokens = conversation.tokens()
    return ContextUsage(tokens, model.context_window, tokens / model.context_window * 100)


def session_stats(engine: Engine, counted: StatsCounter) -> SessionStats:
    session, source = engine.conversation.session, joint_source(counted.cost_sources)
    return SessionStats(
        session_file=str(session.path) if session.path else None,
        session_id=session.id,
        user_messages=counted.user,
        assistant_messages=counted.assistant,
        tool_calls=counted.calls,
        tool_results=counted.results,
        total_messages=counted.messages,
        tokens=counted.tokens,
        cost=counted.cost,
        cost_source=source,
        context_usage=context_usage(engine),
        subagents=counted.subagents if counted.subagents.runs else None,
        fallbacks=counted.fallbacks,
    )
