"""The protocol as JSON Schema, made from the registry and the shapes."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from spindle.protocol import render
from spindle.protocol.commands import COMMANDS
from spindle.protocol.registry import CommandSpec
from spindle.shapes import events
from spindle.shapes.codec import WireValue
from spindle.shapes.events import Event
from spindle.shapes.messages import KnownMessage

DEFS = "#/$defs/{name}"


def json_schema() -> dict[str, Any]:
    """Return one document with the schema of every command, response and event."""
    specs = sorted(COMMANDS.values(), key=lambda spec: spec.name)
    kinds = sorted(event_types(), key=_tag)
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
    """Return the schemas of these types and the definitions they share; `refs` is the template of a reference."""
    found, components = msgspec.json.schema_components(kinds, schema_hook=_foreign, ref_template=refs)
    _say_items([*found, components])
    return found, components


def _say_items(schema: Any) -> None:
    """Give every array a schema of its items, even an empty one: generators of clients skip arrays without it."""
    if isinstance(schema, dict) and schema.get("type") == "array" and "prefixItems" not in schema:
        schema.setdefault("items", {})
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _say_items(part)


def event_types() -> Iterator[type[Event]]:
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
