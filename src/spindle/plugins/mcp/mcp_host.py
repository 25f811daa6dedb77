"""The MCP servers beside an agent: configured, bound to its session, changed by its client, released.

An agent without servers only looks for three files; the rest is imported when there is a server.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.hooks import McpServerState
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.flow import Tasks
from spindle.base.user_files import BadFile, Standing
from spindle.resources.loader import Resources
from spindle.resources.trust import MCP_FILES, TrustStore
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import ExtensionError, Notice, StateChanged
from spindle.shapes.tool_lists import may_match
from spindle.tools.base import Tool

if TYPE_CHECKING:  # loaded only if there is a server
    from spindle.plugins.mcp.exposure import SessionTools
    from spindle.plugins.mcp.server_config import ServerConfig, Servers
    from spindle.plugins.mcp.shared_server import Server


class McpOptions(Struct, frozen=True):
    """Options for MCP servers from a command line or a program."""

    files: Sequence[str] = ()
    """Files read besides the user's file and those of a trusted project."""
    servers: Any = None
    """Servers of the program or client that makes the agent: by name, or a list as in ACP. False: there are none."""
    warn: Callable[[str], None] = lambda text: None
    """Called with the problem of a server that is left out."""
    awaits: bool = False
    """Whether the first model call waits for servers whose tools the model must see at once."""
    named: Sequence[str] = ()
    """Tools that the user has named."""


def is_server_tool(name: str) -> bool:
    return name == "tool_search" or name.startswith("mcp__")


def mcp_host(options: McpOptions, tools: Sequence[str] | None) -> "list[McpHost]":
    """Return the host, if there may be servers and any of their tools may be used; `tools`: the allowed tools."""
    wanted = tools is None or options.servers or any(is_server_tool(tool) or may_match(tool, "mcp__") for tool in tools)
    options = replace(options, named=tools or ())
    return [McpHost(options)] if wanted and options.servers is not False else []


class McpHost:
    """The `Plugins` and `McpServers` of an agent."""

    def __init__(self, options: McpOptions = McpOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._set: Any = options.servers
        """Servers of the client."""
        self._added: dict[str, dict[str, Any]] = {}
        """Servers of extensions, by name."""
        self._found: Servers | None = None
        """Servers as loaded last; `bind` puts them in force."""
        self._agent: AgentSession | None = None
        self._servers: list[Server] = []
        self._others: list[McpServerState] = []
        """Servers that are switched off or make no sense."""
        self._tools: SessionTools | None = None
        self._learning: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    # -- plugins ---------------------------------------------------------------------------------

    async def load(self, resources: Resources, builtin: Callable[[str], Tool | None], mode: str) -> None:
        self._found = self._read(resources, self._set)
        if self._found is not None and self._agent is None:
            for note in self._found.notes:
                self._options.warn(Standing(note))
            for name, problem in self._found.problems.items():
                is_file = os.path.isabs(name)  # problems of a whole file have its path as their name
                text = f"Cannot use {name}: {problem}" if is_file else f'MCP server "{name}" is left out: {problem}'
                self._options.warn(Standing(text))

    def _read(self, resources: Resources, client: Any) -> "Servers | None":
        """Return the configured servers. Raises `AgentError`."""
        cwd, trust, alone = str(resources.cwd), resources.trust, resources.options.no_user_files
        places = [] if alone else [os.path.join(agent_dir(), "mcp.json")]
        if trust.trusted:
            places += [os.path.join(cwd, name) for name in MCP_FILES]
        if not (self._options.files or client or self._added or any(map(os.path.exists, places))):
            return None
        from spindle.plugins.mcp import McpError
        from spindle.plugins.mcp.server_config import Servers, load_servers

        found = Servers()
        try:
            found.add(self._added, "client: an extension")
            if not alone:
                found = load_servers(cwd, trust, self._options.files, found)
            if client:
                found.add(client, "client")
        except McpError as error:
            raise AgentError(str(error)) from None
        return found

    def bind(self, agent: AgentSession, reason: str = "startup", previous: str | None = None) -> None:
        self._agent = agent
        agent.mcp_servers = self
        self._use(self._found, restart=reason == "reload")

    def _use(self, found: "Servers | None", *, restart: bool = False) -> None:
        """Put servers in force in place of the previous ones."""
        agent, before = self._agent, self._servers
        assert agent is not None
        self._stop_learning()
        if self._tools is not None:
            agent.hooks.remove(self._tools)
            agent.hooks.remove(self._tools.prompts)
            self._tools.detach()
            self._tools = None
        self._servers, self._others = [], []
        if found is not None:
            self._others = found.unused()
            self._servers = [self._server(agent, config, restart=restart) for config in found.enabled()]
        if self._servers:
            from spindle.plugins.mcp.exposure import SessionTools

            options = self._options
            missing = options.warn if options.awaits else None
            self._tools = SessionTools(agent, self._servers, missing=missing, named=options.named)
            agent.hooks.add(self._tools)
            agent.hooks.add(self._tools.prompts)
        else:
            agent.toolbox.use_server_tools(())
        gone = [server for server in before if server not in self._servers]
        if gone:
            from spindle.plugins.mcp.shared_server import leave

            self._tasks.spawn(leave(self, gone), "spindle-mcp-leave")

    def _server(self, agent: AgentSession, config: "ServerConfig", *, restart: bool) -> "Server":
        from spindle.plugins.mcp.shared_server import server_for

        # A program that a project names is fenced if commands are; one that says so is fenced in any case.
        fenced = config.url is None and (config.sandbox or not config.trusted)
        sandbox = agent.approval.sandbox_for("workspace-write" if config.sandbox else "off") if fenced else None
        server = server_for(self, config, agent.cwd, agent.resources.secret_variables, sandbox)
        if restart:
            server.forgive()
        return server

    async def begin(self) -> None:
        if self._found is not None and self._found.unagreed and self._asking is None:
            self._asking = self._tasks.spawn(self._ask_about(self._found.unagreed), "spindle-mcp-ask")
        if self._tools is not None and (self._learning is None or self._learning.done()):
            self._learning = self._tasks.spawn(self._learn(self._tools), "spindle-mcp-learn")

    async def _ask_about(self, files: dict[Path, str]) -> None:
        """Ask the user whether files of the project with new servers may be used; use them if so."""
        from spindle.plugins.mcp.server_config import NOT_AGREED, shown_servers

        agent = self._agent
        assert agent is not None
        for path, text in files.items():
            title = f"Start the MCP servers of {path}?"
            about = f"They are new, or have changed since you agreed to them:\n{shown_servers(path, text)}"
            if agent.resources.options.user_folder or await agent.confirm("trust", title, about) is not True:
                agent.publish(Notice(f"Cannot use {path}: {NOT_AGREED}.", "info"))  # was told as a warning at the start
                continue
            try:
                name = path.relative_to(agent.cwd)
                TrustStore(agent_dir()).agree(agent.resources.trust.project / name, text)
                self._found = self._read(agent.resources, self._set)
            except (AgentError, BadFile, OSError) as error:
                agent.publish(ExtensionError("", "mcp", str(error)))
                continue
            self._use(self._found)
            agent.publish(StateChanged())
        await self.begin()

    async def _learn(self, tools: "SessionTools") -> None:
        await asyncio.sleep(limits.MCP_LEARN)  # the user's own requests come first
        await tools.learn_in_background()

    async def leave(self, reason: str, target: str | None = None) -> None:
        self._stop_learning()
        self._stop_asking()

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _stop_learning(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
            self._learning = None

    async def close(self) -> None:
        self._stop_learning()
        self._stop_asking()
        if self._tools is not None:
            self._tools.detach()
            self._tools = None
        if self._servers:
            from spindle.plugins.mcp.shared_server import leave

            servers, self._servers = self._servers, []
            await leave(self, servers)
        await self._tasks.join(limits.TASKS_END)

    # -- servers ---------------------------------------------------------------------------------

    def states(self) -> list[McpServerState]:
        return [*(server.shown() for server in self._servers), *self._others]

    def serves(self, tool: str) -> bool:
        if not self._servers:
            return False
        from spindle.plugins.mcp.tool_names import serves

        return any(serves(server.name, tool) for server in self._servers)

    async def add(self, name: str, config: dict[str, Any]) -> None:
        added, self._added = self._added, {**self._added, name: config}
        try:
            await self.set(self._set)
        except AgentError:
            self._added = added
            raise

    async def read_again(self) -> list[McpServerState]:
        return await self.set(self._set)

    def _named(self, name: str) -> "Server":
        for server in self._servers:
            if server.name == name:
                return server
        raise AgentError(f"There is no MCP server {name} that is switched on")

    async def restart(self, name: str) -> None:
        await self._named(name).restart()

    async def log_in(self, name: str) -> None:
        from uuid import uuid4

        from spindle.plugins.mcp import McpError
        from spindle.plugins.mcp.user_servers import log_in

        agent, server, loop = self._agent, self._named(name), asyncio.get_running_loop()
        assert agent is not None
        if server.config.url is None:
            raise AgentError(f"{name} is a program on this machine, where no one logs in")

        def show(url: str) -> None:
            request = ExtensionUIRequest(id=str(uuid4()), method="open_url", url=url, instructions=f"Log in at {name}")
            loop.call_soon_threadsafe(agent.dialogs.tell, request)

        try:
            await log_in(server.config, agent.cwd, show)
        except McpError as error:
            raise AgentError(str(error)) from None
        await server.restart()

    async def set(self, servers: Any) -> list[McpServerState]:
        agent = self._agent
        assert agent is not None
        found = self._read(agent.resources, servers)
        if found is not None:
            wrong = {name: text for name, text in found.problems.items() if text.startswith("client:")}
            if wrong:
                raise AgentError("; ".join(f'MCP server "{name}" of the {text}' for name, text in wrong.items()))
        self._set = servers
        self._use(found)
        agent.publish(StateChanged())
        await self.begin()
        await agent.hooks.notify("mcp_servers_change", servers=[state.name for state in self.states()])
        return self.states()
