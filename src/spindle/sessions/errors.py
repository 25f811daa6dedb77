"""What can go wrong with a session, in words for the person who reads them."""

from os import PathLike

__all__ = ["EntryNotFound", "InvalidSession", "SessionError", "SessionLocked"]


class SessionError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidSession(SessionError):
    """The file is no session; it was left as it is."""

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(f"Session file is not a valid pi session: {path}")


class EntryNotFound(SessionError):
    def __init__(self, entry_id: str) -> None:
        super().__init__(f"Entry {entry_id} not found")


class SessionLocked(SessionError):
    """Another process, or another manager of this one, writes to the session."""

    def __init__(self, path: str | PathLike[str], pid: int | None, host: str | None) -> None:
        holder = f"process {pid} on {host}" if pid is not None else "another process"
        super().__init__(f"Session is in use by {holder}: {path}. Open it read-only or fork it.")
        self.pid = pid
        self.host = host
