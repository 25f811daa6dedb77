"""Keeps a tree and a store in step.

Lines leave in threads, one round trip for all that is waiting; whoever must know that they are safe asks `unsafe` or
`when_safe`. While the store does not answer, lines wait here and are sent again; the session goes on in memory. Who
lost the lease sends nothing more: another node has the session now.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from queue import SimpleQueue
from weakref import WeakKeyDictionary

from spindle.sessions.entries import Entry
from spindle.sessions.keeper import is_worth_keeping
from spindle.sessions.store import (
    Card,
    Conflict,
    Lease,
    LeaseLost,
    SessionHeld,
    SessionStore,
    SmallRecord,
    StoredLines,
    StoreError,
    StoreGone,
)
from spindle.sessions.tally import Tally
from spindle.sessions.tree import Tree

QUEUE = "queue"
"""Kind of the records with waiting messages."""
AGAIN_S = 2.0
"""Seconds between two tries while the store is gone."""
SENDERS = 4
TOLD = 64
"""Messages of which a card says that clients were told of them."""

_gone_since: WeakKeyDictionary[SessionStore, float] = WeakKeyDictionary()
"""Since when stores do not answer: one outage is waited for once, not by every session in turn."""


_kept: WeakKeyDictionary[SessionStore, dict[str, Lease | None]] = WeakKeyDictionary()
"""Leases of sessions that were left, by id: requests that name them are still for this process. None: it is in use."""


def take_lease(store: SessionStore, session: str) -> Lease:
    """Take the lease of a session, also if it is kept. Raises `SessionHeld`, `StoreError`."""
    if (kept := _kept.get(store, {}).get(session)) is not None:
        _kept[store][session] = None
        store.release(kept)
    return store.lease(session)


def let_go(store: SessionStore, session: str) -> None:
    """Keep the lease of a session no longer."""
    if (kept := _kept.get(store, {}).pop(session, None)) is not None:
        with suppress(StoreError):
            store.release(kept)


class _GivenUp(LeaseLost):
    """Nothing could be added for longer than a lease."""


class _Senders:
    """Threads that send, for all sessions of the process; they hold up no exit."""

    def __init__(self) -> None:
        self._works: SimpleQueue[Callable[[], None]] = SimpleQueue()
        for _ in range(SENDERS):
            threading.Thread(target=self._run, name="spindle-store", daemon=True).start()

    def submit(self, work: Callable[[], None]) -> None:
        self._works.put(work)

    def _run(self) -> None:
        while True:
            self._works.get()()


_senders = cache(_Senders)


class StoreKeeper:
    def __init__(
        self,
        tree: Tree,
        store: SessionStore,
        *,
        of: str | None = None,
        lease: Lease | None = None,
        found: StoredLines | None = None,
        queue: SmallRecord | None = None,
    ) -> None:
        """Keep `tree` in the store. `found` and `queue` are what the store had, if it was read into the tree.

        `of`: the session that this one works for.
        """
        self.store = store
        self.lost: str | None = None
        """Why another node has the session now."""
        self.on_error: Callable[[str], None] = lambda error: None
        self.on_lost: Callable[[], None] = lambda: None
        self.gives_up = False
        """Whether the session is left when the store is gone for longer than a lease: others can go on with it."""
        self.stays: Callable[[], bool | None] = lambda: False
        """Whether the lease is kept when the session is closed."""
        self.told: list[tuple[str, int]] = [] if found is None else found.card.told
        """The last messages that clients were told of: id of the entry, number of the event."""
        self._tree = tree
        self._of = of if found is None else found.card.of
        self._lease = lease
        self._revision = 0 if found is None else found.revision
        self._tally = Tally()
        for entry in () if found is None else tree.entries:
            self._tally.add(entry.raw)
        self._begun = found is not None
        self._error: str | None = None
        self._is_held = self._is_due = False
        self._lock = threading.Lock()
        """For what follows: several threads use it."""
        self._waiting: list[bytes] = []
        self._put = self._sent = 0
        """How many things were to be sent ever, and how many of them are in the store."""
        self._then: list[tuple[int, Callable[[], None]]] = []
        self._queue = None if queue is None else queue.value
        self._queue_revision = 0 if queue is None else queue.revision
        self._queue_due = self._card_due = False
        self._sending = threading.Lock()
        """Held while something is sent: lines keep their order."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    @property
    def error(self) -> str | None:
        return self._error

    @property
    def begun(self) -> bool:
        """Whether the session is in the store, or on its way there."""
        return self._begun

    # -- saving ----------------------------------------------------------------------------------

    def save(self, entry: Entry) -> None:
        if not self._begun and not is_worth_keeping(entry):
            return
        if self._begun:
            self._add([entry.ended])
        else:
            self._begin()
        self._send_soon()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._is_held, self._is_due = True, False
        try:
            yield
        finally:
            self._is_held = False
            if self._is_due:
                self._send_soon()

    def save_all(self) -> None:
        if not self._begun:
            self._begin()
        self._send_soon()

    def catch_up(self) -> None:
        """Do nothing: while we have the lease nobody else adds to the session."""

    def tell(self, entry_id: str, number: int) -> None:
        """Note the number of the event that told clients of a message. It goes out with the next lines."""
        if self._lease is None and self._sent == self._put:
            return  # the session was left
        with self._lock:
            self.told = [*self.told[-TOLD + 1 :], (entry_id, number)]
            self._card_due = True
        self._send_soon()

    def tell_from(self, entry_id: str, number: int) -> None:
        """Note the number of the event behind which clients know the session up to an entry."""
        with self._lock:
            self.told = [(entry_id, number)]
            self._card_due = True
            self._put += self._begun
        self._send_soon()

    @property
    def session_id(self) -> str:
        return str(self._tree.header.id)

    @property
    def lease_number(self) -> int:
        """The number of the lease; 0 before there is one."""
        return 0 if self._lease is None else self._lease.number

    def _begin(self) -> None:
        self._begun = True
        self._add([self._tree.header.ended, *(entry.ended for entry in self._tree.entries)])

    def _add(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._tally.add(line)
        with self._lock:
            self._waiting += lines
            self._put += 1

    # -- sending ---------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        """Send when the present step of the event loop is over: what is added until then goes along."""
        if self._is_held:
            self._is_due = True
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # a program without a loop: `sync` and `close` send
            return
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._submit)

    def _submit(self) -> None:
        self._scheduled = False
        _senders().submit(self._try)

    def _try(self) -> None:
        try:
            self._send()
        except (StoreError, SessionHeld):  # it was told
            if self.lost is None and self._loop is not None:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._loop.call_later, AGAIN_S, self._again)

    def _again(self) -> None:
        """Try again what could not be sent, unless that was done or the session was left."""
        if self._sent < self._put and self._lease is not None:
            self._submit()

    def _send(self) -> None:
        """Send all that is waiting. Raises `StoreError`, `SessionHeld`."""
        with self._sending:
            while True:
                if self.lost is not None:
                    raise LeaseLost(self.lost)
                with self._lock:
                    if (self._sent == self._put and not self._card_due) or not self._begun:
                        return
                    self._card_due = False
                    lines, self._waiting = self._waiting, []
                    queue, self._queue_due = self._queue_due, False
                    put, card = self._put, self._card()
                try:
                    self._patiently(lines, card, queue)
                except BaseException as error:
                    with self._lock:
                        self._waiting[:0] = lines
                        self._queue_due |= queue
                    if isinstance(error, StoreError | SessionHeld):
                        self._fail(error)
                    raise
                self._error = None
                self._done(put)

    def _card(self) -> Card:
        header = self._tree.header
        info = self._tally.info(str(header.id), header, int(time.time() * 1000))
        return Card(info, works=self._tally.works, of=self._of, told=self.told)

    def _patiently(self, lines: list[bytes], card: Card, queue: bool) -> None:
        unsure = False
        while True:
            try:
                self._append(lines, card, unsure=unsure)
                if queue and self._put_queue():
                    self._append([], card, unsure=False)  # an older lease must not tell its sender that it is kept
                _gone_since.pop(self.store, None)
                return
            except (Conflict, LeaseLost):
                raise
            except StoreError as error:
                since = _gone_since.setdefault(self.store, time.monotonic())
                if time.monotonic() - since > self.store.lease_seconds:
                    if self.gives_up:
                        raise _GivenUp(str(error)) from None
                    raise
                unsure = True
                self._fail(error)
                time.sleep(0.2)

    def _append(self, lines: list[bytes], card: Card, *, unsure: bool) -> None:
        if self.lost is not None:
            raise LeaseLost(self.lost)
        if self._lease is None:
            self._lease = take_lease(self.store, self.session_id)
        try:
            self.store.append(self._lease, lines, self._revision, card)
        except Conflict:
            if not (unsure and lines and self._is_there(lines)):
                raise
        self._revision += len(lines)
        del lines[:]  # should the queue fail now

    def _is_there(self, lines: list[bytes]) -> bool:
        """Say whether an append whose answer was lost was made."""
        found = self.store.load(self.session_id, self._revision)
        return found is not None and found.lines == lines

    def _put_queue(self) -> bool:
        """Put the queue into the store. Returns whether there was anything to put."""
        key = self.session_id
        while True:
            if self._queue is None and not self._queue_revision:
                return False
            try:
                self._queue_revision = self.store.put(QUEUE, key, self._queue, self._queue_revision)
                return True
            except Conflict:  # the answer to an earlier try was lost, or another node has the session
                found = self.store.get(QUEUE, key)
                self._append([], self._card(), unsure=False)  # raises if it is another node
                self._queue_revision = 0 if found is None else found.revision

    def _done(self, put: int) -> None:
        with self._lock:
            self._sent = put
            ready = [then for number, then in self._then if number <= put]
            self._then = [(number, then) for number, then in self._then if number > put]
        self._call(*ready)

    def _fail(self, error: StoreError | SessionHeld) -> None:
        was_fine, text = self._error is None, str(error)
        if isinstance(error, LeaseLost | SessionHeld | Conflict):
            if self._lease is not None:
                _senders().submit(partial(self._release, self._lease))
            self.lost, self._lease = text, None
            where = "cannot be kept now" if isinstance(error, _GivenUp) else "goes on elsewhere"
            self._error = f"This session {where} ({text}). Open it again"
            self._call(partial(self.on_error, self._error), self.on_lost)
            return
        self._error = f"Session cannot be saved ({text}). The conversation goes on in memory."
        if was_fine:
            self._call(partial(self.on_error, self._error))

    def _call(self, *then: Callable[[], None]) -> None:
        """Call functions in the loop, if there is one."""
        for one in then:
            if self._loop is None:
                one()
            else:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(one)

    # -- waiting ---------------------------------------------------------------------------------

    def unsafe(self) -> Callable[[], None] | None:
        if self._sent == self._put and self.lost is None and (self._lease is None or self.store.holds(self._lease)):
            return None
        return self._settle

    @property
    def is_here(self) -> bool:
        """Whether no other node can have the session now; False when in doubt."""
        return self.lost is None and (self._lease is None or self.store.holds(self._lease))

    def look(self) -> None:
        """Find out whether another node has taken the session while this one slept."""
        if self.lost is None and not self.is_here and self.store.is_alive:
            self._fail(LeaseLost(f"Another node took session {self.session_id} when this one was not heard of"))

    def _settle(self) -> None:
        self._send()
        end = time.monotonic() + self.store.lease_seconds
        while self._lease is not None and not self.store.holds(self._lease):
            self.look()
            if self.lost is not None:
                raise LeaseLost(self.lost)
            if time.monotonic() > end:
                raise StoreGone(f"The lease of session {self.session_id} cannot be renewed")
            time.sleep(0.1)

    def when_safe(self, then: Callable[[], None]) -> None:
        with self._lock:
            if self._sent < self._put:
                self._then.append((self._put, then))
                return
        then()

    def begin_sync(self) -> Callable[[], None] | None:
        if self._sent == self._put or self.lost is not None:
            return None

        def wait() -> None:
            try:
                self._send()
            except (StoreError, SessionHeld) as error:
                raise OSError(errno.EIO, str(error)) from None

        return wait

    def sync(self) -> None:
        self._try()

    def sync_failed(self, error: OSError) -> None:
        """Do nothing: what was wrong was told by whoever sent."""

    # -- before and beside the lines -------------------------------------------------------------

    def claim(self) -> None:
        if self._lease is None:
            self._lease = take_lease(self.store, self.session_id)

    def read_beside(self) -> bytes | None:
        return self._queue

    def keep_beside(self, data: bytes | None) -> None:
        if data == self._queue:
            return
        if data is not None and not self._begun:
            self._begin()
        with self._lock:
            self._queue, self._queue_due = data, True
            self._put += 1
        self._send_soon()

    def _release(self, lease: Lease) -> None:
        with suppress(StoreError):
            self.store.release(lease)

    def close(self) -> None:
        if self._error is None:
            self._try()
        lease, self._lease = self._lease, None
        if lease is None:
            return
        if self._error is None and self.store.holds(lease):
            if self.stays() or lease.session in _kept.get(self.store, ()):
                _kept.setdefault(self.store, {})[lease.session] = lease
            else:
                self._release(lease)
        else:  # the store is gone, and nothing waits for it
            _senders().submit(partial(self._release, lease))
