"""Those who want to be asked before the agent acts."""

from typing import Any, Protocol

from spindle.tools.base import Tool

__all__ = ["Guard"]


class Guard(Protocol):
    """Asked before model calls and tools. It may wait as long as it likes; an abort ends the wait."""

    async def before_turn(self) -> None:
        """Let the next model call happen, or raise `Aborted`."""

    async def before_tool(self, tool: Tool, arguments: Any) -> None:
        """Let the call happen, or raise `Blocked` with what the model is told."""
