"""What a tool is, for those who write tools and for the loop that runs them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from spindle.shapes.content import Text
from spindle.shapes.events import ToolResult
from spindle.shapes.models import Model

__all__ = ["Tool", "ToolContext", "ToolError", "ToolSettings", "text_result"]


class ToolError(Exception):
    """A tool failed in a way the model should read about: the text becomes an error result."""


class ToolSettings(Struct, frozen=True):
    """User settings that built-in tools obey."""

    shell_path: str | None = None
    shell_command_prefix: str | None = None
    auto_resize_images: bool = True
    bin_dir: str | None = None
    """`<agent dir>/bin`: searched for rg and fd, and put in front of PATH of shell commands."""


class ToolContext(Struct):
    """What one call gets besides its arguments. Abort arrives as asyncio cancellation."""

    cwd: str
    update: Callable[[ToolResult], None] = lambda result: None
    """Report progress; the whole result so far, not a difference."""
    model: Model | None = None
    env: Mapping[str, str] = {}
    """Extra variables for child processes."""
    settings: ToolSettings = ToolSettings()


class Tool(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments."""
    execute: Callable[[str, Any, ToolContext], Awaitable[ToolResult]]
    """`(tool_call_id, arguments, context)`. Fails by raising; on cancellation it may raise `ToolError`
    with the last words of the result, else the loop says `Operation aborted`."""
    label: str = ""
    snippet: str = ""
    """One line for the system prompt; a tool without one is not listed there."""
    guidelines: tuple[str, ...] = ()
    prepare: Callable[[Any], Any] | None = None
    """Repairs raw arguments before validation."""
    sequential: bool = False
    """Never together with other calls of the same answer."""
    interruptible: bool = True
    """False: steering waits for it, because stopping half-way would leave a mess."""


def text_result(text: str, details: Any = None) -> ToolResult:
    return ToolResult([Text(text)], details)
