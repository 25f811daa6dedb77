"""`SyncRpcClient`: the same client for programs without an event loop."""

import asyncio
import functools
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from spindle.client.callbacks import Event, UiHandler
from spindle.client.errors import ClientClosed
from spindle.client.handle import AgentHandle, RunEvents
from spindle.client.rpc import RpcClient, RpcSession
from spindle.client.transport import Json

T = TypeVar("T")

IN_ITS_THREAD = (
    "Listeners, UI handlers and coroutine tools run in the client's own thread and cannot wait for the agent there; "
    "hand the call to another thread."
)


class _SyncHandle(ABC):
    """The methods of an `AgentHandle` as plain calls."""

    _client: AgentHandle

    @abstractmethod
    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of the work, which the loop's own thread does."""

    def __getattr__(self, name: str) -> Any:
        """Hand on what is not here; coroutines are waited for."""
        value = getattr(self._client, name)
        if not inspect.iscoroutinefunction(value):
            return value

        @functools.wraps(value)
        def call(*args: Any, **options: Any) -> Any:
            return self._wait(value(*args, **options))

        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._client)})

    @property
    def on_ui_request(self) -> UiHandler | None:
        """The function that answers questions of extensions; without one they are cancelled."""
        return self._client.on_ui_request

    @on_ui_request.setter
    def on_ui_request(self, handler: UiHandler | None) -> None:
        self._client.on_ui_request = handler

    def events(self) -> Iterator[Event]:
        """Give every event from now on."""

        async def subscribe() -> Any:
            return self._client.events()

        return self._iterate(self._wait(subscribe()))

    def run(self, message: str, **options: Any) -> "SyncRunEvents":
        """Send a prompt and give every event until the agent has settled; `.result()` is what came of it."""
        return SyncRunEvents(self._client.run(message, **options), self._wait)

    def _iterate(self, events: Any) -> Iterator[Event]:
        while (event := self._wait(_next(events))) is not None:
            yield event


class SyncRpcClient(_SyncHandle):
    """Every method of `RpcClient` as a plain call that returns when it is done.

        with SyncRpcClient(["spindle", "--mode", "rpc"]) as agent:
            print(agent.prompt_and_wait("What is in this directory?").text)

    The client runs in a thread of its own; listeners, UI handlers and coroutine tools are called there.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take what `RpcClient` takes."""
        self._client: RpcClient = RpcClient(*args, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._door = threading.Lock()
        """Held while work is handed to the loop: what gets in is waited for by `close`."""

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

    def open_session(self, **options: Any) -> "SyncRpcSession":
        """Open another session of the same agent, as `RpcClient.open_session` does."""
        return SyncRpcSession(self._wait(self._client.open_session(**options)), self._wait)

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

    def __init__(self, session: RpcSession, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client: RpcSession = session
        self._waiter = wait

    def __enter__(self) -> "SyncRpcSession":
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._client.close())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self._waiter(work)
        return result


class SyncRunEvents(Iterator[Event]):
    """The events of one run: `for event in client.run(…)`; or, or then, `client.run(…).result()`."""

    def __init__(self, events: RunEvents, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._events = events
        self._wait = wait

    def __next__(self) -> Event:
        event: Event | None = self._wait(_next(self._events))
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Let go of the events. The run goes on; `abort` stops it."""
        self._wait(self._events.aclose())

    def result(self) -> Json | None:
        """Wait for the end of the run and return what came of it, as `RunEvents.result` does."""
        result: Json | None = self._wait(self._events.result())
        return result


async def _others_ended() -> None:
    """Wait for the calls of other threads: the client is closed, so all of them end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def _next(events: Any) -> Event | None:
    return await anext(events, None)
