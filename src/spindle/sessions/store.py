"""The store: where sessions are kept, as a small interface. Files are one (`file_store`), PostgreSQL is another.

A store knows nothing of what is in a line. It keeps the lines of each session in order, lets one writer at a time add
to them, and keeps a card for lists beside them. Every method may block, may be called in any thread, and raises
`StoreError`; `docs/durable.md` says what a store promises, and `spindle.testing.check_store` whether it does.
"""

import atexit
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from msgspec import Struct, convert

from spindle.sessions.entries import SessionError
from spindle.sessions.lock import SessionLocked
from spindle.sessions.tally import SessionInfo
from spindle.shapes.codec import decode

PAGE = 100
"""Sessions on a page, unless the caller says otherwise."""


class StoreError(SessionError):
    """The store cannot do it."""


class StoreGone(StoreError):
    """The store does not answer, or can keep nothing now; a later try may be luckier.

    What was asked for last may have been done.
    """


class Conflict(StoreError):
    """The session, or record, is not at the expected revision: another writer was quicker."""


class LeaseLost(StoreError):
    """Another node may write to the session now."""


class SessionHeld(SessionLocked):
    """Another node, or another `Session` of this one, has the lease."""

    def __init__(self, session: str, holder: "Holder") -> None:
        self.what = f"Session {session} is in use by {holder.node}"
        SessionError.__init__(self, f"{self.what}. Open it read-only or fork it.")
        self.path, self.pid, self.host = session, None, holder.node
        self.holder = holder

    @property
    def who(self) -> str:
        return "Another server"


class Holder(Struct, frozen=True):
    """Who has a lease."""

    node: str
    """Name of the node: host, process and a word of its own, so that no two have the same."""
    address: str | None = None
    """Where the node answers, if it is a server that others can reach."""

    @property
    def word(self) -> str:
        """The word of its own, which tells it from the others and says nothing of the machine."""
        return self.node.rpartition("-")[2]


class Lease(Struct, frozen=True):
    """The right to write to a session. It ends with its node; the number is greater than that of any lease before."""

    session: str
    node: str
    number: int


class Card(Struct, omit_defaults=True):
    """What is kept beside the lines of a session, for lists and for the next owner."""

    info: SessionInfo
    works: bool = False
    """Whether a run has begun and not ended: without a holder, it was cut off."""
    of: str | None = None
    """The session that this one works for, as that of a subagent; lists leave it out."""
    told: list[tuple[str, int]] = []
    """The last messages that clients were told of: id of the entry, number of the event."""


def read_card(data: bytes) -> Card:
    """Read a card that was encoded, by this version or a newer one."""
    return convert(decode(data), Card)


class StoredLines(Struct):
    """Lines of a session."""

    revision: int
    """How many lines there are in all, with the header."""
    lines: list[bytes]
    card: Card


class SmallRecord(Struct):
    """A small value beside the sessions, such as a quota."""

    value: bytes
    revision: int


class CardPage(Struct):
    cards: list[Card]
    cursor: str | None = None
    """Names the place where the next page begins; None: there is none."""


class SessionStore(Protocol):
    @property
    def name(self) -> str:
        """How people call it, without its password."""

    def within(self, space: str) -> "SessionStore":
        """Return the store of a user: the same place, with sessions and records of its own."""

    # -- sessions --------------------------------------------------------------------------------

    def append(self, lease: Lease, lines: Sequence[bytes], expected: int, card: Card) -> None:
        """Add lines to a session that has `expected` lines, all or none; they are safe when this returns. Without lines
        it only replaces the card, under the same conditions.

        Raises `Conflict`, `LeaseLost`, `StoreGone`.
        """

    def load(self, session: str, since: int = 0) -> StoredLines | None:
        """Return the lines after the first `since`; None if there is no such session."""

    def page(
        self, *, cwd: str | None = None, of: str | None = None, limit: int = PAGE, cursor: str | None = None
    ) -> CardPage:
        """Return cards, that with the latest message first: of a directory or all, or of those that work for `of`.

        Raises `BadCursor`.
        """

    def delete(self, session: str) -> None:
        """Remove a session, and those that work for it. Raises `SessionHeld`."""

    # -- leases ----------------------------------------------------------------------------------

    def lease(self, session: str) -> Lease:
        """Take the right to write to a session, which may not exist yet. Raises `SessionHeld`."""

    def release(self, lease: Lease) -> None:
        """Give it back. A lease that was lost is left alone."""

    def holder(self, session: str) -> Holder | None:
        """Return who has the lease now, if that node is alive."""

    def holds(self, lease: Lease) -> bool:
        """Say whether nobody else can have the lease now, without asking anybody: False when in doubt."""

    def cut_off(self) -> list[str]:
        """Return sessions in every space of this store with a run that no living node works on."""

    # -- nodes -----------------------------------------------------------------------------------

    @property
    def node(self) -> Holder:
        """This process, as others see it."""

    @property
    def lease_seconds(self) -> float:
        """How long leases outlive a node; so long an outage of the store is waited for."""

    @property
    def is_alive(self) -> bool:
        """Whether others see this process as alive."""

    def nodes(self) -> list[Holder]:
        """Return the processes that are alive, as far as others see."""

    def seen_as(self) -> str:
        """Return the host by which others may reach this machine."""

    def answers_at(self, address: str, *, is_ours: bool) -> None:
        """Tell the others where this node answers. `is_ours`: it does for certain, so no other node there is alive."""

    # -- news ------------------------------------------------------------------------------------

    def notify(self, session: str) -> None:
        """Tell everybody who watches that something about a session has changed, such as its lease."""

    def watch(self, hear: Callable[[str], None]) -> Callable[[], None]:
        """Call `hear`, in any thread, with each session that is told of; some may be missed. Returns what ends it."""

    def watch_all(self, hear: Callable[[], None]) -> Callable[[], None]:
        """The same for the sessions of every user."""

    # -- small records ---------------------------------------------------------------------------

    def get(self, kind: str, key: str) -> SmallRecord | None:
        """Return a record; None if there is none."""

    def put(self, kind: str, key: str, value: bytes | None, expected: int) -> int:
        """Write a record that is at the revision `expected` (0: it does not exist); None removes it.

        Returns its new revision. Raises `Conflict`.
        """

    def close(self) -> None:
        """Let go of all leases and connections."""


@cache
def shared_store(address: str) -> SessionStore:
    """Return the store at an address, opened once for the whole process. Raises `StoreError`."""
    store = open_store(address)
    atexit.register(store.close)
    return store


def open_store(address: str) -> SessionStore:
    """Open the store at `postgresql://…`, or that of a directory. Raises `StoreError`."""
    if address.startswith(("postgresql://", "postgres://")):
        from spindle.sessions.postgres import PostgresStore

        return PostgresStore(address)
    if "://" in address:
        raise StoreError(f"A store is postgresql://… or a directory, not {address.split('://')[0]}://…")
    from spindle.sessions.file_store import FileStore

    return FileStore(address)
