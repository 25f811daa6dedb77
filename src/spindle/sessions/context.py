"""What a model gets to see of a session: the path from the root to the leaf, as messages.

The last compaction on the path replaces what came before it, except the part it kept. Entries of newer
programs that hide or replace a message (`context_edit`) are honoured.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from spindle.sessions.entries import Entry, collector_paused, parse_time
from spindle.shapes.content import Text, ToolCall
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    OpaqueMessage,
    ToolResultMessage,
    UserMessage,
    message_from_value,
)

__all__ = [
    "SessionContext",
    "build_context",
    "entry_message",
    "model_in_force",
    "results_in_call_order",
    "thinking_level_in_force",
]


class SessionContext(msgspec.Struct):
    messages: list[AgentMessage] = []
    thinking_level: str = "off"
    model: tuple[str, str] | None = None
    """Provider and model id."""
    entry_ids: list[str] = []
    """The entry that each message comes from."""


def build_context(path: Sequence[Entry]) -> SessionContext:
    """Return the messages of `path` (root first) and the model and thinking level in force at its end."""
    marks = [entry for entry in path if entry.type != "message"]  # few, in a long session
    context = SessionContext(thinking_level=thinking_level_in_force(marks) or "off", model=model_in_force(path))
    with collector_paused():
        chosen = _choose(path, marks)
        edits = _edits(chosen) if any(entry.type == "context_edit" for entry in marks) else {}
        for entry in chosen:
            message = entry.message if entry.type == "message" else entry_message(entry)
            if message is None or (type(message) is OpaqueMessage and message.value is None):
                continue
            if entry.id in edits:
                message = _edited(message, edits[entry.id])
                if message is None:
                    continue
            elif entry.type == "compaction":
                _add_checkpoint(entry, context)
            context.messages.append(message)
            context.entry_ids.append(entry.id)
    order = results_in_call_order(context.messages)
    context.messages = [context.messages[at] for at in order]
    context.entry_ids = [context.entry_ids[at] for at in order]
    return context


def results_in_call_order(messages: Sequence[AgentMessage]) -> list[int]:
    """Return the places of the messages with the results of each answer sorted by its calls.

    The file has them in the order in which they ended.
    """
    order = list(range(len(messages)))
    for index, answer in enumerate(messages):
        calls = (
            [b.id for b in answer.content if isinstance(b, ToolCall)] if isinstance(answer, AssistantMessage) else []
        )
        if len(calls) < 2:
            continue
        places = []
        for at in range(index + 1, len(messages)):
            message = messages[at]
            if isinstance(message, ToolResultMessage) and message.tool_call_id in calls:
                places.append((calls.index(message.tool_call_id), at))
            elif isinstance(message, AssistantMessage | UserMessage):
                break
        for (_, at), (_, found) in zip(places, sorted(places), strict=True):
            order[at] = found
    return order


def entry_message(entry: Entry) -> AgentMessage | None:
    """Return what one entry contributes by itself: a message, a summary, or nothing."""
    if entry.type == "message":
        return entry.message
    if entry.type == "custom_message":
        return message_from_value({**entry.value, "role": "custom", "timestamp": parse_time(entry.timestamp)})
    if entry.type == "branch_summary":
        value = entry.value
        summary, origin = value.get("summary"), value.get("fromId")
        if not isinstance(summary, str) or not summary:
            return None
        return BranchSummaryMessage(summary, origin if isinstance(origin, str) else "root", parse_time(entry.timestamp))
    if entry.type == "compaction":
        value = entry.value
        summary, tokens = value.get("summary"), value.get("tokensBefore")
        return CompactionSummaryMessage(
            summary if isinstance(summary, str) else "",
            tokens if isinstance(tokens, (int, float)) else 0,
            parse_time(entry.timestamp),
        )
    return None


def _choose(path: Sequence[Entry], marks: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries that count: all of them, or a compaction, what it kept, and what followed it."""
    compaction = next((entry for entry in reversed(marks) if entry.type == "compaction"), None)
    if compaction is None:
        return path
    at = path.index(compaction)
    first_kept = compaction.value.get("firstKeptEntryId")
    start = next((index for index in range(at) if path[index].id == first_kept), at)
    # An older compaction says nothing any more, and the system prompt of the time is not part of what was kept.
    kept = [e for e in islice(path, start, at) if e.type != "compaction" and not _is_system(e)]
    return [compaction, *kept, *islice(path, at + 1, None)]


def _is_system(entry: Entry) -> bool:
    return entry.type == "message" and isinstance(entry.message, OpaqueMessage) and entry.message.role == "system"


def _add_checkpoint(compaction: Entry, context: SessionContext) -> None:
    """Put the system message that a newer program stored with its compaction before the summary."""
    system = compaction.value.get("systemMessage")
    if isinstance(system, dict):
        context.messages.append(message_from_value(system))
        context.entry_ids.append(compaction.id)


def _edits(entries: Sequence[Entry]) -> dict[Any, Any]:
    """Return what is to replace the content of which entry."""
    values = [entry.value for entry in entries if entry.type == "context_edit"]
    return {value.get("targetId"): value.get("replacement", ...) for value in values}


def _edited(message: AgentMessage, replacement: Any) -> AgentMessage | None:
    """Return the message with other content; None if it is to be left out."""
    if replacement is None:
        return None
    content = replacement.get("content") if isinstance(replacement, dict) else None
    if not isinstance(content, (str, list)):
        return message
    if not isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)):
        return message
    if isinstance(content, str) and isinstance(message, (AssistantMessage, ToolResultMessage)):
        content = [Text(content)]
    return message_from_value({**msgspec.to_builtins(message), "content": msgspec.to_builtins(content)})


def thinking_level_in_force(path: Sequence[Entry]) -> str | None:
    """Return the level that was set last, if any was."""
    for entry in reversed(path):
        if entry.type == "thinking_level_change":
            level = entry.value.get("thinkingLevel")
            return level if isinstance(level, str) else "off"
    return None


def model_in_force(path: Sequence[Entry]) -> tuple[str, str] | None:
    """Return the last model that was chosen or that answered, also before a compaction."""
    for entry in reversed(path):
        provider = model = None
        if entry.type == "model_change":
            value = entry.value
            provider, model = value.get("provider"), value.get("modelId")
        elif entry.type == "message":
            message = entry.message
            if isinstance(message, AssistantMessage):
                return message.provider, message.model
            if isinstance(message, OpaqueMessage) and message.role == "assistant":
                provider, model = message.value.get("provider"), message.value.get("model")
        if isinstance(provider, str) and isinstance(model, str):
            return provider, model
    return None
