"""The reference page: every command and event with the types of its fields and an example, made from the JSON Schema.

Examples are made from the types, so they always fit the schema; `_VALUES` only makes them look real.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from spindle.protocol.commands import COMMANDS
from spindle.protocol.schema import event_types, json_schema
from spindle.resources.field_notes import field_notes
from spindle.shapes.messages import KnownMessage

_HEAD = """\
# Protocol reference

Made from the registry in the code by `scripts/manual.py`; do not edit. `spindle schema --markdown` prints this page,
`spindle schema` the same as JSON Schema. [RPC clients](rpc.md) shows how a client uses it.

One JSON object a line: commands go to the agent, responses and events come from it. Every command may carry an `id`
of any JSON type, which its response repeats. Fields in *italics* may be left out. A successful response carries
`data`; a failed one has `"success": false` and an `error` in words. Names with a capital are [shapes](#shapes).

Every command may also carry a `sessionId`: the `id` that `open_session` gave, or the id of any stored session. It then
goes to that session, and the response and the events of that session carry the same `sessionId`. Without it a command
goes to the first session, whose events carry none. In `session_changed` of another session, `currentId` is the id of
the file that the session goes on in.
"""
_VALUES: dict[str, Any] = {
    "message": "Why does the test fail?",
    "text": "The test fails because the port is taken.",
    "delta": "The test ",
    "content": "The test ",
    "thinking": "Let me look at the test.",
    "command": "git status",
    "output": "nothing to commit\n",
    "error": "No such tool",
    "errorMessage": "529 Overloaded",
    "finalError": "529 Overloaded",
    "entryId": "a1b2c3d4",
    "targetId": "a1b2c3d4",
    "leafId": "a1b2c3d4",
    "firstKeptEntryId": "a1b2c3d4",
    "id": "7f3a",
    "toolCallId": "call_1",
    "parentToolCallId": "call_1",
    "agent": "explore",
    "toolName": "bash",
    "sessionId": "0199a5c2-7d10-7000-8000-5f0c2ab1d9e3",
    "sessionPath": "/home/me/.pi/agent/sessions/--home-me-project--/2026-01-01T00-00-00-000Z_0199a5c2.jsonl",
    "sessionFile": "/home/me/.pi/agent/sessions/--home-me-project--/2026-01-01T00-00-00-000Z_0199a5c2.jsonl",
    "path": "/home/me/project/page.html",
    "extensionPath": "/home/me/.pi/agent/extensions/gate.py",
    "cwd": "/home/me/project",
    "provider": "anthropic",
    "modelId": "claude-opus-4-5",
    "model": "claude-opus-4-5",
    "api": "anthropic-messages",
    "baseUrl": "https://api.anthropic.com",
    "level": "high",
    "thinkingLevel": "high",
    "stopReason": "stop",
    "status": "ok",
    "reason": "stop",
    "disposition": "started",
    "name": "review",
    "prefix": "r",
    "title": "Run it?",
    "event": "tool_call",
    "method": "confirm",
    "mode": "one-at-a-time",
    "steeringMode": "one-at-a-time",
    "followUpMode": "one-at-a-time",
    "interruptMode": "immediate",
    "summary": "The port is taken by another test.",
    "data": "aGVsbG8=",
    "mimeType": "image/png",
    "timestamp": 1767225600000,
    "version": "1.0.0",
    "args": {"command": "git status"},
    "arguments": {"command": "git status"},
    "rules": ["Bash(git *)"],
}
"""Values of fields by name, where the type allows them."""
_CHOICES = {
    "MessageUpdate.assistantMessageEvent": "TextDelta",
    "Event.event": "TurnStart",
    "Entry.entry": "MessageEntry",
}
"""Which member of a union is shown, by shape and field; else an answer, or the first."""


def reference_page() -> str:
    kinds = [*event_types(), *(kind for data in _data_types() for kind in data)]
    return Page(json_schema(), {kind.__name__: field_notes(kind) for kind in kinds}).text()


def _data_types() -> Iterator[list[type[msgspec.Struct]]]:
    """Yield the shapes that every answer, event and message is made of."""
    seen: set[type] = set()
    waiting: list[Any] = [spec.data for spec in COMMANDS.values() if spec.data is not None]
    waiting += [KnownMessage, *event_types()]
    while waiting:
        kind = waiting.pop()
        found = [item for item in (kind, *get_args(kind)) if isinstance(item, type) and item not in seen]
        seen.update(found)
        shapes = [item for item in found if issubclass(item, msgspec.Struct)]
        waiting += [inner for inner in get_args(kind) if not isinstance(inner, type)]
        waiting += [field.type for shape in shapes for field in msgspec.structs.fields(shape)]
        yield shapes


class Page:
    def __init__(self, schema: dict[str, Any], notes: dict[str, dict[str, str]]) -> None:
        """`notes` has the field docs of every shape."""
        self._schema = schema
        self._shapes: dict[str, dict[str, Any]] = schema["$defs"]
        self._notes = notes
        self._wanted: dict[str, None] = {}
        """Shapes that the page refers to, in order."""

    def text(self) -> str:
        lines = [_HEAD, *_index("Commands", self._schema["commands"]), *_index("Events", self._schema["events"])]
        lines += ["## Commands", ""]
        for name, command in self._schema["commands"].items():
            lines += self._command(name, command, self._schema["responses"][name])
        lines += ["## Events", ""]
        for name, event in self._schema["events"].items():
            lines += self._event(name, event)
        lines += ["## Shapes", ""]
        told: set[str] = set()
        while waiting := [name for name in self._wanted if name not in told]:
            for name in waiting:
                told.add(name)
                lines += self._shape(name)
        return "\n".join(lines).rstrip() + "\n"

    def _command(self, name: str, command: dict[str, Any], response: dict[str, Any]) -> list[str]:
        command, response = self._resolved(command), self._resolved(response)
        own = {key: item for key, item in command["properties"].items() if key not in ("id", "type", "sessionId")}
        fields = {**command, "properties": own}
        data = response["properties"].get("data")
        lines = [f"### `{name}`", "", _one_line(command["description"]), ""]
        lines += self._table(fields, ("field", "type", "")) or ["No fields.", ""]
        if data is not None:
            shown = self._table(data, ("data", "type", ""))
            lines += shown or [f"`data`: {self._type(data)}", ""]
        sent = {"id": 1, "type": name, **self._example(fields)}
        answered: dict[str, Any] = {"id": 1, "type": "response", "command": name, "success": True}
        if data is not None:
            answered["data"] = self._example(data)
        return [*lines, *_code(sent, answered)]

    def _event(self, name: str, event: dict[str, Any]) -> list[str]:
        shape = self._resolved(event)
        lines = [f"### `{name}`", ""]
        if description := _one_line(shape.get("description", "")):
            lines += [description, ""]
        lines += self._table(event, ("field", "type", "")) or ["No fields.", ""]
        return [*lines, *_code(self._example(event))]

    def _shape(self, name: str) -> list[str]:
        shape = self._shapes[name]
        lines = [f"### {name}", ""]
        if description := _one_line(shape.get("description", "")):
            lines += [description, ""]
        if _options(shape):
            return [*lines, f"One of {self._type(shape).replace(' or ', ', ')}.", ""]
        return [*lines, *self._table({"$ref": f"#/$defs/{name}"}, ("field", "type", ""))]

    def _table(self, schema: dict[str, Any], head: Iterable[str]) -> list[str]:
        shape = self._resolved(schema)
        fields = {key: item for key, item in shape.get("properties", {}).items() if not _is_tag(key, item)}
        if not fields:
            return []
        notes = self._notes.get(shape.get("title", ""), {})
        required = shape.get("required", ())
        rows = []
        for key, item in fields.items():
            shown = f"`{key}`" if key in required else f"*`{key}`*"
            note = _one_line(notes.get(key, "")) + _default(item)
            rows.append(f"| {shown} | {self._type(item)} | {note.strip()} |")
        return [f"| {' | '.join(head)} |", "|---|---|---|", *rows, ""]

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema behind references and unions; of a union, the first member that is not null."""
        while "$ref" in schema or _options(schema):
            if "$ref" in schema:
                schema = self._shapes[schema["$ref"].rpartition("/")[2]]
            else:
                schema = next(option for option in _options(schema) if option.get("type") != "null")
        return schema

    def _type(self, schema: dict[str, Any]) -> str:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            self._wanted[name] = None
            return f"[{name}](#{name.lower()})"
        if _options(schema):
            return " or ".join(dict.fromkeys(self._type(option) for option in _options(schema)))
        if "const" in schema or "enum" in schema:
            return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
        kind = schema.get("type", "any")
        if kind == "array":
            return f"list of {self._type(schema.get('items') or {})}"
        if kind == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
            return f"object of {self._type(inner)}"
        return str(kind)

    def _example(self, schema: dict[str, Any], field: str = "", above: tuple[str, ...] = ()) -> Any:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._example(self._shapes[name], field, (*above, name))
        if options := _options(schema):
            return self._example(self._choice(options, field, above), field, above)
        if "const" in schema or "enum" in schema:
            allowed = schema.get("enum", [schema.get("const")])
            return _VALUES.get(field) if _VALUES.get(field) in allowed else allowed[0]
        kind, wanted = schema.get("type"), _VALUES.get(field)
        if kind == "object" and "properties" in schema:
            shown = {key: item for key, item in schema["properties"].items() if key in schema.get("required", ())}
            return {key: self._example(item, key, above) for key, item in shown.items()}
        if kind == "array":
            items = schema.get("items") or {}
            endless = items.get("$ref", "").rpartition("/")[2] in above
            return [] if endless or not items else [self._example(items, field.removesuffix("s"), above)]
        if kind is None:
            return wanted
        if isinstance(wanted, _KINDS[kind]) and not isinstance(wanted, bool):
            return wanted
        if kind in ("integer", "number"):
            return max(1, schema.get("minimum", 1))
        return {"string": field or "text", "boolean": field == "success", "object": {}, "null": None}[kind]

    def _choice(self, options: list[dict[str, Any]], field: str, above: tuple[str, ...]) -> dict[str, Any]:
        names = [option.get("$ref", "").rpartition("/")[2] for option in options]
        wanted = _CHOICES.get(f"{above[-1] if above else ''}.{field}", "AssistantMessage")
        if wanted in names:
            return options[names.index(wanted)]
        return next((option for option in options if option.get("type") != "null"), options[0])


_KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "null": type(None),
}


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the members of a union; none if it is no union."""
    found: list[dict[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or []
    return found


def _index(title: str, names: Iterable[str]) -> list[str]:
    links = ", ".join(f"[`{name}`](#{name})" for name in names)
    return [f"{title}: {links}", ""]


def _is_tag(key: str, item: dict[str, Any]) -> bool:
    return key in ("type", "role") and len(item.get("enum", ())) == 1


def _default(item: dict[str, Any]) -> str:
    default = item.get("default")
    return "" if default is None or default in ("", [], (), {}) else f" Default: `{json.dumps(default)}`."


def _code(*frames: dict[str, Any]) -> list[str]:
    return ["```json", *(json.dumps(frame, ensure_ascii=False) for frame in frames), "```", ""]


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
