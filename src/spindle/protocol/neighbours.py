"""The dialects of neighbours: the events and keys that each of them knows.

A row says what is sent under a name; see `Dialect`. Facts are those of the published types of each version.
"""

from collections.abc import Mapping

from msgspec.structs import fields, replace

from spindle.protocol.dialect import ANSWER_EDGES, WITH_TITLE, Dialect, Shape, shape
from spindle.shapes.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Cost,
    CustomMessage,
    Image,
    Message,
    Tagged,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    Wire,
)

Rows = Mapping[str, Shape | None]

_AS_IT_IS = None
_ANYTHING = frozenset[str]()


def _declared(*shapes: type[Wire | Message | Tagged]) -> frozenset[str]:
    return frozenset(field.encode_name for one in shapes for field in fields(one))


# -- messages: keys that other programs have written into a session are carried ----------------------

_ROLES = (
    UserMessage,
    AssistantMessage,
    ToolResultMessage,
    BashExecutionMessage,
    CustomMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
)
_MESSAGE_KEYS = (
    "content timestamp attachments api provider model stopReason errorMessage responseId responseModel toolCallId "
    "toolName isError command output exitCode cancelled truncated fullOutputPath excludeFromContext customType display "
    "summary fromId tokensBefore"
)
_BLOCK = shape(
    "type text textSignature data mimeType thinking thinkingSignature redacted id name arguments thoughtSignature",
    ours=_declared(Text, Image, Thinking, ToolCall),
)
_USAGE_KEYS = "input output cacheRead cacheWrite totalTokens"


def _message(keys: str = "", *, usage: str = "", cost: str = "", nulls: bool = False) -> Shape:
    """Return the shape of a message with more keys than pi 0.74 has; `nulls` says whether results show that there is
    no cut."""
    costs = shape(f"input output cacheRead cacheWrite total {cost}", ours=_declared(Cost))
    used = shape(f"{_USAGE_KEYS} {usage}", ours=_declared(Usage), cost=costs)
    details = {} if nulls else {"details": _NOT_CUT}
    names = f"{_MESSAGE_KEYS} {keys} details" if nulls else f"{_MESSAGE_KEYS} {keys}"
    found = shape(f"role {names}", ours=_declared(*_ROLES), usage=used, **details)
    return replace(found, keys={**found.keys, "content": _BLOCK})


# Where pi's documents show a null, pi itself leaves the key out; clients in Lua and Lisp would take a null for true.
_NOT_CUT = shape("truncation? fullOutputPath?", ours=_ANYTHING)
_MESSAGE_074 = _message()
_MESSAGE_XCSH = _message(nulls=True)
_MESSAGE_087 = _message("rawStopReason", usage="reasoning cacheWrite1h")
_MESSAGE_15 = _message("rawStopReason thinkingLevel", usage="reasoning cacheWrite1h", cost="totalFromProvider")
_MESSAGE_OMP = _message("rawStopReason", usage="reasoning cacheWrite1h", cost="totalFromProvider", nulls=True)

# -- models, and what commands answer ----------------------------------------------------------------

_MODEL_KEYS = "id name api provider baseUrl reasoning thinkingLevelMap input contextWindow maxTokens headers compat"
_COST_KEYS = "input output cacheRead cacheWrite tiers"
_MODEL = shape(f"{_MODEL_KEYS} samplingParams inputLimits promptCache", cost=shape(_COST_KEYS))
_STATE = (
    "thinkingLevel isStreaming isCompacting steeringMode followUpMode sessionFile sessionId sessionName "
    "autoCompactionEnabled messageCount"
)
_STATE_OF_XCSH = f"{_STATE} interruptMode queuedMessageCount todoPhases systemPrompt dumpTools"
_STATS = shape(
    "sessionFile sessionId userMessages assistantMessages toolCalls toolResults totalMessages tokens cost contextUsage"
)


def _usage(message: Shape) -> Shape:
    return message.keys["usage"] or shape()


def _entries(message: Shape) -> Rows:
    """Return the rows of entries of a session; keys of other programs in them are carried."""
    entry = replace(shape(message=message, usage=_usage(message)), ours=_ANYTHING)
    return {"entry": entry, "entry_appended": shape("type", entry=entry)}


_RESULT_074 = shape("summary firstKeptEntryId tokensBefore details")
_RESULT = shape("summary firstKeptEntryId tokensBefore details estimatedTokensAfter", usage=_usage(_MESSAGE_087))
_DISPOSITION = shape("disposition")
_BASH = "output exitCode cancelled truncated fullOutputPath"
_CHANGED = shape("cancelled")


def _answers(more: str = "", **data: Shape | None) -> dict[str, Shape | None]:
    """Return rows of responses: to a command → the shape of its `data`; None: there is none."""
    frame = f"id type command success error {more}"
    return {
        f"response {command}": shape(frame) if inner is None else shape(frame, data=inner)
        for command, inner in data.items()
    }


_ANSWERS = _answers(
    prompt=None,
    steer=None,
    follow_up=None,
    abort=None,
    abort_and_prompt=None,
    new_session=_CHANGED,
    switch_session=_CHANGED,
    clone=_CHANGED,
    fork=shape("text cancelled"),
    branch=shape("text cancelled"),
    set_model=_MODEL,
    cycle_model=shape("thinkingLevel isScoped", model=_MODEL),
    get_available_models=shape(models=_MODEL),
    get_session_stats=_STATS,
)
_ANSWERS_OF_PI = _ANSWERS | _answers(
    get_state=replace(shape(f"{_STATE} pendingMessageCount", model=_MODEL), unless_null=frozenset({"model"})),
    get_last_assistant_text=shape("text?"),
    get_commands=shape(commands=shape("name description source sourceInfo")),
    bash=shape(_BASH),
)

# -- events ------------------------------------------------------------------------------------------

_DIALOG = "type id method title timeout"
_DIALOGS: Rows = {
    "extension_ui_request select": shape(f"{_DIALOG} options"),
    "extension_ui_request confirm": shape(f"{_DIALOG} message"),
    "extension_ui_request input": shape(f"{_DIALOG} placeholder prefill"),
    "extension_ui_request editor": shape(f"{_DIALOG} prefill"),
    "extension_ui_request notify": shape("type id method message notifyType"),
    "extension_ui_request setStatus": shape("type id method statusKey statusText"),
    "extension_ui_request setWidget": shape("type id method widgetKey widgetLines widgetPlacement"),
    "extension_ui_request set_editor_text": shape("type id method text"),
}
_WITHDRAWN: Rows = {"extension_ui_request cancel": shape("type id method targetId")}
# A client gets these because it has asked for them: it has lent tools, negotiated, or opened a session.
_ASKED_FOR: Rows = {
    "host_tool_call": shape("type id toolCallId toolName arguments"),
    "host_tool_cancel": shape("type id targetId"),
    "host_uri_request": shape("type id operation url content"),
    "host_uri_cancel": shape("type id targetId"),
    "extension_ui_request open_url": shape("type id method url instructions"),
    "prompt_result": shape("type id agentInvoked status error sessionSettled"),
    "session_settled": shape("type"),
    "session_closed": shape("type reason"),
}
_SESSION: Rows = {"session": shape("type version id timestamp cwd parentSession")}
_RETRIES: Rows = {
    "auto_retry_start": shape("type attempt maxAttempts delayMs errorMessage"),
    "auto_retry_end": shape("type success attempt finalError"),
}
_FALLBACKS: Rows = {
    "retry_fallback_applied": shape("type from to role"),
    "retry_fallback_succeeded": shape("type model role"),
}
_READY: Rows = {
    "ready": shape("type version protocolVersion supportedProtocolVersions maxFrameBytes maxReassembledFrameBytes")
}
_OF_XCSH: Rows = {
    "notice": shape("type level message"),
    "todo_reminder": shape("type todos attempt maxAttempts"),
    "todo_auto_clear": shape("type"),
    "ttsr_triggered": shape("type rules"),
}


def _run(message: Shape, *, nulls: bool = False, new: bool = False, ends: str = "", took: str = "") -> Rows:
    """Return the rows of a run. `new`: updates name the call that begins, and the tokens so far."""
    result = partial = shape("content details terminate")
    if not nulls:
        result = shape("content terminate", details=_NOT_CUT)
        # The first update of bash says only that the command runs; pi has no block in it.
        partial = replace(result, keys={**result.keys, "content": Shape({}, ours=_ANYTHING, drops_empty=True)})
    piece = "type contentIndex delta content reason partial message error" + (" id toolName" if new else "")
    update = shape(
        "type usage" if new else "type", message=message, assistantMessageEvent=shape(piece, toolCall=_BLOCK)
    )
    return {
        "agent_start": shape("type"),
        "agent_end": shape(f"type {ends}", messages=message),
        "turn_start": shape("type"),
        "turn_end": shape("type", message=message, toolResults=message),
        "message_start": shape("type messageId", message=message),
        "message_update": update,
        "message_end": shape("type messageId", message=message),
        "tool_execution_start": shape("type toolCallId toolName args"),
        "tool_execution_update": shape("type toolCallId toolName args", partialResult=partial),
        "tool_execution_end": shape(f"type toolCallId toolName isError {took}", result=result),
        "extension_error": shape("type extensionPath event error"),
    }


def _compactions(prefix: str, keys: str, result: Shape, *, nulls: bool) -> Rows:
    ended = shape(f"type aborted willRetry errorMessage {keys}", result=result)
    return {
        f"{prefix}compaction_start": shape("type reason"),
        f"{prefix}compaction_end": ended if nulls else replace(ended, unless_null=frozenset({"result"})),
    }


_OF_PI: Rows = {
    **_DIALOGS,
    **WITH_TITLE,
    **_ASKED_FOR,
    **_SESSION,
    **_RETRIES,
    "queue_update": shape("type steering followUp"),
    "session_info_changed": shape("type name"),
    "thinking_level_changed": shape("type level"),
}
_SINCE_075: Rows = {
    "bash_execution_update": shape("type id delta"),
    "summarization_retry_scheduled": shape("type attempt maxAttempts delayMs errorMessage"),
    "summarization_retry_attempt_start": shape("type source reason"),
    "summarization_retry_finished": shape("type"),
}

_PI_074: Rows = {
    **_OF_PI,
    **_run(_MESSAGE_074),
    **_compactions("", "reason", _RESULT_074, nulls=False),
    **_ANSWERS_OF_PI,
    **_answers(compact=_RESULT_074, get_messages=shape(messages=_MESSAGE_074)),
}
_PI_087: Rows = {
    **_OF_PI,
    **_SINCE_075,
    **_run(_MESSAGE_087, new=True, ends="willRetry"),
    **_compactions("", "reason", _RESULT, nulls=False),
    "agent_settled": shape("type"),
    **_entries(_MESSAGE_087),
    **_ANSWERS_OF_PI,
    **_answers(compact=_RESULT, get_messages=shape(messages=_MESSAGE_087)),
}
_PI_15: Rows = {
    **_PI_087,
    **_run(_MESSAGE_15, new=True, ends="willRetry", took="durationMs"),
    "agent_settled": shape("type aborted"),
    **_entries(_MESSAGE_15),
    **_answers(
        prompt=_DISPOSITION,
        steer=_DISPOSITION,
        follow_up=_DISPOSITION,
        get_messages=shape(messages=_MESSAGE_15),
    ),
}
_XCSH: Rows = {
    **_READY,
    **_DIALOGS,
    **_WITHDRAWN,
    **_ASKED_FOR,
    **_SESSION,
    **_RETRIES,
    **_OF_XCSH,
    **_FALLBACKS,
    **_run(_MESSAGE_XCSH, nulls=True),
    **_compactions("auto_", "", _RESULT_074, nulls=True),
    ANSWER_EDGES: _AS_IT_IS,
    **_ANSWERS,
    **_answers(
        get_state=shape(_STATE_OF_XCSH, model=_MODEL),
        compact=_RESULT_074,
        get_messages=shape(messages=_MESSAGE_XCSH),
        bash=shape(f"{_BASH} totalLines totalBytes outputLines outputBytes"),
    ),
}
_OF_OMP: Rows = {
    **_XCSH,
    **WITH_TITLE,
    **_run(_MESSAGE_OMP, nulls=True, new=True),
    **_compactions("auto_", "", _RESULT, nulls=True),
    "entry": _entries(_MESSAGE_OMP)["entry"],
    "thinking_level_changed": shape("type level"),
    "subagent_lifecycle": shape("type payload"),
    "subagent_progress": shape("type payload"),
    "subagent_event": shape("type payload"),
    "available_commands_update": shape("type commands"),
    # Not of oh-my-pi: other programs, too, negotiate version 2, and wait for it.
    "agent_settled": shape("type aborted stopReason errorMessage background"),
    **_answers(
        get_state=replace(
            shape(f"{_STATE_OF_XCSH} isSettled contextUsage", model=_MODEL), in_lists=frozenset({"systemPrompt"})
        ),
        compact=_RESULT,
        get_messages=shape(messages=_MESSAGE_OMP),
        get_messages_page=shape("totalMessages nextCursor", messages=_MESSAGE_OMP),
    ),
}

_OMP: Rows = {
    name: replace(row, keys={**row.keys, "code": None}) if row is not None and name.startswith("response ") else row
    for name, row in _OF_OMP.items()
}

OMP = Dialect("omp", _OMP)
"""Also spoken to clients that negotiate version 2 and have chosen no dialect."""
NEIGHBOURS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("pi-0.74", _PI_074),
        Dialect("pi-0.87", _PI_087, updates="delta", splits_runs=True),
        Dialect("pi-1.5", _PI_15, updates="delta", splits_runs=True),
        Dialect("xcsh", _XCSH, interrupt_mode="wait", bare_faults=True),
        OMP,
    )
}
