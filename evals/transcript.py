"""What a model was told and said in one trial, as a page: from the last request of the harness, whichever it is."""

import json
from html import escape
from pathlib import Path
from typing import Any

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }
body { color: #222; background: #fff }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: .6em; border-radius: 4px }
table { border-collapse: collapse; margin: 1em 0 }
td { border: 1px solid #bbb; padding: .3em .6em }
h3 { margin-bottom: .2em } .passed { color: #176b2c } .failed { color: #a11 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } pre { background: #262626 } a { color: #8ab4f8 }
  .passed { color: #6c6 } .failed { color: #f77 }
}
"""


def page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{escape(title)}</h1>{body}</html>\n"
    )


def write(folder: Path, title: str, verdict: str) -> None:
    """Write `transcript.html` of a trial from `request.json`, the last request, and `answers.jsonl`."""
    parts = [f"<p>{escape(verdict)}</p>"]
    request, answers = folder / "request.json", folder / "answers.jsonl"
    if request.is_file():
        parts += [_message(one) for one in _messages(json.loads(request.read_text()))]
    lines = answers.read_text(encoding="utf-8").splitlines() if answers.is_file() else []
    if lines:
        last = json.loads(lines[-1])
        called = f"\n[calls: {', '.join(last['calls'])}]" if last["calls"] else ""
        parts.append(_block(f"answer {len(lines)}, the last", f"{last['text']}{called}"))
    else:
        parts.append("<p>The model was not asked.</p>")
    (folder / "transcript.html").write_text(page(title, "\n".join(parts)), encoding="utf-8")


def _messages(request: dict[str, Any]) -> list[Any]:
    if "input" in request:  # the responses API
        first = [{"role": "system", "content": request["instructions"]}] if request.get("instructions") else []
        given = request["input"]
        return first + (given if isinstance(given, list) else [{"role": "user", "content": given}])
    return list(request.get("messages") or ())


def _message(message: Any) -> str:
    if not isinstance(message, dict):
        return _block("message", str(message))
    said = [_text(message.get("content") if "content" in message else message.get("output"))]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        said.append(f"→ {function.get('name')} {function.get('arguments')}")
    if message.get("type") == "function_call":
        said.append(f"→ {message.get('name')} {message.get('arguments')}")
    return _block(str(message.get("role") or message.get("type") or "message"), "\n".join(filter(None, said)))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _block(who: str, text: str) -> str:
    return f"<h3>{escape(who)}</h3><pre>{escape(text)}</pre>"
