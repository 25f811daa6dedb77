"""Words for the tests of sessions."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spindle.sessions import SessionManager
from spindle.shapes.messages import AssistantMessage, Text, Usage, UserMessage

HEADER = {
    "type": "session",
    "version": 3,
    "id": "11111111-2222-4333-8444-555555555555",
    "timestamp": "2025-01-01T00:00:00.000Z",
    "cwd": "/srv/demo",
}


def user(text: str = "question") -> UserMessage:
    return UserMessage([Text(text)], 1735689600000)


def assistant(text: str = "answer", model: str = "m") -> AssistantMessage:
    return AssistantMessage([Text(text)], "api", "p", model, Usage(), "stop", 1735689600001)


def entry(entry_id: str, parent_id: str | None, type: str = "message", **fields: Any) -> dict[str, Any]:
    if type == "message" and not fields:
        fields["message"] = {"role": "user", "content": f"text of {entry_id}", "timestamp": 1735689600000}
    return {"type": type, "id": entry_id, "parentId": parent_id, "timestamp": "2025-01-01T00:00:01.000Z", **fields}


def chain(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    """Give entries ids e0, e1, … and hang each below the one before it."""
    return [
        {"type": item["type"], "id": f"e{n}", "parentId": f"e{n - 1}" if n else None, "timestamp": when(n), **item}
        for n, item in enumerate(entries)
    ]


def when(second: int) -> str:
    return f"2025-01-01T00:00:{second:02d}.000Z"


def write_session(path: Path, entries: Iterable[dict[str, Any]], header: dict[str, Any] | None = None) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in (header or HEADER, *entries)))
    return path


def lines_of(path: str | Path | None) -> list[dict[str, Any]]:
    assert path is not None
    return [json.loads(line) for line in Path(path).read_text().split("\n") if line.strip()]


def begun(tmp_path: Path, **options: Any) -> SessionManager:
    """Return a session whose file exists: one question, one answer."""
    manager = SessionManager.create("/srv/demo", tmp_path, **options)
    manager.append_message(user())
    manager.append_message(assistant())
    return manager
