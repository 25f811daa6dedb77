"""The events of an agent, for programs: every class, and the union `AnyEvent` of all that `Agent.run` gives.

`if event.type == "tool_execution_start"` and `match event: case ToolExecutionStart()` tell a type checker which event
it is. The fields are those of the protocol, in the spelling of Python.
"""

from typing import TypeAlias

from spindle.shapes.approvals import PermissionAnswered, PermissionDenied, PermissionRequest, RunInterrupted
from spindle.shapes.client_requests import (
    ExtensionUIRequest,
    HostToolCall,
    HostToolCancel,
    HostUriCancel,
    HostUriRequest,
)
from spindle.shapes.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    AutoCompactionEnd,
    AutoCompactionStart,
    AutoRetryEnd,
    AutoRetryStart,
    AvailableCommandsUpdate,
    BackgroundEnd,
    BackgroundStart,
    BashExecutionUpdate,
    CompactionEnd,
    CompactionStart,
    EntryAppended,
    Event,
    ExtensionError,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Notice,
    PromptResult,
    PullProgress,
    QueueUpdate,
    RetryFallbackApplied,
    RetryFallbackSucceeded,
    RuleTriggered,
    SessionChanged,
    SessionClosed,
    SessionInfoChanged,
    SessionSettled,
    StateChanged,
    SubagentEvent,
    SubagentLifecycle,
    SubagentProgress,
    SummarizationRetryAttemptStart,
    SummarizationRetryFinished,
    SummarizationRetryScheduled,
    ThinkingLevelChanged,
    TodoAutoClear,
    TodoReminder,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from spindle.shapes.pieces import (
    AnswerDone,
    AnswerFailed,
    AnswerStart,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

AnyEvent: TypeAlias = (
    AgentStart
    | TurnStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | AgentEnd
    | AgentSettled
    | BackgroundStart
    | BackgroundEnd
    | SubagentEvent
    | SubagentLifecycle
    | SubagentProgress
    | AvailableCommandsUpdate
    | PermissionDenied
    | PermissionRequest
    | PermissionAnswered
    | QueueUpdate
    | CompactionStart
    | CompactionEnd
    | AutoCompactionStart
    | AutoCompactionEnd
    | AutoRetryStart
    | AutoRetryEnd
    | RetryFallbackApplied
    | RetryFallbackSucceeded
    | SummarizationRetryScheduled
    | SummarizationRetryAttemptStart
    | SummarizationRetryFinished
    | ThinkingLevelChanged
    | SessionInfoChanged
    | SessionChanged
    | SessionClosed
    | StateChanged
    | EntryAppended
    | BashExecutionUpdate
    | PromptResult
    | PullProgress
    | SessionSettled
    | RunInterrupted
    | Notice
    | ExtensionError
    | ExtensionUIRequest
    | HostUriRequest
    | HostUriCancel
    | HostToolCall
    | HostToolCancel
    | TodoReminder
    | TodoAutoClear
    | RuleTriggered
)
"""An event of an agent. New versions may have more of them, so a `match` wants a last case for the rest."""

__all__ = [
    "AgentEnd",
    "AgentSettled",
    "AgentStart",
    "AnswerDone",
    "AnswerFailed",
    "AnswerStart",
    "AnyEvent",
    "AutoCompactionEnd",
    "AutoCompactionStart",
    "AutoRetryEnd",
    "AutoRetryStart",
    "AvailableCommandsUpdate",
    "BackgroundEnd",
    "BackgroundStart",
    "BashExecutionUpdate",
    "CompactionEnd",
    "CompactionStart",
    "EntryAppended",
    "Event",
    "ExtensionError",
    "ExtensionUIRequest",
    "HostToolCall",
    "HostToolCancel",
    "HostUriCancel",
    "HostUriRequest",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "Notice",
    "PermissionAnswered",
    "PermissionDenied",
    "PermissionRequest",
    "PromptResult",
    "PullProgress",
    "QueueUpdate",
    "RetryFallbackApplied",
    "RetryFallbackSucceeded",
    "RuleTriggered",
    "RunInterrupted",
    "SessionChanged",
    "SessionClosed",
    "SessionInfoChanged",
    "SessionSettled",
    "StateChanged",
    "StreamEvent",
    "SubagentEvent",
    "SubagentLifecycle",
    "SubagentProgress",
    "SummarizationRetryAttemptStart",
    "SummarizationRetryFinished",
    "SummarizationRetryScheduled",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ThinkingDelta",
    "ThinkingEnd",
    "ThinkingLevelChanged",
    "ThinkingStart",
    "TodoAutoClear",
    "TodoReminder",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "ToolResult",
    "TurnEnd",
    "TurnStart",
]
