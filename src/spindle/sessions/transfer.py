"""Sessions from files into a store, and out of it: every line keeps its bytes, and subagents go along."""

from collections.abc import Iterator
from pathlib import Path

from spindle.sessions.belongings import SUBAGENTS
from spindle.sessions.entries import Header, SessionError, SessionNotFound
from spindle.sessions.file import make_private_dir, session_dir_for, session_file_name, write_new_file
from spindle.sessions.load import load_session, read_header
from spindle.sessions.store import Card, SessionStore, StoreError
from spindle.sessions.tally import Tally

MOST_LINES = 2000
"""Lines that are written at once."""


def put_file(store: SessionStore, path: Path, of: str | None = None) -> str:
    """Copy a session file into a store, under its own id. Returns the id. Raises `SessionError` if it is there."""
    try:
        tree = load_session(path).tree
    except OSError as error:
        raise SessionError(f"Cannot read {path}: {error.strerror}") from None
    if tree is None:
        raise SessionError(f"The file is empty: {path}")
    id = str(tree.header.id)
    lease = store.lease(id)
    try:
        if store.load(id) is not None:
            raise StoreError(f"Session {id} is in {store.name} already")
        tally, lines = Tally(), [tree.header.ended, *(entry.ended for entry in tree.entries)]
        for at in range(0, len(lines), MOST_LINES):
            part = lines[at : at + MOST_LINES]
            for line in part[at == 0 :]:
                tally.add(line)
            written = int(path.stat().st_mtime * 1000)
            store.append(lease, part, at, Card(tally.info(id, tree.header, written), works=tally.works, of=of))
    finally:
        store.release(lease)
    for other in sorted(path.with_suffix(SUBAGENTS).glob("*.jsonl")):
        put_file(store, other, of=id)
    return id


def put_among_files(path: Path, session_dir: str | None = None) -> Path:
    """Copy a session file to where those of its project are, and return the copy; it keeps its id.

    A file that is there, or was copied before, is left as it is. Raises `SessionError`.
    """
    try:
        with path.open("rb") as file:
            header = read_header(file)
            file.seek(0)
            data = file.read()
    except OSError as error:
        raise SessionError(f"Cannot read {path}: {error.strerror}") from None
    if header is None:
        raise SessionError(f"Not a session: {path}")
    copy = Path(session_dir or session_dir_for(header.cwd)) / path.name
    if path.resolve().is_relative_to(copy.parent.resolve()):
        return path
    try:
        make_private_dir(copy.parent)
        write_new_file(copy, data)
    except FileExistsError:
        with copy.open("rb") as file:
            there = read_header(file)
        if there is None or there.id != header.id:
            raise SessionError(f"Another session has the name {copy}: give the file another one") from None
    except OSError as error:
        raise SessionError(f"Cannot write {copy}: {error.strerror}") from None
    for other in sorted(path.with_suffix(SUBAGENTS).glob("*.jsonl")):
        put_among_files(other, str(copy.with_suffix(SUBAGENTS)))
    return copy


def put_into_files(store: SessionStore, id: str, folder: Path) -> Path:
    """Copy a session with all its branches from a store into a file in a folder. Raises `SessionError`."""
    found = store.load(id)
    if found is None:
        raise SessionError(f"No session {id} in {store.name}")
    make_private_dir(folder)
    header = Header(found.lines[0])
    path = folder / session_file_name(header.timestamp, id)
    try:
        write_new_file(path, b"".join(found.lines))
    except OSError as error:
        raise SessionError(f"Cannot write {path}: {error.strerror}") from None
    for card in store.page(of=id).cards:
        put_into_files(store, card.info.id, path.with_suffix(SUBAGENTS))
    return path


def every_id(store: SessionStore) -> Iterator[str]:
    """Yield the ids of all sessions in a store."""
    cursor = None
    while True:
        page = store.page(cursor=cursor)
        yield from (card.info.id for card in page.cards)
        cursor = page.cursor
        if cursor is None:
            return


def named_in(store: SessionStore, start: str) -> str:
    """Return the id of the session in a store whose id is `start`, or begins with it. Raises `SessionError`."""
    if store.load(start) is not None:
        return start
    found = [id for id in every_id(store) if id.startswith(start)]
    if not found:
        raise SessionNotFound(f"No session found matching '{start}' in {store.name}")
    if len(found) > 1:
        raise SessionNotFound(f"Several sessions match '{start}':\n" + "\n".join(f"  {id}" for id in found))
    return found[0]
