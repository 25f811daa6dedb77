"""The tools a session has: built in, added by extensions, lent by the host; and which of them the model may use."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from spindle.shapes.builtin_tools import TOOLS, of_kind
from spindle.shapes.tool_lists import chosen, matches, over, unmatched, verdict
from spindle.tools.base import Tool


class Toolbox:
    def __init__(
        self, tools: Mapping[str, Tool], active: Sequence[str], *, only_named: bool = False, never: Sequence[str] = ()
    ) -> None:
        """Begin with `tools`; the model may use those that the list `active` wants, also of tools that are added later.

        With `only_named`, tools of plugins are inactive unless `active` wants them. Tools that an entry of `never`
        matches are never active.
        """
        self._own = dict(tools)
        self._extensions: dict[str, Tool] = {}
        """Tools of extensions; they hide other tools of the same name."""
        self._servers: dict[str, Tool] = {}
        """Tools of MCP servers; any other tool of the same name hides them."""
        self._tools = dict(tools)
        """All tools that are not hidden."""
        self._list = active
        self.only_named = only_named
        """Whether the user has named all tools."""
        self._never = never
        self._restored = False
        """Whether the built-in tools are those of a resumed session."""
        self.gone: list[str] = []
        """Tools of the resumed session that are not here, until the user is told."""
        self.active = [name for name in chosen(active, self._tools) if not self._is_excluded(name)]
        """Names of the tools that the model may use, in the order in which it is told of them."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after every change of the tools."""

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def wants(self, name: str) -> bool:
        """Say whether the user wants a tool of that name, and it is not forbidden."""
        return verdict(self._list, name) is True and not self._is_excluded(name)

    def refuses(self, name: str) -> bool:
        """Say whether the user's lists are against a tool of that name."""
        return verdict(self._list, name) is False or self._is_excluded(name)

    def _is_excluded(self, name: str) -> bool:
        return any(matches(entry, name) for entry in self._never)

    def unmatched(self, entries: Sequence[str]) -> list[str]:
        """Return the entries of a list that are for no tool that there is, or could be in another mode."""
        return unmatched(entries, (*self._tools, *TOOLS))

    def restore(self, names: Sequence[str] | None) -> None:
        """Let a resumed session have the built-in tools that it had; None: it does not tell them.

        What the user has named counts more.
        """
        if self.only_named or (names is None and not self._restored):
            return
        self._restored = names is not None
        own = chosen(self._list, self._own) if names is None else [name for name in names if name in self._own]
        self.activate([*own, *(name for name in self.active if name not in self._own)])
        known = {*self._tools, *TOOLS}
        self.gone = [name for name in names or () if name not in known and not name.startswith("mcp__")]

    @property
    def lists(self) -> tuple[str, ...]:
        """The entries of the user's lists."""
        return (*self._list, *self._never)

    @property
    def lost_all(self) -> bool:
        """Whether the model has no tools, though the user did not name an empty list."""
        return not self.active and not (self.only_named and not self._list)

    def add(self, tool: Tool, *, active: bool = True) -> None:
        self.exchange((), [(tool, active)])

    def exchange(self, old: Iterable[str], new: Sequence[tuple[Tool, bool]]) -> None:
        """Remove tools and add others, each with whether it is active: in one call, since there may be many."""
        for name in old:
            self._own.pop(name, None)
        self._merge()
        self._own |= {tool.name: tool for tool, _ in new}
        self._merge()
        self._activate(tool.name for tool, active in new if self._begins(tool.name, active))

    def _begins(self, name: str, active: bool) -> bool:
        """Say whether a new tool is active: as the user's list says, else `active`."""
        wanted = verdict(self._list, name)
        return active if wanted is None else wanted

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
        self._activate(name for name in added if self._begins(name, not self.only_named and self._tools[name].shown))

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
            if (name in active if name in before else self._begins(name, not self.only_named))
        ]
        self.activate([*others[:place], *mine, *others[place:]])

    def builtin(self, name: str) -> Tool | None:
        """Return a tool as it is without extensions."""
        return self._own.get(name)

    def put(self, tool: Tool) -> None:
        """Put a tool in the place of ours of the same name. It stays active or inactive."""
        self._own[tool.name] = tool
        self._merge()
        self.on_change()

    def _merge(self) -> None:
        self._tools = {**self._servers, **self._own, **self._extensions}
        self.active = [name for name in self.active if name in self._tools]

    def activate(self, names: Iterable[str]) -> None:
        """Set the active tools; unknown and excluded names are ignored."""
        self.active = [name for name in dict.fromkeys(names) if name in self._tools and not self._is_excluded(name)]
        self.on_change()

    def all(self) -> list[Tool]:
        return list(self._tools.values())

    def hidden(self, name: str) -> Tool | None:
        """Return a tool that the model is not shown from the beginning."""
        tool = self._extensions.get(name)
        return tool if tool is not None and not tool.shown else None

    def lendable(self) -> list[Tool]:
        """Return the tools that a subagent may have: the active ones, except those with a state of this session.

        Unless the user's list says otherwise, it may also search files.
        """
        searching = () if self.only_named else of_kind("search")
        more = [name for name in searching if verdict(self._list, name) is not False]
        names = [
            name for name in dict.fromkeys((*self.active, *more)) if name in self._tools and not self._is_excluded(name)
        ]
        tools = [self._tools[name] for name in names if not (name in TOOLS and TOOLS[name].of_session)]
        return [tool for tool in tools if tool.lent]

    def active_tools(self, entries: Sequence[str] | None = None) -> list[Tool]:
        """Return the tools that the model may use, or those that the list of a request wants.

        A request cannot have tools that the user has not named, or has excluded.
        """
        names = self.active
        if entries is not None:
            allowed = self.active if self.only_named else self._tools
            names = [name for name in chosen(over(self.active, entries), allowed) if not self._is_excluded(name)]
        tools = [tool for name in names if (tool := self._tools[name]).offered is None or tool.offered()]
        return [
            _beside(tool, names) if tool.beside else tool for tool in tools if not tool.needs or tool.needs in names
        ]


def _beside(tool: Tool, names: Sequence[str]) -> Tool:
    return next((form for name, form in tool.beside.items() if name in names), tool)
