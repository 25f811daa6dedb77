"""`RpcClient`: drive any agent that speaks the RPC protocol on stdio."""

import asyncio
import contextlib
import itertools
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from msgspec import UNSET

from spindle.client.commands import Commands, Json, Timeout
from spindle.client.dialogs import Dialogs, UiHandler
from spindle.client.errors import AgentCrashed, ClientClosed, CommandFailed, RequestTimeout, RpcError
from spindle.client.events import Event, EventStream, Run, read_frame
from spindle.client.host_tools import HostTool, HostTools
from spindle.client.process import AgentProcess
from spindle.shapes import codec

__all__ = ["RpcClient"]

Function = TypeVar("Function", bound=Callable[..., Any])

PROMPTS = frozenset({"prompt", "abort_and_prompt"})
log = logging.getLogger(__name__)

# After one of these the work may be over; before `agent_settled` existed only the state can tell.
MAYBE_THE_END = frozenset({"agent_end", "auto_retry_end", "compaction_end", "auto_compaction_end"})
NOT_YET = MAYBE_THE_END | {"agent_start", "auto_retry_start", "compaction_start", "auto_compaction_start"}


class RpcClient(Commands):
    """Start an agent, send it commands, listen to its events.

        async with RpcClient(["spindle", "--mode", "rpc", "--no-session"]) as agent:
            run = await agent.prompt_and_wait("What is in this directory?")
            print(run.text)

    Every command of the protocol is a method; `request` sends those that have none yet.
    """

    def __init__(
        self,
        command: Sequence[str] = ("spindle", "--mode", "rpc"),
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        request_timeout: float | None = 30.0,
        updates: Literal["full", "delta"] | None = None,
        on_ui_request: UiHandler | None = None,
        exit_grace: float = 5.0,
    ) -> None:
        """Prepare a client; `start` or `async with` starts the agent.

        `updates="delta"` asks for updates that carry only what is new: much cheaper for long answers. An agent that
        does not know the command goes on as it does.
        """
        self.command = list(command)
        self.cwd = cwd
        self.env = env
        self.request_timeout = request_timeout
        self.exit_grace = exit_grace
        """Seconds the agent gets to end by itself, and again after SIGTERM."""
        self._updates = updates
        self._process: AgentProcess | None = None
        self._watching: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._error: RpcError = ClientClosed()
        """What whoever asks for something is told once the agent is gone."""
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[Json]]] = {}
        """Id → command and the answer it waits for."""
        self._prompts: weakref.WeakValueDictionary[str, EventStream] = weakref.WeakValueDictionary()
        """Id of a prompt → the run that follows it; some agents refuse a prompt after they accepted it."""
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._listeners: list[Callable[[Event], None]] = []
        self._settles = False
        """The agent has been seen to say `agent_settled`."""
        self._host_tools = HostTools(self._post)
        self._declared_tools: list[HostTool] = []
        """Those the agent knows of."""
        self._dialogs = Dialogs(self._post, on_ui_request)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the agent, unless there is one; a crashed one has to be closed first.

        Raises `OSError` if the program cannot be started, `RpcError` if it refuses our tools.
        """
        async with self._starting:
            if self._process is None:
                await self._start()

    async def _start(self) -> None:
        if self._watching is not None and not self._watching.done():
            await asyncio.wait([self._watching])  # of a close that was cancelled, or is not done yet
        self._process = await AgentProcess.start(self.command, self._receive, self.cwd, self.env)
        self._watching = asyncio.create_task(self._watch(self._process))
        self._declared_tools = []
        try:
            if self._updates is not None:
                with contextlib.suppress(CommandFailed):
                    await self.set_update_mode(self._updates)
            await self._declare_tools()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the agent's stdin and wait for its end; insist if it does not come."""
        process, self._process = self._process, None
        if process is None or self._watching is None:
            return
        grace = 0.0  # if we are cancelled
        try:
            await self._host_tools.close()
            await self._dialogs.close()
            grace = self.exit_grace
        finally:
            await process.stop(grace)
        await asyncio.wait([self._watching])  # if we are cancelled, it still tells everybody

    async def __aenter__(self) -> "RpcClient":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def stderr(self) -> str:
        """The end of what the agent wrote to stderr."""
        return self._process.stderr if self._process is not None else ""

    # -- commands --------------------------------------------------------------------------------

    async def request(self, command: str, /, *, timeout: Timeout = UNSET, **fields: Any) -> Any:
        return await self._request(self._new_id(), command, timeout, fields)

    async def _request(self, id: str, command: str, timeout: Timeout, fields: Json) -> Any:
        if command in PROMPTS:
            await self._declare_tools()
        process = self._running()
        seconds = self.request_timeout if timeout is UNSET else timeout
        present = {name: value for name, value in fields.items() if value is not None}
        process.write(codec.encode({"id": id, "type": command, **present}))
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._pending[id] = command, answer
        try:
            async with asyncio.timeout(seconds):
                await process.drain()
                response = await answer
        except TimeoutError:
            raise RequestTimeout(command, seconds or 0) from None
        finally:
            self._pending.pop(id, None)
        if response.get("success") is not True:
            raise CommandFailed(command, str(response.get("error", "unknown error")))
        return response.get("data")

    def _new_id(self) -> str:
        return f"req_{next(self._numbers)}"

    def _running(self) -> AgentProcess:
        if self._process is None or self._watching is None or self._watching.done():
            raise self._error
        return self._process

    def _post(self, frame: Json) -> None:
        """Write a frame that gets no answer; this works from any thread."""
        if self._process is not None:
            self._process.post(codec.encode(frame))

    # -- runs ------------------------------------------------------------------------------------

    async def run(
        self,
        message: str,
        *,
        images: Sequence[Json] | None = None,
        streaming_behavior: Literal["steer", "followUp"] | None = None,
    ) -> AsyncIterator[Event]:
        """Send a prompt and give every event until the agent has settled."""
        events = self.events()
        id = self._new_id()
        self._prompts[id] = events
        fields = {"message": message, "images": images, "streamingBehavior": streaming_behavior}
        accepted = await self._request(id, "prompt", None, fields)
        if _is_handled(accepted):
            events.close()
        async for event in events:
            yield event
            if event.type == "agent_settled":
                return
            if event.type in MAYBE_THE_END and not self._settles and await self._is_over(events):
                return

    async def prompt_and_wait(
        self,
        message: str,
        *,
        images: Sequence[Json] | None = None,
        streaming_behavior: Literal["steer", "followUp"] | None = None,
        on_event: Callable[[Event], None] | None = None,
        timeout: float | None = None,
    ) -> Run:
        """Send a prompt and return what came of it. A time-out does not stop the agent; `abort` does."""
        messages: list[Json] = []
        aborted = False
        try:
            async with asyncio.timeout(timeout):
                async for event in self.run(message, images=images, streaming_behavior=streaming_behavior):
                    if on_event is not None:
                        on_event(event)
                    if event.type == "agent_end":
                        messages += event.get("messages", ())
                    elif event.type == "message_end":
                        aborted = event.get("message", {}).get("stopReason") == "aborted"
        except TimeoutError as error:
            if isinstance(error, RpcError):
                raise
            raise RequestTimeout("prompt", timeout or 0) from None
        return Run(messages, aborted)

    async def _is_over(self, events: EventStream) -> bool:
        """Ask an agent that has no word for it. What came before its answer may show that work goes on."""
        try:
            state = await self.get_state()
        except CommandFailed:
            return True
        busy = state.get("isStreaming") or state.get("isCompacting")
        return not busy and not self._settles and not any(event.type in NOT_YET for event in events.waiting)

    # -- events ----------------------------------------------------------------------------------

    def events(self) -> EventStream:
        """Return a stream of every event from now on. It ends with the client; a crash is raised there."""
        stream = EventStream()
        self._streams.add(stream)
        if self._watching is not None and self._watching.done():
            stream.close(self._error)
        return stream

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event; return a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @property
    def on_ui_request(self) -> UiHandler | None:
        """Who answers the questions of extensions; without anybody they are cancelled."""
        return self._dialogs.handler

    @on_ui_request.setter
    def on_ui_request(self, handler: UiHandler | None) -> None:
        self._dialogs.handler = handler

    # -- host tools ------------------------------------------------------------------------------

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(self, /, *, name: str | None = None, description: str | None = None) -> Callable[[Function], Function]: ...

    def tool(
        self, function: Function | None = None, /, *, name: str | None = None, description: str | None = None
    ) -> Function | Callable[[Function], Function]:
        """Let the model call a function of this program: `@agent.tool`.

        Its signature becomes the schema, its docstring the description. The agent learns of it with the next prompt,
        or by `publish_tools`.
        """

        def add(function: Function) -> Function:
            self._host_tools.add(HostTool(function, name, description))
            return function

        return add if function is None else add(function)

    async def publish_tools(self) -> list[str]:
        """Declare every tool added so far, which also holds for the run in hand; return their names."""
        tools = self._host_tools.all()
        names = await self.set_host_tools([tool.definition() for tool in tools])
        self._declared_tools = tools
        return names

    async def _declare_tools(self) -> None:
        if self._declared_tools != self._host_tools.all():
            await self.publish_tools()

    def host_tool_update(self, id: str, partial_result: Json) -> None:
        """Report progress of a `host_tool_call` that this program answers by hand."""
        self._post({"type": "host_tool_update", "id": id, "partialResult": partial_result})

    def host_tool_result(self, id: str, result: Json, *, is_error: bool = False) -> None:
        """Answer a `host_tool_call` by hand."""
        self._post({"type": "host_tool_result", "id": id, "result": result, "isError": is_error})

    # -- reading ---------------------------------------------------------------------------------

    async def _watch(self, process: AgentProcess) -> None:
        """Wait for the agent's end and tell everybody who waits for something of it."""
        code = await process.ended()
        crash = AgentCrashed(code, process.stderr) if self._process is not None else None
        self._error = crash or ClientClosed()
        for _, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._error)
        for stream in list(self._streams):
            stream.close(crash)

    def _receive(self, line: bytes) -> None:
        frame = read_frame(line)
        if frame is None:
            return
        if frame.get("type") == "response":
            self._answered(frame)
            return
        event = Event(frame)
        if event.type == "extension_ui_request":
            self._dialogs.receive(event)
        elif event.type in ("host_tool_call", "host_tool_cancel"):
            self._host_tools.receive(event)
        self._settles = self._settles or event.type == "agent_settled"
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:  # one careless listener must not deafen the others
                log.exception("a listener failed on %s", event.type)

    def _answered(self, response: Json) -> None:
        id = response["id"] if "id" in response else self._guess_id(response)
        if not isinstance(id, str):
            return
        run = self._prompts.get(id)
        if id in self._pending and not self._pending[id][1].done():
            self._pending[id][1].set_result(response)
            if run is not None and not _is_handled(response.get("data")):
                run.forget_through("agent_end", "agent_settled")  # those of an earlier run
        elif response.get("success") is False and run is not None:
            run.close(CommandFailed("prompt", str(response.get("error"))))

    def _guess_id(self, response: Json) -> str | None:
        """Find whom an answer without id is for: older agents leave it out when they refuse a command."""
        command = response.get("command")
        candidates = [id for id, (name, _) in self._pending.items() if command in (name, "parse", None)]
        return candidates[0] if len(candidates) == 1 else None


def _is_handled(accepted: Any) -> bool:
    """Say whether a prompt was dealt with at once, by a command of an extension: no run follows."""
    return isinstance(accepted, dict) and accepted.get("disposition") == "handled"
