"""What a Python program is given for a coroutine: objects that are awaited like one, and can do more."""

import asyncio
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from spindle.agent import AgentError
from spindle.agent.run.handle import Run, RunEvents
from spindle.shapes.run_result import RunResult

if TYPE_CHECKING:
    from spindle.events import AnyEvent

T_co = TypeVar("T_co", covariant=True)


class Later(Coroutine[Any, Any, T_co]):
    """An object that is awaited like a coroutine, also by functions that want a real one: `asyncio.create_task`."""

    _work: Coroutine[Any, Any, T_co] | None = None

    def _begin(self) -> Coroutine[Any, Any, T_co]:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._begin().__await__()

    def send(self, value: Any) -> Any:
        """Go on as a coroutine does; asyncio calls it."""
        if self._work is None:
            self._work = self._begin()
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error as in a coroutine; asyncio calls it."""
        if self._work is None:
            self._work = self._begin()
        return self._work.throw(*error)

    def close(self) -> None:
        """Give it up, as a coroutine is given up."""
        if self._work is not None:
            self._work.close()


class AgentRun(Later[RunResult], AsyncIterator["AnyEvent"]):
    """A prompt and its run: `await` it for the result, or read its events with `async for`; then `result()` works too.

    The prompt is sent when the first event or the result is asked for. Raises `AgentError` there if the prompt is
    refused: the agent is at work, closed, or has no model or key. Leaving the loop early does not stop the agent;
    cancelling a task that waits for an event or the result does.
    """

    def __init__(self, handing_in: AsyncGenerator[Run, None]) -> None:
        self._handing_in = handing_in
        """Yields the run once; closing it ends what was made for this run alone."""
        self._door = asyncio.Lock()
        self._used = False
        self._run: Run | AgentError | None = None
        self._events: RunEvents | None = None

    def __del__(self) -> None:
        if not self._used:
            warnings.warn("a prompt was not sent: its run was neither awaited nor iterated", RuntimeWarning, 2)

    @property
    def exceptions(self) -> list[BaseException]:
        """Exceptions that `can_use_tool` has raised during the run. Each was a no."""
        return self._run.exceptions if isinstance(self._run, Run) else []

    def _begin(self) -> Coroutine[Any, Any, RunResult]:
        return self.result()

    async def _started(self) -> Run:
        self._used = True
        async with self._door:
            if self._run is None:
                try:
                    self._run = await anext(self._handing_in)
                except AgentError as refusal:
                    self._run = refusal
                except StopAsyncIteration:
                    self._run = AgentError("The prompt was not sent: its run was given up before")
        if isinstance(self._run, AgentError):
            raise self._run
        return self._run

    def __repr__(self) -> str:
        run = self._run
        if isinstance(run, Run):
            return f"<AgentRun {'ended' if run.over else run.disposition}>"
        return f"<AgentRun {'not sent' if run is None else f'refused: {run}'}>"

    async def accepted(self) -> None:
        """Send the prompt, and return when the agent has accepted it. Raises `AgentError` if it is refused.

        Its events are kept from now on, until they are read.
        """
        run = await self._started()
        if self._events is None:
            self._events = run.events()
            self._events.keep_all()  # whoever has not begun to read must not hold the agent up

    async def __anext__(self) -> "AnyEvent":
        run = await self._started()
        if self._events is None:
            self._events = run.events()
        try:
            return cast("AnyEvent", await anext(self._events))
        except asyncio.CancelledError:
            await run.stop()
            raise
        except StopAsyncIteration:
            if run.disposition == "handled":
                await run.result()  # a command of an extension is still at work
            await self._end()
            raise

    async def result(self) -> RunResult:
        """Wait for the end and return the result of the run, however it ended. Unread events can still be read.

        The `value` of the result is the JSON that the model handed in for `schema`.
        """
        run = await self._started()
        if self._events is not None:
            self._events.keep_all()  # a reader that only waits for the result must not hold the agent up
        try:
            result = await run.result()
        except asyncio.CancelledError:
            await run.stop()
            raise
        await self._end()
        return result

    async def aclose(self) -> None:
        """Read no more events. The run goes on; `Agent.abort` stops it."""
        self._used = True
        if self._events is not None:
            await self._events.aclose()
        await self._end()

    async def _end(self) -> None:
        async with self._door:
            await self._handing_in.aclose()
