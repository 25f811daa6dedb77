"""Lists of sessions, the latest first, whole or page by page.

A page reads no more files than it must: what was read before is in the catalog, and a session cannot be later than the
last change of its file, so older files wait until a page comes to them. (A file whose time was set back by hand may
come a page too late.)
"""

import heapq
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from spindle.sessions import catalog
from spindle.sessions.catalog import Row, Stamp, stamp_of
from spindle.sessions.entries import SessionError
from spindle.sessions.file import StrPath, absolute
from spindle.sessions.index import Progress, decode_info, folders_of_all, place_of, read_row
from spindle.sessions.tally import SessionInfo

if TYPE_CHECKING:  # loaded only if sessions are in a store
    from spindle.sessions.store import SessionStore

_NS = 1_000_000


class BadCursor(SessionError):
    """There is no such page."""


class Page(msgspec.Struct, frozen=True):
    """Some sessions of a list."""

    sessions: list[SessionInfo]
    cursor: str | None = None
    """Names the place where the next page begins; None: there is none."""
    as_of: int = 0
    """The time of the latest change; `changed_since` takes it."""


def list_page(
    cwd: StrPath | None,
    session_dir: StrPath | None = None,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    changed_since: int | None = None,
    fits: Callable[[SessionInfo], bool] | None = None,
    on_progress: Progress | None = None,
) -> Page:
    """Return a page of the sessions of a project, or with `cwd` None of all projects (or all in `session_dir`).

    `cursor` is that of the page before. `changed_since`: only sessions whose file has changed since that `as_of`; the
    one that changed last is always among them. Sessions that do not `fits` are left out. Raises `SessionError` for a
    bad cursor or limit.
    """
    if limit is not None and limit < 1:
        raise SessionError("limit must be at least 1")
    after = read_cursor(cursor)
    if cwd is None:
        folders, only_cwd = folders_of_all(session_dir), None
    else:
        directory, only_cwd = place_of(cwd, session_dir)
        folders = [directory]
    listing = _Listing(folders, only_cwd, on_progress)
    listing.leave_out(changed_since)
    try:
        if limit is None:
            listing.read_all()
        found = (info for info in listing.latest_first(after) if fits is None or fits(info))
        sessions = list(islice(found, None if limit is None else min(limit, sys.maxsize)))
        more = limit is not None and len(sessions) == limit and next(found, None) is not None
    finally:
        listing.save()
    last = sessions[-1] if more else None
    return Page(sessions, None if last is None else f"{last.modified}.{last.id}", listing.as_of)


def page_of_store(
    store: "SessionStore",
    cwd: StrPath | None,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    changed_since: int | None = None,
    fits: Callable[[SessionInfo], bool] | None = None,
) -> Page:
    """Return a page of the sessions in a store, as `list_page` does of files."""
    if limit is not None and limit < 1:
        raise SessionError("limit must be at least 1")
    place, found, as_of = None if cwd is None else absolute(cwd), list[SessionInfo](), 0
    while True:
        page = store.page(cwd=place, cursor=cursor)
        for info in (card.info for card in page.cards):
            as_of = max(as_of, info.modified)
            if (changed_since is None or info.modified >= changed_since) and (fits is None or fits(info)):
                found.append(info)
                if limit is not None and len(found) > limit:
                    last = found[limit - 1]
                    return Page(found[:limit], f"{last.modified}.{last.id}", as_of)
        cursor = page.cursor
        if cursor is None:
            return Page(found, None, as_of)


def read_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    time, dot, id = cursor.partition(".")
    if not dot or len(time) > 20 or not time.lstrip("-").isdecimal():
        raise BadCursor(f"There is no page at cursor {cursor!r}: give the cursor that came with the page before")
    return int(time), id


class _Listing:
    """The session files of some folders, with what is known of them."""

    def __init__(self, folders: Sequence[Path], only_cwd: str | None, on_progress: Progress | None) -> None:
        self._only_cwd = only_cwd
        self._on_progress = on_progress
        self._files = {path: stamp for folder in folders for path, stamp in _scan(folder)}
        self._total, self._done = len(self._files), 0
        self.as_of = max((stamp[1] // _NS for stamp in self._files.values()), default=0)
        recalled = catalog.recall(map(str, folders)) if self._files else {}
        self._gone = [path for path in recalled if path not in self._files]
        self._rows = {path: row for path, row in recalled.items() if self._files.get(path) == row.stamp}
        self._new: dict[str, Row] = {}

    def leave_out(self, changed_since: int | None) -> None:
        """Leave out the files that have not changed since then."""
        if changed_since is not None:
            self._files = {path: stamp for path, stamp in self._files.items() if stamp[1] // _NS >= changed_since}

    def read_all(self) -> None:
        """Read every file of which too little is known."""
        for path in self._files:
            if self._known(path) is None:
                self._read(path)

    def latest_first(self, after: tuple[int, str] | None) -> Iterator[SessionInfo]:
        """Yield the sessions that come after the one with this time and id."""
        start = None if after is None else (-after[0], after[1])
        # The least comes first, so times are negative. A file that was not read stands where its own time puts it;
        # when its turn comes it is read, and stands where its last message puts it.
        heap: list[tuple[int, str, str]] = []
        for path, stamp in self._files.items():
            if (row := self._known(path)) is not None:
                heap.append((-row.modified, row.id, path))
                self._tell()
            else:
                heap.append((-(stamp[1] // _NS) - 1, "", path))
        heapq.heapify(heap)
        while heap:
            time, id, path = heapq.heappop(heap)
            if (row := self._known(path)) is None:
                row = self._read(path)
                self._tell()
                heapq.heappush(heap, (-row.modified, row.id, path))
            elif row.facts is not None and self._is_wanted(row) and (start is None or (time, id) > start):
                yield decode_info(row.facts)

    def save(self) -> None:
        if self._new or self._gone:
            catalog.remember(self._new, self._gone)

    def _known(self, path: str) -> Row | None:
        """Return what is known of a file; None if that is too little."""
        row = self._rows.get(path)
        return row if row is not None and (row.facts is not None or not self._is_wanted(row)) else None

    def _is_wanted(self, row: Row) -> bool:
        return row.cwd is not None and (self._only_cwd is None or _full(row.cwd) == self._only_cwd)

    def _read(self, path: str) -> Row:
        row = self._rows[path] = self._new[path] = read_row(Path(path), self._only_cwd)
        return row

    def _tell(self) -> None:
        self._done += 1
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)


@cache
def _full(cwd: str) -> str:
    return absolute(cwd) if cwd else ""


def _scan(folder: Path) -> Iterable[tuple[str, Stamp]]:
    """Return the session files of a folder."""
    found = []
    try:
        with os.scandir(folder) as items:
            for item in items:
                if item.name.endswith(".jsonl"):
                    with suppress(OSError):  # a link that leads nowhere
                        status = item.stat()
                        if stat.S_ISREG(status.st_mode):
                            found.append((item.path, stamp_of(status)))
    except OSError:
        pass
    return found
