"""The dialects, ours and those of neighbours: the events and keys that each of them leaves out."""

from collections.abc import Mapping

from msgspec.structs import replace

from spindle.protocol.dialect import ANSWER_EDGES, EVENTS_FOR_OTHERS, SPINDLE, TITLE, Dialect, Path


def _keys(*lists: Mapping[str, str], **more: str) -> dict[str, tuple[Path, ...]]:
    """Read `agent_end="willRetry", response_compact="data.usage data.…"`; keys of a name in several lists add up."""
    found: dict[str, tuple[Path, ...]] = {}
    for name, paths in (item for one in (*lists, more) for item in one.items()):
        name = name.replace("response_", "response ")
        found[name] = found.get(name, ()) + tuple(tuple(path.split(".")) for path in paths.split())
    return found


# Keys of assistant messages that are newer than pi 0.74, in events and responses.
_NEW_IN_MESSAGES = (
    "{0}.rawStopReason {0}.usage.reasoning {0}.usage.cacheWrite1h "
    "{0}.usage.cost.totalFromProvider {0}.usage.cost.unknown"
)
_MESSAGE, _MESSAGES = _NEW_IN_MESSAGES.format("message"), _NEW_IN_MESSAGES.format("messages")

# Keys that only Spindle adds to these events.
_EVENTS_WITH_MORE = {
    "message_end": "entryId",
    "queue_update": "items",
    "extension_ui_request confirm": "toolCallId always offers",
    "extension_ui_request select": "toolCallId always",
}

# Keys that neither pi 0.74 nor xcsh sends.
_KEYS_BEFORE_0_75 = {
    "agent_end": f"willRetry {_MESSAGES}",
    "message_start": _MESSAGE,
    "message_update": f"usage assistantMessageEvent.id assistantMessageEvent.toolName {_MESSAGE}",
    **_EVENTS_WITH_MORE,
    "message_end": f"entryId {_MESSAGE}",
    "turn_end": _MESSAGE,
    "tool_execution_end": "durationMs",
    "extension_error": "traceback",
    "response_prompt": "data",
    "response_abort_and_prompt": "data",
    "response_steer": "data",
    "response_follow_up": "data",
    "response_compact": "data.estimatedTokensAfter data.usage",
    "response_get_messages": _NEW_IN_MESSAGES.format("data.messages"),
}
_EVENTS_AFTER_0_74 = {
    "agent_settled",
    "bash_execution_update",
    "entry_appended",
    "summarization_retry_attempt_start",
    "summarization_retry_finished",
    "summarization_retry_scheduled",
}
_EVENTS_OF_SPINDLE = {"background_end", "background_start", "permission_denied", "subagent_event"}
_EVENTS_OF_XCSH = {
    "auto_compaction_end",
    "auto_compaction_start",
    "notice",
    "ready",
    "todo_auto_clear",
    "todo_reminder",
    "ttsr_triggered",
}
# Keys of get_state that only Spindle has; `_STATE_OF_XCSH` below has those that xcsh has as well.
_STATE_OF_SPINDLE = (
    "data.approval data.autoRetryEnabled data.background data.contextUsage data.isSettled data.mcpServers "
    "data.permissionMode data.queue data.queueItems data.sandbox data.saveError data.sessionSaved "
    "data.untrustedResources"
)
_STATS_OF_SPINDLE = "data.costSource data.subagents"
_WITHDRAWN = "extension_ui_request cancel"
_STATE_OF_XCSH = "data.dumpTools data.interruptMode data.queuedMessageCount data.systemPrompt data.todoPhases"
_BASH_OF_XCSH = "data.totalLines data.totalBytes data.outputLines data.outputBytes"
_COMMANDS_OF_SEEDS = "data.commands.location data.commands.path"
# Where pi's documents show a null, pi itself leaves the key out; clients in Lua and Lisp would take a null for true.
_NULL_IF_NOT_CUT = "{0}.details.truncation? {0}.details.fullOutputPath?"
_NOT_CUT = {
    # The first update of bash says only that the command runs; pi has no block in it.
    "tool_execution_update": f"partialResult.content* {_NULL_IF_NOT_CUT.format('partialResult')}",
    "tool_execution_end": _NULL_IF_NOT_CUT.format("result"),
    "message_start": _NULL_IF_NOT_CUT.format("message"),
    "message_end": _NULL_IF_NOT_CUT.format("message"),
    "turn_end": _NULL_IF_NOT_CUT.format("toolResults"),
    "agent_end": _NULL_IF_NOT_CUT.format("messages"),
    "response_get_messages": _NULL_IF_NOT_CUT.format("data.messages"),
}
_ANSWERS_OF_PI = {
    "response_get_last_assistant_text": "data.text?",
    "response_get_session_stats": _STATS_OF_SPINDLE,
    "response_get_state": f"data.model? {_STATE_OF_SPINDLE} {_STATE_OF_XCSH}",
    "response_bash": _BASH_OF_XCSH,
    "response_get_commands": _COMMANDS_OF_SEEDS,
}

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        SPINDLE,
        Dialect(
            "pi-0.74",
            events=frozenset(
                _EVENTS_AFTER_0_74
                | _EVENTS_OF_XCSH
                | EVENTS_FOR_OTHERS
                | _EVENTS_OF_SPINDLE
                | {_WITHDRAWN, ANSWER_EDGES}
            ),
            keys=_keys(
                _KEYS_BEFORE_0_75,
                _ANSWERS_OF_PI,
                _NOT_CUT,
                compaction_end="result? result.estimatedTokensAfter result.usage",
            ),
        ),
        Dialect(
            "pi-0.87",
            updates="delta",
            splits_runs=True,
            events=frozenset(_EVENTS_OF_XCSH | EVENTS_FOR_OTHERS | _EVENTS_OF_SPINDLE | {_WITHDRAWN, ANSWER_EDGES}),
            keys=_keys(
                _EVENTS_WITH_MORE,
                _ANSWERS_OF_PI,
                _NOT_CUT,
                agent_settled="aborted stopReason errorMessage background",
                compaction_end="result?",
                extension_error="traceback",
                tool_execution_end="durationMs",
                response_prompt="data",
                response_abort_and_prompt="data",
                response_steer="data",
                response_follow_up="data",
            ),
        ),
        Dialect(
            "xcsh",
            interrupt_mode="wait",
            bare_faults=True,
            events=frozenset(
                _EVENTS_AFTER_0_74
                | EVENTS_FOR_OTHERS
                | _EVENTS_OF_SPINDLE
                | {
                    TITLE,
                    "compaction_end",
                    "compaction_start",
                    "queue_update",
                    "session_info_changed",
                    "thinking_level_changed",
                }
            ),
            keys=_keys(
                {name: keys for name, keys in _KEYS_BEFORE_0_75.items() if name != "queue_update"},
                auto_compaction_end="reason result.estimatedTokensAfter result.usage",
                response_get_session_stats=_STATS_OF_SPINDLE,
                response_get_state=f"{_STATE_OF_SPINDLE} data.pendingMessageCount",
            ),
        ),
    )
}


def find_dialect(name: str, env: Mapping[str, str]) -> Dialect:
    """Return the dialect for the only client of an agent, without the events that tell clients about each other.

    `PI_RPC_EMIT_TITLE` in `env` overrides whether titles are sent.
    """
    dialect = DIALECTS[name]
    unknown = dialect.events | EVENTS_FOR_OTHERS
    wanted = env.get("PI_RPC_EMIT_TITLE", "").strip().lower()
    if wanted in ("1", "true", "yes", "on"):
        unknown -= {TITLE}
    elif wanted in ("0", "false", "no", "off"):
        unknown |= {TITLE}
    return replace(dialect, events=unknown)
