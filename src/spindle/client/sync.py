"""`SyncRpcClient`: the same client for programs without an event loop."""

import asyncio
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from spindle.client.callbacks import Event, UiHandler
from spindle.client.commands import Commands
from spindle.client.errors import ClientClosed
from spindle.client.handle import AgentHandle, Run, RunEvents
from spindle.client.methods import PlainCalls
from spindle.client.rpc import RpcClient, RpcSession

if TYPE_CHECKING:
    from spindle.shapes.run_result import RunResult

P = ParamSpec("P")
T = TypeVar("T")

IN_ITS_THREAD = (
    "Listeners, UI handlers and coroutine tools run in the client's own thread and cannot wait for the agent there; "
    "hand the call to another thread."
)


def _as(function: Callable[Concatenate[Any, P], Any]) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method the signature of another one."""
    return functools.wraps(function, ())


class _SyncHandle(Commands, PlainCalls, ABC):
    """The methods of an `AgentHandle` as plain calls."""

    def __init__(self, client: AgentHandle) -> None:
        self._handle = client
        self._asked: Callable[[Event], Any] | None = None
        self.subscribe = client.subscribe
        self.tool = client.tool
        self.host_tool_update = client.host_tool_update
        self.host_tool_result = client.host_tool_result

    @abstractmethod
    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the thread of the event loop, and return its result."""

    def _bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        bound = MethodType(function, self._handle)

        @functools.wraps(bound)
        def call(*args: Any, **options: Any) -> Any:
            return self._wait(bound(*args, **options))

        return call

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the client, such as `request_timeout`."""
            return getattr(self.__dict__["_handle"], name)

    @property
    def on_ui_request(self) -> UiHandler | None:
        """The function that answers questions of extensions; without one they are cancelled."""
        return self._handle.on_ui_request

    @on_ui_request.setter
    def on_ui_request(self, handler: UiHandler | None) -> None:
        self._handle.on_ui_request = handler

    @property
    def on_permission_request(self) -> Callable[[Event], Any] | None:
        """The function that is asked about tool calls, and answers with `answer_permission`; it is called in a thread
        of its own. Without one the question comes as one of `on_ui_request`."""
        return self._asked

    @on_permission_request.setter
    def on_permission_request(self, handler: Callable[[Event], Any] | None) -> None:
        asked = self._asked = handler

        async def ask(request: Event) -> None:
            if asked is not None:
                await asyncio.to_thread(asked, request)

        self._handle.on_permission_request = None if asked is None else ask

    def events(self) -> Iterator[Event]:
        """Give every event from now on."""

        async def subscribe() -> Any:
            return self._handle.events()

        return self._iterate(self._wait(subscribe()))

    def _iterate(self, events: Any) -> Iterator[Event]:
        while (event := self._wait(_next(events))) is not None:
            yield event

    @_as(AgentHandle.run)
    def run(self, *args: Any, **options: Any) -> "SyncRunEvents":
        """Send a prompt and give every event until the agent has settled; `.result()` gives the result."""
        return SyncRunEvents(self._handle.run(*args, **options), self)

    @_as(AgentHandle.prompt_and_wait)
    def prompt_and_wait(self, *args: Any, **options: Any) -> Run:
        """Send a prompt and return its result. A time-out does not stop the agent; `abort` does."""
        return self._wait(self._handle.prompt_and_wait(*args, **options))

    def publish_tools(self) -> list[str]:
        """Declare every tool added so far, for the current run too; return their names."""
        return self._wait(self._handle.publish_tools())


class SyncRpcClient(_SyncHandle):
    """Every method of `RpcClient` as a plain call that returns when it is done.

        with SyncRpcClient(["spindle", "--mode", "rpc"]) as agent:
            print(agent.prompt_and_wait("What is in this directory?").text)

    The client runs in a thread of its own; listeners, UI handlers and coroutine tools are called there.
    """

    @_as(RpcClient.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        """Take the arguments of `RpcClient`."""
        self._client = RpcClient(*args, **options)
        super().__init__(self._client)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._door = threading.Lock()
        """Held while work is handed to the loop: `close` waits for all work that was handed in."""

    def start(self) -> None:
        """Start the agent. Raises as `RpcClient.start` does."""
        if self._thread is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="spindle-client", daemon=True)
        self._thread.start()
        try:
            self._wait(self._client.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the agent and end the thread."""
        try:
            self._wait(self._client.close())
        except ClientClosed:
            return
        with self._door:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return  # another thread was quicker
        asyncio.run_coroutine_threadsafe(_others_ended(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def __enter__(self) -> "SyncRpcClient":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stderr(self) -> str:
        """The end of the agent's stderr, if it is a child process."""
        return self._client.stderr

    @_as(RpcClient.open_session)
    def open_session(self, **options: Any) -> "SyncRpcSession":
        """Open another session of the same agent, as `RpcClient.open_session` does."""
        return SyncRpcSession(self._wait(self._client.open_session(**options)), self)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with self._door:
            in_its_thread = threading.current_thread() is self._thread
            if self._loop is None or in_its_thread:
                work.close()
                raise RuntimeError(IN_ITS_THREAD) if in_its_thread else ClientClosed
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class SyncRpcSession(_SyncHandle):
    """A session beside the first one of a `SyncRpcClient`."""

    def __init__(self, session: RpcSession, client: SyncRpcClient) -> None:
        super().__init__(session)
        self._session = session
        self._client = client
        self.id = session.id
        self.info = session.info

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._client._wait(work)

    def close(self) -> None:
        """End the session. Its file stays, and its id opens it again."""
        self._wait(self._session.close())

    def __enter__(self) -> "SyncRpcSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncRunEvents(Iterator[Event]):
    """The events of one run: `for event in client.run(…)`. `.result()` works after the loop, or without it."""

    def __init__(self, events: RunEvents, handle: _SyncHandle) -> None:
        self._events = events
        self._wait = handle._wait

    def __next__(self) -> Event:
        event = self._wait(_next(self._events))
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Stop reading events. The run goes on; `abort` stops it."""
        self._wait(self._events.aclose())

    def result(self) -> "RunResult":
        """Wait for the end of the run and return its result, as `RunEvents.result` does."""
        return self._wait(self._events.result())


async def _others_ended() -> None:
    """Wait for the calls of other threads: the client is closed, so all of them end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def _next(events: Any) -> Event | None:
    return await anext(events, None)
