"""The schema of an answer: a type of the program, or a JSON Schema that it has written."""

from collections.abc import Iterator
from typing import Any

from spindle.base.signature import read_type
from spindle.base.spelling import did_you_mean


def json_schema(schema: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a type. Raises `TypeError` if there is none."""
    if schema is None:
        return None
    try:
        found = read_type(schema)[0]
    except TypeError as error:
        raise TypeError(f"schema must be a type that JSON can hold, or a JSON Schema: {error}") from None
    if (fault := next(_faults(found), None)) is not None:
        raise TypeError(f"schema is no JSON Schema: {fault}")
    if found and not found.keys() & _SAYING:
        raise TypeError(
            f"schema says nothing about values: is it an example? There is none of {', '.join(sorted(_SAYING))} in it"
        )
    return found


_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_SAYING = {"type", "enum", "const", "required", "$ref", *_BY_NAME[:2], *_ONE, *_SEVERAL} - {"then", "else"}


def _faults(schema: Any, where: str = "") -> Iterator[str]:
    """Yield what is wrong with a schema, in words."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{where or 'it'} must be a schema, as {{'type': 'string'}}, not {schema!r}"
        return
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in _TYPES:
            yield f"there is no type {kind!r}.{did_you_mean(str(kind), _TYPES)}"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"{where}required must be a list of names, not {required!r}"
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            for name, part in value.items():
                yield from _faults(part, f"{where}{key}.{name}")
        elif key in _ONE:
            yield from _faults(value, f"{where}{key}")
        elif key in _SEVERAL and isinstance(value, list):
            for part in value:
                yield from _faults(part, f"{where}{key}")
        elif key in (*_BY_NAME, *_SEVERAL):
            yield f"{where}{key} must be {'a dict' if key in _BY_NAME else 'a list'} of schemas, not {value!r}"
