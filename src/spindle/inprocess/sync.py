"""The agent for programs without asyncio: the names of `Agent`, as calls that return when they are done.

The agent works in a thread of its own, so this also works where an event loop is running already, as in a notebook.
"""

import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from spindle.agent import AgentError
from spindle.agent.run.awaited import AgentRun
from spindle.inprocess.agent import Agent
from spindle.inprocess.images import AnyImage
from spindle.inprocess.loop_thread import LoopThread
from spindle.inprocess.options import CreateOptions, Limits
from spindle.inprocess.stored import FoundPage
from spindle.inprocess.words import no_attribute
from spindle.sessions.pages import Page
from spindle.shapes.model import Model
from spindle.shapes.run_result import RunResult

if TYPE_CHECKING:
    from spindle.events import AnyEvent

P = ParamSpec("P")
T = TypeVar("T")
_THREAD = "spindle-agent"


def _waits(
    method: Callable[Concatenate[Agent, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncAgent", P], T]:
    @functools.wraps(method)
    def call(self: "SyncAgent", /, *args: P.args, **options: P.kwargs) -> T:
        return self._wait(method(self._agent, *args, **options))

    return call


def _calls(method: Callable[Concatenate[Agent, P], T]) -> Callable[Concatenate["SyncAgent", P], T]:
    @functools.wraps(method)
    def call(self: "SyncAgent", /, *args: P.args, **options: P.kwargs) -> T:
        async def work() -> T:
            return method(self._agent, *args, **options)

        return method(self._agent, *args, **options) if self._agent.closed else self._wait(work())

    return call


class _Reads(Generic[T]):
    """A property of the agent, read in its thread."""

    def __init__(self, read: Callable[[Agent], T]) -> None:
        self._read = _calls(read)

    def __set_name__(self, owner: type, name: str) -> None:
        self.__doc__ = getattr(Agent, name).__doc__

    @overload
    def __get__(self, agent: None, owner: type) -> "_Reads[T]": ...
    @overload
    def __get__(self, agent: "SyncAgent", owner: type) -> T: ...
    def __get__(self, agent: "SyncAgent | None", owner: type) -> "_Reads[T] | T":
        return self if agent is None else self._read(agent)


class SyncAgent:
    """An agent whose methods return when they are done. `Agent.sync` makes it; close it when done.

    Listeners, `can_use_tool` and coroutine tools run in the agent's thread, and cannot wait for the agent there.
    """

    def __init__(self, **options: Unpack[CreateOptions]) -> None:
        self._loop = LoopThread(_THREAD)
        try:
            self._agent = self._wait(Agent.create(**options))
        except BaseException:
            self._loop.close()
            raise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.closed:
            work.close()
            raise AgentError("The agent is closed")
        return self._loop.wait(work)

    def __repr__(self) -> str:
        return repr(self._agent).replace("<Agent", "<SyncAgent", 1)

    if not TYPE_CHECKING:  # for those who have no type checker

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("SyncAgent", name)

        async def __aenter__(self) -> None:
            raise TypeError("Write `with Agent.sync(…)`; with asyncio it is `async with Agent.create(…)`")

        async def __aexit__(self, *_: object) -> None: ...

    def run(
        self,
        text: str,
        images: Sequence[AnyImage] = (),
        *,
        schema: Any = None,
        fallback: Sequence[str | Model] | None = None,
        **limits: Unpack[Limits],
    ) -> "SyncRun":
        """Send a message; iterate over the run for its events, or ask for its `result()`.

        Returns when the prompt is accepted, as `Agent.start` does; raises `AgentError` if it is refused.
        """
        return SyncRun(
            self._wait(self._agent.start(text, images, schema=schema, fallback=fallback, **limits)), self._loop
        )

    prompt = start = run

    @overload
    def ask(
        self, text: str, images: Sequence[AnyImage] = (), *, schema: None = None, **limits: Unpack[Limits]
    ) -> str: ...

    @overload
    def ask(self, text: str, images: Sequence[AnyImage] = (), *, schema: type[T], **limits: Unpack[Limits]) -> T: ...

    @overload
    def ask(
        self, text: str, images: Sequence[AnyImage] = (), *, schema: dict[str, Any], **limits: Unpack[Limits]
    ) -> Any: ...

    def ask(self, text: str, images: Sequence[AnyImage] = (), *, schema: Any = None, **limits: Unpack[Limits]) -> Any:
        """Send a message, wait, and return the answer as `Agent.ask` does."""
        return self._wait(self._agent.ask(text, images, schema=schema, **limits))

    def resume_run(self) -> "SyncRun":
        """Go on with the interrupted run. Raises `AgentError` if there is none."""
        return SyncRun(self._wait(_accepted(self._agent.resume_run())), self._loop)

    abandon_run = _waits(Agent.abandon_run)
    answer_question = _waits(Agent.answer_question)
    steer = _waits(Agent.steer)
    follow_up = _waits(Agent.follow_up)
    abort = _waits(Agent.abort)
    wait_idle = _waits(Agent.wait_idle)
    fork = _waits(Agent.fork)
    new_session = _waits(Agent.new_session)
    compact = _waits(Agent.compact)
    checkpoints = _waits(Agent.checkpoints)
    changes = _waits(Agent.changes)
    restore = _waits(Agent.restore)
    usage = _waits(Agent.usage)
    cost = _waits(Agent.cost)
    set_model = _waits(Agent.set_model)
    set_thinking = _waits(Agent.set_thinking)
    set_name = _calls(Agent.set_name)
    set_todos = _calls(Agent.set_todos)
    models = _calls(Agent.models)
    commands = _calls(Agent.commands)
    background_commands = _calls(Agent.background_commands)
    subscribe = _calls(Agent.subscribe)

    id = _Reads(lambda agent: agent.id)
    session_file = _Reads(lambda agent: agent.session_file)
    cwd = _Reads(lambda agent: agent.cwd)
    name = _Reads(lambda agent: agent.name)
    messages = _Reads(lambda agent: agent.messages)
    model = _Reads(lambda agent: agent.model)
    thinking = _Reads(lambda agent: agent.thinking)
    todos = _Reads(lambda agent: agent.todos)
    busy = _Reads(lambda agent: agent.busy)
    interrupted_run = _Reads(lambda agent: agent.interrupted_run)
    mcp_servers = _Reads(lambda agent: agent.mcp_servers)

    def close(self) -> None:
        """End all work at once, leave the session file whole, and end the thread."""
        if not self._agent.closed:
            self._wait(self._agent.close())
            self._loop.close()

    def __enter__(self) -> "SyncAgent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    # -- stored sessions -------------------------------------------------------------------------

    @staticmethod
    def list(cwd: str | Path = ".", *, everywhere: bool = False, limit: int = 100, cursor: str | None = None) -> Page:
        """Return the stored sessions of a directory, as `Agent.list` does."""
        return _alone(Agent.list(cwd, everywhere=everywhere, limit=limit, cursor=cursor))

    @staticmethod
    def search(
        text: str, cwd: str | Path = ".", *, everywhere: bool = False, limit: int = 50, cursor: str | None = None
    ) -> FoundPage:
        """Return the stored sessions with a text, as `Agent.search` does."""
        return _alone(Agent.search(text, cwd, everywhere=everywhere, limit=limit, cursor=cursor))

    @staticmethod
    def delete(session: str | Path, cwd: str | Path = ".") -> None:
        """Delete a stored session, as `Agent.delete` does."""
        _alone(Agent.delete(session, cwd))

    @staticmethod
    def rename(session: str | Path, name: str, cwd: str | Path = ".") -> None:
        """Name a stored session, as `Agent.rename` does."""
        _alone(Agent.rename(session, name, cwd))


class SyncRun(Iterator["AnyEvent"]):
    """A prompt and its run: iterate over it for the events; `result()` works before, during and after that."""

    def __init__(self, run: AgentRun, loop: LoopThread) -> None:
        self._run = run
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._run).replace("<AgentRun", "<SyncRun", 1)

    def __next__(self) -> "AnyEvent":
        event = self._loop.wait(_next(self._run))
        if event is None:
            raise StopIteration
        return event

    def result(self) -> RunResult:
        """Wait for the end and return the result of the run, however it ended. An interrupt aborts the run."""
        return self._loop.wait(self._run.result())

    @property
    def exceptions(self) -> Sequence[BaseException]:
        """Exceptions that `can_use_tool` has raised during the run. Each was a no."""
        return self._run.exceptions

    def close(self) -> None:
        """Read no more events. The run goes on; `abort` of the agent stops it."""
        self._loop.wait(self._run.aclose())


async def _next(run: AgentRun) -> "AnyEvent | None":
    return await anext(run, None)


async def _accepted(run: AgentRun) -> AgentRun:
    await run.accepted()
    return run


def _alone(work: Coroutine[Any, Any, T]) -> T:
    loop = LoopThread(_THREAD)
    try:
        return loop.wait(work)
    finally:
        loop.close()


@overload
def ask_sync(
    text: str, images: Sequence[AnyImage] = (), *, schema: None = None, **options: Unpack[CreateOptions]
) -> str: ...


@overload
def ask_sync(text: str, images: Sequence[AnyImage] = (), *, schema: type[T], **options: Unpack[CreateOptions]) -> T: ...


@overload
def ask_sync(
    text: str, images: Sequence[AnyImage] = (), *, schema: dict[str, Any], **options: Unpack[CreateOptions]
) -> Any: ...


def ask_sync(
    text: str, images: Sequence[AnyImage] = (), *, schema: Any = None, **options: Unpack[CreateOptions]
) -> Any:
    """Make an agent, ask it, close it: `spindle.ask` without asyncio, also where a loop is running already."""
    with SyncAgent(**options) as agent:
        return agent.ask(text, images, schema=schema)
