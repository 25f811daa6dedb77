"""The tools a session has: built in, added by extensions, lent by the host; and which of them the model may use."""

from collections.abc import Iterable, Mapping

from spindle.llm.stream import ToolSpec
from spindle.tools.base import Tool

__all__ = ["Toolbox"]


class Toolbox:
    def __init__(self, tools: Mapping[str, Tool], active: Iterable[str]) -> None:
        self._tools = dict(tools)
        self.active = [name for name in dict.fromkeys(active) if name in self._tools]
        """Names in the order the model is told of them."""

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def add(self, tool: Tool, *, active: bool = True) -> None:
        """Register a tool, replacing one of the same name."""
        self._tools[tool.name] = tool
        if active and tool.name not in self.active:
            self.active.append(tool.name)

    def remove(self, name: str) -> None:
        self._tools.pop(name, None)
        self.active = [other for other in self.active if other != name]

    def activate(self, names: Iterable[str]) -> None:
        """Set the active tools; unknown names are ignored."""
        self.active = [name for name in dict.fromkeys(names) if name in self._tools]

    def find(self, name: str) -> Tool | None:
        """Return an active tool."""
        return self._tools.get(name) if name in self.active else None

    def all(self) -> list[Tool]:
        return list(self._tools.values())

    def active_tools(self) -> list[Tool]:
        return [self._tools[name] for name in self.active]

    def specs(self) -> list[ToolSpec]:
        return [ToolSpec(tool.name, tool.description, tool.parameters) for tool in self.active_tools()]
