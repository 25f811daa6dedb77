"""`RpcClient`: drive any agent that speaks the RPC protocol, in a child process or behind a WebSocket."""

import asyncio
import contextlib
import itertools
import logging
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

from msgspec import UNSET

from spindle.client.callbacks import Callbacks, Event, HostTool, UiHandler
from spindle.client.commands import Behavior, Commands, Images, Timeout, Wishes, wire_wishes
from spindle.client.errors import (
    ClientClosed,
    CommandFailed,
    ConnectionFailed,
    ConnectionLost,
    RequestTimeout,
    RpcError,
)
from spindle.client.transport import Json, Process, Transport, WebSocket, websocket_url
from spindle.flow import Mailbox
from spindle.limits import CHILD_GRACE
from spindle.shapes import codec

Function = TypeVar("Function", bound=Callable[..., Any])

PROMPTS = frozenset({"prompt", "abort_and_prompt"})
log = logging.getLogger(__name__)

# After one of these the work may be over; before `agent_settled` existed only the state can tell.
MAYBE_THE_END = frozenset({"agent_end", "auto_retry_end", "compaction_end", "auto_compaction_end"})
NOT_YET = MAYBE_THE_END | {"agent_start", "auto_retry_start", "compaction_start", "auto_compaction_start"}


class EventStream(Mailbox[Event]):
    """`async for event in stream`. Collects from the moment it is made until it is closed or forgotten.

    It ends with the client. If the agent ended by itself, that is raised behind the last event.
    """

    def __init__(self) -> None:
        super().__init__(sys.maxsize)

    def forget_through(self, *types: str) -> None:
        """Drop what waits, up to the last event of these types."""
        ends = [number for number, event in enumerate(self.waiting, 1) if event.type in types]
        for _ in range(ends[-1] if ends else 0):
            self.pop()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a prompt."""

    messages: list[Json]
    """Every message it added, the prompt included."""
    aborted: bool
    """Whether the last answer was stopped."""

    @property
    def answer(self) -> Json | None:
        """The last message of the model."""
        answers = [message for message in self.messages if message.get("role") == "assistant"]
        return answers[-1] if answers else None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        content = self.answer["content"] if self.answer else []
        return "".join(block.get("text", "") for block in content if block.get("type") == "text")

    @property
    def error(self) -> str | None:
        """Why the last answer failed; None if it did not."""
        if self.answer is None or self.answer.get("stopReason") != "error":
            return None
        return str(self.answer.get("errorMessage", "unknown error"))


class RunEvents(AsyncIterator[Event]):
    """The events of one run: `async for event in client.run(…)`; or, or then, `await client.run(…).result()`."""

    def __init__(self, client: "RpcClient", events: AsyncGenerator[Event, None]) -> None:
        self._client = client
        self._events = events
        self._settled = False

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        self._settled = event.type == "agent_settled"
        return event

    async def aclose(self) -> None:
        """Let go of the events. The run goes on; `abort` stops it."""
        await self._events.aclose()

    async def result(self) -> Json | None:
        """Wait for the end of the run and return what came of it, as `get_run_result` does.

        None if no run was needed: a command of an extension has dealt with the prompt. Ask before the next prompt.
        Raises `CommandFailed` if the prompt is refused, or the agent knows of no results.
        """
        async for _ in self:
            pass  # those that were not read
        return await self._client.get_run_result() if self._settled else None


class RpcClient(Commands):
    """Start an agent or connect to one, send it commands, listen to its events.

        async with RpcClient(["spindle", "--mode", "rpc", "--no-session"]) as agent:
            run = await agent.prompt_and_wait("What is in this directory?")
            print(run.text)

    `RpcClient("ws://127.0.0.1:3838/rpc", token=…)` does the same with an agent of `spindle --remote`. Every command of
    the protocol is a method; `request` sends those that have none yet.
    """

    def __init__(
        self,
        command: Sequence[str] | str = ("spindle", "--mode", "rpc"),
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        token: str | None = None,
        request_timeout: float | None = 30.0,
        updates: Literal["full", "delta"] | None = None,
        on_ui_request: UiHandler | None = None,
        exit_grace: float = CHILD_GRACE,
        **options: Any,
    ) -> None:
        """Prepare a client; `start` or `async with` starts the agent.

        `command` is a command line to run, in `cwd` and with `env`; or the URL of a server, with its `token` and with
        `options` of `websockets.connect`. `updates="delta"` asks for updates that carry only what is new: much cheaper
        for long answers. An agent that does not know the command goes on as it does.

        Raises `ValueError` for a text that is not a URL, `TypeError` for options that a command line does not have.
        """
        if not isinstance(command, str) and (options or token is not None):
            raise TypeError(f"A command line does not take {', '.join(options) or 'token'}")
        self.command = websocket_url(command, "/rpc") if isinstance(command, str) else list(command)
        self.cwd = cwd
        self.env = env
        self.request_timeout = request_timeout
        self.exit_grace = exit_grace
        """Seconds the agent gets to end by itself, and again after SIGTERM."""
        self.on_ui_request = on_ui_request
        """The function that answers questions of extensions; without one they are cancelled."""
        self._token = token
        self._options = options
        self._updates = updates
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Transport | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._error: RpcError = ClientClosed()
        """What a command raises once the agent is gone."""
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[Json]]] = {}
        """Id → command and the answer it waits for."""
        self._prompts: weakref.WeakValueDictionary[str, EventStream] = weakref.WeakValueDictionary()
        """Id of a prompt → the run that follows it; some agents refuse a prompt after they accepted it."""
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._listeners: list[Callable[[Event], None]] = []
        self._settles = False
        """The agent has been seen to say `agent_settled`."""
        self._callbacks = Callbacks(self._post, lambda: self.on_ui_request)
        self._declared_tools: list[HostTool] = []
        """Those the agent knows of."""

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the agent, unless there is one; after a crash the client has to be closed first.

        Raises `OSError` if the program cannot be started, `ConnectionFailed` if the server cannot be reached or does
        not let us in, `RpcError` if the agent refuses our tools.
        """
        async with self._starting:
            if self._transport is None:
                await self._start()

    async def _start(self) -> None:
        if self._reading is not None and not self._reading.done():
            await asyncio.wait([self._reading])  # of a close that was cancelled, or is not done yet
        self._loop = asyncio.get_running_loop()
        if isinstance(self.command, str):
            self._transport = await WebSocket.connect(self.command, self._token, self._options)
        else:
            self._transport = await Process.start(self.command, self.cwd, self.env)
        self._reading = asyncio.create_task(self._read(self._transport), name="client-read")
        self._declared_tools = []
        try:
            if isinstance(self.command, str):
                await self._let_in()
            if self._updates is not None:
                with contextlib.suppress(CommandFailed):
                    await self.set_update_mode(self._updates)
            await self._declare_tools()
        except BaseException:
            await self.close()
            raise

    async def _let_in(self) -> None:
        """Wait for a server's first frame. One that has no such session, or no agent, closes the connection instead."""
        try:
            async with asyncio.timeout(self.request_timeout):
                await anext(self.events())
        except TimeoutError:
            raise RequestTimeout("ready", self.request_timeout or 0) from None
        except ConnectionLost as lost:
            raise ConnectionFailed(lost.reason or str(lost), lost.code) from None

    async def close(self) -> None:
        """Close the agent's stdin and wait for its end; insist if it does not come. Or close the connection."""
        transport, self._transport = self._transport, None
        if transport is None or self._reading is None:
            return
        grace = 0.0  # if we are cancelled
        try:
            await self._callbacks.close()
            grace = self.exit_grace
        finally:
            await transport.close(grace)
        await asyncio.wait([self._reading])  # if we are cancelled, it still tells all who wait

    async def __aenter__(self) -> "RpcClient":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def stderr(self) -> str:
        """The end of what the agent's process wrote to stderr."""
        return self._transport.stderr if isinstance(self._transport, Process) else ""

    # -- commands --------------------------------------------------------------------------------

    async def request(self, command: str, /, *, timeout: Timeout = UNSET, **fields: Any) -> Any:
        if command in PROMPTS:
            await self._declare_tools()
        if self._transport is None or self._reading is None or self._reading.done():
            raise self._error
        seconds = self.request_timeout if timeout is UNSET else timeout
        id = fields.pop("id", None) or self._new_id()
        present = {name: value for name, value in fields.items() if value is not None}
        self._transport.send(codec.encode({"id": id, "type": command, **present}))
        answer: asyncio.Future[Json] = self._reading.get_loop().create_future()
        self._pending[id] = command, answer
        try:
            async with asyncio.timeout(seconds):
                await self._transport.room()
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

    def _post(self, frame: Json) -> None:
        """Send a frame that gets no answer; this works from any thread."""
        transport = self._transport
        if transport is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(transport.send, codec.encode(frame))

    # -- runs ------------------------------------------------------------------------------------

    def run(
        self, message: str, *, images: Images = None, streaming_behavior: Behavior = None, **wishes: Unpack[Wishes]
    ) -> RunEvents:
        """Send a prompt and give every event until the agent has settled; `.result()` is what came of it.

        `max_turns`, `max_cost`, `max_time` and `max_total_tokens` limit the run. `schema`, a type or a JSON Schema, is
        what its result has to fit. The prompt is sent when the first event or the result is asked for.
        """
        fields = {"message": message, "images": images, "streamingBehavior": streaming_behavior}
        return RunEvents(self, self._run(fields | wire_wishes(wishes)))

    async def _run(self, fields: Json) -> AsyncGenerator[Event, None]:
        events = self.events()
        id = self._new_id()
        self._prompts[id] = events
        if _is_handled(await self.request("prompt", timeout=None, id=id, **fields)):
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
        images: Images = None,
        streaming_behavior: Behavior = None,
        on_event: Callable[[Event], None] | None = None,
        timeout: float | None = None,
        **wishes: Unpack[Wishes],
    ) -> Run:
        """Send a prompt and return what came of it. A time-out does not stop the agent; `abort` does."""
        messages: list[Json] = []
        aborted = False
        try:
            async with asyncio.timeout(timeout):
                async for event in self.run(message, images=images, streaming_behavior=streaming_behavior, **wishes):
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
        """Ask an agent that does not say `agent_settled`. Events before its answer may show that work goes on."""
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
        if self._reading is not None and self._reading.done():
            stream.close(self._error)
        return stream

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event; return a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # -- host tools ------------------------------------------------------------------------------

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(
        self, /, *, name: str | None = None, description: str | None = None, parameters: Any = None
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Any = None,
    ) -> Function | Callable[[Function], Function]:
        """Let the model call a function of this program: `@agent.tool`.

        Its signature becomes the schema, its docstring the description; `Annotated[str, "text"]` documents a parameter.
        `parameters` is a JSON Schema or a pydantic model to use instead. The agent learns of the tool with the next
        prompt, or by `publish_tools`. Raises `TypeError` if a parameter cannot be described.
        """

        def add(function: Function) -> Function:
            tool = HostTool(function, name, description, parameters)
            self._callbacks.tools[tool.name] = tool
            return function

        return add if function is None else add(function)

    async def publish_tools(self) -> list[str]:
        """Declare every tool added so far, which also holds for the current run; return their names."""
        tools = list(self._callbacks.tools.values())
        names = await self.set_host_tools([tool.definition for tool in tools])
        self._declared_tools = tools
        return names

    async def _declare_tools(self) -> None:
        if self._declared_tools != list(self._callbacks.tools.values()):
            await self.publish_tools()

    def host_tool_update(self, id: str, partial_result: Json) -> None:
        """Report progress of a `host_tool_call` that this program answers by hand."""
        self._post({"type": "host_tool_update", "id": id, "partialResult": partial_result})

    def host_tool_result(self, id: str, result: Json, *, is_error: bool = False) -> None:
        """Answer a `host_tool_call` by hand."""
        self._post({"type": "host_tool_result", "id": id, "result": result, "isError": is_error})

    # -- reading ---------------------------------------------------------------------------------

    async def _read(self, transport: Transport) -> None:
        """Take what the agent sends. At its end, tell all who wait for something of it."""
        async for frame in transport.frames():
            self._receive(frame)
        crash = transport.error if self._transport is not None else None
        self._error = crash or ClientClosed()
        for _, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._error)
        for stream in list(self._streams):
            stream.close(crash)

    def _receive(self, frame: Json) -> None:
        if frame.get("type") == "response":
            self._answered(frame)
            return
        event = Event(frame)
        self._callbacks.receive(event)
        self._settles = self._settles or event.type == "agent_settled"
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:  # the other listeners still get the event
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
        """Find the request of an answer without id: older agents leave it out when they refuse a command."""
        command = response.get("command")
        candidates = [id for id, (name, _) in self._pending.items() if command in (name, "parse", None)]
        return candidates[0] if len(candidates) == 1 else None


def _is_handled(accepted: Any) -> bool:
    """Say whether a command of an extension has handled the prompt: then no run follows."""
    return isinstance(accepted, dict) and accepted.get("disposition") == "handled"
