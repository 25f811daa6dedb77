"""The timeline of a stored session: when it was prompted, which models and tools worked, for how long, at what cost.

It is read from the session file, so it is there for every session, whichever program wrote it. It holds names and
numbers, not what was said.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from spindle.sessions.entries import Entry, iso_time, parse_time
from spindle.sessions.tree import entry_message
from spindle.shapes import messages

_CHANGES = {
    "model_change": ("provider", "modelId"),
    "thinking_level_change": ("thinkingLevel",),
    "compaction": ("tokensBefore",),
    "branch_summary": ("fromId",),
}
"""Entries without a message that are part of the story, and their keys to show."""


def timeline(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Yield what happened, in the order of the file: `time`, `kind`, `entry`, and what is known of it.

    `seconds` is how long it took: of a tool, since the answer that called it.
    """
    called: dict[str, int] = {}
    """When the answer with a tool call was complete."""
    for entry in entries:
        ended = parse_time(entry.timestamp)
        message = entry_message(entry) if entry.type == "message" else None
        facts = _changed(entry) if message is None else _happened(message, ended, called)
        if facts is not None:
            when = {"time": None if ended is None else iso_time(ended)}
            known = {name: value for name, value in facts.items() if value is not None}
            yield {**when, **known, "entry": entry.id}


def _changed(entry: Entry) -> dict[str, Any] | None:
    if entry.type not in _CHANGES:
        return None
    value = entry.value
    return {"kind": entry.type, **{name: value.get(name) for name in _CHANGES[entry.type]}}


def _happened(message: messages.AgentMessage, ended: int | None, called: dict[str, int]) -> dict[str, Any] | None:
    match message:
        case messages.UserMessage(content=content):
            blocks = messages.blocks_of(content)
            images = sum(isinstance(block, messages.Image) for block in blocks)
            return {"kind": "prompt", "characters": len(messages.text_of(content)), "images": images or None}
        case messages.AssistantMessage() as answer:
            calls = [block.id for block in answer.content if isinstance(block, messages.ToolCall)]
            if ended is not None:
                called.update(dict.fromkeys(calls, ended))
            usage = answer.usage
            return {
                "kind": "chat",
                "seconds": _seconds(answer.timestamp, ended),
                "model": f"{answer.provider}/{answer.model}",
                "stopReason": answer.stop_reason,
                "toolCalls": len(calls) or None,
                "inputTokens": usage.input,
                "outputTokens": usage.output,
                "cacheReadTokens": usage.cache_read or None,
                "cacheWriteTokens": usage.cache_write or None,
                "cost": None if usage.cost.source == "unknown" else usage.cost.total,
            }
        case messages.ToolResultMessage() as result:
            began = called.get(result.tool_call_id)
            return {
                "kind": "tool",
                "seconds": None if began is None else _seconds(began, ended),
                "tool": result.tool_name,
                "failed": result.is_error or None,
            }
        case messages.BashExecutionMessage() as command:
            return {"kind": "bash", "exitCode": command.exit_code}
    return None


def _seconds(began: float, ended: int | None) -> float | None:
    return None if ended is None or not 0 < began <= ended else (ended - began) / 1000


def as_line(happened: dict[str, Any]) -> str:
    """Return a line for people."""
    first = ("time", "seconds", "kind")
    seconds = happened.get("seconds")
    took = "" if seconds is None else f"{seconds:.3f} s"
    rest = " ".join(" ".join(f"{name}={value}" for name, value in happened.items() if name not in first).split())
    return f"{happened['time'] or '?':<24} {took:>11}  {happened['kind']:<10} {rest}"
