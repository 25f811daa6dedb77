"""The events of an agent. Every event is one flat object with a `type`.

`ToolResult` and the pieces of a streamed answer (`StreamEvent`) live here too, because events carry them.
"""

import reprlib
from typing import Any, Literal, TypeAlias

import msgspec

from spindle.shapes.codec import WireValue, to_builtins
from spindle.shapes.messages import AssistantMessage, Image, Tagged, Text, ToolCall, ToolResultMessage, Usage, Wire


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


# -- pieces of an answer -------------------------------------------------------------------------


class _Piece(Tagged, gc=True):
    content_index: int
    """Position of the block in the message's content."""


class TextStart(_Piece, tag="text_start"):
    pass


class TextDelta(_Piece, gc=False, tag="text_delta"):
    delta: str


class TextEnd(_Piece, tag="text_end"):
    content: str


class ThinkingStart(_Piece, tag="thinking_start"):
    pass


class ThinkingDelta(_Piece, gc=False, tag="thinking_delta"):
    delta: str


class ThinkingEnd(_Piece, tag="thinking_end"):
    content: str


class ToolCallStart(_Piece, tag="toolcall_start"):
    id: str
    tool_name: str


class ToolCallDelta(_Piece, gc=False, tag="toolcall_delta"):
    delta: str
    """A raw piece of the arguments' JSON."""


class ToolCallEnd(_Piece, tag="toolcall_end"):
    tool_call: ToolCall


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)
"""The same types for `isinstance`; most pieces of an answer are deltas."""


STARTS = (TextStart, ThinkingStart, ToolCallStart)


class AnswerStart(Wire, tag_field="type", tag="start"):
    """An answer begins. On the wire it has the answer as `partial`."""


class AnswerDone(Wire, tag_field="type", tag="done"):
    """An answer is complete. On the wire it has the answer as `message`."""

    reason: str
    """`stop`, `length` or `toolUse`."""


class AnswerFailed(Wire, tag_field="type", tag="error"):
    """An answer was stopped or failed. On the wire it has the answer so far as `error`."""

    reason: str
    """`aborted` or `error`."""


AnswerEdge: TypeAlias = AnswerStart | AnswerDone | AnswerFailed
StreamEvent: TypeAlias = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
)


class LiveSource(WireValue):
    """An answer that is still being written. Taking a snapshot costs its whole length; ask for it only if needed."""

    __slots__ = ()

    def snapshot(self) -> AssistantMessage:
        """Return the message as it is now."""
        raise NotImplementedError

    def to_wire(self) -> AssistantMessage:
        return self.snapshot()


# -- a run ---------------------------------------------------------------------------------------


class AgentStart(Event, tag="agent_start"):
    pass


class TurnStart(Event, tag="turn_start"):
    pass


class MessageStart(Event, tag="message_start"):
    message: Any
    """`AgentMessage`, or a `LiveSource` for an answer that has just begun."""


class MessageUpdate(Event, tag="message_update"):
    assistant_message_event: StreamEvent | AnswerEdge
    message: Any
    """A `LiveSource`, of which a snapshot is made on use; at the end of an answer, the message itself."""

    @property
    def text_delta(self) -> str:
        piece = self.assistant_message_event
        return piece.delta if isinstance(piece, TextDelta) else ""


class MessageEnd(Event, tag="message_end"):
    message: Any
    entry_id: str | None = None
    """The entry of the session that has the message."""


class ToolResult(Wire):
    """The result of a tool, complete or so far."""

    content: list[Text | Image]
    details: Any = None
    terminate: bool = False
    """If every call of a batch says so, the run ends without another model call."""


class ToolExecutionStart(Event, tag="tool_execution_start"):
    tool_call_id: str
    tool_name: str
    args: Any
    """As the model wrote them, before validation."""


class ToolExecutionUpdate(Event, tag="tool_execution_update"):
    tool_call_id: str
    tool_name: str
    args: Any
    partial_result: ToolResult


class ToolExecutionEnd(Event, tag="tool_execution_end"):
    tool_call_id: str
    tool_name: str
    result: ToolResult
    is_error: bool
    duration_ms: int | None = None
    """Set only if the tool ran."""


class TurnEnd(Event, tag="turn_end"):
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class AgentEnd(Event, tag="agent_end"):
    messages: list[Any]
    """All messages this run created, its prompt and failed answers included."""
    will_retry: bool
    """Whether another try follows; only in the dialect `pi-0.87`, where each try has an `agent_end`."""


class AgentSettled(Event, tag="agent_settled"):
    """No run, retry or compaction follows by itself any more."""

    aborted: bool
    stop_reason: str
    """How it ended: `end`, `handled` (no model was needed), `aborted`, `error`, or another reason, such as `denied`."""
    error_message: str | None = None
    background: int = 0
    """Commands that run in the background. The end of one may start a run."""


class BackgroundStart(Event, tag="background_start"):
    """A shell command runs in the background from now on."""

    id: str
    command: str
    output_file: str


class BackgroundEnd(Event, tag="background_end"):
    """A shell command in the background has ended."""

    id: str
    exit_code: int
    """128 + n after signal n."""


class SubagentEvent(Event, tag="subagent_event"):
    """An event of a subagent. It is inside of this one, so that no client takes it for an event of the agent itself."""

    parent_tool_call_id: str
    """The call of `task` that the subagent works for."""
    agent: str
    """The name of the subagent's definition."""
    event: Any
    """`message_update` is always in delta form here."""


# -- permissions ---------------------------------------------------------------------------------

Behavior: TypeAlias = Literal["allow", "ask", "deny"]


class Decision(Wire):
    """The decision of the permissions about a tool call."""

    behavior: Behavior
    rule: str | None = None
    """The rule that decided; None: the mode."""
    source: str | None = None
    """Where that rule comes from."""
    reason: str = ""
    """Why, if the rule alone does not say it."""
    always: tuple[str, ...] = ()
    """Rules that would allow this call from now on."""


class Denial(Wire):
    """A tool call that was refused."""

    tool_name: str
    arguments: Any
    rule: str | None = None
    """The rule that refused the call, or required a question about it."""
    reason: str = ""
    """The text that the model gets."""


class PermissionDenied(Event, tag="permission_denied"):
    """A tool call was refused. `tool_execution_end` follows, as for a call that failed."""

    tool_call_id: str
    tool_name: str
    arguments: Any
    rule: str | None = None
    reason: str = ""


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
    reason: str
    """`manual`, `threshold` or `overflow`."""


class CompactionEnd(Event, tag="compaction_end"):
    reason: str
    result: CompactionResult | None
    aborted: bool
    will_retry: bool
    error_message: str | None = None


class AutoCompactionStart(CompactionStart, tag="auto_compaction_start"):
    pass


class AutoCompactionEnd(CompactionEnd, tag="auto_compaction_end"):
    pass


class AutoRetryStart(Event, tag="auto_retry_start"):
    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str


class AutoRetryEnd(Event, tag="auto_retry_end"):
    success: bool
    attempt: int
    final_error: str | None = None


class SummarizationRetryScheduled(AutoRetryStart, tag="summarization_retry_scheduled"):
    pass


class SummarizationRetryAttemptStart(Event, tag="summarization_retry_attempt_start"):
    source: str
    reason: str | None = None


class SummarizationRetryFinished(Event, tag="summarization_retry_finished"):
    pass


class ThinkingLevelChanged(Event, tag="thinking_level_changed"):
    level: str


class SessionInfoChanged(Event, tag="session_info_changed"):
    name: str | None = None


class SessionChanged(Event, tag="session_changed"):
    """The conversation changed in a way that other events do not tell: another session, or another branch of it."""

    session_id: str
    reason: str
    """`new`, `resume`, `fork`, `tree`, `regenerate`, `clear`, or `bash`: the user ran a command."""


class SessionClosed(Event, tag="session_closed"):
    """A session that this client has opened is no longer in memory. Its file stays, and its id opens it again."""

    reason: str
    """`closed`, `idle`, or another reason."""


class StateChanged(Event, tag="state_changed"):
    """A client or a server has changed the model, the permissions, a label of an entry, or the commands."""


class EntryAppended(Event, tag="entry_appended"):
    """An extension has stored an entry in the session."""

    entry: Any


class BashExecutionUpdate(Event, kw_only=True, tag="bash_execution_update"):
    id: Any = msgspec.UNSET
    """The id of the `bash` command, as it was sent."""
    delta: str


class PromptError(Wire, kw_only=True):
    message: str
    provider: str | None = None
    model: str | None = None
    retryable: bool
    """Whether the same prompt may succeed later."""


class PromptResult(Event, kw_only=True, tag="prompt_result"):
    """A prompt of this client is over. Sent after `negotiate_protocol`, after the response and the run's events."""

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


class Notice(Event, tag="notice"):
    """A remark for the user; nothing has failed."""

    message: str
    level: str = "warning"


class ExtensionError(Event, tag="extension_error"):
    """Code of an extension, or work beside the run, has failed."""

    extension_path: str
    event: str
    error: str
    traceback: str | None = None
    """Where in the code of an extension it happened."""


class ExtensionUIRequest(Event, kw_only=True, tag="extension_ui_request"):
    """A question or message of an extension for the user; which fields are set depends on the method."""

    id: str
    method: str
    """Dialogs: `select`, `confirm`, `input`, `editor`. Others need no answer."""
    title: str | None = None
    options: list[str] | None = None
    message: str | None = None
    placeholder: str | None = None
    prefill: str | None = None
    timeout: int | None = None
    """Milliseconds after which the agent goes on without an answer."""
    notify_type: str | None = None
    status_key: str | None = None
    status_text: str | None = None
    widget_key: str | None = None
    widget_lines: list[str] | None = None
    widget_placement: str | None = None
    text: str | None = None
    target_id: str | None = None
    """With `cancel`: the dialog that is withdrawn."""
    tool_call_id: str | None = None
    """The tool call that the question is about, if any."""
    always: list[str] | None = None
    """Rules that the reply `always: true` to such a question adds to the conversation."""
    offers: list[str] | None = None
    """With `confirm`: texts of which `always` may name one, from the rules above to wider ones; a `select` has them
    among its options."""


# -- tools that run in the client, todos, stream rules ---------------------------------------------


class HostToolCall(Event, tag="host_tool_call"):
    """A request to the client: run your tool and send `host_tool_result` with this id."""

    id: str
    tool_call_id: str
    tool_name: str
    arguments: Any


class HostToolCancel(Event, tag="host_tool_cancel"):
    """The client may stop its tool; a result would be ignored."""

    id: str
    target_id: str
    """The id of the `host_tool_call`."""


class TodoReminder(Event, tag="todo_reminder"):
    """The model stopped with open todos and is told to go on."""

    todos: list[Any]
    attempt: int
    max_attempts: int


class TodoAutoClear(Event, tag="todo_auto_clear"):
    """A finished todo was removed from the list."""


class RuleTriggered(Event, tag="ttsr_triggered"):
    """The answer broke a stream rule and was stopped."""

    rules: list[Any]
