"""RPC mode: JSON lines on stdin and stdout, from the first frame to the exit code."""

import asyncio
from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from spindle.agent import AgentError
from spindle.agent.run.handle import Run
from spindle.agent.session import AgentSession
from spindle.base import limits, trace
from spindle.base.version import __version__
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.outbox import Outbox
from spindle.protocol.registry import LiveInfo, WantedSession
from spindle.protocol.render import Ready, Renderer
from spindle.protocol.seat import Seat
from spindle.wires.pipe.framing import LineTooLong
from spindle.wires.pipe.stdio import Exit, StdioWire

if TYPE_CHECKING:  # loaded only if the client asks for what they do
    from spindle.protocol.negotiated import Outcomes
    from spindle.protocol.pool import SessionPool
    from spindle.protocol.router import Router


class StdioSeat(Seat):
    """One client on stdio. EOF, `shutdown`, a signal or the loss of the reader end it with an exit code."""

    holds = True
    busy = True

    def __init__(
        self, agent: AgentSession, wire: StdioWire, renderer: Renderer, make_pool: "Callable[[], SessionPool]"
    ) -> None:
        """`make_pool` makes the pool for other sessions, when the client opens the first of them."""
        self._agent = agent
        self._wire = wire
        self.dialect = renderer.dialect
        self._outbox = Outbox(renderer)
        self._dispatcher = Dispatcher(agent, self, self._outbox, lambda frame: self._router.route(frame))
        self._make_pool = make_pool
        self._exit = Exit()
        self._outcomes: Outcomes | None = None
        """Tells the client of the ends of its prompts, if it has negotiated that."""

    # -- for commands ----------------------------------------------------------------------------

    def accepted(self, run: Run) -> None:
        self._outbox.hold(run.kept)

    def follow(self, run: Run, id: Any) -> None:
        if self._outcomes is not None:
            self._outcomes.follow(run, id)

    def negotiate(self) -> None:
        if self._outcomes is None:
            from spindle.protocol.negotiated import Outcomes, chunker, spoken

            self.dialect = spoken(self.dialect)
            self._outbox.use_dialect(self.dialect)
            self._outbox.cut_long_lines(chunker())
            self._outcomes = Outcomes(self._agent, self._outbox.put, self._outbox.wishes)
            if self._several:
                self._router.negotiate()

    def set_subagent_subscription(self, level: Literal["off", "progress", "events"]) -> None:
        if self._outcomes is None:
            super().set_subagent_subscription(level)
        self._outbox.wishes.subagents = level

    def set_event_filter(self, events: Collection[str] | None) -> None:
        self._outbox.set_filter(events)

    def set_update_mode(self, mode: UpdateMode) -> None:
        self._outbox.set_update_mode(mode)

    def request_shutdown(self) -> None:
        self._exit.end(0)  # the response is still sent: it is in the outbox before the outbox is drained

    async def open_session(self, wanted: WantedSession) -> LiveInfo:
        return await self._router.open(wanted)

    async def close_session(self) -> None:
        raise AgentError("This is the first session; it ends with the process")

    async def live_sessions(self) -> list[LiveInfo]:
        return await self._router.pool.infos()

    @cached_property
    def _router(self) -> "Router":
        from spindle.protocol.router import Router

        pool = self._make_pool()
        first = pool.adopt(self._agent)
        first.join(self)
        router = Router(pool, first, self, self._outbox)
        router.to_first = self._dispatcher.receive_value
        return router

    @property
    def _several(self) -> bool:
        """Whether the client has ever asked for other sessions."""
        return "_router" in self.__dict__

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until the end and return the exit code."""
        with trace.span("connection", wire="stdio"):
            return await self._serve()

    async def _serve(self) -> int:
        self._outbox.put(Ready(__version__, update_mode=self._outbox.update_mode))
        self._agent.subscribe(self._outbox)
        self._wire.attach(self._outbox, self._exit.lost)
        self._exit.catch_signals()
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(self._read_ended)
        watching = asyncio.create_task(self._watch_shutdown())
        beginning = asyncio.create_task(self._agent.begin())
        code = await self._exit.code
        for task in (reading, watching, beginning):
            task.cancel()
        if code == 0:
            await self._dispatcher.finish(limits.LAST_ANSWERS)
            if self._several:
                await self._router.finish(limits.LAST_ANSWERS)
        await asyncio.gather(self._agent.close(), self._close_others())
        await self._dispatcher.close()
        if self._outcomes is not None:
            await self._outcomes.close()
        if code != 1:
            await self._wire.drain(limits.OUTPUT_DRAIN if code == 0 else limits.OUTPUT_DRAIN_AFTER_SIGNAL)
        self._wire.close()
        return code

    async def _close_others(self) -> None:
        if self._several:
            await self._router.close()
            await self._router.pool.close()

    async def _read(self) -> None:
        async for line in self._wire.lines():
            if isinstance(line, LineTooLong):
                self._dispatcher.refuse_line(str(line))
            else:
                self._dispatcher.receive(line)

    def _read_ended(self, reading: asyncio.Task[None]) -> None:
        error = None if reading.cancelled() else reading.exception()
        if error is not None:  # a bug: a process that no longer reads must end
            trace.bug(error)
        self._exit.end(0 if error is None else 1)

    async def _watch_shutdown(self) -> None:
        """End when an extension asks for it and the agent is idle."""
        await self._agent.shutdown_requested.wait()
        await self._agent.wait_idle()
        self._exit.end(0)
