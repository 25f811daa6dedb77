"""Sessions for the tests of the page: real files, made-up ones, and pages of both."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spindle.export.page import build_page
from spindle.sessions import Session
from spindle.sessions import open as sessions

SESSIONS = Path(__file__).parent / "sessions"
TIME = "2026-01-01T00:00:00.000Z"
HEADER = {"type": "session", "version": 3, "id": "test-session", "timestamp": TIME, "cwd": "/srv/demo"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mP8z8BQz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
USAGE = {"input": 100, "output": 20, "cacheRead": 5, "cacheWrite": 0, "cost": {"total": 0.5}}

Entry = dict[str, Any]


def session_files() -> list[str]:
    return sorted(path.stem for path in SESSIONS.glob("*.jsonl"))


def open_session(name: str) -> Session:
    return sessions.load(SESSIONS / f"{name}.jsonl", read_only=True)


def page_of_file(name: str, **options: Any) -> bytes:
    session = open_session(name)
    pieces = build_page(
        session.header.value,
        [entry.value for entry in session.entries],
        session.leaf_id,
        name=session.name,
        damage_notes=[str(note) for note in session.damage],
        **options,
    )
    return b"".join(pieces)


def page_of(entries: Sequence[Entry], **options: Any) -> bytes:
    options.setdefault("name", None)
    leaf = entries[-1]["id"] if entries else None
    return b"".join(build_page(options.pop("header", HEADER), entries, leaf, **options))


def message(entry_id: str, parent: str | None, **fields: Any) -> Entry:
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": TIME, "message": fields}


def user(entry_id: str, parent: str | None, text: str) -> Entry:
    return message(entry_id, parent, role="user", content=[{"type": "text", "text": text}], timestamp=0)


def answer(entry_id: str, parent: str | None, *blocks: Any, **fields: Any) -> Entry:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    fields = {"provider": "mock", "model": "mock-1", "usage": USAGE, "stopReason": "stop", **fields}
    return message(entry_id, parent, role="assistant", content=content, timestamp=0, **fields)


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def result(entry_id: str, parent: str, call_id: str, name: str, text: str, **fields: Any) -> Entry:
    fields = {"isError": False, **fields}
    content = [{"type": "text", "text": text}]
    return message(entry_id, parent, role="toolResult", toolCallId=call_id, toolName=name, content=content, **fields)


def long_session(count: int) -> list[Entry]:
    return list(chain(count))


def chain(count: int) -> Iterator[Entry]:
    """Make `count` entries, each below the one before: question, call, result, answer, over and over."""
    parent: str | None = None
    for number in range(count):
        entry_id = f"{number:08x}"
        if number % 4 == 0:
            yield user(entry_id, parent, f"Question {number}: why does the parser stop at an empty line?")
        elif number % 4 == 1:
            yield answer(entry_id, parent, "Let me look.", call(f"c{number}", "bash", command=f"grep -n {number} *.py"))
        elif number % 4 == 2:
            output = "\n".join(f"file{line}.py:{line}: match" for line in range(12))
            yield result(entry_id, str(parent), f"c{number - 1}", "bash", output)
        else:
            yield answer(
                entry_id, parent, f"## Answer {number}\n\nIt is **fixed** now:\n\n```python\nreturn {number}\n```"
            )
        parent = entry_id
