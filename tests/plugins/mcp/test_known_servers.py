"""The tools of ten well-known servers, as they listed them in November 2026: calls that they take are taken here, too.

`known_servers.json` has the names and schemas only.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from spindle.tools.base import ToolError
from spindle.tools.validate import validate_arguments

SERVERS: dict[str, Any] = json.loads((Path(__file__).parent / "known_servers.json").read_text())
PLAIN = {"string": "x", "number": 1, "integer": 1, "boolean": True, "null": None}


def value_for(schema: Any, root: Any) -> Any:
    """Return the plainest value that a schema asks for."""
    if "$ref" in schema:
        schema = _target(schema["$ref"], root)
    if "const" in schema or "enum" in schema or "default" in schema:
        return schema["const"] if "const" in schema else schema.get("default", next(iter(schema.get("enum", [None]))))
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return value_for(schema[union][0], root)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [value_for(schema.get("items", {}), root)] * max(1, schema.get("minItems", 0))
    if kind == "object":
        return {name: value_for(schema["properties"][name], root) for name in schema.get("required", ())}
    if kind == "string" and schema.get("format") == "uri":
        return "https://example.com/"
    return "x" * max(1, schema.get("minLength", 1)) if kind == "string" else PLAIN[kind]


def _target(reference: str, root: Any) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        root = root[name]
    return root


@pytest.mark.parametrize("server", SERVERS)
def test_a_call_with_what_is_required(server: str) -> None:
    for name, schema in SERVERS[server]["tools"].items():
        given = value_for(schema, schema)
        taken = asyncio.run(validate_arguments(name, schema, given))
        assert taken == given, name


def test_what_has_a_default_may_be_left_out() -> None:
    left = {
        (server, name): [key for key in schema.get("required", ()) if "default" in schema["properties"][key]]
        for server, known in SERVERS.items()
        for name, schema in known["tools"].items()
    }
    assert any(left.values()), "the fixture has such tools"
    for (server, name), keys in left.items():
        schema = SERVERS[server]["tools"][name]
        given = {key: value for key, value in value_for(schema, schema).items() if key not in keys}
        taken = asyncio.run(validate_arguments(name, schema, given))
        assert taken == given | {key: schema["properties"][key]["default"] for key in keys}, name


def test_what_has_none_is_still_required() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": 5}}, "required": ["a"]}
    with pytest.raises(ToolError, match="required properties a"):
        asyncio.run(validate_arguments("t", schema, {}))
