"""The page before, or without, its script: figures of the whole session, and the active branch as plain HTML.

A session may come from a stranger, so every value is checked before it is counted or shown, everything passes through
`escape`, and nothing here is recursive. Long branches are cut in the middle and long texts at their end; the whole
session is in the page's data and in the view that the script makes of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

from msgspec import Struct, field

from spindle.shapes.builtin_tools import kind_of
from spindle.shapes.codec import decode

Entry = Mapping[str, Any]

_MESSAGE_KINDS = {
    "user": "user",
    "assistant": "assistant",
    "toolResult": "tool result",
    "bashExecution": "command",
    "custom": "custom",
}
_ENTRY_KINDS = {"custom_message": "custom", "compaction": "compaction", "branch_summary": "branch summary"}

HEAD, TAIL = 60, 140
"""Messages shown at the beginning and at the end of a long branch."""
TEXT_LIMIT = 12_000
OUTPUT_LIMIT = 3_000
"""Characters of one message and of one tool's output."""
TOTAL_LIMIT = 400_000

_ROLE_NAMES = {"user": "User", "assistant": "Assistant", "toolResult": "Tool result", "bashExecution": "Command"}


class Overview(Struct):
    """Figures that grow with every entry added; of the entries themselves only ids and places are kept."""

    counts: Counter[str] = field(default_factory=Counter)
    """Kind → how many, over every branch, in the order in which the kinds first occur."""
    tool_calls: int = 0
    models: dict[str, None] = {}
    """An ordered set: `provider/model` of every model that answered."""
    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    cost: float = 0
    """US dollars, as far as known."""
    cost_unknown: bool = False
    """Whether some cost is not known."""
    labels: dict[str, str] = {}
    """Entry id → the label in force: the last one in file order, cleared ones left out."""
    started: str = ""
    ended: str = ""
    _places: dict[str, int] = {}
    """Entry id → its place in the file; of two entries with the same id the later counts."""
    _parents: list[str] = []
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
        """Return the places of the entries from the root to the leaf that have something to read."""
        path: list[int] = []
        seen: set[int] = set()
        place = self._places.get(as_text(leaf_id))
        # A damaged file may hold a circle of parents; the walk ends where it would begin again.
        while place is not None and place not in seen:
            seen.add(place)
            path.append(place)
            place = self._places.get(self._parents[place])
        return [place for place in reversed(path) if self._shown[place]]


class Story(Struct):
    """The active branch in short."""

    question: str = ""
    """The first message of the user."""
    outcome: str = ""
    """The last answer that was given to its end; if there is none, the last text of the model."""
    failure: str = ""
    """How the last answer failed, if it did."""
    files: list[str] = []
    """Files changed by the tools `write` and `edit`, in order."""
    _said: str = ""
    """The last text of the model."""

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> "Story":
        story, calls = cls(), dict[str, str]()
        for line in lines:
            if b'"message"' in line:
                story._take(as_dict(as_dict(decode(line)).get("message")), calls)
        story.outcome = story.outcome or story._said
        return story

    def _take(self, message: Mapping[str, Any], calls: dict[str, str]) -> None:
        role, text = message.get("role"), content_text(message.get("content")).strip()
        if role == "user":
            self.question = self.question or text
        elif role == "assistant":
            self._said = text or self._said
            if message.get("stopReason") in ("stop", "length"):
                self.outcome = text or self.outcome
            self.failure = _failure(message)
            for block in map(as_dict, as_list(message.get("content"))):
                if block.get("type") == "toolCall" and kind_of(as_text(block.get("name"))) == "edit":
                    calls[as_text(block.get("id"))] = as_text(as_dict(block.get("arguments")).get("path"))
        elif role == "toolResult" and message.get("isError") is not True:
            path = calls.get(as_text(message.get("toolCallId")))
            if path and path not in self.files:
                self.files.append(path)


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
        overview.counts[_ENTRY_KINDS[kind]] += 1
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
    overview.counts[_MESSAGE_KINDS.get(role, "other")] += 1
    if role != "assistant":
        return
    overview.tool_calls += sum(as_dict(block).get("type") == "toolCall" for block in as_list(message.get("content")))
    model = "/".join(part for part in (as_text(message.get("provider")), as_text(message.get("model"))) if part)
    if model:
        overview.models[model] = None
    _count_usage(message.get("usage"), overview)


def _count_usage(value: Any, overview: Overview) -> None:
    usage = as_dict(value)
    overview.input += _number(usage.get("input"))
    overview.output += _number(usage.get("output"))
    overview.cache_read += _number(usage.get("cacheRead"))
    overview.cache_write += _number(usage.get("cacheWrite"))
    cost = as_dict(usage.get("cost"))
    overview.cost += _number(cost.get("total"))
    overview.cost_unknown |= cost.get("unknown") is True


def _number(value: Any) -> float:
    """Return a sane number; 0 for a value that is not a number, not finite or absurd."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and 0 <= value < 1e15:
        return value
    return 0


# -- the active branch ---------------------------------------------------------------------------


def transcript_html(lines: Sequence[bytes], labels: Mapping[str, str]) -> str:
    """Return the articles of a branch, whose entries are lines of JSON."""
    articles: list[str] = []
    room = TOTAL_LIMIT
    for index, line in enumerate(lines):
        if HEAD <= index < len(lines) - TAIL:
            if index == HEAD:
                articles.append(_gap(len(lines) - TAIL - HEAD))
            continue
        article = _article(decode(line), labels)
        room -= len(article)
        if room < 0:
            articles.append(_gap(len(lines) - index))
            break
        articles.append(article)
    return "\n".join(articles)


def _gap(count: int) -> str:
    return f'<p class="gap">{count:,} messages are left out of this plain view.</p>'


def _article(entry: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    kind, title, parts = _describe(entry)
    label = labels.get(as_text(entry.get("id")))
    badge = f' <span class="label">{escape(label)}</span>' if label else ""
    stamp = as_text(entry.get("timestamp"))
    when = f'<time datetime="{escape(stamp)}">{escape(stamp[:16].replace("T", " "))} UTC</time>' if stamp else ""
    head = f'<header class="head"><h2 class="who">{escape(title)}</h2>{badge} {when}</header>'
    return f'<article class="item {kind}">{head}{"".join(parts)}</article>'


def _describe(entry: Mapping[str, Any]) -> tuple[str, str, Sequence[str]]:
    """Return the CSS class, the heading and the parts of one entry."""
    kind = entry.get("type")
    if kind == "compaction":
        return "summary", "Compaction", [_text(as_text(entry.get("summary")))]
    if kind == "branch_summary":
        return "summary", "Branch summary", [_text(as_text(entry.get("summary")))]
    if kind == "custom_message":
        return "custom", as_text(entry.get("customType")) or "Custom", list(_content(entry.get("content")))
    message = as_dict(entry.get("message"))
    role = as_text(message.get("role"))
    title = _ROLE_NAMES.get(role, role or "Message")
    if role == "assistant":
        return "assistant", title, list(_assistant(message))
    if role == "toolResult":
        title = as_text(message.get("toolName")) or title
        if message.get("isError") is True:
            title += " (failed)"
        diff = as_text(as_dict(message.get("details")).get("diff"))
        shown = _diff(diff) if diff and message.get("isError") is not True else ""
        return "tool-result", title, [shown or _output(content_text(message.get("content")))]
    if role == "bashExecution":
        return "command", title, list(_command(message))
    return ("user" if role == "user" else "custom"), title, list(_content(message.get("content")))


def _assistant(message: Mapping[str, Any]) -> Iterator[str]:
    for block in map(as_dict, as_list(message.get("content"))):
        if block.get("type") == "text":
            yield _text(as_text(block.get("text")))
        elif block.get("type") == "thinking":
            thinking = _text(as_text(block.get("thinking")))
            yield f'<details class="thinking"><summary>Thinking</summary>{thinking}</details>'
        elif block.get("type") == "toolCall":
            yield f'<p class="call"><code>{escape(_call(block))}</code></p>'
    if failure := _failure(message):
        yield f'<p class="fault">{escape(failure)}</p>'


def _failure(message: Mapping[str, Any]) -> str:
    """Say how an answer failed; empty if it did not."""
    if message.get("stopReason") == "aborted":
        return "Aborted"
    failed = message.get("stopReason") == "error"
    return f"Error: {as_text(message.get('errorMessage')) or 'unknown'}" if failed else ""


def _call(block: Mapping[str, Any]) -> str:
    """Name a tool call in a line."""
    arguments = as_dict(block.get("arguments"))
    name = as_text(block.get("name")) or "tool"
    if name == "bash":
        return "$ " + _cut(as_text(arguments.get("command")), OUTPUT_LIMIT)
    subject = as_text(arguments.get("path")) or as_text(arguments.get("pattern"))
    return f"{name} {_cut(subject, 300)}".rstrip()


def _command(message: Mapping[str, Any]) -> Iterator[str]:
    yield f'<p class="call"><code>$ {escape(_cut(as_text(message.get("command")), OUTPUT_LIMIT))}</code></p>'
    yield _output(as_text(message.get("output")))
    if message.get("cancelled") is True:
        yield '<p class="fault">Cancelled</p>'
    elif isinstance(message.get("exitCode"), int) and message["exitCode"] != 0:
        yield f'<p class="fault">Exit code {message["exitCode"]}</p>'


def _content(content: Any) -> Iterator[str]:
    yield _text(content_text(content))
    for block in map(as_dict, as_list(content)):
        if block.get("type") == "image":
            yield f'<p class="muted">[image, {escape(as_text(block.get("mimeType"))[:40])}]</p>'


def _text(text: str) -> str:
    return f'<div class="verbatim">{escape(_cut(text, TEXT_LIMIT))}</div>' if text else ""


def _diff(text: str) -> str:
    """Return the changes of an edit, line by line."""
    kinds = {"+": "add", "-": "del"}
    lines = _cut(text, OUTPUT_LIMIT).split("\n")
    rows = (f'<div class="{kinds.get(line[:1], "same")}"><span>{escape(line)}</span></div>' for line in lines)
    return f'<div class="diff plain-diff">{"".join(rows)}</div>'


def _output(text: str) -> str:
    if not text:
        return ""
    body = f"<pre>{escape(_cut(text, OUTPUT_LIMIT))}</pre>"
    lines = text.count("\n") + 1
    return body if lines <= 10 else f"<details><summary>{lines:,} lines</summary>{body}</details>"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"
