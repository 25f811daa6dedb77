"""The active branch as plain HTML: what the page shows before, or without, its script.

Everything of the session passes through `escape`. Long sessions are cut in the middle and long texts at
their end; the whole session is in the page's data and in the view that the script makes of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from spindle.export.overview import as_dict, as_list, as_text, content_text
from spindle.shapes.codec import decode

__all__ = ["transcript_html"]

HEAD, TAIL = 60, 140
"""Messages shown at the beginning and at the end of a long branch."""
TEXT_LIMIT = 12_000
OUTPUT_LIMIT = 3_000
"""Characters of one message and of one tool's output."""
TOTAL_LIMIT = 400_000

_ROLE_NAMES = {"user": "User", "assistant": "Assistant", "toolResult": "Tool result", "bashExecution": "Command"}


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
    time = escape(as_text(entry.get("timestamp"))[:19].replace("T", " "))
    head = f'<header class="head"><h2 class="who">{escape(title)}</h2>{badge} <time>{time}</time></header>'
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
        return "tool", title, [_output(content_text(message.get("content")))]
    if role == "bashExecution":
        return "tool", title, list(_command(message))
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
    if message.get("stopReason") == "aborted":
        yield '<p class="fault">Aborted</p>'
    elif message.get("stopReason") == "error":
        yield f'<p class="fault">Error: {escape(as_text(message.get("errorMessage")) or "unknown")}</p>'


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
    return f'<div class="plain">{escape(_cut(text, TEXT_LIMIT))}</div>' if text else ""


def _output(text: str) -> str:
    if not text:
        return ""
    body = f"<pre>{escape(_cut(text, OUTPUT_LIMIT))}</pre>"
    lines = text.count("\n") + 1
    return body if lines <= 10 else f"<details><summary>{lines:,} lines</summary>{body}</details>"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"
