"""Tools that extensions bring: functions become `Tool`s. Plain functions run in a thread, `async def` on the loop."""

import asyncio
import inspect
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spindle.extensions.context import Context
from spindle.agent.session import AgentSession
from spindle.extensions.threads import call
from spindle.extensions.values import as_tool_result
from spindle.shapes.events import ToolResult
from spindle.signature import read_signature
from spindle.tools.base import Tool, ToolContext

__all__ = ["BuiltinTool", "make_tool"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INJECTED = ("ctx", "update", "call_id")
"""Keyword-only parameters that do not come from the model."""


def make_tool(
    function: Callable[..., Any],
    make_context: Callable[[], Context],
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Any = None,
    **options: Any,
) -> Tool:
    """Make a tool of a function. Raises `ValueError` for its name, `TypeError` for what cannot be described."""
    called = name or function.__name__
    if not _NAME.fullmatch(called):  # one that a model API refuses would make every request fail
        raise ValueError(f'"{called}" cannot be the name of a tool: letters, digits, "_" and "-", at most 64')
    signature = read_signature(function, parameters, is_injected=_is_injected)

    async def execute(call_id: str, arguments: Any, tool_context: ToolContext) -> ToolResult:
        ctx = make_context()
        extras = {"ctx": ctx, "update": _updater(called, tool_context), "call_id": call_id}
        positional, named = signature.bind(arguments)
        named |= {name: extras[name] for name in signature.injected}
        try:
            return as_tool_result(await call(function, *positional, **named), called)
        except asyncio.CancelledError:
            ctx.cancelled.set()
            raise

    text = description if description is not None else inspect.getdoc(function) or ""
    return Tool(called, text, signature.parameters, execute, **options)


def _is_injected(parameter: inspect.Parameter, kind: Any) -> bool:
    return parameter.kind is parameter.KEYWORD_ONLY and parameter.name in _INJECTED


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
class BuiltinTool:
    """A built-in tool in the hands of an extension that wants to wrap or replace it."""

    tool: Tool
    agent: Callable[[], AgentSession]

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
        """Do what the built-in would have done. Raises `ToolError` where it would have failed."""
        return await self.tool.execute(call_id, arguments, self.agent().tool_context(update))
