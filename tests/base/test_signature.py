"""From signatures to JSON Schema and back."""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.base.signature import Signature, read_signature
from spindle.tools.validate import validate_arguments


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


def read(function, parameters=None) -> Signature:
    return read_signature(function, parameters, is_injected=lambda item, _: item.name in ("ctx", "update", "call_id"))


def properties(function, parameters=None) -> dict[str, Any]:
    return read(function, parameters).parameters["properties"]


def test_names_types_documentation_and_defaults():
    def tool(
        path: Annotated[str, "Where"],
        limit: Annotated[int, "How many"] = 20,
        ratio: float = 0.5,
        deep: bool = False,
        *,
        ctx,
        update,
        call_id,
    ): ...

    signature = read(tool)
    assert signature.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where"},
            "limit": {"type": "integer", "description": "How many", "default": 20},
            "ratio": {"type": "number", "default": 0.5},
            "deep": {"type": "boolean", "default": False},
        },
        "required": ["path"],
    }
    assert signature.injected == {"ctx", "update", "call_id"}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (list[Annotated[str, "each"]], {"type": "array", "items": {"type": "string", "description": "each"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Colour, {"title": "Colour", "enum": ["blue", "red"], "type": "string"}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            Union[Annotated[int, "n"], str],  # noqa: UP007
            {"anyOf": [{"type": "integer", "description": "n"}, {"type": "string"}]},
        ),
        (Any, {}),
        (
            Point,
            {
                "title": "Point",
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "y": {"type": "integer", "default": 0},
                },
                "required": ["x"],
            },
        ),
    ],
)
def test_types(kind, schema):
    def tool(value): ...

    tool.__annotations__["value"] = kind
    found = properties(tool)["value"]
    if "enum" in found:
        found["enum"] = sorted(found["enum"])
    assert found == schema


def test_annotations_as_text_are_read():
    namespace: dict[str, Any] = {}
    source = "from __future__ import annotations\nfrom typing import Annotated\ndef tool(n: Annotated[int, 'N']): ..."
    exec(source, namespace)
    assert properties(namespace["tool"]) == {"n": {"type": "integer", "description": "N"}}


def test_a_signature_that_cannot_be_described_is_refused():
    def variable(*names: str): ...

    def foreign(stream: pytest.MonkeyPatch): ...

    def unknown(value: "Nothing"): ...  # type: ignore[name-defined]  # noqa: F821

    for function in (variable, foreign, unknown):
        with pytest.raises(TypeError):
            read(function)


class Node(msgspec.Struct):
    children: "list[Node]" = []


def test_a_type_that_contains_itself_keeps_its_references():
    def tool(node: Node): ...

    signature = read(tool)
    items = {"$ref": "#/$defs/Node"}
    assert signature.parameters["properties"]["node"]["properties"]["children"]["items"] == items
    assert signature.parameters["$defs"]["Node"]["properties"]["children"]["items"] == items
    assert signature.bind({"node": {"children": [{}]}})[1] == {"node": Node([Node()])}


def test_what_is_injected_may_be_told_by_its_type_and_other_arguments_refused():
    def tool(at: Annotated[Point, "Where"], mark: Colour, n: Annotated[int, msgspec.Meta(ge=1)] = 1): ...

    signature = read_signature(tool, is_injected=lambda _, kind: kind is Colour, closed=True)
    assert (signature.injected, signature.parameters["additionalProperties"]) == (frozenset({"mark"}), False)
    assert signature.parameters["properties"]["n"] == {"type": "integer", "minimum": 1, "default": 1}
    assert signature.bind({"at": {"x": 2}})[1] == {"at": Point(2), "n": 1}
    with pytest.raises(ValueError, match="unknown field"):
        signature.bind({"at": {"x": 2}, "more": 1})


def test_arguments_come_back_as_what_the_function_takes():
    def tool(colour: Colour, at: Point, names: list[str] = [], note: str | None = None): ...  # noqa: B006

    bind = read(tool).bind
    positional, named = bind({"colour": "blue", "at": {"x": 1}})
    assert positional == ()
    assert named == {"colour": Colour.BLUE, "at": Point(1, 0), "names": [], "note": None}
    named["names"].append("x")
    assert bind({"colour": "red", "at": {"x": 1}})[1]["names"] == []


def test_a_given_schema_passes_arguments_by_name_or_as_one():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    def by_name(n): ...

    def all_together(params): ...

    def anything(**params): ...

    assert read(by_name, schema).bind({"n": 1}) == ((), {"n": 1})
    assert read(all_together, schema).bind({"n": 1}) == (({"n": 1},), {})
    assert read(anything, schema).bind({"n": 1}) == ((), {"n": 1})
    assert read(by_name, schema).parameters == schema


class FakePydantic:
    """What matters of a pydantic model."""

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"n": {"$ref": "#/$defs/N"}},
            "required": ["n"],
            "$defs": {"N": {"type": "integer"}},
        }

    @classmethod
    def model_validate(cls, value: dict[str, Any]) -> "FakePydantic":
        return cls(value["n"])


def test_pydantic_models_are_recognised_by_their_methods():
    def given(params): ...

    def annotated(params: FakePydantic, *, ctx): ...

    for signature in (read(given, FakePydantic), read(annotated)):
        assert signature.parameters == {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        }
        (made,), named = signature.bind({"n": 4})
        assert (made.n, named) == (4, {})


@given(st.fixed_dictionaries({"n": st.integers(-(2**53), 2**53), "words": st.lists(st.text())}))
def test_what_the_schema_accepts_the_function_can_be_called_with(arguments):
    def tool(n: int, words: list[str]): ...

    signature = read(tool)
    checked = asyncio.run(validate_arguments("tool", signature.parameters, arguments))
    assert signature.bind(checked) == ((), arguments)
