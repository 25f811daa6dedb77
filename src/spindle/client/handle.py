"""One session of an agent as a program drives it: prompts and their runs, events, tools of the program."""

import asyncio
import inspect
import logging
import sys
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from msgspec import convert

from spindle.base.flow import Mailbox
from spindle.client.callbacks import Callbacks, Event, HostTool, UiHandler
from spindle.client.commands import Commands
from spindle.client.errors import CommandFailed, RequestTimeout, RpcError
from spindle.client.methods import Behavior, Images, Timeout, Wishes, wire_wishes
from spindle.client.transport import Json

if TYPE_CHECKING:
    from spindle.shapes.run_result import RunResult

Function = TypeVar("Function", bound=Callable[..., Any])

log = logging.getLogger(__name__)

PROMPTS = frozenset({"prompt", "abort_and_prompt"})
# After one of these events the work may be over. Of an agent without `agent_settled`, only the state tells.
MAYBE_THE_END = frozenset({"agent_end", "auto_retry_end", "compaction_end", "auto_compaction_end"})
NOT_YET = MAYBE_THE_END | {"agent_start", "auto_retry_start", "compaction_start", "auto_compaction_start"}


class EventStream(Mailbox[Event]):
    """`async for event in stream`. Collects events from its creation until it is closed or no longer referenced.

    It ends with the client. If the agent ended by itself, the error is raised behind the last event.
    """

    def __init__(self) -> None:
        super().__init__(sys.maxsize)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a prompt."""

    messages: list[Json]
    """Every message that the run added, the prompt included."""
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
    """One run: `async for event in client.run(…)`. `.result()` works after the loop, or without it, as `await` does."""

    def __init__(self, client: "AgentHandle", events: AsyncGenerator[Event, None]) -> None:
        self._client = client
        self._events = events
        self._begun = self._settled = False

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn("a prompt was not sent: its run was neither awaited nor iterated", RuntimeWarning, 2)

    def __await__(self) -> Generator[Any, Any, "RunResult"]:
        return self.result().__await__()

    async def __anext__(self) -> Event:
        self._begun = True
        event = await anext(self._events)
        self._settled = event.type == "agent_settled"
        return event

    async def aclose(self) -> None:
        """Stop reading events. The run goes on; `abort` stops it."""
        self._begun = True
        await self._events.aclose()

    async def result(self) -> "RunResult":
        """Wait for the end of the run and return its result, the same object as of an agent in process.

        Its `stop_reason` is `handled` if a command of an extension dealt with the prompt. Call it before the next
        prompt. Raises `CommandFailed` if the prompt is refused, or the agent does not have `get_run_result`.
        """
        from spindle.shapes.run_result import RunResult, handled

        async for _ in self:
            pass  # events that were not read
        if self._settled and (told := await self._client.get_run_result()) is not None:
            return convert(told, RunResult)
        state = await self._client.get_state()
        return handled(state["sessionId"], state.get("sessionFile"))


class AgentHandle(Commands, ABC):
    """The methods of every session of an agent: of the first, and of those opened beside it."""

    def __init__(self, on_ui_request: UiHandler | None) -> None:
        self.on_ui_request = on_ui_request
        """The function that answers questions of extensions; without one they are cancelled."""
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._listeners: list[Callable[[Event], None]] = []
        self._settles = False
        """Whether the agent has sent an `agent_settled`; some agents never do."""
        self.on_permission_request: UiHandler | None = None
        """The function that is asked about tool calls, and answers with `answer_permission`; without one the question
        comes as one of `on_ui_request`."""
        self._callbacks = Callbacks(self._post, lambda: self.on_ui_request, lambda: self.on_permission_request)
        self._declared_tools: list[HostTool] = []
        """Tools that the agent knows."""

    async def _send(self, command: str, timeout: Timeout, fields: Json) -> Any:
        if command in PROMPTS:
            await self._declare_tools()
        if command != "answer_permission":
            return await self._exchange(command, timeout, fields)
        answering, id = self._callbacks.answering, str(fields.get("question"))
        answering.add(id)
        try:
            return await self._exchange(command, timeout, fields)
        except BaseException:
            answering.discard(id)
            raise

    @abstractmethod
    async def _exchange(self, command: str, timeout: Timeout, fields: Json) -> Any:
        """Send a command and return the `data` of its answer."""

    @abstractmethod
    def _post(self, frame: Json) -> None:
        """Send a frame that gets no answer; this works from any thread."""

    @abstractmethod
    def _begin_run(self, events: "EventStream") -> str:
        """Return an id for a prompt. Some agents refuse a prompt after they accepted it; that ends its `events`."""

    @property
    @abstractmethod
    def _gone(self) -> RpcError | None:
        """Why no more events will come; None if they may."""

    # -- runs ------------------------------------------------------------------------------------

    def run(
        self, message: str, *, images: Images = None, streaming_behavior: Behavior = None, **wishes: Unpack[Wishes]
    ) -> RunEvents:
        """Send a prompt and give every event until the agent has settled; `.result()` gives the result.

        `max_turns`, `max_cost` and the other `LimitArguments` limit the run. The result has to fit `schema`, a type or
        a JSON Schema. The prompt is sent when the first event or the result is asked for.
        """
        if not isinstance(message, str):
            raise TypeError(f"A message must be a str, not {message!r}")
        fields = {"message": message, "images": images, "streamingBehavior": streaming_behavior}
        return RunEvents(self, self._run(fields | wire_wishes(wishes)))

    async def _run(self, fields: Json) -> AsyncGenerator[Event, None]:
        events = self.events()
        id = self._begin_run(events)
        if is_handled(await self.request("prompt", timeout=None, id=id, **fields)):
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
        """Send a prompt and return its result. A time-out does not stop the agent; `abort` does."""
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
        """Ask an agent without `agent_settled` for its state. Events before the answer may show that work goes on."""
        try:
            state = await self.get_state()
        except CommandFailed:
            return True
        busy = state.get("isStreaming") or state.get("isCompacting")
        return not busy and not self._settles and not any(event.type in NOT_YET for event in events.waiting)

    # -- events ----------------------------------------------------------------------------------

    def events(self) -> EventStream:
        """Return a stream of every event from now on. It ends with the client; a crash of the agent is raised there."""
        stream = EventStream()
        self._streams.add(stream)
        if (gone := self._gone) is not None:
            stream.close(gone)
        return stream

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event; return a function that ends the subscription."""
        if not callable(listener) or inspect.iscoroutinefunction(listener):
            raise TypeError(f"A listener must be a plain function of one argument, the event, not {listener!r}")
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # -- host tools ------------------------------------------------------------------------------

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Any = None,
        safe_to_retry: bool = False,
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Any = None,
        safe_to_retry: bool = False,
    ) -> Function | Callable[[Function], Function]:
        """Let the model call a function of this program: `@agent.tool`.

        Its signature becomes the schema, its docstring the description; `Annotated[str, "text"]` documents a parameter.
        `parameters` is a JSON Schema or a pydantic model to use instead. `safe_to_retry`: a call that was cut off by
        the end of the process may be made again. The agent learns of the tool with the next prompt, or by
        `publish_tools`.
        Raises `TypeError` if a parameter cannot be described.
        """

        def add(function: Function) -> Function:
            tool = HostTool(function, name, description, parameters, safe_to_retry)
            self._callbacks.tools[tool.name] = tool
            return function

        return add if function is None else add(function)

    async def publish_tools(self) -> list[str]:
        """Declare every tool added so far, for the current run too; return their names."""
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

    def _take(self, event: Event) -> None:
        """Hand an event to callbacks, streams and listeners."""
        self._callbacks.receive(event)
        self._settles = self._settles or event.type == "agent_settled"
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:  # the other listeners still get the event
                log.exception("a listener failed on %s", event.type)

    def _end_streams(self, error: RpcError | None) -> None:
        for stream in list(self._streams):
            stream.close(error)


def is_handled(accepted: Any) -> bool:
    """Say whether a command of an extension has handled the prompt: then no run follows."""
    return isinstance(accepted, dict) and accepted.get("disposition") == "handled"
