"""Check the arguments of a tool call against the tool's JSON Schema, after mending common mistakes of models.

Known keywords: $ref (within the schema), type, properties, required, additionalProperties, items, enum, const, pattern,
anyOf, oneOf, allOf and the minimum/maximum family. Others are ignored: a schema may say more than is checked here.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

from spindle.tools.base import ToolError, format_number

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_HEX_NUMBER = re.compile(r"\s*0[xX][0-9a-fA-F]+\s*")
_NONE = object()
_TYPES: dict[str, Any] = {
    "string": str,
    "number": int | float,
    "integer": int | float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": NoneType,
}

_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", operator.ge, "must be >= {}"),
    ("exclusiveMinimum", operator.gt, "must be > {}"),
    ("maximum", operator.le, "must be <= {}"),
    ("exclusiveMaximum", operator.lt, "must be < {}"),
)
_SIZES: dict[type, tuple[str, str]] = {
    str: ("Length", "characters"),
    list: ("Items", "items"),
    dict: ("Properties", "properties"),
}
_UNIONS = (("anyOf", "must match a schema in anyOf"), ("oneOf", "must match exactly one schema in oneOf"))


def validate_arguments(tool_name: str, schema: dict[str, Any], args: Any) -> Any:
    """Return the arguments with their types mended; `args` itself is not changed.

    Raises `ToolError` with one line per problem and the arguments as they came.
    """
    mended = _mend(schema, args, schema)
    problems = [f"  - {'.'.join(path) or 'root'}: {reason}" for path, reason in _problems(schema, mended, (), schema)]
    if not problems:
        return mended
    received = json.dumps(_plain(args), indent=2, ensure_ascii=False)
    raise ToolError(
        f'Validation failed for tool "{tool_name}":\n' + "\n".join(problems) + f"\n\nReceived arguments:\n{received}"
    )


# -- mending -------------------------------------------------------------------------------------


def _mend(schema: Any, value: Any, root: Any) -> Any:
    schema = _followed(schema, root)
    if not isinstance(schema, dict):
        return value
    for member in schema.get("allOf", ()):
        value = _mend(member, value, root)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            value = _mend_for_one(schema[keyword], value, root)
    types = _types(schema)
    if types and not any(_is(value, kind) for kind in types):
        value = next((mended for kind in types if (mended := _convert(kind, value)) is not _NONE), value)
    if isinstance(value, dict):
        return _mend_object(schema, value, root)
    if isinstance(value, list):
        return [_mend(_item_schema(schema, index), item, root) for index, item in enumerate(value)]
    if isinstance(value, float) and value.is_integer() and ("integer" in types or "number" in types):
        return int(value)
    return value


def _mend_for_one(members: list[Any], value: Any, root: Any) -> Any:
    """Return the value, mended if need be, for the first schema that accepts it."""
    candidates = [(one, value) for one in members] + [(one, _mend(one, value, root)) for one in members]
    return next((mended for one, mended in candidates if _accepts(one, mended, root)), value)


def _mend_object(schema: dict[str, Any], value: dict[str, Any], root: Any) -> dict[str, Any]:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    mended = {}
    for key, item in value.items():
        item_schema = properties.get(key, schema.get("additionalProperties", True))
        if item is None and key in properties and key not in required and not _accepts(item_schema, None, root):
            continue  # Models write null for "not given".
        mended[key] = _mend(item_schema, item, root)
    return mended


def _convert(kind: str, value: Any) -> Any:
    """Return the value as a `kind`, or `_NONE` if that is impossible."""
    match kind:
        case "string":
            if value is None:
                return ""
            if isinstance(value, bool):
                return "true" if value else "false"
            return format_number(value) if isinstance(value, int | float) else _NONE
        case "number" | "integer":
            number = _to_number(value)
            return number if number is not _NONE and _is(number, kind) else _NONE
        case "boolean":
            if value is None:
                return False
            if isinstance(value, str):
                return {"true": True, "false": False}.get(value, _NONE)
            return bool(value) if isinstance(value, int | float) and value in (0, 1) else _NONE
        case "null":
            return None if value in ("", 0, False) else _NONE
        case _:
            return _NONE


def _to_number(value: Any) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return _NONE
    if _HEX_NUMBER.fullmatch(value):
        return int(value, 16)
    number = float(value) if _NUMBER.fullmatch(value) else float("inf")
    if number in (float("inf"), float("-inf")):
        return _NONE
    return int(number) if number.is_integer() else number


# -- checking ------------------------------------------------------------------------------------

_Path = tuple[str, ...]
_MOST_REFERENCES = 100
"""References to follow, one after the other: they may form a circle."""


def _followed(schema: Any, root: Any) -> Any:
    """Return the part of `root` that a schema with `$ref` refers to; if there is none, a schema that accepts all."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict) or not isinstance(target := schema.get("$ref"), str):
            return schema
        schema = root
        for name in target.removeprefix("#").split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if isinstance(schema, dict) else None
    return True


def _problems(schema: Any, value: Any, path: _Path, root: Any) -> Iterator[tuple[_Path, str]]:
    schema = _followed(schema, root)
    if schema is False:
        yield path, "schema is false"
    if not isinstance(schema, dict):
        return
    types = _types(schema)
    if types and not any(_is(value, kind) for kind in types):
        yield path, f"must be {' or '.join(types)}"
    if isinstance(value, dict):
        yield from _object_problems(schema, value, path, root)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(_item_schema(schema, index), item, (*path, str(index)), root)
    for reason in _own_problems(schema, value):
        yield path, reason
    yield from _union_problems(schema, value, path, root)


def _own_problems(schema: dict[str, Any], value: Any) -> Iterator[str]:
    """Yield the problems of the value itself, not of the values in it."""
    if _is(value, "number"):
        for keyword, holds, reason in _LIMITS:
            if keyword in schema and not holds(value, schema[keyword]):
                yield reason.format(format_number(schema[keyword]))
    elif isinstance(value, str) and not _fits_pattern(schema.get("pattern"), value):
        yield f"must match the pattern {schema['pattern']}"
    if type(value) in _SIZES:
        keyword, things = _SIZES[type(value)]
        if len(value) < (least := schema.get("min" + keyword, 0)):
            yield f"must not have fewer than {least} {things}"
        if len(value) > (most := schema.get("max" + keyword, len(value))):
            yield f"must not have more than {most} {things}"
    if "const" in schema and not _same(value, schema["const"]):
        yield "must be equal to constant"
    if "enum" in schema and not any(_same(value, allowed) for allowed in schema["enum"]):
        yield "must be equal to one of the allowed values"


def _fits_pattern(pattern: Any, text: str) -> bool:
    try:
        return not isinstance(pattern, str) or re.search(pattern, text) is not None
    except re.error:  # a pattern in another dialect
        return True


def _object_problems(
    schema: dict[str, Any], value: dict[str, Any], path: _Path, root: Any
) -> Iterator[tuple[_Path, str]]:
    properties = schema.get("properties", {})
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        yield (*path, missing[0]), f"must have required properties {', '.join(missing)}"
    for name, item_schema in properties.items():
        if name in value:
            yield from _problems(item_schema, value[name], (*path, name), root)
    extra_schema = schema.get("additionalProperties", True)
    refused = [
        problem
        for name, item in value.items()
        if name not in properties
        for problem in _problems(extra_schema, item, (*path, name), root)
    ]
    if refused:
        yield from refused
        yield path, "must not have additional properties"


def _union_problems(schema: dict[str, Any], value: Any, path: _Path, root: Any) -> Iterator[tuple[_Path, str]]:
    for member in schema.get("allOf", ()):
        yield from _problems(member, value, path, root)
    for keyword, reason in _UNIONS:
        if keyword not in schema:
            continue
        found = [list(_problems(member, value, path, root)) for member in schema[keyword]]
        matches = found.count([])
        if matches == 0:
            yield from (problem for problems in found for problem in problems)
        if matches == 0 or (keyword == "oneOf" and matches > 1):
            yield path, reason


def _accepts(schema: Any, value: Any, root: Any) -> bool:
    return next(_problems(schema, value, (), root), None) is None


def _types(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _item_schema(schema: dict[str, Any], index: int) -> Any:
    items = schema.get("items", True)
    if isinstance(items, list):
        return items[index] if index < len(items) else True
    return items


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in _TYPES:  # in Python a bool is a number, too
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, object)) and (kind != "integer" or value % 1 == 0)


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _plain(value: Any) -> Any:
    """Write 5.0 as 5, like the program that sent it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
