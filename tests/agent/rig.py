"""An agent in this process, driven by command frames as over a wire, with a scripted model.

    async with Rig(tmp_path, [{"text": ["Hel", Pause(gate="go"), "lo"]}]) as rig:
        await rig.call("prompt", message="hi")
        await rig.script.reached("go")
        await rig.call("abort")

`frames` holds everything that went out, events and responses in their order. `unhandled` holds what asyncio had to
complain about; leaving the block checks that it is empty and that no task was left behind.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from spindle.agent.session import AgentSession
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.seat import Seat
from spindle.recipe import AgentOptions, make_agent
from spindle.sessions import open as sessions
from spindle.shapes.codec import decode, encode
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.testing import Script
from spindle.tools.base import Tool, ToolContext

__all__ = ["Rig", "kinds", "run", "slow_tool", "until_true"]

Frame = dict[str, Any]
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 50))


async def until_true(condition: Callable[[], bool]) -> None:
    """Let others run until something is the case."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


def kinds(frames: Sequence[Frame]) -> list[str]:
    """The types of frames, updates left out."""
    return [frame["type"] for frame in frames if frame["type"] != "message_update"]


class _Wire(Seat):
    """A client that writes down what it gets. It may stop reading."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames
        self._room = asyncio.Event()
        self._room.set()
        self.on_frame: Callable[[], None] = lambda: None

    def put(self, item: Any) -> None:
        self._frames.append(decode(encode(item)))
        self.on_frame()

    @property
    def full(self) -> bool:
        return not self._room.is_set()

    async def room(self) -> None:
        await self._room.wait()

    def stop_reading(self) -> None:
        self._room.clear()

    def read_on(self) -> None:
        self._room.set()


class Rig:
    at_work = 0
    """Rigs that are open: others have tasks, too."""

    def __init__(
        self,
        folder: Path,
        steps: Sequence[Any] = ("ok",),
        *,
        settings: Frame | None = None,
        tools: Sequence[Tool] = (),
        extensions: Sequence[Callable[[Any], Any]] = (),
        session: bool = False,
        open: str | None = None,
        model: Frame | None = None,
        mode: str = "rpc",
        provider_session_id: str | None = None,
        far: str | None = None,
    ) -> None:
        """`far`: a command that gives a pipe; tools work at its other end, in the same folder."""
        self.cwd = folder / "work"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.home = folder / "agent"
        self.home.mkdir(exist_ok=True)
        (self.home / "settings.json").write_text(json.dumps({"retry": {"baseDelayMs": 1}, **(settings or {})}))
        self.script = Script(steps)
        self.frames: list[Frame] = []
        self.unhandled: list[dict[str, Any]] = []
        self.agent: AgentSession
        used = self.script.model(**{"context_window": 100_000, "max_tokens": 4096, **(model or {})})
        self._far = far
        self._options = AgentOptions(
            model=used,
            tools=["read", "write", *tools],
            mode=mode,
            provider_session_id=provider_session_id,
            factories=extensions,
        )
        self._session = session
        self._open = open
        self._count = 0
        self._tasks_before: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.unhandled.append(context))
        self._tasks_before = asyncio.all_tasks()
        self.wire = _Wire(self.frames)
        self._waiters: list[tuple[Callable[[Frame], bool], asyncio.Future[Frame]]] = []
        self.wire.on_frame = self._look
        folder = str(self.cwd)
        if self._open is not None:
            store = sessions.load(self._open)
        elif self._session:
            store = sessions.create(folder, self.home / "sessions")
        else:
            store = sessions.in_memory(folder)
        place = {"exec": self._far, "exec_cwd": folder} if self._far is not None else {}
        self.agent, _ = await make_agent(store, replace(self._options, **place))
        self.agent.subscribe(self.wire)
        self.dispatcher = Dispatcher(self.agent, self.wire, self.wire)
        await self.agent.begin()
        Rig.at_work += 1
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.wire.read_on()
        Rig.at_work -= 1
        await self.agent.close()
        await self.dispatcher.close()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - self._tasks_before
        if kind is None:
            assert not self.unhandled, self.unhandled
            assert Rig.at_work or not left, left

    # -- talking ---------------------------------------------------------------------------------

    def send(self, type: str, **fields: Any) -> str:
        """Send a command; returns its id."""
        self._count += 1
        id = f"q{self._count}"
        self.dispatcher.receive_value({"id": id, "type": type, **fields})
        return id

    async def call(self, type: str, **fields: Any) -> Frame:
        """Send a command and return its response."""
        return await self.response(self.send(type, **fields))

    async def response(self, id: str) -> Frame:
        return await self.until(lambda frame: frame["type"] == "response" and frame.get("id") == id)

    async def data(self, type: str, **fields: Any) -> Any:
        response = await self.call(type, **fields)
        assert response["success"], response
        return response.get("data")

    async def run(self, message: str) -> list[Frame]:
        """Prompt and wait until the agent is settled; returns the frames in between."""
        start = len(self.frames)
        assert (await self.call("prompt", message=message))["success"]
        await self.until("agent_settled", start)
        return self.frames[start:]

    async def until(self, wanted: str | Callable[[Frame], bool], start: int = 0) -> Frame:
        """Return the first frame that fits, from the `start`th on, whether it is here already or not."""
        fits = wanted if callable(wanted) else lambda frame: frame["type"] == wanted
        for frame in self.frames[start:]:
            if fits(frame):
                return frame
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiters.append((fits, future))
        try:
            return await asyncio.wait_for(future, 30)
        except TimeoutError:
            raise AssertionError(f"nothing fits {wanted!r}; last frames: {self.frames[-5:]}") from None

    def _look(self) -> None:
        for fits, future in self._waiters:
            if not future.done() and fits(self.frames[-1]):
                future.set_result(self.frames[-1])

    # -- looking ---------------------------------------------------------------------------------

    def of(self, kind: str) -> list[Frame]:
        return [frame for frame in self.frames if frame["type"] == kind]

    def roles(self) -> list[str]:
        """The conversation as `role` or `role(stop reason)`."""
        return [
            message.role + (f"({message.stop_reason})" if message.role == "assistant" else "")
            for message in map(_shape, self.agent.messages)
        ]


class _Shape:
    def __init__(self, value: Frame) -> None:
        self.role = value["role"]
        self.stop_reason = value.get("stopReason")


def _shape(message: Any) -> _Shape:
    return _Shape(decode(encode(message)))


def slow_tool(name: str = "slow", seconds: float = 30.0, **options: Any) -> Tool:
    """A tool that sleeps."""

    async def execute(call_id: str, args: Any, ctx: ToolContext) -> ToolResult:
        await asyncio.sleep(seconds)
        return ToolResult([Text("slept")])

    return Tool(name, name, {"type": "object", "properties": {}}, execute, **{"effect": "reads", **options})
