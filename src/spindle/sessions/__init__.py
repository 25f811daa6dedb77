"""Sessions: a conversation as a tree in one JSONL file, interchangeable with pi's.

A library of its own: `Session`, and `SessionManager` with pi's names, work without an agent. Only this package touches
session files.
"""

from typing import TYPE_CHECKING, Any

from spindle.sessions.entries import Entry, Header, SessionError, SessionNotFound
from spindle.sessions.load import Damage, InvalidSession
from spindle.sessions.lock import SessionLocked
from spindle.sessions.session import Session
from spindle.sessions.tree import EntryNotFound, SessionContext, build_context

if TYPE_CHECKING:  # loaded on use: an agent seldom needs these
    from spindle.sessions.manager import SessionManager
    from spindle.sessions.tally import SessionInfo

__all__ = [
    "Damage",
    "Entry",
    "EntryNotFound",
    "Header",
    "InvalidSession",
    "Session",
    "SessionContext",
    "SessionError",
    "SessionInfo",
    "SessionLocked",
    "SessionManager",
    "SessionNotFound",
    "build_context",
]


def __getattr__(name: str) -> Any:
    if name == "SessionInfo":
        from spindle.sessions.tally import SessionInfo

        return SessionInfo
    if name == "SessionManager":
        from spindle.sessions.manager import SessionManager

        return SessionManager
    raise AttributeError(f"module 'spindle.sessions' has no attribute {name!r}")
