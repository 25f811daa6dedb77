"""Sessions: a conversation as a tree in one JSONL file, interchangeable with pi's.

A library of its own: `SessionManager` works without an agent. Only this package touches session files.
"""

from .context import SessionContext, build_context
from .damage import Damage
from .entries import Entry, Header
from .errors import EntryNotFound, InvalidSession, SessionError, SessionLocked
from .index import SessionInfo
from .manager import SessionManager

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
