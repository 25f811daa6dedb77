"""Structs that people write in programs: a wrong keyword is told in words of Python, with a hint."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import fields

if TYPE_CHECKING:
    from msgspec import StructMeta
else:  # older versions have no name for it
    StructMeta = type(Struct)

_ELSEWHERE = {
    "instructions": "prompt",
    "system_prompt": "prompt",
    "updated_input": "input",
    "message": "reason",
    "interrupt": "stop",
    "hooks": "function",
    "callback": "function",
}
"""Names that other libraries have for a field."""


class MadeByHand(StructMeta):
    """The type of such a Struct."""

    if not TYPE_CHECKING:  # type checkers read the fields

        def __call__(cls, *values: Any, **named: Any) -> Any:
            try:
                return super().__call__(*values, **named)
            except TypeError as error:
                raise TypeError(_told(cls, values, named, str(error))) from None


def _told(kind: Any, values: tuple[Any, ...], named: dict[str, Any], error: str) -> str:
    names, called = kind.__struct_fields__, kind.__name__
    for name in named:
        if name not in names:
            from difflib import get_close_matches  # costs 5 ms

            meant = _ELSEWHERE.get(name)
            near = [meant] if meant in names else get_close_matches(name, names, 1, 0.75)
            hint = f" Did you mean {near[0]}?" if near else f" There are: {', '.join(names)}."
            return f"{called}() got an unexpected keyword argument {name!r}.{hint}"
    if "positional" in error:
        return f"{called}() takes its fields by name, as {called}({names[0]}={values[0]!r})"
    needed = [item.name for item in fields(kind)[len(values) :] if item.required and item.name not in named]
    return f"{called}() needs {' and '.join(needed)}" if needed else f"{called}(): {error}"
