"""Tools that extensions bring: functions become `Tool`s. Plain functions run in a thread, `async def` on a loop."""

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from spindle.base.signature import read_signature
from spindle.plugins.extensions.context import Context
from spindle.plugins.extensions.generation import Binding
from spindle.plugins.extensions.threads import HERE, Home
from spindle.shapes.builtin_tools import Effect
from spindle.shapes.codec import encode
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import (
    AgentMessage,
    CustomMessage,
    Image,
    KnownMessage,
    OpaqueMessage,
    Text,
    custom_message,
    message_from_value,
)
from spindle.tools.base import Tool, ToolContext, ToolError, text_result
from spindle.tools.validate import validate_arguments

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_RESULT_KEYS = frozenset(("content", "details", "terminate"))
_INJECTED = ("ctx", "update", "call_id")
"""Keyword-only parameters that do not come from the model."""


def make_tool(
    function: Callable[..., Any],
    make_context: Callable[[], Context] | None = None,
    report: Callable[[str, Exception], None] = lambda name, error: None,
    home: Home = HERE,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Any = None,
    annotations: Mapping[str, bool] | None = None,
    output_schema: dict[str, Any] | None = None,
    exposure: Literal["direct", "hidden"] = "direct",
    **options: Any,
) -> Tool:
    """Make a tool of a function. `report` gets errors that are not for the model: bugs.

    Raises `ValueError` for a bad name, `TypeError` for parameters that cannot be described.
    """
    called = name or function.__name__
    if not _NAME.fullmatch(called):  # a name that a model API refuses would make every request fail
        raise ValueError(f'"{called}" cannot be the name of a tool: letters, digits, "_" and "-", at most 64')
    taken = inspect.signature(function).parameters.get("ctx")
    if (
        parameters is None
        and taken is not None
        and (taken.kind, taken.annotation)
        == (
            taken.POSITIONAL_OR_KEYWORD,
            taken.empty,
        )
    ):
        raise TypeError(f"Tool {called}: ctx is given to you if it stands behind a star: def {called}(…, *, ctx)")
    signature = read_signature(
        function, parameters, is_injected=lambda one, _: one.kind is one.KEYWORD_ONLY and one.name in _INJECTED
    )

    async def execute(call_id: str, arguments: Any, tool_context: ToolContext) -> ToolResult:
        ctx = make_context() if make_context is not None else None
        extras = {"ctx": ctx, "update": _updater(called, tool_context), "call_id": call_id}
        positional, named = signature.bind(arguments)
        named |= {name: extras[name] for name in signature.injected}
        try:
            value = await home.call(function, *positional, **named)
        except asyncio.CancelledError:
            if ctx is not None:
                ctx.cancelled.set()
            raise
        except ToolError:
            raise
        except KeyError as error:  # its text is nothing but the key
            report(called, error)
            raise ToolError(f"KeyError: {error}") from error
        except Exception as error:
            report(called, error)
            raise
        result = as_tool_result(value, called)
        if output_schema is not None and result.details is not None:
            await validate_arguments(called, output_schema, result.details)
        return result

    if exposure not in ("direct", "hidden"):
        raise ValueError(f"exposure is direct or hidden, not {exposure!r}")
    hints = annotations or {}
    effect: Effect | None = "destroys" if hints.get("destructiveHint") else None
    options |= {"effect": "reads" if hints.get("readOnlyHint") else effect, "shown": exposure == "direct"}
    text = description if description is not None else inspect.getdoc(function) or ""
    return Tool(called, text, signature.parameters, execute, **options)


def _updater(name: str, tool_context: ToolContext) -> Callable[[Any], None]:
    """Return `update(text_or_result)`, which may be called from any thread."""
    loop = asyncio.get_running_loop()
    home = threading.get_ident()

    def update(progress: Any) -> None:
        result = as_tool_result(progress, name)
        if threading.get_ident() == home:
            tool_context.update(result)
        else:
            loop.call_soon_threadsafe(tool_context.update, result)

    return update


@dataclass(frozen=True, slots=True)
class WrappedTool:
    """A built-in tool for an extension that wraps or replaces it."""

    tool: Tool
    binding: Binding

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def parameters(self) -> dict[str, Any]:
        return self.tool.parameters

    async def run(
        self, arguments: dict[str, Any], *, call_id: str = "", update: Callable[[Any], None] = lambda result: None
    ) -> ToolResult:
        """Run the built-in tool. Raises `ToolError` if it fails."""
        return await self.binding.carry_out(
            lambda agent: self.tool.execute(call_id, arguments, agent.tool_context(update))
        )


_Block = Text | Image


def require_json(value: Any, what: str) -> Any:
    """Return `value`. Raises `TypeError` if it cannot be written as JSON."""
    try:
        encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise TypeError(f"{what} cannot be written as JSON: {error}") from None
    return value


def as_content(value: Any) -> list[Text | Image]:
    """Return content blocks: of a text, of blocks, or of their JSON forms."""
    if isinstance(value, str):
        return [Text(value)]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [item if isinstance(item, _Block) else msgspec.convert(item, _Block) for item in value]
    raise TypeError(f"Content must be a text or a list of blocks, not {type(value).__name__}")


def as_tool_result(value: Any, tool: str) -> ToolResult:
    """Return what a tool function returned as a result: any JSON value is one."""
    if isinstance(value, str):
        return text_result(value)
    if value is None:
        return ToolResult([])
    if isinstance(value, Mapping) and "content" in value and value.keys() <= _RESULT_KEYS:
        with suppress(TypeError, msgspec.ValidationError):  # a value that only looks like a result is plain JSON
            value = ToolResult(as_content(value["content"]), value.get("details"), bool(value.get("terminate", False)))
    require_json(value, f'The result of tool "{tool}"')
    return value if isinstance(value, ToolResult) else text_result(encode(value).decode())


def as_custom_message(value: Any) -> CustomMessage:
    """Return a message of an extension from its wire form, or as it is."""
    if isinstance(value, CustomMessage):
        message = value
    elif isinstance(value, Mapping) and isinstance(value.get("customType"), str):
        content = value.get("content", "")
        message = custom_message(
            value["customType"],
            content if isinstance(content, str) else as_content(content),
            display=bool(value.get("display", True)),
            details=value.get("details"),
        )
    else:
        raise TypeError('A message must be a dict with "customType" and "content"')
    require_json(message, "The message")
    return message


def as_message(value: Any) -> AgentMessage:
    """Return a message of any role from its wire form, or as it is."""
    message = message_from_value(dict(value)) if isinstance(value, Mapping) else value
    if not isinstance(message, KnownMessage | OpaqueMessage):
        raise TypeError(f"A message was expected, not {type(value).__name__}")
    require_json(message, "The message")
    return message


def as_messages(values: Any) -> list[AgentMessage]:
    if not isinstance(values, list | tuple):
        raise TypeError(f'"messages" must be a list, not {type(values).__name__}')
    return [as_message(value) for value in values]
