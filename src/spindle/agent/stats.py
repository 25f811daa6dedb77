"""Figures about a whole session file: every branch, summaries included."""

from collections.abc import Sequence
from typing import Any

import msgspec

from spindle.sessions.entries import Entry
from spindle.shapes.content import ToolCall, Wire
from spindle.shapes.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage

__all__ = ["ContextUsage", "SessionStats", "StatsCounter", "TokenTotals"]


class TokenTotals(Wire, omit_defaults=False):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0


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
    context_usage: ContextUsage | None = None


class StatsCounter:
    """Counts entries once; asking again costs only what is new."""

    def __init__(self) -> None:
        self.seen = 0
        """Entries that are counted."""
        self.user = self.assistant = self.calls = self.results = self.messages = 0
        self.tokens = TokenTotals()
        self.cost: int | float = 0

    def catch_up(self, entries: Sequence[Entry]) -> None:
        for index in range(self.seen, len(entries)):
            self._count(entries[index])
        self.seen = len(entries)

    def _count(self, entry: Entry) -> None:
        if entry.type in ("compaction", "branch_summary"):
            self._count_usage(_usage_of(entry.value))
        elif entry.type == "custom_message":
            self.messages += 1
        if entry.type != "message":
            return
        message = entry.message
        self.messages += 1
        if isinstance(message, UserMessage):
            self.user += 1
        elif isinstance(message, ToolResultMessage):
            self.results += 1
        elif isinstance(message, AssistantMessage):
            self.assistant += 1
            self.calls += sum(isinstance(block, ToolCall) for block in message.content)
            self._count_usage(message.usage)

    def _count_usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        totals = self.tokens
        totals.input += usage.input
        totals.output += usage.output
        totals.cache_read += usage.cache_read
        totals.cache_write += usage.cache_write
        totals.total += usage.input + usage.output + usage.cache_read + usage.cache_write
        self.cost += usage.cost.total


def _usage_of(value: dict[str, Any]) -> Usage | None:
    try:
        return msgspec.convert(value.get("usage"), Usage | None)
    except msgspec.ValidationError:
        return None
