"""The stored sessions of a program: lists of them, finding text in them, their names, and their end."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from spindle.agent import AgentError
from spindle.inprocess.checks import check_type
from spindle.resources.loader import ResourceOptions, load_settings
from spindle.sessions import SessionInfo
from spindle.sessions import open as opening
from spindle.sessions.named import named_file
from spindle.sessions.pages import Page, list_page

T = TypeVar("T")


class FoundSession(Struct, frozen=True):
    """A session in which a text was found."""

    session: SessionInfo
    snippet: str
    """The text around the first hit."""
    entry_id: str | None
    """The entry that has it."""


class FoundPage(Struct, frozen=True):
    """Some sessions with a text, the latest first."""

    found: list[FoundSession]
    cursor: str | None = None
    """Give it to get the next page; None: this is the last one."""


class StoredSessions:
    """What can be done with stored sessions without opening them. All of it works in a thread."""

    __slots__ = ()

    @classmethod
    async def list(
        cls, cwd: str | Path = ".", *, everywhere: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page:
        """Return the stored sessions of a directory, or with `everywhere` of all, a page of `limit` at a time.

        `cursor` is that of the page before. Raises `AgentError` for a bad limit or cursor.
        """
        _check_page("list", limit, cursor)
        return await _in_thread(
            cwd, lambda place, folder: list_page(None if everywhere else place, folder, limit=limit, cursor=cursor)
        )

    @classmethod
    async def search(
        cls, text: str, cwd: str | Path = ".", *, everywhere: bool = False, limit: int = 50, cursor: str | None = None
    ) -> FoundPage:
        """Return the stored sessions in which one message has all the words of `text`. Pages are as those of `list`."""
        from spindle.agent.library import Search

        check_type("search()", "text", text, str)
        _check_page("search", limit, cursor)
        if not text.strip():
            raise AgentError("Nothing to search for: the text has no words")
        search = Search(text)

        def work(place: Path, folder: str | None) -> FoundPage:
            page = list_page(None if everywhere else place, folder, limit=limit, cursor=cursor, fits=search)
            return FoundPage([FoundSession(info, *search.hits[info.path]) for info in page.sessions], page.cursor)

        return await _in_thread(cwd, work)

    @classmethod
    async def delete(cls, session: str | Path, cwd: str | Path = ".") -> None:
        """Delete a stored session, named by its id, the beginning of the id, or its file.

        Raises `SessionNotFound`, and `SessionLocked` if it is in use.
        """
        check_type("delete()", "session", session, str, Path)
        await _in_thread(cwd, lambda place, folder: opening.delete(named_file(session, place, folder)))

    @classmethod
    async def rename(cls, session: str | Path, name: str, cwd: str | Path = ".") -> None:
        """Name a stored session; the name of an open one is set with `set_name`. Raises as `delete` does."""
        check_type("rename()", "session", session, str, Path)
        check_type("rename()", "name", name, str)
        if not name.strip():
            raise AgentError("name must not be empty")

        def work(place: Path, folder: str | None) -> None:
            stored = opening.load(named_file(session, place, folder))
            try:
                stored.append_name(name)
            finally:
                stored.close()

        await _in_thread(cwd, work)


def _check_page(function: str, limit: int, cursor: str | None) -> None:
    check_type(f"{function}()", "limit", limit, int)
    check_type(f"{function}()", "cursor", cursor, str, type(None))


async def _in_thread(cwd: str | Path, work: Callable[[Path, str | None], T]) -> T:
    """Do `work` with the directory and the folder that the user wants sessions of it in; None: the usual one."""

    def found() -> T:
        place = Path(cwd).resolve()
        return work(place, session_folder(place))

    return await asyncio.to_thread(found)


def session_folder(directory: Path) -> str | None:
    """Return where the user wants the sessions of a directory; None: the usual place."""
    store, _, _ = load_settings(directory, ResourceOptions())
    return opening.wanted_directory(None, store.settings.session_dir)
