"""One HTML file out of a session: template, style, script and data in one, nothing loaded from anywhere.

A session is untrusted. Its text reaches the page in two ways only: escaped in the static part, and as JSON in an
element that is no script.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import msgspec

from spindle.base.version import __version__
from spindle.export.transcript import Overview, Story, as_dict, as_text, content_text, transcript_html
from spindle.sessions.entries import parse_time
from spindle.shapes.codec import decode, encode
from spindle.web import inline, inline_policy, modules, page

_PLURALS = {
    "tool result": "tool results",
    "command": "commands",
    "compaction": "compactions",
    "branch summary": "branch summaries",
}
_NOTES_SHOWN = 20
_FILES_SHOWN = 12
_STORY_LENGTH = 420  # characters of the question and of the outcome
_PROMPT_LINES, _PROMPT_PREVIEW = 10, 1_000  # of the system prompt: lines and characters shown at once
_TITLE_SEARCHED = 100  # entries that are looked at for a first prompt
_MARK = re.compile(r"\*\*|~~|`|^#{1,6} ", re.MULTILINE)  # of Markdown
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def build_page(
    header: Mapping[str, Any],
    entries: Iterable[Mapping[str, Any]],
    leaf_id: str | None,
    *,
    name: str | None,
    system_prompt: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    damage_notes: Iterable[str] = (),
    redact: bool = False,
) -> list[bytes]:
    """Return the page of a session in pieces.

    `tools` are `{name, description, parameters}`. With `redact` everything that looks like a secret is taken out
    first, from the data too. The arguments are not changed.
    """
    notes = list(damage_notes)
    if redact:
        from spindle.export.redact import redact_entry, redact_text, redact_value

        header = redact_entry(header)
        entries = map(redact_entry, entries)
        name = redact_text(name) if name else name
        system_prompt = redact_text(system_prompt) if system_prompt else system_prompt
        tools = redact_value(list(tools)) if tools else tools
        notes = [redact_text(note) for note in notes]
    overview = Overview()
    lines: list[bytes] = []
    # One entry at a time: a large session, decoded as a whole, would take ten times its size.
    for entry in entries:
        overview.add(entry)
        lines.append(_line(entry))
    branch = [lines[place] for place in overview.path(leaf_id)]
    title = name or _first_words(branch) or f"Session {as_text(header.get('id'))}"
    style, boot = inline("shared/base.css", "viewer/viewer.css"), inline("shared/theme.js", "viewer/boot.js")
    script = f'afterPaint(() => {{\n"use strict";\n{inline(*modules("viewer/app.js"))}}});\n'
    parts = {
        "policy": escape(inline_policy(style, boot, script)),
        "version": escape(__version__),
        "title": escape(title),
        "style": style,
        "boot": boot,
        "card": _card(header, overview, branch, title, system_prompt, tools, notes, redact),
        "transcript": transcript_html(branch, overview.labels),
        "script": script,
    }
    # Filled in one pass over the template, so that no text of the session is taken for a placeholder.
    before, after = (
        _PLACEHOLDER.sub(lambda match: parts[match[1]], half).encode("utf-8", "replace")
        for half in page("viewer/page.html", script).split("{{data}}")
    )
    file_name = re.sub(r"[^A-Za-z0-9._-]", "_", as_text(header.get("id")))[:80] or "session"
    meta = {"leafId": leaf_id, "entries": len(lines), "fileName": f"{file_name}.jsonl"}
    return [before, _line(meta), _line(header), *lines, after]


def _line(value: Mapping[str, Any]) -> bytes:
    """Return a line of JSON in which no `<` occurs."""
    try:
        line = encode(value)
    except (ValueError, TypeError, RecursionError):
        # Nesting without end, or a value that JSON cannot hold: keep the entry's place in the tree.
        line = encode({key: as_text(value.get(key)) for key in ("type", "id", "parentId", "timestamp")})
    # JSON has `<` only inside of strings, and there the escape means the same.
    return line.replace(b"<", b"\\u003c") + b"\n"


def _first_words(branch: Sequence[bytes]) -> str:
    """Return the beginning of the first prompt, for a session without a name."""
    for line in branch[:_TITLE_SEARCHED]:
        message = as_dict(decode(line).get("message"))
        if message.get("role") == "user":
            words = " ".join(_MARK.sub("", content_text(message.get("content"))[:500]).split())
            if words:
                return words if len(words) <= 80 else words[:79].rstrip() + "…"
    return ""


def _card(
    header: Mapping[str, Any],
    overview: Overview,
    branch: Sequence[bytes],
    title: str,
    system_prompt: str | None,
    tools: Sequence[Mapping[str, Any]] | None,
    notes: Sequence[str],
    redact: bool,
) -> str:
    """Return the head of the page: the session's title and figures, its system prompt and its tools."""
    facts = [
        ("Started", _when(as_text(header.get("timestamp")) or overview.started)),
        ("Last entry", _when(overview.ended)),
        ("Folder", escape(as_text(header.get("cwd")))),
        ("Continues", escape(as_text(header.get("parentSession")))),
        ("Models", escape(", ".join(overview.models))),
        ("Messages", escape(_counts(overview))),
        ("Branches", f"{overview.branches:,}" if overview.branches > 1 else ""),
        ("Tool calls", f"{overview.tool_calls:,}" if overview.tool_calls else ""),
        ("Tokens", _tokens(overview)),
        ("Cost", _cost(overview) if overview.models else ""),
    ]
    rows = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in facts if value)
    parts = [
        '<section class="card" aria-label="What this session was about">',
        f"<h1>{escape(title)}</h1>",
        _story(Story.of(branch), overview),
    ]
    if redact:
        parts.append('<p class="note">What looked like keys, tokens or passwords was taken out of this page.</p>')
    if notes:
        parts.append(_damage(notes))
    parts.append('<details class="about"><summary>About this session</summary>')
    parts.append(f'<p class="id">Session: {escape(as_text(header.get("id")))}</p><dl class="facts">{rows}</dl>')
    if system_prompt:
        parts.append(_prompt(system_prompt))
    if tools:
        parts.append(_tool_list(tools))
    parts.append("</details></section>")
    return "\n".join(parts)


def _story(story: Story, overview: Overview) -> str:
    """Return the session in a few lines: question, outcome, changed files, time and cost."""
    files = "".join(f"<li><code>{escape(path)}</code></li>" for path in story.files[:_FILES_SHOWN])
    if len(story.files) > _FILES_SHOWN:
        files += f"<li>and {len(story.files) - _FILES_SHOWN:,} more</li>"
    rows = [
        ("Asked", _told(story.question)),
        ("Outcome", _told(story.outcome)),
        ("Then", f'<p class="verbatim fault">{escape(_shortened(story.failure))}</p>' if story.failure else ""),
        ("Files changed", f"<ul>{files}</ul>" if files else ""),
        ("Took", _took(overview)),
        ("Cost", _dollars(overview.cost) if overview.cost else ""),
    ]
    return f'<dl class="story">{"".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in rows if value)}</dl>'


def _told(text: str) -> str:
    return f'<p class="verbatim told">{escape(_shortened(text))}</p>' if text else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _STORY_LENGTH else f"{text[:_STORY_LENGTH].rstrip()} …"


def _took(overview: Overview) -> str:
    begin, end = parse_time(overview.started), parse_time(overview.ended)
    seconds = 0 if begin is None or end is None else (end - begin) / 1000
    if seconds < 1:
        return ""
    minutes, hours = seconds // 60, seconds // 3600
    if hours >= 48:
        return f"{hours // 24:,.0f} days"
    return f"{hours:.0f} h {minutes % 60:.0f} min" if hours else f"{minutes:.0f} min" if minutes else f"{seconds:.0f} s"


def _prompt(text: str) -> str:
    """Return the system prompt behind its first lines."""
    preview = "\n".join(text.split("\n", _PROMPT_LINES)[:_PROMPT_LINES])[:_PROMPT_PREVIEW].rstrip()
    more = "" if preview == text.rstrip() else " …"
    summary = f"<summary>System prompt<span>{escape(preview)}{more}</span></summary>"
    return f'<details id="prompt">{summary}<pre tabindex="0">{escape(text)}</pre></details>'


def _damage(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes[:_NOTES_SHOWN])
    more = len(notes) - _NOTES_SHOWN
    rest = f"<li>and {more:,} more</li>" if more > 0 else ""
    text = "The session file is damaged; this page shows what could be read."
    return f'<div class="note damage">{text}<ul>{items}{rest}</ul></div>'


def _tool_list(tools: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for tool in tools:
        schema = escape(msgspec.json.format(encode(tool.get("parameters")), indent=2).decode())
        items.append(
            f"<div><b>{escape(as_text(tool.get('name')))}</b><p>{escape(as_text(tool.get('description')))}</p>"
            f'<details><summary>Parameters</summary><pre tabindex="0">{schema}</pre></details></div>'
        )
    return f'<details><summary>Tools ({len(tools)})</summary><div class="tool-list">{"".join(items)}</div></details>'


def _counts(overview: Overview) -> str:
    counts = overview.counts.items()
    return " · ".join(f"{number:,} {kind if number == 1 else _PLURALS.get(kind, kind)}" for kind, number in counts)


def _tokens(overview: Overview) -> str:
    figures = [
        ("↑", "input", overview.input),
        ("↓", "output", overview.output),
        ("R", "cache read", overview.cache_read),
        ("W", "cache write", overview.cache_write),
    ]
    return " ".join(f'<span title="{hint}">{sign}{value:,.0f}</span>' for sign, hint, value in figures if value)


def _cost(overview: Overview) -> str:
    if not overview.cost_unknown:
        return _dollars(overview.cost)
    return f"unknown, at least {_dollars(overview.cost)}" if overview.cost else "unknown"


def _dollars(cost: float) -> str:
    if cost >= 1 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.3f}" if cost >= 0.01 else f"${cost:.5f}"


def _when(timestamp: str) -> str:
    """Return a time for people, in UTC; empty if the text is not a time."""
    try:
        moment = datetime.fromisoformat(timestamp).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return f'<time datetime="{escape(timestamp)}">{moment:%Y-%m-%d %H:%M} UTC</time>'
