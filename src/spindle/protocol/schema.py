"""The protocol as JSON Schema and as a reference page, both made of the registry and the shapes."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from spindle.protocol import render
from spindle.protocol.commands import COMMANDS, CommandSpec
from spindle.shapes import events
from spindle.shapes.codec import WireValue
from spindle.shapes.events import Event
from spindle.shapes.messages import KnownMessage

DEFS = "#/$defs/{name}"


def json_schema() -> dict[str, Any]:
    """Return one document with the schema of every command, response and event."""
    specs = sorted(COMMANDS.values(), key=lambda spec: spec.name)
    kinds = sorted(_event_types(), key=_tag)
    shapes = [spec.fields for spec in specs] + [spec.data for spec in specs if spec.data is not None] + kinds
    found, components = schema_components([*shapes, KnownMessage], DEFS)
    schemas = iter(found)
    fields = {spec.name: next(schemas) for spec in specs}
    data = {spec.name: next(schemas) for spec in specs if spec.data is not None}
    told = {_tag(event): next(schemas) for event in kinds}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Spindle RPC",
        "description": "One JSON object a line. `commands` go to the agent; `responses` and `events` come from it.",
        "commands": {spec.name: _command(spec, fields[spec.name]) for spec in specs},
        "responses": {spec.name: _response(spec, data.get(spec.name)) for spec in specs},
        "events": told,
        "message": next(schemas),
        "$defs": components,
    }


def schema_components(kinds: Iterable[Any], refs: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the schemas of these types and the definitions they share; `refs` is how they refer to those."""
    return msgspec.json.schema_components(kinds, schema_hook=_foreign, ref_template=refs)


def _event_types() -> Iterator[type[Event]]:
    waiting: list[type[Event]] = list(Event.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        # Other modes and tests have frames of their own; they are not part of this protocol.
        if kind.__struct_config__.tag is not None and kind.__module__ in (events.__name__, render.__name__):
            yield kind


def _tag(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag)


def _foreign(kind: type[Any]) -> dict[str, Any]:
    if issubclass(kind, WireValue):
        return {"type": "object"}
    raise NotImplementedError(f"No schema for {kind.__name__}")


def _command(spec: CommandSpec, fields: dict[str, Any]) -> dict[str, Any]:
    properties = {"id": {}, "type": {"const": spec.name}, "sessionId": {"type": "string"}}
    head = {"type": "object", "properties": properties, "required": ["type"]}
    return {"description": spec.doc, "allOf": [head, fields]}


def _response(spec: CommandSpec, data: dict[str, Any] | None) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "id": {},
        "type": {"const": "response"},
        "command": {"const": spec.name},
        "success": {"type": "boolean"},
        "error": {"type": "string"},
    }
    if data is not None:
        properties["data"] = data
    return {"type": "object", "properties": properties, "required": ["type", "command", "success"]}


# -- the reference page --------------------------------------------------------------------------


def reference_page() -> str:
    """Return the Markdown page that lists every command and event."""
    lines = [
        "# Protocol reference",
        "",
        "Made by `spindle schema --markdown` from the registry in the code; do not edit.",
        "",
        "Every command may carry an `id` of any JSON type, which its response repeats. Fields in *italics* may be left",
        "out. `data` is what a successful response carries.",
        "",
        "Every command may also carry a `sessionId`: the `id` that `open_session` gave, or the id of any stored",
        "session. It then goes to that session, and the response and the events of that session carry the same",
        "`sessionId`. Without it a command goes to the first session, whose events carry none. `session_changed` of",
        "another session has the id of the file it went on in as `currentId`.",
        "",
        "## Commands",
        "",
        "| command | fields | data | what it does |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{spec.name}` | {_fields_cell(spec.fields)} | {_data_cell(spec.data)} | {_one_line(spec.doc)} |"
        for spec in sorted(COMMANDS.values(), key=lambda spec: spec.name)
    ]
    lines += ["", "## Events", "", "| event | fields | notes |", "|---|---|---|"]
    lines += [
        f"| `{_tag(kind)}` | {_fields_cell(kind)} | {_one_line(_own_doc(kind))} |"
        for kind in sorted(_event_types(), key=_tag)
    ]
    return "\n".join(lines) + "\n"


def _own_doc(kind: type[Any]) -> str:
    return kind.__dict__.get("__doc__") or ""


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _fields_cell(kind: type[Any]) -> str:
    shown = [
        f"`{item.encode_name}`" if item.required else f"*`{item.encode_name}`*" for item in msgspec.structs.fields(kind)
    ]
    return ", ".join(shown) or "–"


def _data_cell(data: Any) -> str:
    if data is None:
        return "–"
    info = msgspec.inspect.type_info(data)
    options = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    cells = []
    for option in options:
        if isinstance(option, msgspec.inspect.StructType):
            cells.append(_fields_cell(option.cls))
        elif isinstance(option, msgspec.inspect.NoneType):
            cells.append("or null")
    return " ".join(cells) or "any"
