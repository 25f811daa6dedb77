"""The keeper of a session: brings what is added to its tree to the place where it is kept, a file or a store.

Problems are no exceptions: the conversation goes on in memory, `error` says why, and later saves try again.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

from spindle.sessions.entries import Entry

FsyncPolicy: TypeAlias = Literal["never", "run", "always"]
"""When to wait for the disk itself: never; on `sync` (at the end of each run) and `close`; or always."""


def is_worth_keeping(entry: Entry) -> bool:
    """Say whether a new session is kept from this entry on: without messages, the user has nothing to lose."""
    return entry.type in ("message", "custom_message")


class Keeper(Protocol):
    @property
    def error(self) -> str | None:
        """Why entries are missing there; None if all are there."""

    def save(self, entry: Entry) -> None:
        """Keep an entry that was just added to the tree."""

    def held(self) -> AbstractContextManager[None]:
        """Keep what is saved inside at its end, at once."""

    def save_all(self) -> None:
        """Keep all entries that are missing there, from now on also without a message."""

    def catch_up(self) -> None:
        """Take in what other programs have added, before we add to it."""

    def sync(self) -> None:
        """Wait until everything is as safe as it gets there, if the policy says so."""

    def begin_sync(self) -> Callable[[], None] | None:
        """Return a function that waits, for any thread; it raises `OSError`. None: there is nothing to wait for."""

    def sync_failed(self, error: OSError) -> None:
        """Record that a wait failed; the next sync tries again."""

    def unsafe(self) -> Callable[[], None] | None:
        """Return a function that waits until another process could go on from here; None if it could now.

        It is for any thread, and raises `SessionError` if that will not be: then nothing more may be done.
        """

    def when_safe(self, then: Callable[[], None]) -> None:
        """Call a function once everything that was saved before is where another process would find it."""

    def claim(self) -> None:
        """Reserve the place of a new session. Raises `SessionLocked`, `SessionError`."""

    def read_beside(self) -> bytes | None:
        """Return the data of `keep_beside`, from this process or an earlier one."""

    def keep_beside(self, data: bytes | None) -> None:
        """Keep data beside the session, which is made first; None removes the data."""

    def close(self) -> None:
        """Let go of the place. A later save takes it again."""
