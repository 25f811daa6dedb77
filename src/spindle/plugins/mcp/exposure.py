"""The tools of servers, as one session has them.

If there are few tools, the model sees them at once; many wait behind `tool_search`, and so do those of a server that
has not listed its tools yet. Which servers are direct is decided at the first model call of a session and kept in its
file, like the tools that a search has loaded: a session that is resumed sends the same tools in the same order, and
prompt caches hold. Toolbox and model only see the tools that `_visible` returns.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, ClassVar, Final

from msgspec import Struct, field

from spindle.agent.hooks import Hooks
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.plugins.mcp import McpError, Message
from spindle.plugins.mcp.offers import ServerPrompts, ServerResources, ask_user, offers_resources
from spindle.plugins.mcp.shared_server import Listing, RemoteTool, Server
from spindle.plugins.mcp.tool_names import serves, tool_name
from spindle.sessions.facts import Fact, facts, keep
from spindle.shapes.builtin_tools import Effect
from spindle.shapes.events import EntryAppended, Notice, StateChanged, ToolResult
from spindle.tools.base import Tool, ToolContext, ToolError, arguments, text_result

DIRECT_TOOLS: Final = 24
DIRECT_BYTES: Final = 32_000
"""Descriptions of tools up to this size are direct: about 8,000 tokens."""
SEARCH: Final = "tool_search"
FOUND: Final = 5
"""Tools that a search loads unless it asks for another number."""
_LISTED: Final = 2
"""How many servers are started at a time only to list their tools."""


class LoadedTool(Struct, frozen=True):
    """A tool that a search has loaded, as it was then."""

    server: str
    tool: RemoteTool


class ServerTools(Fact):
    """Tools that the model sees: those of direct servers, noted once, or those that one search has loaded."""

    entry_type: ClassVar[str] = "spindle.mcp"
    direct: list[str] | None = None
    loaded: list[LoadedTool] = field(default_factory=list)


class SessionTools(Hooks):
    def __init__(
        self,
        agent: AgentSession,
        servers: Sequence[Server],
        *,
        missing: Callable[[str], None] | None = None,
        named: Sequence[str] = (),
    ) -> None:
        """`missing`: the first model call waits for servers whose tools are direct, or `named` by the user, and this is
        called with a text about each that has not come."""
        self._agent = agent
        self._missing = missing
        self._asked_for = named
        self._servers = {server.name: server for server in servers}
        self._direct: list[str] | None = None
        """Servers that are direct although their configuration does not say so; None: not decided yet."""
        self._loaded: dict[str, LoadedTool] = {}
        """Tools by the name that the model uses."""
        self._tools: dict[str, tuple[tuple[str, RemoteTool], Tool]] = {}
        """Tools made so far, by name."""
        self._shown: list[Tool] = []
        self._commands: Collection[str] = ()
        """Names of prompts that clients were told."""
        self._told: dict[str, str] = {}
        """Failures that clients were told, by server."""
        self._search_tool = [self._make_search()]
        self._resource_tools = ServerResources(agent, self._servers).tools()
        self.prompts = ServerPrompts(agent, self._servers)
        for fact in facts(agent.session.entries, ServerTools):
            self._direct = self._direct if fact.direct is None else fact.direct
            loaded = [item for item in fact.loaded if item.server in self._servers]
            self._loaded |= {tool_name(item.server, item.tool.name): item for item in loaded}
        for server in servers:
            server.listeners.add(self.refresh)
        self.refresh()

    def detach(self) -> None:
        """Listen to the servers no more, and let go of the tools, which hold this object.

        The toolbox has them until others replace them.
        """
        for server in self._servers.values():
            server.listeners.discard(self.refresh)
        for made in (self._tools, self._shown, self._search_tool, self._resource_tools):
            made.clear()

    # -- what the model sees ---------------------------------------------------------------------

    def refresh(self) -> None:
        """Put the current tools and prompts of the servers in force."""
        for server in self._servers.values():
            reason = _first_line(server.error or "")  # the other lines, from stderr, may differ each time
            if server.state in ("failed", "login") and reason and self._told.get(server.name) != reason:
                self._told[server.name] = reason
                self._agent.publish(Notice(server.error or ""))
                self._agent.publish(StateChanged())  # clients show the states of servers
        commands = self.prompts.by_command()
        if commands.keys() != self._commands:
            self._commands = commands.keys()
            self._agent.publish(StateChanged())  # clients show them
        visible = self._visible()
        if visible != self._shown:
            self._shown = visible
            self._agent.toolbox.use_server_tools(visible)

    def _visible(self) -> list[Tool]:
        tools: list[Tool] = []
        searchable = readable = False
        direct = self._direct_servers()
        for server in self._servers.values():
            if server.listing is None:
                searchable = searchable or server.config.exposure != "hidden"
                continue
            readable = readable or (server.listing.resources and offers_resources(self._agent, server))
            for tool in server.listing.tools:
                exposure = self._exposure(server, tool, direct)
                if exposure == "direct":
                    tools.append(self._tool(server, tool))
                searchable = searchable or exposure == "deferred"
        names = {tool.name for tool in tools}
        tools += [self._tool(self._servers[i.server], i.tool) for n, i in self._loaded.items() if n not in names]
        if readable:
            tools = [*self._resource_tools, *tools]
        return [*self._search_tool, *tools] if searchable else tools

    def _exposure(self, server: Server, tool: RemoteTool, direct: set[str]) -> str:
        toolbox, name, exposure = (
            self._agent.toolbox,
            tool_name(server.name, tool.name),
            _exposure(server, tool, direct),
        )
        if toolbox.refuses(name):
            return "hidden"
        # What the user has named must be there at once, if there is no tool to find it.
        found = exposure == "deferred" and toolbox.only_named and not toolbox.wants(SEARCH)
        return "direct" if found and toolbox.wants(name) else exposure

    def _choose(self) -> list[str]:
        """Return the servers whose tools are direct by default: all known ones, if their tools are few."""
        known = [server for server in self._servers.values() if server.listing and server.config.exposure is None]
        return [server.name for server in known] if _few([server.listing for server in known]) else []

    def _keep(self, fact: ServerTools) -> None:
        self._agent.publish(EntryAppended(keep(self._agent.session, fact).value))

    def _direct_servers(self) -> set[str]:
        chosen = self._choose() if self._direct is None else self._direct
        # A list may have grown since.
        return {name for name in chosen if name in self._servers and _few([self._servers[name].listing])}

    async def before_turn(self) -> bool:
        if self._direct is None and self._servers:
            await self._wait_for_direct()
            self._direct = self._choose()
            self._keep(ServerTools(direct=self._direct))
        self.refresh()
        return True

    async def _wait_for_direct(self) -> None:
        """In a run that has no second prompt, wait shortly for servers whose tools the model must see at once."""
        wanted = [server for server in self._servers.values() if server.listing is None and self._is_awaited(server)]
        await self._learn(limits.MCP_SEARCH, wanted)
        for server in wanted:
            if server.listing is None and self._missing is not None:
                late = f'MCP server "{server.name}" did not start within {limits.MCP_SEARCH:g} s'
                self._missing(f"{server.error or late}: the model is asked without its tools")

    def _is_awaited(self, server: Server) -> bool:
        direct = "direct" in (server.config.exposure, *server.config.tool_exposure.values())
        return self._missing is not None and (direct or any(serves(server.name, name) for name in self._asked_for))

    # -- tools -----------------------------------------------------------------------------------

    def _tool(self, server: Server, tool: RemoteTool) -> Tool:
        key = server.name, tool
        made = self._tools.get(tool_name(server.name, tool.name))
        if made is None or made[0] != key:
            name = tool_name(server.name, tool.name)
            effect: Effect | None = "destroys" if tool.destructive else None
            if tool.read_only and server.config.trusted:  # a server from a project could claim anything
                effect = "reads"
            made = (
                key,
                Tool(
                    name,
                    tool.description or tool.title or tool.name,
                    tool.schema,
                    partial(self._call, server, tool.name),
                    label=tool.title or f"{server.name}: {tool.name}",
                    effect=effect,
                ),
            )
            self._tools[name] = made
        return made[1]

    async def _call(self, server: Server, tool: str, call_id: str, args: Any, context: ToolContext) -> ToolResult:
        from spindle.plugins.mcp.content import tool_result

        progress = _ServerProgress(context)
        try:
            return await tool_result(
                await server.call(tool, args, progress.take, partial(ask_user, self._agent, server.name, call_id)),
                context,
            )
        except McpError as error:
            raise ToolError(str(error)) from None

    # -- searching -------------------------------------------------------------------------------

    def _make_search(self) -> Tool:
        listed = [
            f"- {server.name}" + (f": {server.config.description}" if server.config.description else "")
            for server in self._servers.values()
            if server.config.exposure != "hidden"
        ]
        return Tool(
            SEARCH,
            "Find and load tools of MCP servers that are not in your list of tools. What is found can be called from "
            "your next message on, and stays loaded. The servers:\n" + "\n".join(listed),
            arguments(
                "query",
                query="Words to look for in names and descriptions, or select:NAME,NAME for tools whose names you know",
                limit=("integer", f"How many tools to load at most; {FOUND} if not given"),
            ),
            self._search,
            label="Tool search",
            lent=False,
            effect="reads",
        )

    async def _search(self, call_id: str, args: Any, context: ToolContext) -> ToolResult:
        found = self._matching(args["query"])
        selected = _selected(args["query"])
        if not selected or len(found) < len(selected):
            await self._learn(limits.MCP_SEARCH)
            found = self._matching(args["query"])
        limit = max(1, min(int(args.get("limit") or (DIRECT_TOOLS if selected else FOUND)), DIRECT_TOOLS))
        chosen = found[:limit]
        self._load(chosen)
        lines = [f"{tool_name(i.server, i.tool.name)}: {_first_line(i.tool.description)}" for i in chosen]
        text = "Loaded, to be called by these names:\n" + "\n".join(lines) if lines else "No tool was found."
        if more := found[limit:]:
            text += "\n\nAlso found, not loaded: " + ", ".join(tool_name(i.server, i.tool.name) for i in more[:50])
        if absent := [line for server in self._servers.values() if (line := _absence(server))]:
            text += "\n\nNot searched:\n" + "\n".join(absent)
        return text_result(text)

    def _load(self, items: Sequence[LoadedTool]) -> None:
        """Show tools to the model from now on."""
        fresh = [item for item in items if tool_name(item.server, item.tool.name) not in self._loaded]
        if fresh:
            for item in fresh:
                self._loaded[tool_name(item.server, item.tool.name)] = item
            self._keep(ServerTools(loaded=fresh))
            self.refresh()

    async def tool_missing(self, name: str) -> None:
        asked = [s for s in self._servers.values() if serves(s.name, name) and s.config.exposure != "hidden"]
        await self._learn(limits.MCP_SEARCH, asked)
        if absent := [server for server in asked if server.listing is None]:
            raise ToolError(f"Tool {name} cannot be called yet:\n" + "\n".join(map(_absence, absent)))
        self._load(self._matching(f"select:{name}"))

    async def _learn(self, timeout: float, servers: Sequence[Server] | None = None) -> None:
        """Start servers that have not listed their tools yet, and wait for them for a while."""
        given = self._servers.values() if servers is None else servers
        unknown = [server for server in given if server.listing is None and server.config.exposure != "hidden"]
        if unknown:
            await asyncio.wait([server.start_soon() for server in unknown], timeout=timeout)

    async def learn_in_background(self) -> None:
        """Ask servers for lists that are unknown or old; a few servers at a time."""
        stale = [server for server in self._servers.values() if server.is_stale()]
        turn = asyncio.Semaphore(_LISTED)

        async def ask(server: Server) -> None:
            async with turn:
                if server.is_stale():
                    await server.start_soon()

        await asyncio.gather(*(ask(server) for server in stale))

    def _matching(self, query: str) -> list[LoadedTool]:
        """Return the deferred tools that a query means, best first."""
        direct = self._direct_servers()
        items = [
            LoadedTool(server.name, tool)
            for server in self._servers.values()
            for tool in (server.listing.tools if server.listing else ())
            if self._exposure(server, tool, direct) == "deferred"
        ]
        if wanted := _selected(query):
            return [i for i in items if {tool_name(i.server, i.tool.name), i.tool.name} & wanted]
        words = _words(query)
        scored = [(_score(item, words), item) for item in items]
        return [item for score, item in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


class _ServerProgress:
    """Shows the progress that a server reports; not more often than a person can read."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._last = 0.0

    def take(self, params: Message) -> None:
        now = time.monotonic()
        if now - self._last < 0.1:
            return
        self._last = now
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        figures = f"{done}/{total}" if total else f"{done}"
        self._context.update(text_result(f"{figures} {message[:1000]}" if isinstance(message, str) else figures))


def _few(listings: Sequence[Listing | None]) -> bool:
    known = [listing for listing in listings if listing is not None]
    count, size = sum(len(listing.tools) for listing in known), sum(listing.size for listing in known)
    return count <= DIRECT_TOOLS and size <= DIRECT_BYTES


def _exposure(server: Server, tool: RemoteTool, direct: set[str]) -> str:
    config = server.config
    matching = (value for pattern, value in config.tool_exposure.items() if fnmatchcase(tool.name, pattern))
    given = config.tool_exposure.get(tool.name) or next(matching, config.exposure)
    return given or ("direct" if server.name in direct else "deferred")


def _score(item: LoadedTool, words: set[str]) -> int:
    names = _words(re.sub(r"([a-z])([A-Z])", r"\1 \2", item.tool.name))
    about = _words(f"{item.tool.title} {item.tool.description} {' '.join(item.tool.schema.get('properties') or ())}")
    score = 0
    for word in words:
        begins = len(word) > 2 and any(other.startswith(word) for other in names)
        score += 6 if word in names else 4 if begins else 0
        score += 2 if word in item.server.lower() and len(word) > 2 else 0
        score += 1 if word in about else 0
    return score


def _selected(query: str) -> set[str]:
    """Return the names that a query asks for; none if it is a search for words."""
    if not query.startswith("select:"):
        return set()
    return {name.strip() for name in query[7:].split(",") if name.strip()}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


def _absence(server: Server) -> str:
    if server.listing is not None or server.config.exposure == "hidden":
        return ""
    return f"- {server.name}: " + (_first_line(server.error) if server.error else "still starting, search again later")


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 300 else f"{line[:300]}…"
