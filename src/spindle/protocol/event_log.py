"""The last events of a session, numbered, for clients that lost their connection.

In a store, the numbers go on at the next owner: the card of a session says which event told of which message, so the
owner knows which messages a client that comes from the former one has missed.
"""

from collections import deque
from functools import cached_property
from itertools import islice

from spindle.agent.hooks import NeverFull
from spindle.agent.run.record import RunRecord, interruption
from spindle.agent.session import AgentSession
from spindle.protocol.render import Renderer
from spindle.sessions.entries import Entry
from spindle.sessions.facts import RUN_OPEN, fact_in
from spindle.sessions.store_keeper import TOLD, StoreKeeper
from spindle.sessions.tree import entry_message
from spindle.shapes.events import AgentSettled, Event, MessageEnd, MessageStart

LOG_BYTES, LOG_EVENTS = 4 << 20, 32
"""The log of a session holds so much, and so many of the last events however long they are."""
UNTOLD_END = "end"
"""Stands for the id of the record of an end that was not written."""
NOTHING = ""
"""Stands for the id of the last entry where there is none."""
OF_LEASE = 24
"""Bits of a number for the events of one owner; above them is the number of its lease, or a greater one."""
_FORMER = 4 * TOLD
"""Entries of former owners that are told again; their events have the numbers before the first of this owner."""
_MOST_FORMER = 2 * _FORMER


class EventLog(NeverFull):
    """Updates are kept in delta form: they add up to the same answer, and a long one fills no log with copies."""

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


class StoredEventLog(EventLog):
    """The log of a session in a store: it tells the store of messages that were told, and knows the former owner's."""

    def __init__(self, agent: AgentSession, keeper: StoreKeeper) -> None:
        # A former owner may have come to this session with the numbers of another one.
        former = max((number >> OF_LEASE for _, number in keeper.told), default=-1)
        self._first = max(keeper.lease_number, former + 1) << OF_LEASE
        super().__init__(self._first)
        self._agent = agent
        self._told = dict(keeper.told)
        self._before = agent.session.entries
        """The entries of former owners."""
        self._end_is_untold = _is_open(self._before) and interruption(agent.session) is None
        """The last answer is there, so nobody goes on with its run; the former owner died before it could tell."""
        self._foreseen: deque[int] = deque()
        """Numbers of events that are still to be told."""

    def put(self, event: Event) -> None:
        super().put(event)
        if self._foreseen and self._foreseen[0] == self.count:
            self._foreseen.popleft()
        else:
            self._note(event, self.count)

    def foresee(self, event: Event, place: int) -> None:
        """Note the number of an event before it is told: so the note goes out with the message, not after it."""
        self._foreseen.append(self.count + place)
        self._note(event, self.count + place)

    def go_on_in(self, keeper: StoreKeeper) -> None:
        """Go on with the events of another session: clients were told of the change, and read what is in it."""
        entries = self._agent.session.entries
        keeper.tell_from(entries[-1].id if entries else NOTHING, self.count)

    def _note(self, event: Event, number: int) -> None:
        session = self._agent.session
        if (keeper := session.of_store) is None:
            return
        if isinstance(event, MessageEnd) and event.entry_id is not None:
            keeper.tell(event.entry_id, number)
        elif isinstance(event, AgentSettled) and (end := _last_end(session.entries)) is not None:
            keeper.tell(end.id, number)

    def after(self, number: int) -> list[bytes] | None:
        if number >= self._first:
            return super().after(number)
        missed = self._missed(number)
        since = super().after(self._first)
        return None if missed is None or since is None else missed + since

    def _missed(self, number: int) -> list[bytes] | None:
        """Return what a client did not see that saw the event with this number of a former owner."""
        lines = [line for _, line in self._former]
        if 0 <= (left := self._first - number) <= len(lines):  # a client that broke off in the middle of these
            return lines[len(lines) - left :]
        if 0 < (-number) % (1 << OF_LEASE) <= _MOST_FORMER:
            return None  # it broke off in the middle of what another owner knew of a former one
        seen = {id for id, told in self._told.items() if told <= number}
        if not seen:  # it saw nothing that we know of
            return None if len(self._told) >= TOLD or not self._told else lines
        none = -1 if NOTHING in seen else None
        last = max((at for at, entry in enumerate(self._before) if entry.id in seen), default=none)
        if last is None:
            return None
        later = {entry.id for entry in self._before[last + 1 :]} | (self._told.keys() - seen) | {UNTOLD_END}
        return [line for id, line in self._former if id in later]

    @cached_property
    def _former(self) -> list[tuple[str, bytes]]:
        """The last messages and ends of runs as events: for every client the same ones, with the same numbers."""
        renderer, found = Renderer(update_mode="delta"), list[tuple[str, bytes]]()
        for entry in self._before[-_FORMER:]:
            for event in _events_of(entry):
                found.append((entry.id, renderer.render(event)))
        if self._end_is_untold:
            found.append((UNTOLD_END, renderer.render(AgentSettled(False, "end"))))
        return found


def _events_of(entry: Entry) -> list[Event]:
    if (message := entry_message(entry)) is not None:
        return [MessageStart(message), MessageEnd(message, entry.id)]
    record = fact_in(entry, RunRecord)
    if record is not None and record.state in ("ended", "waiting") and record.stop_reason is not None:
        return [AgentSettled(record.stop_reason == "aborted", record.stop_reason)]
    return []


def _is_open(entries: list[Entry]) -> bool:
    record = next((fact_in(entry, RunRecord) for entry in reversed(entries) if RunRecord.is_in(entry)), None)
    return record is not None and record.state in RUN_OPEN


def _last_end(entries: list[Entry]) -> Entry | None:
    found = next((entry for entry in reversed(entries) if RunRecord.is_in(entry)), None)
    record = None if found is None else fact_in(found, RunRecord)
    return found if record is not None and record.state in ("ended", "waiting") else None
