"""The samples of the five documents, read out of them, and the exact comparison of a frame with a sample.

`{...}` and `[...]` in a sample stand for any object and any list. A frame is the sample, if it is equal to it (`==`)
once the keys that `docs/which-document.md` lists as added are taken away. Values that cannot be the same, such as ids,
times and paths, are named in `VARIES`; of those the type must be that of the sample.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
PAGE = Path(__file__).parents[2] / "docs" / "which-document.md"
ANY_OBJECT, ANY_LIST = {"…": "any"}, ["…"]

# Sample → the values that a program that runs now cannot repeat, and why.
VARIES: dict[str, dict[str, str]] = {
    "*": {
        "id": "an id",
        "data.sessionId": "an id",
        "data.sessionFile": "a path",
        "timestamp": "a time",
        "message.timestamp": "a time",
    },
    "response get_commands": {"data.commands.*.path": "a path", "data.commands.*.description": "written by us"},
    "response bash": {"data.fullOutputPath": "a path", "data.output": "how much is cut is told in it"},
    "response export_html": {"data.path": "a path"},
    "response compact": {"data.summary": "the files that were read are told in it"},
    "auto_compaction_end": {"result.summary": "the files that were read are told in it"},
    "response set_model": {"error": "what is there is told in it"},
    "response parse": {"error": "the words of the JSON reader"},
    "auto_retry_start": {"errorMessage": "status, server, meaning and words, for the person who reads it"},
    "auto_retry_end": {"finalError": "status, server, meaning and words, for the person who reads it"},
    "extension_error": {"extensionPath": "a path"},
    "extension_ui_request": {"id": "an id"},
    "a model": {"baseUrl": "the server of the test", "maxTokens": "64000, as the provider publishes it"},
    "an assistant message": {"stopReason": "a message with a call ends with toolUse"},
    "tool_execution_update": {"partialResult.content.*.text": "output of the command"},
    "tool_execution_end": {"result.content.*.text": "output of the command"},
    "a tool result message": {"toolCallId": "an id"},
    "xcsh get_state": {"messageCount": "what was said before"},
    "host_tool_call": {"toolCallId": "an id"},
    "host_tool_cancel": {"targetId": "an id"},
}


def document(number: str) -> str:
    found = sorted(SEEDS.glob(f"{number}_*.txt")) if SEEDS.is_dir() else []
    if not found:
        pytest.skip("the documents are not here: ../shared/seeds")
    return found[0].read_text()


def fenced(text: str) -> list[Any]:
    """Return every JSON value in the blocks that are marked as JSON; blocks that are a grammar have none."""
    values = []
    for block in re.findall(r"```json\s+(.*?)\s*```", text, re.S):
        values += values_in(block)
    return values


def values_in(block: str) -> list[Any]:
    block = re.sub(r"\{\s*\.\.\.\s*\}", json.dumps(ANY_OBJECT, ensure_ascii=False), block)
    block = re.sub(r"\[\s*\.\.\.\s*\]", json.dumps(ANY_LIST, ensure_ascii=False), block)
    values, at, read = [], 0, json.JSONDecoder().raw_decode
    while block[at:].strip():
        at += len(block[at:]) - len(block[at:].lstrip())
        try:
            value, at = read(block, at)
        except ValueError:
            return []
        values.append(value)
    return values


def bare(text: str) -> list[Any]:
    """Return the objects of a document without marks: each begins at the beginning of a line."""
    values, at, read = [], 0, json.JSONDecoder().raw_decode
    for found in re.finditer(r"^\{", text, re.M):
        if found.start() >= at:
            try:
                value, at = read(text, found.start())
            except ValueError:
                continue
            values.append(value)
    return values


def name_of(sample: dict[str, Any]) -> str:
    if sample.get("type") == "response":
        return f"response {sample['command']}"
    for role, name in {"user": "user", "assistant": "assistant", "toolResult": "tool result"}.items():
        if sample.get("role") == role:
            return f"an {name} message" if role == "assistant" else f"a {name} message"
    if sample.get("role") == "bashExecution":
        return "a bash message"
    return sample.get("type") or "a model"


def added() -> dict[str, list[str]]:
    """Return the keys that the manual lists as added: sample → paths."""
    section = PAGE.read_text().split("### Keys that are added", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `?([^|`]+)`? \| ([^|]+) \| ([^|]+) \|$", section, re.M)[1:]
    assert rows and all(why.strip() for _, _, why in rows)
    return {name.strip(): re.findall(r"`([^`]+)`", keys) for name, keys, _ in rows}


def same(sample: Any, frame: Any, name: str | None = None) -> Any:
    """Return the frame as it is to be compared with the sample."""
    name = name or name_of(sample)
    if name == "a user message" and isinstance(sample["content"], str) and len(frame["content"]) == 1:
        (block,) = frame["content"]  # the documents allow both forms
        frame = frame | {"content": block["text"]} if isinstance(block, dict) and "text" in block else frame
    listed = added()
    extra = {path for key in ("every message", name) for path in listed.get(key, [])}
    return _same(sample, frame, "", extra, {**VARIES["*"], **VARIES.get(name, {})})


def _same(sample: Any, frame: Any, path: str, extra: set[str], varies: dict[str, str]) -> Any:
    if sample == ANY_OBJECT and isinstance(frame, dict):
        return sample
    if sample == ANY_LIST and isinstance(frame, list):
        return sample
    if path in varies and type(sample) is type(frame):
        return sample
    if isinstance(sample, str) and isinstance(frame, str) and (sample == "..." or frame in sample.split("|")):
        return sample
    if isinstance(sample, dict) and isinstance(frame, dict):
        inner = {key: f"{path}.{key}".lstrip(".") for key in frame}
        return {
            key: _same(sample.get(key), value, inner[key], extra, varies)
            for key, value in frame.items()
            if key in sample or inner[key] not in extra
        }
    if isinstance(sample, list) and isinstance(frame, list) and len(sample) == len(frame):
        pairs = zip(sample, frame, strict=True)
        return [_same(one, other, f"{path}.*".lstrip("."), extra, varies) for one, other in pairs]
    return frame
