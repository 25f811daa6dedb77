"""Check the arguments of a tool call against the tool's JSON Schema, after mending common mistakes of models.

The event loop is held for a few milliseconds at most. A check that may take longer (huge arguments, a schema made to be
slow, patterns whose time cannot be foretold) runs in a program of its own, which ends with the task that waits for it.
"""

import json
import sys
from typing import Any

from spindle.base import limits
from spindle.programs import process
from spindle.shapes.codec import decode, encode
from spindle.tools import json_schema
from spindle.tools.base import Tool, ToolError

_MOST_NAMES = 5
_STEPS = 20_000
"""For a check on the event loop."""


async def checked_arguments(tool: Tool, args: Any) -> Any:
    """Return the arguments that the tool gets: repaired, checked, with their types mended. Raises `ToolError`."""
    return await validate_arguments(tool.name, tool.parameters, tool.prepare(args) if tool.prepare else args)


def unknown_options(tool: Tool, args: Any) -> str:
    """Say which of the options of a call mean nothing to the tool, or something else than the sender may think: it was
    run without the first. Empty: none.
    """
    if not isinstance(args, dict):
        return ""
    doubt = tool.doubt(args) if tool.doubt is not None else ""
    if tool.also_takes is None:
        return doubt
    known = tool.parameters["properties"]
    names = [name for name in args if name not in known and name not in tool.also_takes]
    if not names:
        return doubt
    shown = ", ".join(names[:_MOST_NAMES])
    told = f"{tool.name} has no option {shown}: the call was made without it. It has: {', '.join(known)}."
    return f"{told} {doubt}".rstrip()


async def validate_arguments(tool_name: str, schema: dict[str, Any], args: Any) -> Any:
    """Return the arguments with their types mended; `args` itself is not changed.

    Raises `ToolError` with one line per problem and the arguments as they came.
    """
    try:
        try:
            mended, problems = json_schema.check(schema, args, _STEPS)
        except json_schema.TooMuch:
            mended, problems = await _check_apart(tool_name, schema, args)
        if not problems:
            return mended
        received = json.dumps(_plain(args), indent=2, ensure_ascii=False)
    except RecursionError:
        raise ToolError(f'The arguments of tool "{tool_name}" are nested too deeply') from None
    except (AttributeError, TypeError, ValueError) as error:  # a schema that is none
        raise ToolError(f'The arguments of tool "{tool_name}" do not go with its JSON Schema: {error}') from None
    lines = [f"  - {'.'.join(path) or 'root'}: {reason}" for path, reason in problems]
    if len(lines) >= json_schema.MOST_PROBLEMS:
        lines.append("  - There may be more problems")
    raise ToolError(
        f'Validation failed for tool "{tool_name}":\n' + "\n".join(lines) + f"\n\nReceived arguments:\n{received}"
    )


async def _check_apart(tool_name: str, schema: Any, args: Any) -> Any:
    """Do `json_schema.check` in a program of its own. Raises `ToolError` if that takes too long."""
    try:
        ended = await process.run(
            [sys.executable, "-I", "-S", json_schema.__file__],
            cwd="/",
            env={"PYTHONIOENCODING": "utf-8"},
            input=encode([schema, args]),
            timeout=limits.ARGUMENTS_CHECK,
            grace=0,
        )
        if ended.code == 0:
            return decode(ended.output)
    except OSError as error:
        raise ToolError(f'The arguments of tool "{tool_name}" could not be checked: {error}') from None
    why = f"that takes more than {limits.ARGUMENTS_CHECK:g} s" if ended.timed_out else "its JSON Schema is too complex"
    raise ToolError(f'The arguments of tool "{tool_name}" could not be checked: {why}')


def _plain(value: Any) -> Any:
    """Write 5.0 as 5, like the program that sent it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
