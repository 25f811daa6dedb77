"""A session that is alive in this process: its agent, its clients, and its last events for those who come back."""

import asyncio
from collections.abc import Callable
from time import monotonic

from msgspec.structs import replace

from spindle.agent.hooks import NeverFull
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.base.weakly import weakly
from spindle.protocol.event_log import EventLog, StoredEventLog
from spindle.protocol.registry import LiveInfo, WantedSession
from spindle.protocol.seat import Seat
from spindle.shapes.approvals import PermissionRequest
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import Event, SessionChanged


class LiveSession(NeverFull):
    """An agent and those who use it."""

    def __init__(self, agent: AgentSession, handle: str | None = None, first_event: int | None = 0) -> None:
        """`first_event`: where the numbers of its events begin; None: no log is kept."""
        self.agent = agent
        self.handle = handle or agent.session.id
        """Names it for as long as it lives, whichever file the conversation goes on in."""
        self.log = EventLog(first_event or 0)
        self.on_lost: Callable[[LiveSession], None] = lambda live: None
        """Called when another node has the session."""
        self._is_numbered = first_event is not None
        self._follow()
        if first_event is not None and (keeper := agent.session.of_store) is not None:
            self.log = log = StoredEventLog(agent, keeper)
            agent.hub.foresee = log.foresee
        self.clients: set[Seat] = set()
        self.viewers: set[Seat] = set()
        """Clients that only look on; for everything else they are not there."""
        self.begun = False
        """Whether it was opened for more than to be looked at."""
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
        if isinstance(event, SessionChanged):
            self._follow()
            if isinstance(self.log, StoredEventLog) and (keeper := self.agent.session.of_store) is not None:
                self.log.go_on_in(keeper)
        if isinstance(event, ExtensionUIRequest | PermissionRequest):
            self._withdraw_unanswerable()
            self._wait_for_client()

    def _follow(self) -> None:
        if (keeper := self.agent.session.of_store) is not None:
            keeper.on_lost, keeper.gives_up = weakly(self._lost), self._is_numbered
            if keeper.session_id == self.handle:
                keeper.stays = weakly(self._has_moved)

    def _has_moved(self) -> bool:
        """Whether it goes on in another conversation than its handle says: then other nodes must still find it here."""
        return self.session_id != self.handle

    def _lost(self) -> None:
        self.on_lost(self)

    @property
    def is_here(self) -> bool:
        """Whether no other node can have the session now; False when in doubt."""
        return (keeper := self.agent.session.of_store) is None or keeper.is_here

    def look(self) -> None:
        """Find out whether another node has taken the session while this one slept; then it is lost."""
        if not self.is_here and (keeper := self.agent.session.of_store) is not None:
            keeper.look()

    # -- clients ---------------------------------------------------------------------------------

    def touch(self) -> None:
        """Count from now on how long it is not used."""
        self.used = monotonic()

    def join(self, client: Seat) -> None:
        if client.watches:
            self.viewers.add(client)
            return
        self.clients.add(client)
        self.touch()
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None

    def leave(self, client: Seat) -> None:
        if client.watches:
            self.viewers.discard(client)
            return
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
            self.agent.approval.give_up()

    def _withdraw_unanswerable(self) -> None:
        """Close dialogs if none of the clients has words for them."""
        if self.clients and not any(client.answers for client in self.clients):
            self.agent.dialogs.withdraw()

    async def begin(self) -> None:
        """Let the agent begin, now that a client is there. It does not leave memory meanwhile."""
        self.begun = True
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
        for client in [*self.clients, *self.viewers]:
            client.session_ended(self, reason)

    def closed(self) -> None:
        """It has left memory: let go of clients that stay, and know it."""
        self.clients.clear()
        self.viewers.clear()

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
        if busy or self.in_hand or questions or agent.host_tools.names or any(client.busy for client in self.clients):
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
        store = agent.session.store
        return LiveInfo(
            id=self.handle,
            current_id=agent.session.id,
            node=None if store is None else store.node.word,
            session_file=None if path is None else str(path),
            name=agent.session.name,
            cwd=agent.cwd,
            phase=agent.phase,
            model=None if model is None else model.full_name,
            clients=len(self.clients),
            queue=len(agent.queues),
            questions=len(agent.dialogs.open_requests()),
            cost=stats.cost if stats.cost_source != "unknown" else None,
            tokens=stats.tokens.total,
            failed=_failure(agent),
            waiting=list(agent.open_questions()),
            background=agent.background.running(),
            subagents=agent.subagents.all(),
        )


def _failure(agent: AgentSession) -> str | None:
    """Return why the last run failed, if it did and nothing runs now."""
    result = agent.last_result()
    return result.error if result is not None and result.status == "error" and not agent.busy else None
