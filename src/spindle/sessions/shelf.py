"""Where the sessions of a program are: a shelf of files, or of a store. Sessions are found, begun and opened there."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Unpack

from msgspec.structs import replace

from spindle.sessions import open as opening
from spindle.sessions.file import is_path
from spindle.sessions.index import find_session, read_info
from spindle.sessions.pages import Page, list_page, page_of_store
from spindle.sessions.session import Saving, Session
from spindle.sessions.store import SessionStore
from spindle.sessions.tally import SessionInfo

Fits = Callable[[SessionInfo], bool]


class Shelf(Protocol):
    """Names of sessions are paths of files, or ids in a store. Every method may block and raise `SessionError`."""

    def find(self, session: str, cwd: str) -> str | None:
        """Return the name of the session with this id or path; None if there is none."""

    def page(self, cwd: str | None, limit: int | None, cursor: str | None, fits: Fits | None) -> Page:
        """Return a page of the sessions of a directory, or of all."""

    def info(self, name: str) -> SessionInfo | None:
        """Return what a list shows of a session."""

    def cut_off(self) -> list[str]:
        """Return the sessions with a run that was cut off."""

    def delete(self, name: str) -> None:
        """Remove a session that no process writes to."""

    def begin(self, cwd: str, id: str | None, **saving: Unpack[Saving]) -> Session:
        """Begin a session."""

    def load(self, name: str, cwd: str | None = None, *, read_only: bool = False, **saving: Unpack[Saving]) -> Session:
        """Open a session."""

    def copy(self, name: str, cwd: str, **saving: Unpack[Saving]) -> Session:
        """Copy a session, which may be in use, into a new one."""


class FileShelf:
    def __init__(self, directory: str | None, *, alone: bool = False) -> None:
        """`directory`: None is the usual one of each project. `alone`: no path may lead out of it."""
        self._directory = directory
        self._alone = alone

    def find(self, session: str, cwd: str) -> str | None:
        if is_path(session):
            path = os.path.realpath(os.path.join(cwd, session))
            if self._alone and os.path.dirname(path) != os.path.realpath(self._directory or cwd):
                return None
            return path if os.path.isfile(path) else None
        found = find_session(session, cwd, self._directory)
        return None if found is None else os.path.realpath(found)

    def page(self, cwd: str | None, limit: int | None, cursor: str | None, fits: Fits | None) -> Page:
        return list_page(cwd, self._directory, limit=limit, cursor=cursor, fits=fits)

    def info(self, name: str) -> SessionInfo | None:
        return read_info(Path(name))

    def cut_off(self) -> list[str]:
        return [info.path for info in self.page(None, None, None, lambda info: info.interrupted).sessions]

    def delete(self, name: str) -> None:
        opening.delete(name)

    def begin(self, cwd: str, id: str | None, **saving: Unpack[Saving]) -> Session:
        return opening.create(cwd, self._directory, id=id, **saving)

    def load(self, name: str, cwd: str | None = None, *, read_only: bool = False, **saving: Unpack[Saving]) -> Session:
        return opening.load(name, self._directory, cwd, read_only=read_only, **saving)

    def copy(self, name: str, cwd: str, **saving: Unpack[Saving]) -> Session:
        return opening.forked_from(name, cwd, self._directory, **saving)


class StoreShelf:
    def __init__(self, store: SessionStore) -> None:
        self.store = store

    def find(self, session: str, cwd: str) -> str | None:
        is_there = self.store.load(session, NO_LINES) is not None or self.store.holder(session) is not None
        return session if is_there else None

    def page(self, cwd: str | None, limit: int | None, cursor: str | None, fits: Fits | None) -> Page:
        return page_of_store(self.store, cwd, limit=limit, cursor=cursor, fits=fits)

    def info(self, name: str) -> SessionInfo | None:
        if (found := self.store.load(name, NO_LINES)) is None:
            return None
        info = found.card.info
        is_held = info.interrupted and self.store.holder(name) is not None
        return replace(info, interrupted=False) if is_held else info

    def cut_off(self) -> list[str]:
        return self.store.cut_off()

    def delete(self, name: str) -> None:
        opening.removed_from(self.store, name)

    def begin(self, cwd: str, id: str | None, **saving: Unpack[Saving]) -> Session:
        session = opening.begun_in(self.store, cwd, id=id, **saving)
        session.claim()  # other nodes must find it before it has a message
        return session

    def load(self, name: str, cwd: str | None = None, *, read_only: bool = False, **saving: Unpack[Saving]) -> Session:
        return opening.loaded_from(self.store, name, cwd, read_only=read_only, **saving)

    def copy(self, name: str, cwd: str, **saving: Unpack[Saving]) -> Session:
        return opening.copied_in(self.store, name, cwd, **saving)


NO_LINES = sys.maxsize >> 32
"""The revision to load since, if only the card is wanted."""
