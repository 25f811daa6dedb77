"""The tools a session has: built in, added by extensions, lent by the host; and which of them the model may use."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from spindle.shapes.builtin_tools import TOOLS, of_kind
from spindle.tools.base import Tool


class Toolbox:
    def __init__(
        self, tools: Mapping[str, Tool], active: Iterable[str], *, only_named: bool = False, never: Iterable[str] = ()
    ) -> None:
        """Begin with `tools`; the model may use those in `active`. Names without a tool count once a tool is added.

        With `only_named`, tools of plugins are inactive unless they are in `active`. Tools in `never` are never active.
        """
        self._own = dict(tools)
        self._extensions: dict[str, Tool] = {}
        """Tools of extensions; they hide other tools of the same name."""
        self._servers: dict[str, Tool] = {}
        """Tools of MCP servers; any other tool of the same name hides them."""
        self._tools = dict(tools)
        """All tools that are not hidden."""
        self._named = dict.fromkeys(active)
        self.only_named = only_named
        """Whether the user has named all tools."""
        self._never = frozenset(never)
        self.active = [name for name in self._named if name in self._tools and name not in self._never]
        """Names of the tools that the model may use, in the order in which it is told of them."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after every change of the tools."""

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def wants(self, name: str) -> bool:
        """Say whether the user wants a tool of that name, and it is not forbidden."""
        return name in self._named and name not in self._never

    def add(self, tool: Tool, *, active: bool = True) -> None:
        self.exchange((), [(tool, active)])

    def exchange(self, old: Iterable[str], new: Sequence[tuple[Tool, bool]]) -> None:
        """Remove tools and add others, each with whether it is active: in one call, since there may be many."""
        for name in old:
            self._own.pop(name, None)
        self._merge()
        self._own |= {tool.name: tool for tool, _ in new}
        self._merge()
        self._activate(tool.name for tool, active in new if active or tool.name in self._named)

    def _activate(self, names: Iterable[str]) -> None:
        self.activate([*self.active, *names])

    def add_extension_tool(self, tool: Tool) -> None:
        """Register a tool of an extension: active unless the user made a choice without it."""
        self.use_extension_tools([*self._extensions.values(), tool])

    def use_extension_tools(self, tools: Iterable[Tool]) -> None:
        """Replace the tools of extensions. Tools that stay remain active or inactive."""
        before = self._extensions
        self._extensions = {tool.name: tool for tool in tools}
        self._merge()
        added = [name for name in self._extensions if name not in before]
        self._activate(name for name in added if not self.only_named or name in self._named)

    def use_server_tools(self, tools: Iterable[Tool]) -> None:
        """Replace the tools of MCP servers, at their place in the list. Tools that stay remain active or inactive."""
        before, self._servers = self._servers, {tool.name: tool for tool in tools}
        active = self.active
        place = next((index for index, name in enumerate(active) if name in before), len(active))
        others = [name for name in active if name not in before]
        self._merge()
        mine = [
            name
            for name in self._servers
            if (name in active if name in before else not self.only_named or name in self._named)
        ]
        self.activate([*others[:place], *mine, *others[place:]])

    def builtin(self, name: str) -> Tool | None:
        """Return a tool as it is without extensions."""
        return self._own.get(name)

    def _merge(self) -> None:
        self._tools = {**self._servers, **self._own, **self._extensions}
        self.active = [name for name in self.active if name in self._tools]

    def activate(self, names: Iterable[str]) -> None:
        """Set the active tools; unknown and excluded names are ignored."""
        self.active = [name for name in dict.fromkeys(names) if name in self._tools and name not in self._never]
        self.on_change()

    def all(self) -> list[Tool]:
        return list(self._tools.values())

    def lendable(self) -> list[Tool]:
        """Return the tools that a subagent may have: the active ones, except those with a state of this session.

        Unless the user has named all tools, it may also search files.
        """
        more = () if self.only_named else of_kind("search")
        names = [
            name for name in dict.fromkeys((*self.active, *more)) if name in self._tools and name not in self._never
        ]
        tools = [self._tools[name] for name in names if not (name in TOOLS and TOOLS[name].of_session)]
        return [tool for tool in tools if tool.lent]

    def active_tools(self, only: Container[str] | None = None) -> list[Tool]:
        """Return the tools that the model may use, or those of them in `only`."""
        names = [name for name in self.active if only is None or name in only]
        tools = [self._tools[name] for name in names if self._tools[name].offered()]
        return [_beside(tool, names) for tool in tools if not tool.needs or tool.needs in names]


def _beside(tool: Tool, names: Sequence[str]) -> Tool:
    return next((form for name, form in tool.beside.items() if name in names), tool)
