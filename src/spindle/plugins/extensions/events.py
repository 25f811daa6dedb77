"""Events as handlers get them: one small object each, with attributes in Python's spelling and `raw` in the wire's.

An event is only made when it is handled. Its docstring says what a handler may return; a handler that returns
nothing changes nothing. Events that extensions and clients share are declared in `shapes/`.
"""

from typing import Any

from msgspec import field

from spindle.agent.compaction.plan import CompactionPreparation
from spindle.agent.navigate import TreePreparation
from spindle.shapes.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    Event,
    SessionInfoChanged,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage, Image, ToolResultMessage
from spindle.shapes.model import Model
from spindle.shapes.pieces import AnswerEdge, LiveSource, StreamEvent

__all__ = ["EVENTS", "CompactionPreparation", "ExtensionEvent", "TreePreparation"]


class ExtensionEvent(Event):
    """Base of the events that only extensions see."""


AgentStartEvent = AgentStart
AgentEndEvent = AgentEnd
AgentSettledEvent = AgentSettled
SessionInfoChangedEvent = SessionInfoChanged
ToolExecutionStartEvent = ToolExecutionStart
ToolExecutionUpdateEvent = ToolExecutionUpdate
ToolExecutionEndEvent = ToolExecutionEnd


# -- start, sessions, resources ------------------------------------------------------------------


class ProjectTrustEvent(ExtensionEvent, tag="project_trust"):
    """May the project in `cwd` bring its own code and settings?

    Only extensions of the user and of the command line are asked.
    Return `{"trusted": "yes" | "no" | "undecided", "remember": bool}`; the first yes or no counts.
    """

    cwd: str


class ResourcesDiscoverEvent(ExtensionEvent, tag="resources_discover"):
    """Return `{"skillPaths": [...], "promptPaths": [...]}` to add skills and prompt templates."""

    cwd: str
    reason: str
    """`startup` or `reload`."""


class SessionStartEvent(ExtensionEvent, tag="session_start"):
    reason: str
    """`startup`, `reload`, `new`, `resume` or `fork`."""
    previous_session_file: str | None = None


class SessionBeforeSwitchEvent(ExtensionEvent, tag="session_before_switch"):
    """Return `{"cancel": True}` to stay in this session."""

    reason: str
    """`new` or `resume`."""
    target_session_file: str | None = None


class SessionBeforeForkEvent(ExtensionEvent, tag="session_before_fork"):
    """Return `{"cancel": True}` to stay in this session."""

    entry_id: str
    position: str = "before"
    """`before` that user message, or `at` that entry."""


class SessionShutdownEvent(ExtensionEvent, tag="session_shutdown"):
    """The last event of a generation of extensions; all handlers together have five seconds."""

    reason: str
    """`quit`, `reload`, `new`, `resume` or `fork`."""
    target_session_file: str | None = None


class SessionBeforeCompactEvent(ExtensionEvent, tag="session_before_compact"):
    """Return `{"cancel": True}`, or the summary itself:
    `{"compaction": {"summary": str, "firstKeptEntryId": str, "tokensBefore": int, "details": any}}`.
    """

    preparation: CompactionPreparation
    branch_entries: list[dict[str, Any]]
    custom_instructions: str | None
    reason: str
    """`manual`, `threshold` or `overflow`."""
    will_retry: bool


class SessionCompactEvent(ExtensionEvent, tag="session_compact"):
    compaction_entry: dict[str, Any]
    from_extension: bool
    reason: str
    will_retry: bool


class SessionCompactFailedEvent(ExtensionEvent, tag="session_compact_failed"):
    reason: str
    error_message: str | None
    aborted: bool
    will_retry: bool
    from_extension: bool


class SessionBeforeTreeEvent(ExtensionEvent, tag="session_before_tree"):
    """Return any of `cancel`, `summary` (`{"summary": str, "details": any}`), `customInstructions`,
    `replaceInstructions`, `label`.
    """

    preparation: TreePreparation


class SessionTreeEvent(ExtensionEvent, tag="session_tree"):
    new_leaf_id: str | None
    old_leaf_id: str | None
    summary_entry: dict[str, Any] | None = None
    from_extension: bool | None = None


# -- a prompt ------------------------------------------------------------------------------------


class InputEvent(ExtensionEvent, tag="input"):
    """Return `{"action": "transform", "text": str, "images": [...]}`, `{"action": "handled"}` or
    `{"action": "continue"}`; the next handler sees the changed text.
    """

    text: str
    images: list[Image]
    source: str
    """`rpc`, `interactive`, `extension`, …"""
    streaming_behavior: str | None = None


class BeforeAgentStartEvent(ExtensionEvent, tag="before_agent_start"):
    """Return `{"message": {"customType", "content", "display", "details"}, "systemPrompt": str}`, or one of the two.

    Messages of all handlers follow the prompt; the system prompt holds for this run, and the next handler sees it.
    """

    prompt: str
    images: list[Image]
    system_prompt: str
    system_prompt_options: dict[str, Any]


# -- a run ---------------------------------------------------------------------------------------


class AgentBeforeSettleEvent(ExtensionEvent, tag="agent_before_settle"):
    """Nothing is left to do. Return `{"entries": [custom messages], "continue": True}` to let the model go on."""

    outcome: str
    """Stop reason of the last answer."""
    message: AssistantMessage
    context: list[AgentMessage]
    """The conversation."""
    entries: list[CustomMessage]
    """Messages that earlier handlers want to add."""
    continue_: bool = field(name="continue")
    """Whether an earlier handler wants to go on."""


class TurnStartEvent(ExtensionEvent, tag="turn_start"):
    turn_index: int
    timestamp: int


class TurnEndEvent(ExtensionEvent, tag="turn_end"):
    turn_index: int
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class _MessageEvent(ExtensionEvent):
    _message: Any

    @property
    def message(self) -> AgentMessage:
        """The message so far. For an answer in progress this makes a copy, so read it only if you need it."""
        if isinstance(self._message, LiveSource):
            return self._message.so_far()
        found: AgentMessage = self._message
        return found

    @property
    def raw(self) -> dict[str, Any]:
        value = super().raw
        value["message"] = value.pop("_message")
        return value


class MessageStartEvent(_MessageEvent, tag="message_start"):
    pass


class MessageUpdateEvent(_MessageEvent, tag="message_update"):
    assistant_message_event: StreamEvent | AnswerEdge


class MessageEndEvent(_MessageEvent, tag="message_end"):
    """Return `{"message": ...}` to keep another message of the same role instead."""


class ContextEvent(ExtensionEvent, tag="context"):
    """Change `messages` in place or return `{"messages": [...]}`: the messages that this one model call sees."""

    messages: list[AgentMessage]


class ContextWithSystemEvent(ExtensionEvent, tag="context_with_system"):
    """Like `context`, with the system prompt; return `{"messages": [...], "systemPrompt": str}` or one of the two."""

    system_prompt: str
    messages: list[AgentMessage]


class BeforeProviderRequestEvent(ExtensionEvent, tag="before_provider_request"):
    """Return a request body to send instead of `payload`."""

    payload: Any


class BeforeProviderHeadersEvent(ExtensionEvent, tag="before_provider_headers"):
    """Change `headers` in place; the value None deletes a header."""

    headers: dict[str, str | None]


class AfterProviderResponseEvent(ExtensionEvent, tag="after_provider_response"):
    status: int
    headers: dict[str, str]


# -- tools ---------------------------------------------------------------------------------------


class ToolCallEvent(ExtensionEvent, tag="tool_call"):
    """Change `input` in place, or return `{"block": True, "reason": str}`. A handler that fails blocks, too."""

    tool_name: str
    tool_call_id: str
    input: Any


class ToolResultEvent(ExtensionEvent, tag="tool_result"):
    """Return any of `content`, `details`, `isError` to replace it in the result."""

    tool_name: str
    tool_call_id: str
    input: Any
    content: list[Any]
    details: Any
    is_error: bool


class UserBashEvent(ExtensionEvent, tag="user_bash"):
    """Return `{"result": {"output", "exitCode", "cancelled", "truncated"}}` instead of running the command."""

    command: str
    exclude_from_context: bool
    cwd: str


# -- choices, dialogs ----------------------------------------------------------------------------


class McpServersChangeEvent(ExtensionEvent, tag="mcp_servers_change"):
    """The MCP servers of the session have changed: a client or an extension has set others."""

    servers: list[str]
    """Their names."""


class ModelSelectEvent(ExtensionEvent, tag="model_select"):
    model: Model
    previous_model: Model | None
    source: str
    """`set`, `cycle` or `restore`."""


class ThinkingLevelSelectEvent(ExtensionEvent, tag="thinking_level_select"):
    level: str
    previous_level: str


class UIPromptStartEvent(ExtensionEvent, tag="ui_prompt_start"):
    kind: str
    """`select`, `confirm`, `input` or `editor`."""
    title: str | None = None
    reason: str = "ui_prompt"


class UIPromptEndEvent(ExtensionEvent, tag="ui_prompt_end"):
    kind: str
    title: str | None = None
    reason: str = "ui_prompt"


EVENTS: dict[str, type[Event]] = {
    str(kind.__struct_config__.tag): kind
    for name, kind in tuple(globals().items())
    if name.endswith("Event") and isinstance(kind, type) and issubclass(kind, Event) and not kind.__subclasses__()
}
"""Every event by its name on the wire."""
