"""Ways to a `Session`: begin one, load one, go on from another. Each returns a new object and changes no other.

A new session has no file until its first message; if it is closed before that, no file is made.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from spindle.sessions.belongings import SUBAGENTS, belongings, remove_beside
from spindle.sessions.entries import Header, SessionError, SessionNotFound, new_header
from spindle.sessions.file import StrPath, absolute, session_dir_for
from spindle.sessions.keeper import is_worth_keeping
from spindle.sessions.load import Loaded, load_session, parse_tail
from spindle.sessions.lock import SessionLock, try_lock
from spindle.sessions.session import Saving, Session
from spindle.sessions.tree import Tree, branched_entries

if TYPE_CHECKING:  # loaded only if sessions are in a store
    from spindle.sessions.store import SessionStore

__all__ = [
    "begun_in",
    "branched",
    "copied_in",
    "create",
    "following",
    "forked_from",
    "in_memory",
    "load",
    "loaded_after",
    "loaded_from",
    "of_subagent",
    "recent",
    "removed_from",
    "subagents_of",
]

MAX_ID = 200
_SESSION_ID = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def wanted_directory(given: str | None, setting: str | None) -> str | None:
    """Return the user's directory for sessions: `given`, else from the environment, else `setting`.

    None: that of the project.
    """
    return given or os.environ.get("PI_CODING_AGENT_SESSION_DIR") or setting or None


def create(
    cwd: StrPath,
    session_dir: StrPath | None = None,
    *,
    id: str | None = None,
    parent_session: StrPath | None = None,
    **saving: Unpack[Saving],
) -> Session:
    """Begin a session of the project in `cwd`; the first message creates its file. Raises `SessionError`."""
    return Session(_empty(absolute(cwd), id, parent_session), absolute(cwd), _directory(cwd, session_dir), **saving)


def in_memory(cwd: StrPath | None = None) -> Session:
    """Begin a session that is never written anywhere."""
    place = absolute(cwd or os.getcwd())
    return Session(_empty(place), place)


def load(
    path: StrPath,
    session_dir: StrPath | None = None,
    cwd: StrPath | None = None,
    *,
    read_only: bool = False,
    **saving: Unpack[Saving],
) -> Session:
    """Open a session file; a missing one is a new session at exactly that place.

    The session works in `cwd`, by default in the directory that the file names. Raises `SessionLocked` if another
    `Session` or process writes to the file, `InvalidSession` if it is no session (the file is not touched),
    `SessionError` if it cannot be read.
    """
    file = Path(absolute(path))
    place = absolute(cwd or os.getcwd())
    siblings = Path(absolute(session_dir)) if session_dir else file.parent
    loaded, lock = _read(file, read_only)
    tree = (loaded and loaded.tree) or _empty(place)
    if cwd is None:
        place = tree.header.cwd or place
    return Session(tree, place, siblings, file, loaded=loaded, lock=lock, read_only=read_only, **saving)


def begun_in(
    store: "SessionStore",
    cwd: StrPath,
    *,
    id: str | None = None,
    parent_session: StrPath | None = None,
    of: str | None = None,
    **saving: Unpack[Saving],
) -> Session:
    """Begin a session of a store, where its first message puts it; of a session with an `id` the lease is taken now.

    `of`: the session that it works for. Raises `SessionError`, `SessionHeld`.
    """
    from spindle.sessions.store_keeper import StoreKeeper

    tree = _empty(absolute(cwd), id, parent_session)
    session = Session(tree, absolute(cwd), store=store, keeper=StoreKeeper(tree, store, of=of), **saving)
    if id is not None:
        session.claim()
    return session


def loaded_from(
    store: "SessionStore", id: str, cwd: StrPath | None = None, *, read_only: bool = False, **saving: Unpack[Saving]
) -> Session:
    """Open a session of a store. It works in `cwd`, by default in the directory that its header names.

    Raises `SessionNotFound`, `SessionHeld`, `StoreError`.
    """
    from spindle.sessions.store import SessionHeld
    from spindle.sessions.store_keeper import QUEUE, StoreKeeper, take_lease

    lease = None
    if not read_only:
        if store.load(id, sys.maxsize >> 32) is None:  # else the lease would make it
            if (holder := store.holder(id)) is not None:
                raise SessionHeld(id, holder)  # it has no line yet
            raise SessionNotFound(f"No session {id} in {store.name}")
        lease = take_lease(store, id)
    try:
        found = store.load(id)
        if found is None:
            raise SessionNotFound(f"No session {id} in {store.name}")
        parsed = parse_tail(found.lines[1:])
        tree = Tree(Header(found.lines[0]), parsed.entries)
        place = absolute(cwd) if cwd is not None else tree.header.cwd
        keeper = None
        if lease is not None:
            keeper = StoreKeeper(tree, store, lease=lease, found=found, queue=store.get(QUEUE, id))
        return Session(tree, place, store=store, keeper=keeper, read_only=read_only, **saving)
    except BaseException:
        if lease is not None:
            store.release(lease)
        raise


def copied_in(store: "SessionStore", id: str, cwd: StrPath | None = None, **saving: Unpack[Saving]) -> Session:
    """Copy a session of a store, which may be in use, into a new one. Raises as `loaded_from` does."""
    from spindle.sessions.store_keeper import StoreKeeper

    origin = loaded_from(store, id, cwd, read_only=True)
    tree = Tree(new_header(origin.cwd, parent_session=id), origin.entries)
    session = Session(tree, origin.cwd, store=store, keeper=StoreKeeper(tree, store), **saving)
    session.save()
    return session


def removed_from(store: "SessionStore", id: str) -> None:
    """Remove a session of a store with all that belongs to it. Raises `SessionHeld`, `StoreError`."""
    from spindle.sessions.store_keeper import QUEUE, let_go
    from spindle.sessions.uploads import remove_uploads

    let_go(store, id)
    found = store.load(id)
    store.delete(id)
    if found is not None:
        remove_uploads(store, id, parse_tail(found.lines[1:]).entries)
    if (record := store.get(QUEUE, id)) is not None:
        store.put(QUEUE, id, None, record.revision)


def recent(cwd: StrPath, session_dir: StrPath | None = None, **saving: Unpack[Saving]) -> Session:
    """Load the project's session that was written to last, or begin one. Raises as `load` does."""
    from spindle.sessions.index import most_recent_session

    path = most_recent_session(cwd, session_dir)
    return create(cwd, session_dir, **saving) if path is None else load(path, session_dir, cwd, **saving)


def forked_from(
    source: StrPath, target_cwd: StrPath, session_dir: StrPath | None = None, **saving: Unpack[Saving]
) -> Session:
    """Copy a session file with all its branches into a project. The source may be in use. Raises `SessionError`."""
    origin = Path(absolute(source))
    try:
        tree = load_session(origin).tree
    except (FileNotFoundError, SessionError):
        tree = None
    if tree is None:
        raise SessionError(f"Cannot fork: source session file is empty or invalid: {origin}")
    place = absolute(target_cwd)
    copy = Tree(new_header(place, parent_session=str(origin)), tree.entries)
    session = Session(copy, place, _directory(place, session_dir), **saving)
    session.save()
    return session


def following(session: Session, *, id: str | None = None, parent: StrPath | None = None) -> Session:
    """Begin an empty session in the same directory, saved as `session` is. Raises `SessionError` for a bad id."""
    return session.beside(_empty(session.cwd, id, parent))


def of_subagent(session: Session, **saving: Unpack[Saving]) -> Session:
    """Begin the session of a subagent; its file will be in a folder beside that of `session`, out of all lists."""
    if session.store is not None:
        return begun_in(session.store, session.cwd, parent_session=session.id, of=session.id, **saving)
    if session.path is None:
        return in_memory(session.cwd)
    return create(session.cwd, session.path.with_suffix(SUBAGENTS), parent_session=session.path, **saving)


def subagents_of(session: Session) -> Iterator[Session]:
    """Load the sessions of its subagents to be read only; files that cannot be read are passed over."""
    if session.store is not None:
        for card in session.store.page(of=session.id).cards:
            with suppress(SessionError):
                yield loaded_from(session.store, card.info.id, read_only=True)
        return
    files = [] if session.path is None else sorted(session.path.with_suffix(SUBAGENTS).glob("*.jsonl"))
    for file in files:
        with suppress(SessionError, OSError):
            yield load(file, read_only=True)


def branched(session: Session, leaf_id: str) -> Session:
    """Copy the branch that ends in `leaf_id` into a new session in the same directory. Raises `EntryNotFound`.

    If the branch has a message, the file is made at once.
    """
    session.tree.require(leaf_id)
    parent = session.name_for_others
    entries = branched_entries(session.tree, leaf_id)
    other = session.beside(Tree(new_header(session.cwd, parent_session=parent), entries))
    if any(is_worth_keeping(entry) for entry in entries):
        other.save()
    return other


def loaded_after(session: Session, path: StrPath) -> Session:
    """Load a file as `load` does, with the directories and saving of `session`, which may be in memory only.

    Of a session of a store, `path` is the id of another one there.
    """
    if session.store is not None:
        return loaded_from(session.store, os.fspath(path))
    file = Path(absolute(path))
    loaded, lock = _read(file, session.read_only)
    return session.beside((loaded and loaded.tree) or _empty(session.cwd), file, loaded, lock)


def delete(path: StrPath) -> None:
    """Remove a session file, and all that belongs to the session.

    Raises `SessionLocked` if a process writes to it.
    """
    from spindle.sessions.catalog import forget  # sessions are rarely deleted

    file = Path(absolute(path))
    lock = try_lock(file)
    try:
        named = belongings(file)
        file.unlink(missing_ok=True)
        remove_beside(file)
        named.remove()
        forget([str(file)])
    finally:
        if lock is not None:
            lock.release()


def _read(file: Path, read_only: bool) -> tuple[Loaded | None, SessionLock | None]:
    """Return the content of a file and the lock on it; None for both if there is no file. Raises as `load` does."""
    lock = try_lock(file) if not read_only and os.path.isfile(file) else None
    try:
        return load_session(file), lock
    except FileNotFoundError:
        if read_only:
            raise SessionError(f"Session file not found: {file}") from None
        return None, None
    except SessionError:
        if lock is not None:
            lock.release()
        raise


def _empty(cwd: str, session_id: str | None = None, parent: StrPath | None = None) -> Tree:
    if session_id is not None and not re.fullmatch(_SESSION_ID, session_id):
        raise SessionError(
            "Session id must be non-empty, contain only alphanumeric characters, '-', '_', and '.', "
            "and start and end with an alphanumeric character"
        )
    if session_id is not None and len(session_id) > MAX_ID:
        raise SessionError(f"Session id must have at most {MAX_ID} characters: a file is named after it")
    parent_path = os.fspath(parent) if parent is not None else None
    return Tree(new_header(cwd, session_id=session_id, parent_session=parent_path))


def _directory(cwd: StrPath, session_dir: StrPath | None) -> Path:
    return Path(absolute(session_dir)) if session_dir else session_dir_for(cwd)
