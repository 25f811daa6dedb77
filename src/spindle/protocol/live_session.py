"""A session that is alive in this process: its agent, its clients, and its last events for those who come back."""

import asyncio
from collections import deque
from itertools import islice
from time import monotonic

from msgspec.structs import replace

from spindle.agent.hooks import NeverFull
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.protocol.registry import LiveInfo, WantedSession
from spindle.protocol.render import Renderer
from spindle.protocol.seat import Seat
from spindle.shapes.events import Event, ExtensionUIRequest

LOG_BYTES, LOG_EVENTS = 4 << 20, 32
"""The log of a session holds so much, and so many of the last events however long they are."""


class EventLog(NeverFull):
    """The last events of a session, numbered, for clients that lost their connection.

    Updates are kept in delta form: they add up to the same answer, and a long one does not fill the log with copies.
    """

    def __init__(self, first: int = 0) -> None:
        self._renderer = Renderer(update_mode="delta")
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.count = first
        """The number of the last event."""

    def put(self, event: Event) -> None:
        line = self._renderer.render(event)
        self._lines.append(line)
        self._bytes += len(line)
        self.count += 1
        while self._bytes > LOG_BYTES and len(self._lines) > LOG_EVENTS:
            self._bytes -= len(self._lines.popleft())

    def after(self, number: int) -> list[bytes] | None:
        """Return the events after that number; None if some of them are gone, or never were."""
        missing = self.count - number
        if not 0 <= missing <= len(self._lines):
            return None
        return list(islice(self._lines, len(self._lines) - missing, None))


class LiveSession(NeverFull):
    """An agent and those who use it."""

    def __init__(self, agent: AgentSession, handle: str | None = None, first_event: int | None = 0) -> None:
        """`first_event`: where the numbers of its events begin; None: no log is kept."""
        self.agent = agent
        self.handle = handle or agent.session.id
        """Names it for as long as it lives, whichever file the conversation goes on in."""
        self.log = EventLog(first_event or 0)
        self.clients: set[Seat] = set()
        self.used = 0.0
        """When something last happened."""
        self.in_hand = 0
        """What is being done for those who are no clients, such as requests that are not answered."""
        self.ended = False
        """It leaves memory."""
        self._alone: asyncio.TimerHandle | None = None
        """Ends questions that no client is there to answer."""
        if first_event is not None:
            agent.subscribe(self.log)
        agent.subscribe(self)
        self.touch()

    # -- as a listener of the agent --------------------------------------------------------------

    def put(self, event: Event) -> None:
        """Look whether a question can be answered."""
        self.touch()
        if isinstance(event, ExtensionUIRequest):
            self._withdraw_unanswerable()
            self._wait_for_client()

    # -- clients ---------------------------------------------------------------------------------

    def touch(self) -> None:
        """Count from now on how long it is not used."""
        self.used = monotonic()

    def join(self, client: Seat) -> None:
        self.clients.add(client)
        self.touch()
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None

    def leave(self, client: Seat) -> None:
        self.clients.discard(client)
        self.touch()
        self._withdraw_unanswerable()
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        if not self.clients and self._alone is None and not self.ended:
            self._alone = asyncio.get_running_loop().call_later(limits.CLIENT_RETURN, self._give_up)

    def _give_up(self) -> None:
        self._alone = None
        if not self.clients:
            self.agent.give_up_questions()

    def _withdraw_unanswerable(self) -> None:
        """Close dialogs if none of the clients has words for them."""
        if self.clients and not any(client.answers for client in self.clients):
            self.agent.dialogs.withdraw()

    async def begin(self) -> None:
        """Let the agent begin, now that a client is there. It does not leave memory meanwhile."""
        self.in_hand += 1
        try:
            await self.agent.begin()
        finally:
            self.in_hand -= 1

    def end(self, reason: str) -> None:
        """Tell the clients that it leaves memory."""
        self.ended = True
        if self._alone is not None:
            self._alone.cancel()
        for client in list(self.clients):
            client.session_ended(self, reason)

    def closed(self) -> None:
        """It has left memory: let go of clients that stay, and know it."""
        self.clients.clear()

    # -- what it is ------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self.agent.session.id

    @property
    def held(self) -> bool:
        return any(client.holds for client in self.clients)

    @property
    def idle(self) -> bool:
        """Whether it may leave memory, as far as what it does is concerned."""
        agent = self.agent
        questions = bool(agent.dialogs.open_requests())
        busy = agent.busy or bool(agent.background.running())
        if not self.clients:
            return questions or not (busy or self.in_hand)  # no one is there to answer them
        if busy or self.in_hand or questions or agent.has_host_tools or any(client.busy for client in self.clients):
            return False
        return agent.session.is_there

    def begun_again(self) -> WantedSession | None:
        """Return how to begin it again if nothing was said, so that there is no file; None if something was."""
        agent, model = self.agent, self.agent.model
        if not agent.session.is_kept or agent.messages or agent.session.is_there:
            return None
        chosen = None if model is None else model.full_name
        begun = WantedSession(cwd=agent.cwd, id=agent.session.id, name=agent.session.name, model=chosen)
        far = agent.resources.far
        return begun if far is None else replace(begun, exec=far.command, exec_cwd=far.cwd)

    async def info(self) -> LiveInfo:
        agent = self.agent
        model, path, stats = agent.model, agent.session.path, await agent.stats()
        return LiveInfo(
            id=self.handle,
            current_id=agent.session.id,
            session_file=None if path is None else str(path),
            name=agent.session.name,
            cwd=agent.cwd,
            phase=agent.phase,
            model=None if model is None else model.full_name,
            clients=len(self.clients),
            queue=len(agent.queues),
            questions=len(agent.dialogs.open_requests()),
            cost=stats.cost if stats.cost_source != "unknown" else None,
        )
