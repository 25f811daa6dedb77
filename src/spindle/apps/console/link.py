"""An agent of this process as a client sees it: frames in, frames out, without pipes between."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from spindle.agent.run.handle import Run
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks
from spindle.base.limits import COMMANDS_END, LAST_ANSWERS
from spindle.client.errors import RpcError
from spindle.protocol.dialect import SPINDLE, UpdateMode
from spindle.protocol.dispatch import Dispatcher
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.protocol.seat import Seat
from spindle.shapes.codec import decode

_READ = 64 << 10


class AgentLink(Seat):
    """A `Transport` of `RpcClient`, and the seat of that client. It owns the agent: closing the client closes it."""

    def __init__(self, agent: AgentSession) -> None:
        self.error: RpcError | None = None
        self._agent = agent
        self._outbox = Outbox(Renderer(SPINDLE, "delta"))
        self._dispatcher = Dispatcher(agent, self, self._outbox)
        self._tasks = Tasks()
        self._news = asyncio.Event()
        """Set if frames wait in the outbox, or no more will come."""
        self._ended = False
        self.send = self._dispatcher.receive
        self._outbox.on_waiting = self._news.set
        agent.subscribe(self._outbox)
        self._tasks.spawn(agent.begin(), "agent-begin")
        self._tasks.spawn(self._watch_shutdown(), "agent-shutdown")

    def accepted(self, run: Run) -> None:
        self._outbox.hold(run.kept)

    def set_update_mode(self, mode: UpdateMode) -> None:
        self._outbox.set_update_mode(mode)

    def request_shutdown(self) -> None:
        self._end()  # frames in the outbox still go out, and the answer is one of them

    async def room(self) -> None:
        """Return at once: frames to the agent are not queued."""

    async def frames(self) -> AsyncIterator[dict[str, Any]]:
        while self._outbox or not self._ended:
            await self._news.wait()
            self._news.clear()
            while lines := self._outbox.take(_READ, merge=True):
                for line in lines.splitlines():
                    yield decode(line)

    async def close(self, grace: float) -> None:
        await self._dispatcher.finish(LAST_ANSWERS)
        await self._agent.close()
        await self._dispatcher.close()
        await self._tasks.end(COMMANDS_END)
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._news.set()

    async def _watch_shutdown(self) -> None:
        """End when an extension has asked for it and the agent is idle."""
        await self._agent.shutdown_requested.wait()
        await self._agent.wait_idle()
        self._end()
