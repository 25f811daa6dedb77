"""JSON Schema from the signature of a function, and the way back: a model's arguments become those of the function.

`Annotated[T, "text"]` and `Annotated[T, msgspec.Meta(…)]` document a parameter; `Literal`, `Enum`, `Optional`, lists,
dicts, dataclasses, msgspec Structs and defaults are understood. Pydantic models are recognised by their methods;
pydantic itself is not imported. Tools of extensions and of Python clients are described here.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import GenericAlias, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from spindle.base.spelling import did_you_mean

Bind: TypeAlias = Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called by a model."""

    parameters: dict[str, Any]
    """JSON Schema."""
    bind: Bind
    """Turns checked arguments into positional and keyword ones. Raises `ValueError`."""
    injected: frozenset[str]
    """The parameters that do not come from the model; the caller fills them in by name."""


def read_signature(
    function: Callable[..., Any],
    parameters: Any = None,
    *,
    is_injected: Callable[[inspect.Parameter, Any], bool],
    closed: bool = False,
) -> Signature:
    """Read how `function` is to be called. `parameters` is a JSON Schema or a pydantic model, if there is one.

    `is_injected` gets a parameter and its type, and says whether the caller fills it in. `closed` refuses arguments
    that the function does not name. Raises `TypeError` if a parameter cannot be described to a model.
    """
    declared, hints = inspect.signature(function).parameters, _hints(function)
    injected = frozenset(name for name, item in declared.items() if is_injected(item, hints.get(name)))
    own = {name: item for name, item in declared.items() if name not in injected}
    if parameters is None and len(own) == 1 and _is_model(hints.get(next(iter(own)))):
        parameters = hints[next(iter(own))]
    if parameters is None:
        schema, bind = _from_parameters(function, own, hints, closed)
    elif _is_model(parameters):
        schema, bind = parameters.model_json_schema(), _bind_model(parameters)
    elif isinstance(parameters, dict):
        schema, bind = parameters, _bind_plain(own, parameters)
    else:
        raise TypeError(f"parameters must be a JSON Schema or a pydantic model, not {type(parameters).__name__}")
    return Signature(_inlined(schema), bind, injected)


def read_type(kind: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the JSON Schema of a type, and a function that converts JSON to the type. A schema is taken as it is.

    Raises `TypeError` for a type that JSON Schema cannot describe. The conversion raises `ValueError`.
    """
    if isinstance(kind, dict):
        return kind, lambda value: value
    if _is_model(kind):
        return _inlined(kind.model_json_schema()), kind.model_validate
    try:
        schema = msgspec.json.schema(kind)
    except (TypeError, RuntimeError):
        raise TypeError(f"JSON Schema cannot describe {kind!r}") from None
    return _inlined(schema), lambda value: msgspec.convert(value, kind)


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


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"A type of {_name(function)} is not known where it is defined: {error}") from None


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


# -- from a signature ----------------------------------------------------------------------------


def _from_parameters(
    function: Callable[..., Any], own: dict[str, inspect.Parameter], hints: dict[str, Any], closed: bool
) -> tuple[dict[str, Any], Bind]:
    fields: list[Any] = []
    for name, item in own.items():
        if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
            raise TypeError(f"{_name(function)}: *args and **kwargs cannot be described; give parameters= instead")
        field: tuple[Any, ...] = (name, _documented(hints.get(name, Any)))
        if isinstance(item.default, list | dict | set):
            field += (msgspec.field(default_factory=item.default.copy),)  # not shared between calls
        elif item.default is not item.empty:
            field += (item.default,)
        fields.append(field)
    try:
        shape = msgspec.defstruct(_name(function), fields, kw_only=True, forbid_unknown_fields=closed)
        schema = msgspec.json.schema(shape)
    except TypeError as error:
        which = next(
            (f"{name}: {hints[name]!r}" for name in own if name in hints and not _is_known(hints[name])), error
        )
        raise TypeError(f"{_name(function)}: JSON Schema cannot describe {which}. Give parameters= instead") from None

    def bind(arguments: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = msgspec.convert(arguments, shape)
        return (), {name: getattr(made, name) for name in own}

    return schema, bind


def _is_known(kind: Any) -> bool:
    try:
        msgspec.json.schema(_documented(kind))
    except TypeError:
        return False
    return True


def _documented(kind: Any) -> Any:
    """Turn texts in `Annotated` into descriptions, at every depth."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        notes = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in inner[1:]]
        known = [note for note in notes if isinstance(note, msgspec.Meta)]
        return Annotated[(_documented(inner[0]), *known)] if known else _documented(inner[0])
    if origin is None or not any(get_origin(item) is not None for item in inner):
        return kind
    changed = tuple(_documented(item) for item in inner)
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, changed)
    return GenericAlias(origin, changed) if isinstance(origin, type) else kind


# -- from a schema or a model --------------------------------------------------------------------


def _bind_model(model: Any) -> Bind:
    return lambda arguments: ((model.model_validate(arguments),), {})


def _bind_plain(own: dict[str, inspect.Parameter], schema: dict[str, Any]) -> Bind:
    """Pass arguments by name, or as one object to a function whose only parameter is not in the schema."""
    names = list(own)
    single = len(names) == 1 and own[names[0]].kind is not inspect.Parameter.VAR_KEYWORD
    if single and names[0] not in schema.get("properties", {}):
        return lambda arguments: ((arguments,), {})
    return lambda arguments: ((), dict(arguments))


_ENUM_TYPES = {str: "string", int: "integer", bool: "boolean"}
"""Types of the values of `Literal` and `Enum`; some model APIs want to be told."""


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions where they are used: not every model API follows `$ref`, nor does the check of arguments.

    A type that contains itself keeps its references.
    """
    definitions = schema.get("$defs", {})
    endless: set[str] = set()

    def inline(value: Any, above: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [inline(item, above) for item in value]
        if not isinstance(value, dict):
            return value
        name = str(value.get("$ref", "")).removeprefix("#/$defs/")
        rest = {key: inline(item, above) for key, item in value.items() if key not in ("$ref", "$defs")}
        if isinstance(values := value.get("enum"), list) and "type" not in value:
            kinds = {_ENUM_TYPES.get(type(item)) for item in values}
            rest |= {"type": kinds.pop()} if len(kinds) == 1 else {}
        if name not in definitions:
            return rest if "$ref" not in value else {**value}
        if name in above:
            endless.add(name)
            return {"$ref": value["$ref"], **rest}
        return {**inline(definitions[name], (*above, name)), **rest}

    result: dict[str, Any] = inline(schema, ())
    if schema.get("$ref"):
        result.pop("title", None)
    return {**result, "$defs": definitions} if endless else result
