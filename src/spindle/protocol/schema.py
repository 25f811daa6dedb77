"""The protocol as JSON Schema, made from the registry and the shapes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

import msgspec

from spindle.protocol import render
from spindle.protocol.commands import COMMANDS
from spindle.protocol.registry import CommandSpec
from spindle.sessions.entries import KnownEntry
from spindle.shapes import approvals, client_requests, events
from spindle.shapes.codec import WireValue
from spindle.shapes.events import Event
from spindle.shapes.messages import GivenImage, KnownMessage

DEFS = "#/$defs/{name}"
ID: dict[str, Any] = {"description": "Any JSON value; the response has the same."}


def json_schema() -> dict[str, Any]:
    """Return one document with the schema of every command, response and event."""
    specs = sorted(COMMANDS.values(), key=lambda spec: spec.name)
    kinds = sorted(event_types(), key=_tag)
    shapes = [spec.fields for spec in specs] + [spec.data for spec in specs if spec.data is not None] + kinds
    found, defs = schema_components(shapes, DEFS)
    schemas = iter(found)
    fields = {spec.name: next(schemas) for spec in specs}
    data = {spec.name: next(schemas) for spec in specs if spec.data is not None}
    told = {_tag(event): next(schemas) for event in kinds}
    commands = {spec.name: _put(defs, f"{_title(spec)}Command", _command(spec, fields, defs)) for spec in specs}
    for spec in {spec.shape_name: spec for spec in specs}.values():
        del defs[spec.shape_name]  # they stand in the commands
    responses = {spec.name: _put(defs, f"{_title(spec)}Response", _response(spec, data)) for spec in specs}
    _put(defs, "ErrorResponse", _failed())
    _put(defs, "Command", {"oneOf": [*commands.values()], **told_by("type", commands)})
    _put(defs, "Response", {"anyOf": [*responses.values(), {"$ref": DEFS.format(name="ErrorResponse")}]})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Spindle RPC",
        "description": "One JSON object a line. `Command` goes to the agent; `Response` and `Event` come from it.",
        "anyOf": [{"$ref": DEFS.format(name=name)} for name in ("Command", "Response", "Event")],
        "commands": commands,
        "responses": responses,
        "events": told,
        "message": {"$ref": DEFS.format(name="Message")},
        "$defs": defs,
    }


def schema_components(kinds: Iterable[Any], refs: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the schemas of these types and the definitions they share; `refs` is the template of a reference.

    Among the definitions are always those of messages, entries and events, by these names.
    """
    events_told = sorted(event_types(), key=_tag)
    shared = {"Message": KnownMessage, "Entry": KnownEntry, "Event": Union[*events_told], "GivenImage": GivenImage}
    wanted = [*kinds, *shared.values()]
    found, components = msgspec.json.schema_components(wanted, schema_hook=_foreign, ref_template=refs)
    for name, schema in zip(shared, found[-len(shared) :], strict=True):
        if schema.get("$ref") != refs.format(name=name):
            components[name] = schema
    _as_sent(components, refs)
    _complete([*found, components], refs)
    return found[: -len(shared)], components


def _as_sent(components: dict[str, Any], refs: str) -> None:
    """Write what the renderer adds to updates, and takes away in delta form, into their schemas."""
    update, answer = components["MessageUpdate"], {"$ref": refs.format(name="AssistantMessage")}
    update["required"].remove("message")
    update["properties"] |= {"message": answer, "usage": {"$ref": refs.format(name="Usage")}}
    for piece in update["properties"]["assistantMessageEvent"]["anyOf"]:
        name = piece["$ref"].rpartition("/")[2]
        key = {"AnswerDone": "message", "AnswerFailed": "error"}.get(name, "partial")
        components[name]["properties"][key] = answer


def _complete(schema: Any, refs: str) -> None:
    """Say what generators of clients need: items of arrays, types of constants, whole references, plain unions."""
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "prefixItems" not in schema:
            schema.setdefault("items", {})
        if isinstance(values := schema.get("enum"), list) and all(isinstance(value, str) for value in values):
            schema.setdefault("type", "string")
        if isinstance(name := schema.get("$ref"), str) and name.isalpha():
            schema["$ref"] = refs.format(name=name)
        options = schema.get("anyOf", ())
        if {"type": "number"} in options and {"type": "integer"} in options:
            options.remove({"type": "integer"})  # one kind of number is a kind of the other
            if len(options) == 1:
                schema |= schema.pop("anyOf")[0]
        if "discriminator" in schema and "anyOf" in schema:
            schema["oneOf"] = schema.pop("anyOf")
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _complete(part, refs)


def told_by(key: str, shapes: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {"discriminator": {"propertyName": key, "mapping": {name: shape["$ref"] for name, shape in shapes.items()}}}


_WITH_EVENTS = [module.__name__ for module in (events, approvals, client_requests, render)]


def event_types() -> Iterator[type[Event]]:
    waiting: list[type[Event]] = list(Event.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        # Other modes and tests have frames of their own; they are not part of this protocol.
        if kind.__struct_config__.tag is not None and kind.__module__ in _WITH_EVENTS:
            yield kind


def _tag(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag)


def _foreign(kind: type[Any]) -> dict[str, Any]:
    if issubclass(kind, WireValue):
        return {"type": "object"}
    raise NotImplementedError(f"No schema for {kind.__name__}")


def _title(spec: CommandSpec) -> str:
    """Name a command that has the shapes of another one after itself."""
    return "".join(word.title() for word in spec.name.split("_"))


def _put(defs: dict[str, Any], name: str, schema: dict[str, Any]) -> dict[str, Any]:
    defs[name] = {"title": name, **schema}
    return {"$ref": DEFS.format(name=name)}


def _command(spec: CommandSpec, fields: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    shape = defs[fields[spec.name]["$ref"].rpartition("/")[2]]
    head = {"type": {"type": "string", "const": spec.name}, "id": ID, "sessionId": {"type": "string"}}
    return {
        "description": " ".join(spec.doc.split()),
        "type": "object",
        "properties": {**head, **shape["properties"]},
        "required": ["type", *shape.get("required", ())],
    }


def _response(spec: CommandSpec, data: dict[str, Any]) -> dict[str, Any]:
    properties = {**_head(spec.name), "success": {"const": True}}
    required = ["type", "command", "success"]
    if spec.name in data:
        properties["data"] = data[spec.name]
        required.append("data")
    return {"type": "object", "properties": properties, "required": required}


def _failed() -> dict[str, Any]:
    texts = {"error": {"type": "string"}, "code": {"type": "string"}}
    properties = {**_head(None), "success": {"const": False}, **texts}
    return {"type": "object", "properties": properties, "required": ["type", "command", "success", "error"]}


def _head(command: str | None) -> dict[str, Any]:
    named = {"type": "string"} if command is None else {"type": "string", "const": command}
    return {"id": ID, "type": {"type": "string", "const": "response"}, "command": named}
