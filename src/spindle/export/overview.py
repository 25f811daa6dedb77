"""What the page says about a session as a whole: figures over every branch, labels, and the active path.

One pass over the entries, no recursion, and nothing is believed: a session may come from a stranger, so
every value is checked before it is counted or shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

__all__ = ["Overview", "as_dict", "as_list", "as_text", "content_text"]

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
    """Figures that grow with every entry added; of the entries themselves only ids and places are kept."""

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
    started: str = ""
    ended: str = ""
    _places: dict[str, int] = field(default_factory=dict)
    """Entry id → which entry of the file it is; of two with one id the later counts."""
    _parents: list[str] = field(default_factory=list)
    """Parent id of each entry of the file."""
    _shown: bytearray = field(default_factory=bytearray)
    """Whether each entry has something to read."""

    def add(self, entry: Entry) -> None:
        """Count the next entry of the file."""
        self._places[as_text(entry.get("id"))] = len(self._parents)
        self._parents.append(as_text(entry.get("parentId")))
        self._shown.append(_is_shown(entry))
        time = as_text(entry.get("timestamp"))
        if time:
            self.started = min(self.started or time, time)
            self.ended = max(self.ended, time)
        _count(entry, self)

    @property
    def branches(self) -> int:
        """How many entries have nothing below them."""
        return len(self._places.keys() - set(self._parents))

    def path(self, leaf_id: str | None) -> list[int]:
        """Return which entries of the file a reader finds between the root and the leaf."""
        path: list[int] = []
        seen: set[int] = set()
        place = self._places.get(as_text(leaf_id))
        # A damaged file may hold a circle of parents; the walk ends where it would begin again.
        while place is not None and place not in seen:
            seen.add(place)
            path.append(place)
            place = self._places.get(self._parents[place])
        return [place for place in reversed(path) if self._shown[place]]


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


def _is_shown(entry: Entry) -> bool:
    if entry.get("type") == "custom_message":
        return entry.get("display") is not False
    return entry.get("type") in ("message", "compaction", "branch_summary")


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
