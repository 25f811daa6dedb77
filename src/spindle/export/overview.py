"""What the page says about a session as a whole: figures over every branch, labels, and the active path.

One pass over the entries, no recursion, and nothing is believed: a session may come from a stranger, so
every value is checked before it is counted or shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

__all__ = ["Overview", "as_dict", "as_list", "as_text", "content_text", "look_over"]

Entry = Mapping[str, Any]

_MESSAGE_KINDS = {
    "user": "user",
    "assistant": "assistant",
    "toolResult": "tool result",
    "bashExecution": "command",
    "custom": "custom",
}
_ENTRY_KINDS = {"custom_message": "custom", "compaction": "compaction", "branch_summary": "branch summary"}


@dataclass(slots=True)
class Overview:
    counts: dict[str, int] = field(default_factory=dict)
    """Kind → how many, over every branch, in the order in which the kinds first occur."""
    tool_calls: int = 0
    models: dict[str, None] = field(default_factory=dict)
    """An ordered set of `provider/model`, those that answered."""
    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    cost: float = 0
    labels: dict[str, str] = field(default_factory=dict)
    """Entry id → the label in force: the last one in file order, cleared ones left out."""
    branches: int = 0
    """How many entries have nothing below them."""
    started: str = ""
    ended: str = ""
    path: list[Entry] = field(default_factory=list)
    """The entries from the root to the leaf."""


def look_over(entries: Sequence[Entry], leaf_id: str | None) -> Overview:
    """Count a session and find its active path."""
    overview = Overview()
    by_id: dict[str, Entry] = {}
    parents: set[str] = set()
    for entry in entries:
        by_id[as_text(entry.get("id"))] = entry
        parents.add(as_text(entry.get("parentId")))
        _count(entry, overview)
    overview.branches = sum(entry_id not in parents for entry_id in by_id)
    overview.path = _path(by_id, leaf_id)
    times = [time for time in (as_text(entry.get("timestamp")) for entry in entries) if time]
    overview.started, overview.ended = min(times, default=""), max(times, default="")
    return overview


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def content_text(content: Any) -> str:
    """Return the text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = (as_text(block.get("text")) for block in map(as_dict, as_list(content)) if block.get("type") == "text")
    return "\n".join(text for text in texts if text)


def _path(by_id: Mapping[str, Entry], leaf_id: str | None) -> list[Entry]:
    path: list[Entry] = []
    seen: set[str] = set()
    entry_id = leaf_id
    # A damaged file may hold a circle of parents; the walk ends where it would begin again.
    while isinstance(entry_id, str) and entry_id in by_id and entry_id not in seen:
        seen.add(entry_id)
        path.append(by_id[entry_id])
        entry_id = by_id[entry_id].get("parentId")
    path.reverse()
    return path


def _count(entry: Entry, overview: Overview) -> None:
    kind = as_text(entry.get("type"))
    if kind == "message":
        _count_message(as_dict(entry.get("message")), overview)
        return
    if kind in _ENTRY_KINDS:
        _add_one(overview, _ENTRY_KINDS[kind])
    elif kind == "label":
        target, label = as_text(entry.get("targetId")), as_text(entry.get("label"))
        if label:
            overview.labels[target] = label
        else:
            overview.labels.pop(target, None)
    # Summaries and, in newer files, entries of their own carry the cost of side requests.
    _count_usage(entry.get("usage"), overview)


def _count_message(message: Mapping[str, Any], overview: Overview) -> None:
    role = as_text(message.get("role"))
    _add_one(overview, _MESSAGE_KINDS.get(role, "other"))
    if role != "assistant":
        return
    overview.tool_calls += sum(as_dict(block).get("type") == "toolCall" for block in as_list(message.get("content")))
    model = "/".join(part for part in (as_text(message.get("provider")), as_text(message.get("model"))) if part)
    if model:
        overview.models[model] = None
    _count_usage(message.get("usage"), overview)


def _add_one(overview: Overview, kind: str) -> None:
    overview.counts[kind] = overview.counts.get(kind, 0) + 1


def _count_usage(value: Any, overview: Overview) -> None:
    usage = as_dict(value)
    overview.input += _number(usage.get("input"))
    overview.output += _number(usage.get("output"))
    overview.cache_read += _number(usage.get("cacheRead"))
    overview.cache_write += _number(usage.get("cacheWrite"))
    overview.cost += _number(as_dict(usage.get("cost")).get("total"))


def _number(value: Any) -> float:
    """Return a sane number; what is none, not finite or absurd counts as nothing."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and 0 <= value < 1e15:
        return value
    return 0
