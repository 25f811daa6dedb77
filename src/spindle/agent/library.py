"""Files around a session, for clients: find and delete sessions, find text, upload files, complete paths, make a page.

Nothing here is part of a run. Everything that reads the disk does so in a thread.
"""

import asyncio
import base64
import binascii
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spindle.agent import AgentError
from spindle.base.spelling import in_order
from spindle.export.transcript import as_dict, as_list, content_text
from spindle.sessions.belongings import UPLOADS
from spindle.sessions.entries import Entry, SessionError, SessionNotFound
from spindle.sessions.file import is_path, session_dir_for
from spindle.sessions.index import find_session
from spindle.sessions.open import delete, load, loaded_from, removed_from
from spindle.sessions.pages import Page, list_page, page_of_store
from spindle.sessions.tally import SessionInfo
from spindle.sessions.uploads import TEMPORARY, check_upload, keep_upload, note_upload
from spindle.shapes.codec import DecodeError, decode
from spindle.workspace.disk import ToolError
from spindle.workspace.replacing import put_upload

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession
    from spindle.sessions.session import Session
    from spindle.sessions.store import SessionStore

MAX_FOUND = 50
MAX_SESSIONS = 500
"""Sessions in a page of all directories without a limit."""
MAX_PATHS = 12
MAX_LISTED = 50_000
"""Files of the working directory that are looked at for one completion."""
SNIPPET = 60
"""Characters that are shown before and after the beginning of a match."""


async def stored_sessions(
    agent: "AgentSession",
    everywhere: bool = False,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    changed_since: int | None = None,
) -> Page:
    """Return the sessions of this directory, the latest first; `everywhere`: of all directories sessions may work in.

    Without a limit there are all, or everywhere a page of 500. An agent that does not store sessions has none. Raises
    `SessionError` for a bad cursor or limit.
    """
    return await asyncio.to_thread(_stored, agent, everywhere, limit, cursor, changed_since)


def _stored(
    agent: "AgentSession",
    everywhere: bool,
    limit: int | None,
    cursor: str | None,
    changed_since: int | None = None,
    fits: Callable[[SessionInfo], bool] | None = None,
) -> Page:
    directory = agent.session.directory
    if (store := agent.session.store) is not None:
        may = cache(lambda cwd: _may_work_in(agent, cwd))
        most = MAX_SESSIONS if limit is None and everywhere else limit
        return page_of_store(
            store,
            None if everywhere else agent.cwd,
            limit=most,
            cursor=cursor,
            changed_since=changed_since,
            fits=lambda info: (not everywhere or may(info.cwd)) and (fits is None or fits(info)),
        )
    if directory is None:
        return Page([])
    if not everywhere:
        return list_page(agent.cwd, directory, limit=limit, cursor=cursor, changed_since=changed_since, fits=fits)
    may_work_in = cache(lambda cwd: _may_work_in(agent, cwd))
    return list_page(
        None,
        None if directory == session_dir_for(agent.cwd) else directory,
        limit=MAX_SESSIONS if limit is None else limit,
        cursor=cursor,
        changed_since=changed_since,
        fits=lambda info: may_work_in(info.cwd) and (fits is None or fits(info)),
    )


def _may_work_in(agent: "AgentSession", cwd: str) -> bool:
    try:
        agent.check_place(cwd)
    except AgentError:
        return False
    return os.path.isdir(cwd)


async def stored_session(agent: "AgentSession", id: str) -> "Session":
    """Read a stored session, which another process may write to. Raises `SessionError`."""
    return await asyncio.to_thread(_read_stored, agent, id)


def _read_stored(agent: "AgentSession", id: str) -> "Session":
    directory, found = agent.session.directory, None
    if (store := agent.session.store) is not None:
        found = loaded_from(store, id, read_only=True)
    elif directory is not None and not is_path(id):
        directory = None if directory == session_dir_for(agent.cwd) else directory
        if (path := find_session(id, agent.cwd, directory)) is not None:
            found = load(path, directory, read_only=True)
    if found is None or not _may_work_in(agent, found.cwd):
        raise SessionNotFound(f"No session {id}")
    return found


Found = tuple[SessionInfo, str, str | None]
"""A session, a snippet of it, and the entry that has it; None if it is the name."""


async def search_sessions(
    agent: "AgentSession", query: str, everywhere: bool = False, *, limit: int | None = None, cursor: str | None = None
) -> tuple[list[Found], str | None]:
    """Return the stored sessions whose name, or one message, has all the words, and the cursor of the next page.

    Raises `SessionError` for a bad cursor or limit.
    """
    if not query.strip():
        return [], None
    search = Search(query, agent.session.store)
    most = MAX_FOUND if limit is None else limit
    page = await asyncio.to_thread(_stored, agent, everywhere, most, cursor, None, search)
    return [(info, *search.hits[info.path]) for info in page.sessions], page.cursor


class Search:
    """Says of stored sessions whether the name or one message has all words of a query, and keeps where it was."""

    def __init__(self, query: str, store: "SessionStore | None" = None) -> None:
        """`store`: where the sessions are, if they are in no files."""
        self._words = query.lower().split()
        self._store = store
        self.hits: dict[str, tuple[str, str | None]] = {}
        """Path → a snippet, and the id of its entry."""

    def __call__(self, info: SessionInfo) -> bool:
        name = info.name or ""
        is_named_so = all(word in name.lower() for word in self._words)
        hit = (name, None) if is_named_so else self._found_in(info)
        if hit is not None:
            self.hits[info.path] = hit
        return hit is not None

    def _found_in(self, info: SessionInfo) -> tuple[str, str | None] | None:
        if self._store is not None:
            found = self._store.load(info.id)
            return None if found is None else _found_in(found.lines, self._words)
        try:
            with open(info.path, "rb") as lines:
                return _found_in(lines, self._words)
        except OSError:
            return None


def _found_in(lines: Iterable[bytes], words: list[str]) -> tuple[str, str | None] | None:
    """Return a snippet of the first message that has all of `words` in it, and the id of its entry."""
    first = words[0].encode("utf-8", "replace")
    for line in lines:
        if first.isascii() and first not in line.lower():
            continue
        entry = _entry(line)
        text = content_text(as_dict(entry.get("message")).get("content"))
        low = text.lower()
        if all(word in low for word in words):
            at = low.index(words[0])
            return " ".join(text[max(0, at - SNIPPET) : at + SNIPPET].split()), entry.get("id")
    return None


def _entry(line: bytes) -> Mapping[str, Any]:
    try:
        return as_dict(decode(line))
    except DecodeError:
        return {}


async def find_text(agent: "AgentSession", text: str) -> list[tuple[str, int]]:
    """Return the entries of the current branch that have a text in them, and how often."""
    wanted = text.strip().lower()
    return await asyncio.to_thread(_find, agent.session.branch(), wanted) if wanted else []


def _find(branch: Sequence[Entry], wanted: str) -> list[tuple[str, int]]:
    # JSON writes these characters as they are, so most lines need not be decoded.
    plain = wanted.encode() if re.fullmatch(r"[ !#-\[\]-~]+", wanted) else b""
    found = []
    for entry in branch:
        if plain in entry.raw.lower():
            count = sum(text.lower().count(wanted) for text in _texts(_entry(entry.raw)))
            if count:
                found.append((entry.id, count))
    return found


def _texts(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield all that an entry has to read."""
    said = as_dict(entry.get("message")) or entry
    if said.get("display") is False:
        return
    yield from _strings([said.get(key) for key in ("command", "output", "summary")])
    if isinstance(content := said.get("content"), str):
        yield content
    for block in map(as_dict, as_list(content)):
        yield from _strings([block.get(key) for key in ("text", "thinking", "arguments")])


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, without the keys."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list | dict):
            stack += one if isinstance(one, list) else one.values()


async def delete_session(agent: "AgentSession") -> bool:
    """Delete the session and begin an empty one. Returns whether an extension prevented it. Raises `AgentError`."""
    if agent.busy:
        raise AgentError("Something is running in this session: stop it first")
    path, store, id = agent.session.path, agent.session.store, agent.session.id
    if await agent.new_session():
        return True
    if store is not None:
        await asyncio.to_thread(removed_from, store, id)
    if path is not None:
        try:
            await asyncio.to_thread(delete, path)
        except OSError as error:
            raise AgentError(f"Cannot delete {path}: {error.strerror}") from None
    return False


async def upload(agent: "AgentSession", name: str, data: str) -> str:
    """Keep a file that a client uploads where the tools of the session find it. Returns its path. Raises `AgentError`.

    It is beside the session file, or in the folder for temporary files where the hands are. In a store it is a small
    record, too.
    """
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise AgentError("The file is not base64") from None
    # Only the last part of the name is used, without characters that may trouble a shell or a file system.
    plain = re.sub(r"[^\w.\- ]+", "_", os.path.basename(name.replace("\\", "/"))).strip(". ") or "file"
    session, far, word = agent.session, agent.resources.far, secrets.token_hex(8)
    beside = (
        session.path.with_suffix(UPLOADS) if session.path is not None and session.is_saved and far is None else None
    )
    path = f"{TEMPORARY}{word}" if beside is None else str(beside / word)
    try:
        if session.store is not None:
            check_upload(len(content))
        place = await agent.resources.workspace.change(put_upload, f"{path}/{plain[-120:]}", content)
        if session.store is not None:
            note_upload(session, await asyncio.to_thread(keep_upload, session, session.store, place, content))
            if (wait := session.unsafe()) is not None:
                await asyncio.to_thread(wait)
    except (ToolError, SessionError, OSError) as error:
        raise AgentError(f"Cannot keep {plain}: {error}") from None
    return place


async def complete_path(agent: "AgentSession", prefix: str) -> list[str]:
    """Return files of the working directory that fit the typed text, the likeliest first. Raises `AgentError`.

    A text that begins like a path (`/`, `~/`, `./`, `../`) is completed in its own folder.
    """
    if prefix.startswith(("/", "~/", "./", "../")):
        return await _beneath(agent, prefix)
    from spindle.tools.base import ToolError
    from spindle.tools.grep import run_ripgrep

    low, found = prefix.lower(), list[str]()
    seen = 0

    def take(line: bytes) -> bool:
        nonlocal seen
        seen += 1
        path = os.fsdecode(line)
        if in_order(low, path.lower()):
            found.append(path)
        return seen < MAX_LISTED

    try:
        await run_ripgrep(
            agent.tool_context(lambda _: None).settings, ["--files", "--color=never"], agent.workdir, take
        )
    except ToolError as error:
        raise AgentError(str(error)) from None
    return sorted(found, key=lambda path: _rank(low, path.lower()))[:MAX_PATHS]


async def _beneath(agent: "AgentSession", typed: str) -> list[str]:
    """Return the files and folders in the typed folder that begin with the typed name."""
    from spindle.tools.files import resolve_path
    from spindle.workspace.disk import names_in

    folder, slash, name = typed.rpartition("/")
    workspace = agent.tool_context(lambda _: None).workspace
    path = resolve_path(folder + slash, agent.workdir, workspace.home)
    return [folder + slash + entry for entry in await workspace.do(names_in, path, name, MAX_PATHS)]


def _rank(typed: str, path: str) -> tuple[int, int, str]:
    name = os.path.basename(path)
    order = 0 if name.startswith(typed) else 1 if typed in name else 2 if typed in path else 3
    return order, len(path), path


async def export_html(agent: "AgentSession", output: str | None = None) -> str:
    """Write the session as a page. Returns the path, as given if one was given. Raises `AgentError`."""
    from spindle.export import ExportError, export_session

    target = Path(agent.cwd, output) if output else None
    try:
        written = await asyncio.to_thread(
            export_session, agent.session, target, system_prompt=agent.system_prompt, tools=agent.toolbox.active_tools()
        )
    except ExportError as error:
        raise AgentError(str(error)) from None
    return output or str(written.absolute())


async def page(agent: "AgentSession") -> str:
    """Return the session as one HTML page. Raises `AgentError`."""
    with tempfile.TemporaryDirectory() as folder:
        path = await export_html(agent, os.path.join(folder, "page.html"))
        return await asyncio.to_thread(Path(path).read_text, "utf-8")
