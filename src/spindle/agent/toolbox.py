"""The tools a session has: built in, added by extensions, lent by the host; and which of them the model may use."""

from collections.abc import Iterable, Mapping

from spindle.llm.stream import ToolSpec
from spindle.tools.base import Tool

__all__ = ["Toolbox"]


class Toolbox:
    def __init__(
        self, tools: Mapping[str, Tool], active: Iterable[str], *, only_named: bool = False, never: Iterable[str] = ()
    ) -> None:
        """Begin with `tools`, of which `active` may be used. Names without a tool yet count when it is added.

        `only_named` keeps tools of extensions inactive unless they were named; `never` keeps any so for good.
        """
        self._tools = dict(tools)
        self._named = dict.fromkeys(active)
        self._only_named = only_named
        self._never = frozenset(never)
        self.active = [name for name in self._named if name in self._tools and name not in self._never]
        """Names in the order the model is told of them."""

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def add(self, tool: Tool, *, active: bool = True) -> None:
        """Register a tool, replacing one of the same name."""
        self._tools[tool.name] = tool
        wanted = active or tool.name in self._named
        if wanted and tool.name not in self._never and tool.name not in self.active:
            self.active.append(tool.name)

    def add_extension_tool(self, tool: Tool) -> None:
        """Register a tool that nobody asked for by name: active unless the user made a choice without it."""
        self.add(tool, active=not self._only_named)

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
