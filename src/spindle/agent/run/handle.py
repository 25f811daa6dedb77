"""A prompt that the agent has taken, as its sender holds it: its disposition, its events, and its result."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Literal

from spindle.agent import AgentError
from spindle.agent.run.result import without_run
from spindle.base.flow import Mailbox
from spindle.shapes.events import Event
from spindle.shapes.run_result import RunResult

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

Disposition = Literal["started", "queued", "handled"]
EVENTS_WAITING = 1000
"""Unread events at which the agent pauses."""


class Run:
    """A prompt that was taken, as `AgentSession.submit` returns it. A queued prompt ends with the run that it joins."""

    def __init__(self, agent: "AgentSession") -> None:
        self.disposition: Disposition = "started"
        """The prompt started a run, waits in a queue, or is handled by a command of an extension without a run."""
        self.kept: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Done when the message is kept: in the file of the session or the one beside it, or in its store.

        The result is None, or why the store could not keep it; then the run has ended.
        """
        self.context = copy_context()
        """Context of the sender. The run works in it, so that the trace knows who asked for the run."""
        self.exceptions: list[BaseException] = []
        """Raised during the run by `can_use_tool`, or by hooks that decide on calls. The model was not told of them."""
        self._agent = agent
        self._begun = False
        """Whether the prompt is part of the current run; before that it waits for another run to end."""
        self._over = asyncio.Event()
        self._result: RunResult | None = None
        self._refusal = ""
        self._readers: list[Mailbox[Event]] = []

    # -- the sender's side -----------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the run has ended, or the prompt was refused after all."""
        return self._over.is_set()

    async def result(self) -> RunResult:
        """Wait for the end of the run and return its result.

        Raises `AgentError` if the prompt was refused after it had been accepted.
        """
        if self.disposition == "handled":
            await self._agent.finished()
            return without_run(self._agent.session)
        await self._over.wait()
        if self._result is None:
            raise AgentError(self._refusal)
        return self._result

    def events(self) -> "RunEvents":
        """Return the events of the run from now on, until the agent has settled. The agent pauses for a slow reader."""
        reader: Mailbox[Event] = Mailbox(EVENTS_WAITING)
        self._readers.append(reader)
        if self.over or self.disposition == "handled":
            reader.close()
        elif self._begun:
            self._agent.subscribe(reader)
        return RunEvents(self, reader)

    def forget(self, reader: Mailbox[Event]) -> None:
        """Let go of a reader, which reads no more."""
        if reader in self._readers:
            self._readers.remove(reader)
            self._agent.unsubscribe(reader)
            reader.drop()

    def cancel(self) -> None:
        """Take the prompt back if it still waits for another run to end; else stop the run that it is part of."""
        if self._begun and not self.over:
            self._agent.stop()
        elif not self.over:
            self._agent.queues.withdraw(self)

    async def stop(self) -> None:
        """Cancel the prompt, and return when its run is over."""
        if self._begun and not self.over:
            await self._agent.abort()
        else:
            self.cancel()

    # -- the agent's side ------------------------------------------------------------------------

    def keep(self, failure: str | None = None) -> None:
        """Note that the message is kept, or why it is not."""
        if not self.kept.done():
            self.kept.set_result(failure)

    def begin(self) -> None:
        """Note that the prompt is part of a run that begins, or that is going on."""
        self._begun = True
        for reader in self._readers:
            self._agent.subscribe(reader)

    def end(self, result: RunResult) -> None:
        """Note that the run is over, and that listeners were told so."""
        if not self.over:
            self._result = result
            self._close()

    def refuse(self, why: str) -> None:
        """Note that the prompt is not answered after all."""
        if not self.over:
            self._refusal = why
            self._close()

    def _close(self) -> None:
        session = self._agent.session
        self.keep(None if session.store is None else session.write_error)
        self._over.set()
        for reader in self._readers:
            self._agent.unsubscribe(reader)
            reader.close()


class RunEvents(AsyncIterator[Event]):
    """`async for event in run.events()`. Closing or dropping it lets go of the events; the run goes on."""

    def __init__(self, run: Run, reader: Mailbox[Event]) -> None:
        self._run = run
        self._reader = reader

    async def __anext__(self) -> Event:
        return await anext(self._reader)

    def keep_all(self) -> None:
        """Let the agent go on, however many events are unread."""
        self._reader.never_full()

    async def aclose(self) -> None:
        self._run.forget(self._reader)

    def __del__(self) -> None:
        self._run.forget(self._reader)
