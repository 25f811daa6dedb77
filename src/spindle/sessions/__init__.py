"""Sessions: a conversation as a tree in one JSONL file, interchangeable with pi's.

A library of its own: `SessionManager` works without an agent. Only this package touches session files.
"""

from spindle.sessions.context import SessionContext, build_context
from spindle.sessions.damage import Damage
from spindle.sessions.entries import Entry, Header
from spindle.sessions.errors import EntryNotFound, InvalidSession, SessionError, SessionLocked
from spindle.sessions.index import SessionInfo
from spindle.sessions.manager import SessionManager

__all__ = [
    "Damage",
    "Entry",
    "EntryNotFound",
    "Header",
    "InvalidSession",
    "SessionContext",
    "SessionError",
    "SessionInfo",
    "SessionLocked",
    "SessionManager",
    "build_context",
]
