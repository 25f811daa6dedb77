"""The server inside the test's own event loop, with a scripted model: for limits that would take too long at their
usual size, and for races that need a hand on both sides.

    async def story(world):
        async with world.chat() as client:
            ...

    run(story, ["the model's answer"], tmp_path, confirm_timeout=0.1)
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect

from spindle.agent.session import AgentSession
from spindle.protocol.pool import AgentSource, SessionPool
from spindle.protocol.registry import WantedSession
from spindle.recipe import AgentOptions, make_agent
from spindle.server.account import Terms
from spindle.server.users import User
from spindle.sessions import open as sessions
from spindle.sessions.index import find_by_id, list_all_sessions
from spindle.shapes.events import ToolResult
from spindle.testing import Script
from spindle.tools.base import Tool, ToolContext, text_result
from spindle.wires.network.options import RemoteOptions
from spindle.wires.server import RemoteServer

LIMIT_S = 30


def run(
    story: Callable[["World"], Awaitable[None]],
    steps: Sequence[Any],
    base: Path,
    *,
    tools: Sequence[str | Tool] | None = None,
    extension: Callable[[Any], Any] | None = None,
    **options: Any,
) -> None:
    """Tell a story to a server with these limits."""
    agents = AgentOptions(mode="remote", tools=tools, factories=[] if extension is None else [extension])

    async def told() -> None:
        world = World(steps, base, RemoteOptions(**options), agents)
        async with asyncio.timeout(LIMIT_S):
            await world.start()
            try:
                await story(world)
            finally:
                await world.server.stop()

    asyncio.run(told())


class World:
    """The server, and the source of its agents."""

    def __init__(self, steps: Sequence[Any], base: Path, options: RemoteOptions, agents: AgentOptions) -> None:
        self.script = Script(steps or ["unused"])
        self.agents: list[AgentSession] = []
        """Every agent that was made."""
        self.opening = asyncio.Event()
        """Agents are made when this is set."""
        self.opening.set()
        self.address = ""
        self._base = base
        self._agent_options = replace(agents, model=self.script.model())
        self.server = RemoteServer(options, self)

    @property
    def pool(self) -> SessionPool:
        return self.server._tenant(None).pool

    async def start(self) -> None:
        self.address = (await self.server.start()).removeprefix("http://").rstrip("/")

    store = None

    def find(self, session: str, cwd: str | None) -> str | None:
        found = find_by_id(self._base, session, self._base / "sessions")
        return None if found is None else os.path.realpath(found)

    async def make(self, wanted: WantedSession) -> AgentSession:
        await self.opening.wait()
        directory = self._base / "sessions"
        session = sessions.create(self._base, directory) if wanted.session is None else sessions.load(wanted.session)
        agent, _ = await make_agent(session, self._agent_options)
        self.agents.append(agent)
        return agent

    def interrupted(self) -> list[str]:
        return [info.path for info in list_all_sessions(self._base / "sessions") if info.interrupted]

    def for_user(self, name: str, user: User, others: Any = tuple) -> tuple[AgentSource, Terms]:
        raise NotImplementedError

    @asynccontextmanager
    async def chat(self, query: str = "", **options: Any) -> AsyncIterator["Chat"]:
        async with connect(f"ws://{self.address}/{query}", proxy=None, **options) as socket:
            yield Chat(socket)

    @asynccontextmanager
    async def rpc(self, query: str = "", **options: Any) -> AsyncIterator["Rpc"]:
        async with connect(f"ws://{self.address}/rpc{query}", proxy=None, max_queue=None, **options) as socket:
            client = Rpc(socket)
            client.ready = await client.read()
            yield client


class _Socket:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def read(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.socket.recv())
        return frame


class Chat(_Socket):
    async def send(self, id: str, input: Any, **fields: Any) -> None:
        await self.socket.send(json.dumps({"request_id": id, "input": input, **fields}))

    async def ask(self, id: str, input: Any, **fields: Any) -> dict[str, Any]:
        """Send a request and return the next frame."""
        await self.send(id, input, **fields)
        return await self.read()

    async def session_id(self) -> str:
        answer = await self.ask("config", {"Instruction": {"command": "config"}})
        return str(json.loads(answer["response"]["Text"])["session"])


class Rpc(_Socket):
    ready: dict[str, Any]

    async def call(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a command and return its response; events before it are passed over."""
        await self.socket.send(json.dumps({"id": type, "type": type, **fields}))
        return await self.wait(lambda frame: frame.get("type") == "response" and frame.get("id") == type)

    async def wait(self, wanted: str | Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            frame = await self.read()
            if wanted(frame) if callable(wanted) else frame["type"] == wanted:
                return frame


def tool(name: str, body: Callable[[Any], Awaitable[str]], **options: Any) -> Tool:
    async def execute(call_id: str, arguments: Any, context: ToolContext) -> ToolResult:
        return text_result(await body(arguments))

    return Tool(name, f"The tool {name}", {"type": "object", "properties": {}}, execute, **options)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something is so; the story's own limit ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)


def listeners(agent: AgentSession) -> tuple[Any, ...]:
    """Return what hears the events of an agent: none may stay when its client is gone."""
    return agent._engine.hub._listeners


def held(agent: AgentSession) -> int:
    """Return how many characters wait for a chat client whose request runs; 0 if the agent does not wait for it."""
    return max((listener._frames.size for listener in listeners(agent) if hasattr(listener, "_frames")), default=0)
