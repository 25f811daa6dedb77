"""Sessions: a conversation as a tree in one JSONL file, interchangeable with pi's.

A library of its own: `Session`, and `SessionManager` with pi's names, work without an agent. Only this package touches
session files.
"""

from spindle.sessions.entries import Entry, Header, SessionError
from spindle.sessions.file import SessionLocked
from spindle.sessions.index import SessionInfo
from spindle.sessions.load import Damage, InvalidSession
from spindle.sessions.manager import SessionManager
from spindle.sessions.session import Session
from spindle.sessions.tree import EntryNotFound, SessionContext, build_context

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
    "build_context",
]
