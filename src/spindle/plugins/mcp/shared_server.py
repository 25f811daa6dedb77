"""One configured server: started when it is needed, shared by sessions, started again once after a crash.

Its lists are kept on disk by its configuration, so that a session knows its tools without starting it.
`server_for` gives every session of one event loop the same object for the same configuration, trust and directory.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, field

from spindle.agent.hooks import McpServerState
from spindle.base import limits
from spindle.base.agent_dir import agent_dir
from spindle.base.flow import Tasks
from spindle.base.user_files import write_atomic
from spindle.plugins.mcp import LoginNeeded, McpError, Message, SessionForgotten, Unreachable
from spindle.plugins.mcp.server_config import ServerConfig
from spindle.shapes.codec import encode

if TYPE_CHECKING:  # loaded when a server is started
    from spindle.plugins.mcp.connection import Ask, ServerConnection, ServerTransport
    from spindle.workspace.area import Wanted

State = Literal["idle", "starting", "ready", "stopped", "failed", "login"]
"""`idle`: not needed yet; `stopped`: ended, and started again when needed; `login`: `spindle mcp login` comes first."""
FRESH_SECONDS: Final = {"stdio": 24 * 3600, "http": 3600, "sse": 3600}
"""An older list is asked for again; to ask a program means to start it."""
_SCRIPTS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".php", ".pl", ".jar")
_MAX_TOOLS: Final = 1000
_MAX_SCHEMA: Final = 100_000
"""Bytes of the schema of one tool; a tool with more is left out."""
_MAX_DESCRIPTION: Final = 8000
_MAX_NAME: Final = 200
_MAX_ARGUMENTS: Final = 100
_FAILURES: Final = 2
"""After this many failures in a row a server is not started again for a while."""


class RemoteTool(Struct, frozen=True, rename="camel"):
    name: str
    description: str = ""
    schema: Message = field(default_factory=dict)
    read_only: bool = False
    destructive: bool = False
    title: str = ""


class RemotePrompt(Struct, frozen=True):
    name: str
    description: str = ""
    arguments: list[str] = field(default_factory=list)
    required: list[str] = field(default_factory=list)


class Listing(Struct):
    """The tools and prompts of a server, as last listed."""

    tools: list[RemoteTool] = field(default_factory=list)
    prompts: list[RemotePrompt] = field(default_factory=list)
    resources: bool = False
    size: int = 0
    """Bytes of the tools."""
    at: float = 0.0
    """When the server was asked."""


_decoder = msgspec.json.Decoder(Listing)


class Server:
    def __init__(
        self,
        config: ServerConfig,
        cwd: str,
        withheld: Callable[[], Collection[str]],
        sandbox: "Wanted | None" = None,
    ) -> None:
        """`withheld`: names of variables that a server process does not get. `sandbox`: the fence around it."""
        self.config = config
        self.cwd = cwd
        self.state: State = "idle"
        self.error: str | None = None
        self.users: set[object] = set()
        self.listeners: set[Callable[[], None]] = set()
        """Called when the listing or the state has changed."""
        self._withheld = withheld
        self._sandbox = sandbox
        self._cache = agent_dir() / "mcp-cache" / f"{config.key()}.json"
        self._tasks = Tasks()
        self._starting: asyncio.Task[None] | None = None
        self._transport: ServerTransport | None = None
        self._connection: ServerConnection | None = None
        self._refreshing: asyncio.Task[None] | None = None
        """The task that asks for a changed list."""
        self._changed_again = False
        self._failures = 0
        """Failures in a row."""
        self._failed_at = 0.0
        self._closed = False
        self.listing = self._cached()
        """None: the server was never asked."""

    # -- state -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def pid(self) -> int | None:
        return self._transport.pid if self._transport and self.state in ("starting", "ready") else None

    @property
    def version(self) -> str | None:
        """Version of the protocol."""
        return self._connection.info.version if self._connection is not None else None

    def shown(self) -> McpServerState:
        """Return the state as clients and people see it."""
        return McpServerState(
            name=self.name,
            state=self.state,
            transport=self.config.transport,
            source=self.config.source,
            tools=None if self.listing is None else len(self.listing.tools),
            pid=self.pid,
            protocol=self.version if self.state == "ready" else None,
            error=self.error,
            stderr=self.last_words()[-1000:] or None,
        )

    def forgive(self) -> None:
        """Forget failures, so that the server may be started again."""
        self._failures = 0

    def last_words(self) -> str:
        """Return the end of its stderr."""
        return self._transport.last_words() if self._transport is not None else ""

    def is_stale(self) -> bool:
        """Say whether the listing may be out of date: it is old, or the program is newer."""
        if self.listing is None:
            return True
        age = time.time() - self.listing.at
        return not 0 <= age < FRESH_SECONDS[self.config.transport] or self._newest_file() > self.listing.at

    def _newest_file(self) -> float:
        """Return when the program was last changed, as far as the command line names its files."""
        times = [0.0]
        words = [self.config.command or "", *(word for word in self.config.args if word.endswith(_SCRIPTS))]
        for word in words:
            with suppress(OSError, ValueError):
                times.append(os.stat(os.path.join(self.cwd, self.config.cwd or "", word)).st_mtime)
        return max(times)

    def _cached(self) -> Listing | None:
        try:
            return _decoder.decode(self._cache.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None

    def _keep(self, listing: Listing) -> None:
        with suppress(OSError):  # without a kept list, the server is asked again
            self._cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._cache, encode(listing).decode(), 0o600)

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()

    def _set(self, state: State, error: str | None = None) -> None:
        self.state, self.error = state, error
        self._tell()

    # -- starting and ending ---------------------------------------------------------------------

    async def connected(self) -> "ServerConnection":
        """Return the connection, after starting the server if need be. Raises `McpError`."""
        if self._starting is None and self._connection is not None and self._connection.ended is None:
            return self._connection
        if self._closed:
            raise McpError("it was closed")
        if self._starting is None:
            tired = self._failures >= _FAILURES and time.monotonic() - self._failed_at < limits.MCP_RETRY
            if tired and self.state != "login":  # the user may have logged in
                wait = limits.MCP_RETRY - (time.monotonic() - self._failed_at)
                raise McpError(
                    f"Not tried: it failed {_FAILURES} times and is left alone for {wait:.0f} s. {self.error}"
                )
            self._starting = self._tasks.spawn(self._start(), f"spindle-mcp-{self.name}", report=False)
        await asyncio.shield(self._starting)  # others may wait for the start, too
        if self._connection is None:  # the server has ended in this very moment
            raise McpError(self.error or "it has ended")
        return self._connection

    async def restart(self) -> None:
        """End the server and start it again; the state tells the outcome."""
        self.forgive()
        await self._abandon()
        self._set("idle")
        await self.start_soon()

    def start_soon(self) -> asyncio.Task[None]:
        """Start the server, if need be, and take its lists; the state tells the outcome."""

        async def start() -> None:
            with suppress(McpError):
                await self.connected()

        return self._tasks.spawn(start(), f"spindle-mcp-start-{self.name}")

    async def _start(self) -> None:
        self._set("starting")
        try:
            async with asyncio.timeout(limits.MCP_START):
                try:
                    connection = await self._open(probe=True)
                except McpError:
                    # Some servers end at an unknown request.
                    is_program = self._transport is not None and self._transport.pid is not None
                    if self.config.protocol is not None or not is_program:
                        raise
                    connection = await self._open(probe=False)
                listing = await self._ask_listing(connection)
        except TimeoutError:
            await self._abandon()
            raise self._failure(f"did not start within {limits.MCP_START:g} s") from None
        except McpError as error:
            await self._abandon()
            raise self._failure(str(error), needs_login=isinstance(error, LoginNeeded)) from None
        except BaseException:
            await self._abandon()
            raise
        finally:
            self._starting = None
        self._connection = connection
        self.state, self.error = "ready", None
        if connection.ended is not None:  # in this very moment
            self._lost(connection.ended)
            raise McpError(self.error or connection.ended)
        self._take(listing)

    async def _open(self, *, probe: bool) -> "ServerConnection":
        from spindle.plugins.mcp.connection import HANDSHAKE, ServerConnection
        from spindle.plugins.mcp.server_config import resolve

        self._transport = self._make_transport(await resolve(self.config))
        self._connection = None
        connection = ServerConnection(self._transport, self.cwd, self._changed, self._lost)
        try:
            version = self.config.protocol or (HANDSHAKE[0] if self.config.sse else None)
            await connection.open(probe=probe, version=version)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection

    def _make_transport(self, config: ServerConfig) -> "ServerTransport":
        if config.url is None:
            from spindle.plugins.mcp.pipe import PipeTransport

            return PipeTransport(config, self.cwd, self._withheld(), self._sandbox)
        if config.sse:
            from spindle.plugins.mcp.sse import SseTransport

            return SseTransport(config)
        from spindle.plugins.mcp.streamable import HttpTransport

        return HttpTransport(config)

    async def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _failure(self, reason: str, *, needs_login: bool = False) -> McpError:
        """Remember a failure and return it as an exception, with the last words of the server."""
        self._failures += 1
        self._failed_at = time.monotonic()
        text = f'MCP server "{self.name}": {reason}'
        if words := self.last_words():
            text += f"\nIts last words:\n{words[-2000:]}"
        self._set("login" if needs_login else "failed", text)
        return McpError(text)

    def _lost(self, reason: str) -> None:
        """Note that the server has ended by itself."""
        if self.state == "ready" and not self._closed:
            self._failure(reason)
            if self._failures < _FAILURES:
                self._set("stopped", self.error)
            connection, self._connection = self._connection, None
            if connection is not None:  # processes that the server started must end, too
                self._tasks.spawn(connection.close(), f"spindle-mcp-end-{self.name}")

    async def close(self) -> None:
        """End the server."""
        self._closed = True
        await self._tasks.end(limits.HANDLER_END)
        await self._abandon()
        self._set("idle")

    # -- listings --------------------------------------------------------------------------------

    async def _ask_listing(self, connection: "ServerConnection") -> Listing:
        from spindle.plugins.mcp.connection import pages

        info, get = connection.info, partial(connection.request, timeout=self.config.timeout)
        tools: list[Any] = []
        prompts: list[Any] = []
        if info.has("tools"):
            tools = await pages(get, "tools/list", "tools")
        if info.has("prompts"):
            with suppress(McpError):  # the server works without prompts
                prompts = await pages(get, "prompts/list", "prompts")
        if connection.modern and self.config.url is not None:
            from spindle.plugins.mcp.streamable import header_problem

            tools = [tool for tool in tools if isinstance(tool, dict) and not header_problem(tool.get("inputSchema"))]
        read = _read_tools(tools)
        return Listing(read, _read_prompts(prompts), info.has("resources"), len(encode(read)), time.time())

    def _take(self, listing: Listing) -> None:
        self.listing = listing
        self._keep(listing)
        self._tell()

    def _changed(self, method: str) -> None:
        """Ask again for a list that may have changed; once, however often the server reports a change meanwhile."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._tasks.spawn(self._refresh(), f"spindle-mcp-list-{self.name}")
        else:
            self._changed_again = True

    async def _refresh(self) -> None:
        while True:
            self._changed_again = False
            connection = self._connection
            if connection is None or connection.ended is not None:
                return
            try:
                self._take(await self._ask_listing(connection))
            except McpError:
                return
            if not self._changed_again:
                return
            # A server that reports changes all the time is not asked all the time.
            await asyncio.sleep(limits.MCP_RECONNECT)

    # -- requests --------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Any,
        progress: Callable[[Message], None] | None = None,
        ask: "Ask | None" = None,
    ) -> Message:
        """Call a tool and return its result. The tool never runs twice. Raises `McpError`."""
        await self.connected()  # now its tools are known
        headers = {"mcp-name": tool}
        found = next((item for item in self.listing.tools if item.name == tool), None) if self.listing else None
        if found is not None and self.config.url is not None:
            from spindle.plugins.mcp.streamable import param_headers

            headers |= param_headers(found.schema, arguments)
        return await self._ask("tools/call", {"name": tool, "arguments": arguments}, headers, progress, ask)

    async def get(self, method: str, params: Message, ask: "Ask | None" = None) -> Message:
        """Send a request that only reads; a second time if the server ends at the first. Raises `McpError`."""
        name = params.get("name") or params.get("uri")
        headers = {"mcp-name": name} if isinstance(name, str) else {}
        return await self._ask(method, params, headers, None, ask, repeat=True)

    async def _ask(
        self,
        method: str,
        params: Message,
        headers: Mapping[str, str],
        progress: Callable[[Message], None] | None,
        ask: "Ask | None",
        *,
        repeat: bool = False,
    ) -> Message:
        """Send a request. `repeat`: asking twice does no harm. Raises `McpError`."""
        first = True
        while True:
            connection = await self.connected()
            try:
                result = await connection.request(
                    method, params, timeout=self.config.timeout, progress=progress, ask=ask, headers=headers
                )
            except LoginNeeded as error:
                raise self._failure(str(error), needs_login=True) from None
            except McpError as error:
                forgotten, broken = isinstance(error, SessionForgotten), isinstance(error, Unreachable)
                if forgotten and self._connection is connection:
                    self._connection = None
                    self._tasks.spawn(connection.retire(), f"spindle-mcp-retire-{self.name}")
                if first and (forgotten or (repeat and (broken or connection.ended is not None))):
                    first = False
                    continue
                if connection.ended is not None and self.error:
                    raise McpError(self.error) from None
                text = f'MCP server "{self.name}": {error}'
                if broken:
                    self._set("stopped", text)
                raise McpError(text, error.code, error.data) from None
            self._failures = 0
            if (
                self.state != "ready" and connection.ended is None
            ):  # the user has logged in meanwhile, or the server is back
                self._set("ready")
            if self.listing is None or time.time() - self.listing.at > limits.MCP_REFRESH:
                self._changed("")
            return result


# -- one object for all sessions with the same server ---------------------------------------------

_Key = tuple[bytes, str]
_servers: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, Server]]" = WeakKeyDictionary()


def server_for(
    user: object,
    config: ServerConfig,
    cwd: str,
    withheld: Callable[[], Collection[str]],
    sandbox: "Wanted | None" = None,
) -> Server:
    """Return the server for `user`, which gives it back with `leave`. `sandbox`: the fence around its program."""
    known = _servers.setdefault(asyncio.get_running_loop(), {})
    key = encode([msgspec.structs.replace(config, source=""), sandbox]), os.path.realpath(cwd)
    server = known.get(key)
    if server is None:
        server = known[key] = Server(config, cwd, withheld, sandbox)
    server.users.add(user)
    return server


async def leave(user: object, servers: Collection[Server]) -> None:
    """Give servers back. A server without users is ended."""
    known = _servers.setdefault(asyncio.get_running_loop(), {})
    unused = []
    for server in servers:
        server.users.discard(user)
        if not server.users:
            unused.append(server)
            for key in [key for key, other in known.items() if other is server]:
                del known[key]
    await asyncio.gather(*(server.close() for server in unused))


# -- reading answers of servers -------------------------------------------------------------------


def _read_tools(items: list[Any]) -> list[RemoteTool]:
    """Return the tools that make sense, each once."""
    found: dict[str, RemoteTool] = {}
    for item in items:
        if not isinstance(item, dict) or not _is_name(name := item.get("name")):
            continue
        schema = _read_schema(item.get("inputSchema"))
        if schema is None or len(found) >= _MAX_TOOLS:
            continue
        notes = item.get("annotations")
        notes = notes if isinstance(notes, dict) else {}
        read_only = notes.get("readOnlyHint") is True
        found[name] = RemoteTool(
            name,
            _text(item.get("description"), _MAX_DESCRIPTION),
            schema,
            read_only=read_only and notes.get("destructiveHint") is not True,
            destructive=not read_only and notes.get("destructiveHint") is True,
            title=_text(item.get("title") or notes.get("title"), 200),
        )
    return list(found.values())


def _read_schema(schema: Any) -> Message | None:
    """Return a schema that model servers accept: that of an object. None if the schema cannot be used."""
    if not isinstance(schema, dict):
        return {"type": "object", "properties": {}}
    if len(encode(schema)) > _MAX_SCHEMA:
        return None
    given = schema.get("properties")
    properties = (
        {name: part for name, part in given.items() if isinstance(part, dict | bool)} if isinstance(given, dict) else {}
    )
    required = schema.get("required")
    required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else None
    made = {**schema, "type": "object", "properties": properties}
    if required is None:
        made.pop("required", None)
    else:
        made["required"] = required
    return made


def _read_prompts(items: list[Any]) -> list[RemotePrompt]:
    found: dict[str, RemotePrompt] = {}
    for item in items[:_MAX_TOOLS]:
        if not isinstance(item, dict) or not _is_name(name := item.get("name")):
            continue
        given = item.get("arguments")
        arguments = (
            [a for a in given[:_MAX_ARGUMENTS] if isinstance(a, dict) and _is_name(a.get("name"))]
            if isinstance(given, list)
            else []
        )
        found[name] = RemotePrompt(
            name,
            _text(item.get("description"), 1000),
            [a["name"] for a in arguments],
            [a["name"] for a in arguments if a.get("required") is True],
        )
    return list(found.values())


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME


def _text(value: Any, limit: int) -> str:
    return value[:limit] if isinstance(value, str) else ""
