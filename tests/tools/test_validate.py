"""Arguments: what is mended, what is refused, in which words."""

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.tools import json_schema
from spindle.tools.base import ToolError
from spindle.tools.validate import validate_arguments as validate_async

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


def validate_arguments(tool: str, schema: Any, args: Any) -> Any:
    return asyncio.run(validate_async(tool, schema, args))


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


# -- schemas of strangers --------------------------------------------------------------------------


def _doubled(levels: int, keyword: str, last: Any) -> dict[str, Any]:
    """Return a schema that leads to `last` in 2 ** levels ways."""
    parts: dict[str, Any] = {
        f"n{level}": {keyword: [{"$ref": f"#/$defs/n{level + 1}"}, {"$ref": f"#/$defs/n{level + 1}"}]}
        for level in range(levels)
    }
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/n0"}},
        "$defs": {**parts, f"n{levels}": last},
    }


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_many_ways_through_a_schema_take_no_time(keyword: str) -> None:
    refused = outcome("t", _doubled(200, keyword, {"type": "boolean"}), {"x": "no"})["error"]
    assert "  - x: must be boolean\n" in refused
    assert len(refused) < 10_000
    if keyword != "oneOf":
        assert outcome("t", _doubled(200, keyword, {"type": "number"}), {"x": "5"}) == {"ok": {"x": 5}}


def test_a_recursive_schema_is_quick_on_a_deep_value() -> None:
    part = {"$ref": "#/$defs/part"}
    kinds = [
        {"type": "object", "properties": {"a": part, "b": part, "n": {"type": "integer"}}, "required": [name]}
        for name in ("a", "b", "n", "m")
    ]
    schema = {"type": "object", "properties": {"x": part}, "$defs": {"part": {"anyOf": kinds}}}
    deep: Any = {"n": "1"}
    wanted: Any = {"n": 1}
    for _ in range(40):
        deep, wanted = {"a": deep, "b": {"n": "2"}}, {"a": wanted, "b": {"n": 2}}
    assert outcome("t", schema, {"x": deep}) == {"ok": {"x": wanted}}


@pytest.mark.parametrize("schema", [{"allOf": [{"$ref": "#"}]}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}])
def test_a_schema_that_leads_back_to_itself_accepts_all(schema: dict[str, Any]) -> None:
    assert outcome("t", schema, {"x": [1, "a"]}) == {"ok": {"x": [1, "a"]}}


def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    part = {"type": "array", "items": {"$ref": "#/$defs/part"}}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/part"}}, "$defs": {"part": part}}
    assert "nested too deeply" in outcome("t", schema, {"x": deep})["error"]


SLOW = [
    (r"^(a+)+$", "a" * 60 + "!"),
    (r"^(a|a)*$", "a" * 60 + "!"),
    (r"(x+x+)+y", "x" * 60),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 100),
    (r".*.*.*.*.*b", "a" * 5000),
    (r"(a{0,99}){0,99}b", "a" * 5000),
    ("(a|aa)" * 40 + "b", "a" * 70),
    (r"\s+$", " " * 300_000 + "x"),
    (r"(?x)^(a+) +$", "a" * 60 + "!"),
    (r"[\][](a+)+[]]$", "]" + "a" * 60 + "!"),
]


@pytest.mark.parametrize(("pattern", "text"), SLOW, ids=[pattern[:20] for pattern, _ in SLOW])
def test_slow_patterns_do_not_hold_the_event_loop(pattern: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spindle.base.limits.ARGUMENTS_CHECK", 0.4)
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}

    async def longest_pause() -> float:
        loop = asyncio.get_running_loop()
        checking = asyncio.create_task(validate_async("t", schema, {"x": text}))
        longest, last = 0.0, loop.time()
        while not checking.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, loop.time() - last), loop.time()
        assert "could not be checked: that takes more than 0.4 s" in str(checking.exception())
        return longest

    assert asyncio.run(longest_pause()) < 0.2


def test_all_that_a_schema_can_make_long_is_in_the_budget() -> None:
    far: dict[str, Any] = {"$ref": "#"}
    for _ in range(300):
        far = {"x": far}
    way = "#/far" + "/x" * 300
    schemas = [
        {"far": far, "allOf": [{"$ref": way} for _ in range(100)]},
        {"items": {"type": ["object"] * 30_000}},
        {"items": {"pattern": "(?i)" + "[\\x00-\U0010ffff]" * 60}},
        {"items": {"allOf": [{"pattern": f"{'a' * 900}{n}"} for n in range(20)]}},
    ]
    for schema in schemas:
        with pytest.raises(json_schema.TooMuch):
            json_schema.check(schema, ["x"], 20_000)


@pytest.mark.parametrize("part", ["allOf", "anyOf", "enum", "type", "required", "properties"])
def test_a_schema_that_is_none_refuses_the_call(part: str) -> None:
    assert "do not go with its JSON Schema" in outcome("t", {"type": "object", part: 5.5}, {})["error"]


def test_ordinary_patterns_are_checked_in_full() -> None:
    slug = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}}}
    assert outcome("t", slug, {"x": "a-b-c"}) == {"ok": {"x": "a-b-c"}}
    assert "must match the pattern ^[a-z0-9]+(" in outcome("t", slug, {"x": "A \ud800"})["error"]
    for pattern in (
        r"^\d{4}-\d{2}-\d{2}$",
        r"^[0-9a-f]{8}(?:-[0-9a-f]{4})",
        r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$",
        "^(on|off)?$",
        r"^[A-Z]{2,}-\d+$|^#\d+$",
        r"^https?://[\w.\-]+/[^?#]*$",
        r"^\+?[0-9 ()/.-]+$",
    ):
        json_schema.check({"pattern": pattern}, "2026-11-17", 20_000)  # on the event loop: no `TooMuch`


def test_huge_arguments_are_checked_outside_of_the_event_loop() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}}
    assert outcome("t", schema, {"x": ["7"] * 50_000}) == {"ok": {"x": [7] * 50_000}}
    refused = outcome("t", schema, {"x": ["no"] * 50_000})["error"]
    assert "  - x.99: must be integer\n  - There may be more problems\n" in refused


def test_long_digits_are_read_in_no_time() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number"}}}
    assert "x: must be number" in outcome("t", schema, {"x": "9" * 300_000 + "x"})["error"]
