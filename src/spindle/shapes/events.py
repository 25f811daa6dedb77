"""The events of an agent. Every event is one flat object with a `type`.

What an answer is made of is in `pieces`; events about questions are in `approvals`, requests to a client in
`client_requests`. `ToolResult` lives here, because events carry it.
"""

from __future__ import annotations  # a hundred types that only checkers read are not made at each start

import reprlib
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from spindle.shapes.codec import to_builtins
from spindle.shapes.messages import (
    AssistantMessage,
    Image,
    MessageOnWire,
    Tagged,
    Text,
    ToolResultMessage,
    Usage,
    Wire,
    shown_as,
)
from spindle.shapes.model import ModelCost
from spindle.shapes.pieces import AnswerEdge, LiveSource, StreamEvent, TextDelta


class Event(Tagged, gc=True):
    """Base of all events."""

    @property
    def raw(self) -> dict[str, Any]:
        """The event as plain JSON values, with the keys of the wire."""
        value: dict[str, Any] = to_builtins(self)
        return value

    @property
    def text_delta(self) -> str:
        """The new piece of the answer's text; empty for every other event."""
        return ""

    def __repr__(self) -> str:
        """Return one line in which long values are shortened; `raw` has all of them."""
        return _BRIEF.repr(self)


class _Brief(reprlib.Repr):
    """Writes events for people: without defaults, without figures about an answer, and without a long text."""

    hidden = frozenset(
        {"api", "provider", "usage", "timestamp", "details", "content_index", "response_id", "raw_stop_reason"}
        | {"text_signature", "thinking_signature", "thought_signature"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.maxstring, self.maxother, self.maxlevel, self.maxlist = 100, 100, 8, 3

    def repr_instance(self, x: Any, level: int) -> str:
        if isinstance(x, Text):
            return self.repr1(x.text, level)
        if not isinstance(x, msgspec.Struct):
            return super().repr_instance(x, level)
        shown = []
        for field in msgspec.structs.fields(x):
            value = getattr(x, field.name)
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            if field.name not in self.hidden and value != default and not isinstance(value, LiveSource):
                shown.append(f"{field.name}={self.repr1(value, level - 1)}")
        return f"{type(x).__name__}({', '.join(shown)})"


_BRIEF = _Brief()


# -- a run ---------------------------------------------------------------------------------------


class AgentStart(Event, tag="agent_start"):
    """A run begins."""

    type: ClassVar[Literal["agent_start"]]


class TurnStart(Event, tag="turn_start"):
    """A model call and its tool calls begin."""

    type: ClassVar[Literal["turn_start"]]


class MessageStart(Event, tag="message_start"):
    """A message begins: of the user, the model, a tool, or an extension."""

    type: ClassVar[Literal["message_start"]]
    message: MessageOnWire
    """`AgentMessage`, or a `LiveSource` for an answer that has just begun."""


class MessageUpdate(Event, tag="message_update"):
    """A piece of the answer; `text_delta` is its text."""

    type: ClassVar[Literal["message_update"]]
    assistant_message_event: StreamEvent | AnswerEdge
    message: MessageOnWire
    """A `LiveSource`, which is made a message on use; at the end of an answer, the message itself."""

    @property
    def text_delta(self) -> str:
        piece = self.assistant_message_event
        return piece.delta if isinstance(piece, TextDelta) else ""


class MessageEnd(Event, tag="message_end"):
    """A message is complete, and part of the conversation."""

    type: ClassVar[Literal["message_end"]]
    message: MessageOnWire
    entry_id: str | None = None
    """The entry of the session that has the message."""


class ToolResult(Wire):
    """The result of a tool, complete or so far."""

    content: list[Text | Image]
    details: Any = None
    terminate: bool = False
    """If every call of a batch says so, the run ends without another model call."""


class ToolExecutionStart(Event, tag="tool_execution_start"):
    """A tool call begins."""

    type: ClassVar[Literal["tool_execution_start"]]
    tool_call_id: str
    tool_name: str
    args: Any
    """As the model wrote them, before validation."""


class ToolExecutionUpdate(Event, tag="tool_execution_update"):
    """What a tool has got so far."""

    type: ClassVar[Literal["tool_execution_update"]]
    tool_call_id: str
    tool_name: str
    args: Any
    partial_result: ToolResult


class ToolExecutionEnd(Event, tag="tool_execution_end"):
    """A tool call has ended."""

    type: ClassVar[Literal["tool_execution_end"]]
    tool_call_id: str
    tool_name: str
    result: ToolResult
    is_error: bool
    duration_ms: int | None = None
    """Set only if the tool ran."""
    changed_input: Any = None
    """The arguments that the tool ran with, if whoever allowed the call has changed them."""


class TurnEnd(Event, tag="turn_end"):
    """A model call and its tool calls have ended."""

    type: ClassVar[Literal["turn_end"]]
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class AgentEnd(Event, tag="agent_end"):
    """A run has ended; `agent_settled` follows when nothing goes on by itself."""

    type: ClassVar[Literal["agent_end"]]
    messages: list[MessageOnWire]
    """All messages this run created, its prompt and failed answers included."""
    will_retry: bool
    """Whether another try follows; only in the dialects `pi-0.87` and `pi-1.5`, where each try has an `agent_end`."""


class AgentSettled(Event, tag="agent_settled"):
    """No run, retry or compaction follows by itself any more."""

    type: ClassVar[Literal["agent_settled"]]
    aborted: bool
    stop_reason: str
    """How it ended: `end`, `handled` (no model was needed), `aborted`, `error`, `length` (the last answer was cut),
    `waiting` (for the answer to a question), `unfinished` (it was no end of the work, twice), or another, such as
    `denied`."""
    error_message: str | None = None
    background: int = 0
    """Commands that run in the background. The end of one may start a run."""


class BackgroundStart(Event, tag="background_start"):
    """A shell command runs in the background from now on."""

    type: ClassVar[Literal["background_start"]]
    id: str
    command: str
    output_file: str


class BackgroundEnd(Event, tag="background_end"):
    """A shell command in the background has ended."""

    type: ClassVar[Literal["background_end"]]
    id: str
    exit_code: int
    """128 + n after signal n."""


class SubagentEvent(Event, tag="subagent_event"):
    """An event of a subagent. It is inside of this one, so that no client takes it for an event of the agent itself."""

    type: ClassVar[Literal["subagent_event"]]
    parent_tool_call_id: str
    """The call of `task` that the subagent works for."""
    agent: str
    """The name of the subagent's definition."""
    subagent_id: str
    """The id of its session, by which `get_subagents` lists it."""
    event: Annotated[Any, shown_as("Event")]
    """`message_update` is always in delta form here."""


class SubagentStep(Wire):
    id: str
    index: int
    agent: str
    agent_source: str
    """`bundled`, `user` or `project`."""
    description: str
    status: str
    """`started`, `running`, `completed`, `failed` or `aborted`."""
    task: str
    session_file: str | None
    parent_tool_call_id: str


class WorkingSubagent(Wire, omit_defaults=False):
    """What a subagent has done so far."""

    id: str
    index: int
    agent: str
    agent_source: str
    status: str
    task: str
    description: str
    recent_tools: list[str] = msgspec.field(default_factory=list)
    """Names, the last one first."""
    recent_output: list[str] = msgspec.field(default_factory=list)
    tool_count: int = 0
    requests: int = 0
    """Answers of its model."""
    tokens: int = 0
    cost: float = 0.0
    duration_ms: int = 0


class WorkingStep(Wire):
    index: int
    agent: str
    agent_source: str
    task: str
    progress: WorkingSubagent
    session_file: str | None
    parent_tool_call_id: str


class SubagentLifecycle(Event, tag="subagent_lifecycle"):
    """A subagent begins or has ended. Sent after `set_subagent_subscription`."""

    type: ClassVar[Literal["subagent_lifecycle"]]
    payload: SubagentStep


class SubagentProgress(Event, tag="subagent_progress"):
    """A subagent has called a tool or got an answer. Sent after `set_subagent_subscription`."""

    type: ClassVar[Literal["subagent_progress"]]
    payload: WorkingStep


class AvailableCommandsUpdate(Event, tag="available_commands_update"):
    """The slash commands have changed. Sent after `negotiate_protocol`."""

    type: ClassVar[Literal["available_commands_update"]]
    commands: list[Any]
    """As `get_available_commands` lists them."""


# -- around a run --------------------------------------------------------------------------------


class QueuedItem(Wire):
    """A message of the user in a queue."""

    id: str
    kind: str
    """`steer` or `followUp`."""
    text: str
    images: int
    """How many images the message has."""


class QueueUpdate(Event, tag="queue_update"):
    """A message was queued, or has left its queue."""

    type: ClassVar[Literal["queue_update"]]
    steering: list[str]
    follow_up: list[str]
    items: list[QueuedItem] = msgspec.field(default_factory=list)
    """The same messages, each with an id for commands that change it."""


class CompactionResult(Wire):
    summary: str
    first_kept_entry_id: str
    tokens_before: int
    details: Any = None
    estimated_tokens_after: int | None = None
    usage: Usage | None = None


class CompactionStart(Event, tag="compaction_start"):
    """The older part of the context is being replaced by a summary."""

    type: ClassVar[Literal["compaction_start"]]
    reason: str
    """`manual`, `threshold` or `overflow`."""


class CompactionEnd(Event, tag="compaction_end"):
    """A compaction has ended."""

    type: ClassVar[Literal["compaction_end"]]
    reason: str
    result: CompactionResult | None
    aborted: bool
    will_retry: bool
    error_message: str | None = None


class AutoCompactionStart(CompactionStart, tag="auto_compaction_start"):
    """The same as `compaction_start`, if the agent has begun it by itself."""

    type: ClassVar[Literal["auto_compaction_start"]]  # type: ignore[assignment]


class AutoCompactionEnd(CompactionEnd, tag="auto_compaction_end"):
    """The same as `compaction_end`, if the agent had begun it by itself."""

    type: ClassVar[Literal["auto_compaction_end"]]  # type: ignore[assignment]


class AutoRetryStart(Event, tag="auto_retry_start"):
    """A model call has failed and is tried again after a while."""

    type: ClassVar[Literal["auto_retry_start"]]
    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str


class AutoRetryEnd(Event, tag="auto_retry_end"):
    """The tries after a failed model call are over."""

    type: ClassVar[Literal["auto_retry_end"]]
    success: bool
    attempt: int
    final_error: str | None = None


class Fallback(Wire, kw_only=True):
    """A switch to another model, because the one before could not answer."""

    before: str = msgspec.field(name="from")
    after: str = msgspec.field(name="to")
    role: str
    """The job: `main`, `subagents`, `summaries`, `titles`, `questions`."""
    cause: str
    price: ModelCost | None = None
    """US dollars per million tokens of the other model; none: unknown."""
    cost: int | float = 0
    """US dollars that its answers have cost, as far as known."""


class RetryFallbackApplied(Event, tag="retry_fallback_applied"):
    """Another model answers from here on; a `notice` says so in words."""

    type: ClassVar[Literal["retry_fallback_applied"]]
    before: str = msgspec.field(name="from")
    after: str = msgspec.field(name="to")
    role: str
    cause: str
    """`key`, `quota`, `model`, `region`, `rate_limit`, `overload`, `server`, `timeout`, `connection`, `context`,
    `broken`, or `resting`: it has failed a short while ago."""


class RetryFallbackSucceeded(Event, tag="retry_fallback_succeeded"):
    """The other model has answered."""

    type: ClassVar[Literal["retry_fallback_succeeded"]]
    model: str
    role: str


class SummarizationRetryScheduled(AutoRetryStart, tag="summarization_retry_scheduled"):
    """The call for a summary has failed and is tried again after a while."""

    type: ClassVar[Literal["summarization_retry_scheduled"]]  # type: ignore[assignment]


class SummarizationRetryAttemptStart(Event, tag="summarization_retry_attempt_start"):
    """The call for a summary is tried again."""

    type: ClassVar[Literal["summarization_retry_attempt_start"]]
    source: str
    reason: str | None = None


class SummarizationRetryFinished(Event, tag="summarization_retry_finished"):
    """The tries of a call for a summary are over."""

    type: ClassVar[Literal["summarization_retry_finished"]]


class ThinkingLevelChanged(Event, tag="thinking_level_changed"):
    """The model thinks more or less from now on."""

    type: ClassVar[Literal["thinking_level_changed"]]
    level: str


class SessionInfoChanged(Event, tag="session_info_changed"):
    """The session has another name."""

    type: ClassVar[Literal["session_info_changed"]]
    name: str | None = None


class SessionChanged(Event, tag="session_changed"):
    """The conversation changed in a way that other events do not tell: another session, or another branch of it."""

    type: ClassVar[Literal["session_changed"]]
    session_id: str
    reason: str
    """`new`, `resume`, `fork`, `tree`, `regenerate`, `clear`, or `bash`: the user ran a command."""


class SessionClosed(Event, tag="session_closed"):
    """A session that this client has opened is no longer in memory. Its file stays, and its id opens it again."""

    type: ClassVar[Literal["session_closed"]]
    reason: str
    """`closed`, `idle`, or another reason."""


class StateChanged(Event, tag="state_changed"):
    """A client or a server has changed the model, the permissions, a label of an entry, or the commands."""

    type: ClassVar[Literal["state_changed"]]


class PullProgress(Event, tag="pull_progress"):
    """A model that was wanted on this machine is on its way (`pull_model`)."""

    type: ClassVar[Literal["pull_progress"]]
    name: str
    done: int
    """Bytes."""
    whole: int


class EntryAppended(Event, tag="entry_appended"):
    """An extension has stored an entry in the session."""

    type: ClassVar[Literal["entry_appended"]]
    entry: Annotated[Any, shown_as("Entry")]


class BashExecutionUpdate(Event, kw_only=True, tag="bash_execution_update"):
    """Output of a shell command of the user."""

    type: ClassVar[Literal["bash_execution_update"]]
    id: Any = msgspec.UNSET
    """The id of the `bash` command, as it was sent."""
    delta: str


class PromptError(Wire, kw_only=True):
    message: str
    provider: str | None = None
    model: str | None = None
    http_status: int | None = None
    retryable: bool
    """Whether the same prompt may succeed later."""


class PromptResult(Event, kw_only=True, tag="prompt_result"):
    """A prompt of this client is over. Sent after `negotiate_protocol`, after the response and the run's events."""

    type: ClassVar[Literal["prompt_result"]]
    id: Any = msgspec.UNSET
    """The id of the command, as it was sent."""
    agent_invoked: bool
    """False: no model was needed."""
    status: str
    """`completed`, `aborted` or `error`."""
    error: PromptError | None = None
    session_settled: bool
    """Nothing follows by itself; if false, `session_settled` comes later."""


class SessionSettled(Event, tag="session_settled"):
    """Nothing follows by itself any more. Sent after `negotiate_protocol`, after all `prompt_result`."""

    type: ClassVar[Literal["session_settled"]]


class Notice(Event, tag="notice"):
    """A remark for the user; nothing has failed."""

    type: ClassVar[Literal["notice"]]
    message: str
    level: str = "warning"


class ExtensionError(Event, tag="extension_error"):
    """Code of an extension, or work beside the run, has failed."""

    type: ClassVar[Literal["extension_error"]]
    extension_path: str
    event: str
    error: str
    traceback: str | None = None
    """Where in the code of an extension it happened."""


# -- tools that run in the client, todos, stream rules ---------------------------------------------


class TodoReminder(Event, tag="todo_reminder"):
    """The model stopped with open todos and is told to go on."""

    type: ClassVar[Literal["todo_reminder"]]
    todos: list[Any]
    attempt: int
    max_attempts: int


class TodoAutoClear(Event, tag="todo_auto_clear"):
    """A finished todo was removed from the list."""

    type: ClassVar[Literal["todo_auto_clear"]]


class RuleTriggered(Event, tag="ttsr_triggered"):
    """The answer broke a stream rule and was stopped."""

    type: ClassVar[Literal["ttsr_triggered"]]
    rules: list[Any]
