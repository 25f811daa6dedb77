"""Mend a value as far as a JSON Schema allows, and find what the schema still refuses. Imports nothing of ours.

Known keywords: $ref (within the schema), type, properties, required, additionalProperties, items, enum, const, pattern,
anyOf, oneOf, allOf and the minimum/maximum family. Others are ignored: a schema may say more than is checked here.

Schemas come from strangers. A value is checked once against each part of the schema, however often the schema leads
there; `check` takes a budget; and this file is also a program, which `validate` can stop when a check takes too long.
"""

import operator
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import NoneType
from typing import Any

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_HEX_NUMBER = re.compile(r"\s*0[xX][0-9a-fA-F]+\s*")
_SINGLE = re.compile(r"\\[dDwWsSbB]|\\[^\w\s]|\[\^?(?:[^\\\[\]]|\\[dDwWsS]|\\[^\w\s])+\]")
"""A piece of a pattern that stands for one character: an escape, or a class."""
_PLAIN_PATTERN = re.compile(rf"(?:{_SINGLE.pattern}|\(\?:|[^\\\[\](?]|\((?!\?)|(?<!\()\?)*+")
"""Patterns of which we know how they are read: no flags, references, comments and other signs behind `(?`."""
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

_Path = tuple[str, ...]
Problem = tuple[_Path, str]
"""Where it is, from the root of the value, and what is wrong."""
MOST_PROBLEMS = 100
"""More are not looked for: their text goes to a model."""
_MOST_REFERENCES = 100
"""References to follow, one after the other: they may form a circle."""
_MOST_MEMORY = 2 << 30
"""For the program, in bytes."""


class TooMuch(Exception):
    """The check would take longer than it may."""


def check(schema: Any, value: Any, budget: int | None = None) -> tuple[Any, list[Problem]]:
    """Return the value with its types mended, and its problems then. The value itself is not changed.

    `budget`: how many steps this may take, about a microsecond each; patterns that may be slow are not tried then.
    Raises `TooMuch`, and `RecursionError` for values nested too deeply.
    """
    checking = _Check(schema, budget)
    mended = checking.mend(schema, value)
    return mended, checking.problems(schema, mended)


class _Check:
    """One value, or the parts of it, against one schema."""

    def __init__(self, root: Any, budget: int | None) -> None:
        self._root = root
        self._bounded = budget is not None
        self._left = budget or 0
        self._followed: dict[int, Any] = {}
        self._patterns: set[str] = set()
        """Patterns that were tried: Python keeps what it made of them."""
        self._mended: dict[tuple[int, int], tuple[Any, Any]] = {}
        """By the ids of schema and value. The value is held here: another one must not get its id."""
        self._found: dict[tuple[int, int], tuple[Any, list[Problem]]] = {}

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._bounded and self._left < 0:
            raise TooMuch

    def _follow(self, schema: Any) -> Any:
        """Return the part of the root that `$ref` leads to; if there is none, a schema that accepts all."""
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        key = id(schema)
        if key not in self._followed:
            self._followed[key] = self._target(schema)
        return self._followed[key]

    def _target(self, schema: Any) -> Any:
        for _ in range(_MOST_REFERENCES):
            if not isinstance(schema, dict) or not isinstance(target := schema.get("$ref"), str):
                return schema
            self._spend(len(target))
            schema = self._root
            for name in target.removeprefix("#").split("/")[1:]:
                name = name.replace("~1", "/").replace("~0", "~")
                schema = schema.get(name) if isinstance(schema, dict) else None
        return True

    def _types(self, schema: dict[str, Any]) -> list[str]:
        kind = schema.get("type", [])
        types = [kind] if isinstance(kind, str) else list(kind)
        self._spend(len(types))
        return types

    # -- mending ---------------------------------------------------------------------------------

    def mend(self, schema: Any, value: Any) -> Any:
        schema = self._follow(schema)
        if not isinstance(schema, dict):
            return value
        key = id(schema), id(value)
        if key not in self._mended:
            self._mended[key] = value, value  # for a schema that leads back to itself
            self._mended[key] = value, self._mend(schema, value)
        return self._mended[key][1]

    def _mend(self, schema: dict[str, Any], value: Any) -> Any:
        self._spend(10)
        for member in schema.get("allOf", ()):
            value = self.mend(member, value)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                value = self._mend_for_one(schema[keyword], value)
        types = self._types(schema)
        if types and not any(_is(value, kind) for kind in types):
            value = next((mended for kind in types if (mended := _convert(kind, value)) is not _NONE), value)
        if isinstance(value, dict):
            return self._mend_object(schema, value)
        if isinstance(value, list):
            self._spend(len(value))
            return [self.mend(_item_schema(schema, index), item) for index, item in enumerate(value)]
        if isinstance(value, float) and value.is_integer() and ("integer" in types or "number" in types):
            return int(value)
        return value

    def _mend_for_one(self, members: list[Any], value: Any) -> Any:
        """Return the value, mended if need be, for the first schema that accepts it."""
        self._spend(len(members))
        for one in members:
            if self._accepts(one, value):
                return value
        for one in members:
            if self._accepts(one, mended := self.mend(one, value)):
                return mended
        return value

    def _mend_object(self, schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        self._spend(len(value) + len(required))
        mended = {}
        for key, item in value.items():
            item_schema = properties.get(key, schema.get("additionalProperties", True))
            if item is None and key in properties and key not in required and not self._accepts(item_schema, None):
                continue  # Models write null for "not given".
            mended[key] = self.mend(item_schema, item)
        for key in required:
            # Some servers list fields under `required` that they fill in themselves if they are not given.
            inner = properties.get(key) if key not in mended else None
            if isinstance(inner, dict) and "default" in inner and self._accepts(inner, inner["default"]):
                mended[key] = inner["default"]
        return mended

    # -- checking --------------------------------------------------------------------------------

    def problems(self, schema: Any, value: Any) -> list[Problem]:
        """Return the problems of a value, at most `MOST_PROBLEMS`."""
        schema = self._follow(schema)
        if schema is False:
            return [((), "schema is false")]
        if not isinstance(schema, dict):
            return []
        key = id(schema), id(value)
        if key not in self._found:
            self._found[key] = value, []  # for a schema that leads back to itself
            self._found[key] = value, list(islice(self._problems(schema, value), MOST_PROBLEMS))
        return self._found[key][1]

    def _accepts(self, schema: Any, value: Any) -> bool:
        return not self.problems(schema, value)

    def _below(self, name: str, schema: Any, value: Any) -> Iterator[Problem]:
        for path, reason in self.problems(schema, value):
            yield (name, *path), reason

    def _problems(self, schema: dict[str, Any], value: Any) -> Iterator[Problem]:
        self._spend(10)
        types = self._types(schema)
        if types and not any(_is(value, kind) for kind in types):
            yield (), f"must be {' or '.join(types)}"
        if isinstance(value, dict):
            yield from self._object_problems(schema, value)
        elif isinstance(value, list):
            self._spend(len(value))
            for index, item in enumerate(value):
                yield from self._below(str(index), _item_schema(schema, index), item)
        for reason in self._own_problems(schema, value):
            yield (), reason
        yield from self._union_problems(schema, value)

    def _own_problems(self, schema: dict[str, Any], value: Any) -> Iterator[str]:
        """Yield the problems of the value itself, not of the values in it."""
        if _is(value, "number"):
            for keyword, holds, reason in _LIMITS:
                if keyword in schema and not holds(value, schema[keyword]):
                    yield reason.format(format_number(schema[keyword]))
        elif isinstance(value, str) and not self._fits_pattern(schema.get("pattern"), value):
            yield f"must match the pattern {schema['pattern']}"
        if type(value) in _SIZES:
            keyword, things = _SIZES[type(value)]
            if len(value) < (least := schema.get("min" + keyword, 0)):
                yield f"must not have fewer than {least} {things}"
            if len(value) > (most := schema.get("max" + keyword, len(value))):
                yield f"must not have more than {most} {things}"
        if "const" in schema and not _same(value, schema["const"]):
            yield "must be equal to constant"
        if "enum" in schema:
            self._spend(len(schema["enum"]))
            if not any(_same(value, allowed) for allowed in schema["enum"]):
                yield "must be equal to one of the allowed values"

    def _fits_pattern(self, pattern: Any, text: str) -> bool:
        if not isinstance(pattern, str):
            return True
        if self._bounded:
            self._spend(_pattern_steps(pattern, len(text)))
            if pattern not in self._patterns:
                self._spend(10 * len(pattern))  # to read it
                self._patterns.add(pattern)
        try:
            return re.search(pattern, text) is not None
        except (re.error, OverflowError):  # a pattern in another dialect
            return True

    def _object_problems(self, schema: dict[str, Any], value: dict[str, Any]) -> Iterator[Problem]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        self._spend(len(properties) + len(required) + len(value))
        if missing := [name for name in required if name not in value]:
            yield (missing[0],), f"must have required properties {', '.join(missing)}"
        for name, item_schema in properties.items():
            if name in value:
                yield from self._below(name, item_schema, value[name])
        extra_schema = schema.get("additionalProperties", True)
        refused = False
        for name, item in value.items():
            if name not in properties:
                for problem in self._below(name, extra_schema, item):
                    refused = True
                    yield problem
        if refused:
            yield (), "must not have additional properties"

    def _union_problems(self, schema: dict[str, Any], value: Any) -> Iterator[Problem]:
        for member in schema.get("allOf", ()):
            yield from self.problems(member, value)
        for keyword, reason in _UNIONS:
            if keyword not in schema:
                continue
            self._spend(len(schema[keyword]))
            found = [self.problems(member, value) for member in schema[keyword]]
            matches = found.count([])
            if matches == 0:
                yield from (problem for problems in found for problem in problems)
            if matches == 0 or (keyword == "oneOf" and matches > 1):
                yield (), reason


def _pattern_steps(pattern: str, length: int) -> int:
    """Return an upper bound of the time that the search for a pattern takes. Raises `TooMuch` if there is none."""
    if len(pattern) > 1000 or not _PLAIN_PATTERN.fullmatch(pattern):
        raise TooMuch
    plain = _SINGLE.sub("x", pattern)
    if re.search(r"\)[*+{]", plain):  # a repetition of repetitions
        raise TooMuch
    repetitions = len(re.findall(r"[*+]|\{\d*,", plain))
    choices = len(re.findall(r"\||(?<!\()\?", plain))
    return int(min((length + 1) ** min(repetitions + 1, 20) * 2 ** min(choices, 60) / 20, sys.maxsize))


# -- values ----------------------------------------------------------------------------------------


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


def format_number(value: int | float) -> str:
    """Write a number the way JSON clients do: no `.0`, short exponents."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    text = repr(value)
    mantissa, exponent_sign, exponent = text.partition("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}" if exponent_sign else text


# -- the program -----------------------------------------------------------------------------------


def main() -> None:
    """Read `[schema, value]` from stdin, and write `[mended value, problems]` to stdout."""
    import json
    import resource

    with suppress(OSError, ValueError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    schema, value = json.load(sys.stdin.buffer)
    json.dump(check(schema, value), sys.stdout)


if __name__ == "__main__":
    main()
