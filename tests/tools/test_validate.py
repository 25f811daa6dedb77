"""Arguments: what is mended, what is refused, in which words."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.tools.base import ToolError
from spindle.tools.validate import validate_arguments

from .helpers import golden

_TEXT_PAIR = {
    "type": "object",
    "properties": {"oldText": {"type": "string"}, "newText": {"type": "string"}},
    "required": ["oldText", "newText"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "bash": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
        "required": ["command"],
    },
    "edit": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": _TEXT_PAIR},
            "flag": {"type": "boolean"},
            "n": {"type": "integer"},
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    },
}


def outcome(tool: str, schema: Any, args: Any) -> dict[str, Any]:
    try:
        return {"ok": validate_arguments(tool, schema, args)}
    except ToolError as error:
        return {"error": str(error)}


def expected(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("ok", "error") if key in row}


@pytest.mark.parametrize("row", golden("validate-args"), ids=lambda row: json.dumps(row["args"]))
def test_recorded_calls(row: dict[str, Any]) -> None:
    result = outcome(row["tool"], SCHEMAS[row["tool"]], row["args"])
    # As JSON too: 1 and true, 5 and 5.0 are equal in Python.
    assert json.dumps(result, sort_keys=True) == json.dumps(expected(row), sort_keys=True)


@pytest.mark.parametrize("row", golden("validate-schema"), ids=lambda row: json.dumps(row["args"]))
def test_recorded_schemas(row: dict[str, Any]) -> None:
    result = outcome("t", row["schema"], row["args"])
    assert json.dumps(result, sort_keys=True) == json.dumps(expected(row), sort_keys=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-3, 3) | st.text("a1 .", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
SCHEMA = st.recursive(
    st.sampled_from([{"type": kind} for kind in ("string", "number", "integer", "boolean", "null")])
    | st.builds(lambda values: {"enum": values}, st.lists(st.integers(0, 2), min_size=1)),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(
            lambda properties, required: {"type": "object", "properties": properties, "required": required},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        )
        | st.builds(lambda members: {"anyOf": members}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)


@given(SCHEMA, JSON)
def test_what_was_mended_is_accepted_as_it_is_and_the_input_is_left_alone(schema: dict[str, Any], args: Any) -> None:
    before = copy.deepcopy(args)
    result = outcome("t", schema, args)
    assert args == before
    if "ok" in result:
        assert outcome("t", schema, result["ok"]) == result
    else:
        head, received = result["error"].split("\n\nReceived arguments:\n")
        assert head.startswith('Validation failed for tool "t":\n  - ')
        assert json.loads(received) == args


def test_an_optional_null_is_kept_where_null_is_allowed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "string"}}}
    assert validate_arguments("t", schema, {"a": None, "b": None}) == {"a": None}


def test_whole_floats_reach_the_tool_as_integers() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    value = validate_arguments("t", schema, {"n": 5.0})["n"]
    assert (value, type(value)) == (5, int)


def test_references_within_the_schema_are_followed() -> None:
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "child": {"$ref": "#/$defs/node"}},
        "required": ["name"],
    }
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    assert validate_arguments("t", schema, {"tree": {"name": 5}}) == {"tree": {"name": "5"}}
    with pytest.raises(ToolError, match=r"tree\.child\.name: must have required"):
        validate_arguments("t", schema, {"tree": {"name": "a", "child": {}}})
    circle = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert validate_arguments("t", circle, {"x": 1}) == {"x": 1}


def test_texts_fit_their_pattern() -> None:
    schema = {"properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}, "odd": {"pattern": "(?<"}}}
    assert validate_arguments("t", schema, {"id": "abc", "odd": "x"})
    with pytest.raises(ToolError, match=r"id: must match the pattern \^\[a-z\]\+\$"):
        validate_arguments("t", schema, {"id": "A1"})
