"""The store that is a directory of session files, as pi has them. The lock of a file is the lease of its session.

Agents write to files through `FileKeeper`, which needs less: this is the same place seen as a store, for programs that
deal with any store.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from spindle.sessions.belongings import SUBAGENTS
from spindle.sessions.entries import Header
from spindle.sessions.file import (
    AppendFile,
    StrPath,
    absolute,
    make_private_dir,
    open_for_reading,
    session_file_name,
)
from spindle.sessions.load import read_header
from spindle.sessions.lock import SessionLock, SessionLocked, is_locked
from spindle.sessions.open import delete
from spindle.sessions.pages import list_page
from spindle.sessions.store import (
    PAGE,
    Card,
    CardPage,
    Conflict,
    Holder,
    Lease,
    LeaseLost,
    SessionHeld,
    SessionStore,
    SmallRecord,
    StoredLines,
    StoreError,
    StoreGone,
)
from spindle.sessions.tally import Tally

NODE = "this machine"


class FileStore:
    def __init__(self, directory: StrPath) -> None:
        self._directory = Path(absolute(directory))
        self._leases: dict[str, tuple[Lease, SessionLock]] = {}
        self._watchers: list[Callable[[str], None]] = []

    @property
    def name(self) -> str:
        return str(self._directory)

    def within(self, space: str) -> SessionStore:
        return FileStore(self._directory / space)

    # -- sessions --------------------------------------------------------------------------------

    def append(self, lease: Lease, lines: Sequence[bytes], expected: int, card: Card) -> None:
        if not self.holds(lease):
            raise LeaseLost(f"Another process may write to {lease.session} now")
        path = self._path(lease.session)
        if (0 if path is None else _count(path)) != expected:
            raise Conflict(f"Session {lease.session} is not at revision {expected}")
        if not lines:
            return
        try:
            if path is None:
                path = self._new_path(lease.session, lines[0], card.of)
                lock = SessionLock(path)  # until now its name was not known
                self._leases[lease.session][1].release()
                self._leases[lease.session] = lease, lock
                file = AppendFile.create(path)
            else:
                file = AppendFile(path, path.stat())
            file.put(b"".join(lines))
            file.flush()
            file.sync()
            file.close()
        except OSError as error:
            raise StoreGone(f"Cannot write {path}: {error.strerror}") from None

    def load(self, session: str, since: int = 0) -> StoredLines | None:
        if (path := self._path(session)) is None:
            return None
        try:
            with open_for_reading(path) as file:
                lines = [line for line in file if line.endswith(b"\n")]
        except OSError as error:
            raise StoreGone(f"Cannot read {path}: {error.strerror}") from None
        return StoredLines(len(lines), lines[since:], _card(path, lines))

    def page(
        self, *, cwd: str | None = None, of: str | None = None, limit: int = PAGE, cursor: str | None = None
    ) -> CardPage:
        directory = self._directory
        if of is not None:
            path = self._path(of)
            if path is None:
                return CardPage([])
            directory = path.with_suffix(SUBAGENTS)
        found = list_page(
            None, directory, limit=limit, cursor=cursor, fits=None if cwd is None else lambda info: info.cwd == cwd
        )
        return CardPage([Card(info, works=info.interrupted, of=of) for info in found.sessions], found.cursor)

    def delete(self, session: str) -> None:
        if (path := self._path(session)) is not None:
            try:
                delete(path)
            except SessionLocked as error:
                raise _held(session, error) from None
            except OSError as error:
                raise StoreGone(f"Cannot delete {path}: {error.strerror}") from None

    # -- leases ----------------------------------------------------------------------------------

    def lease(self, session: str) -> Lease:
        path = self._path(session) or self._directory / session_file_name("", session)
        try:
            make_private_dir(self._directory)
            lock = SessionLock(path)
        except SessionLocked as error:
            raise _held(session, error) from None
        except OSError as error:
            raise StoreGone(f"Cannot lock {path}: {error.strerror}") from None
        lease = Lease(session, f"process {os.getpid()} on {NODE}", time.time_ns())
        self._leases[session] = lease, lock
        return lease

    def release(self, lease: Lease) -> None:
        if self.holds(lease):
            self._leases.pop(lease.session)[1].release()
            self.notify(lease.session)

    def holder(self, session: str) -> Holder | None:
        if session in self._leases:
            return Holder(self._leases[session][0].node)
        path = self._path(session)
        return Holder(NODE) if path is not None and is_locked(path) else None

    def holds(self, lease: Lease) -> bool:
        held = self._leases.get(lease.session)
        return held is not None and held[0] == lease

    def cut_off(self) -> list[str]:
        left = [info.id for info in list_page(None, self._directory).sessions if info.interrupted]
        return [id for id in left if (found := self.load(id)) is not None and found.card.works]  # others wait

    # -- nodes -----------------------------------------------------------------------------------

    @property
    def node(self) -> Holder:
        return Holder(f"process {os.getpid()} on {NODE}")

    @property
    def lease_seconds(self) -> float:
        return 1.0  # a disk that refuses does so at once

    @property
    def is_alive(self) -> bool:
        return True

    def nodes(self) -> list[Holder]:
        return [self.node]  # no file has a list of those who use it

    def seen_as(self) -> str:
        return "127.0.0.1"

    def answers_at(self, address: str, *, is_ours: bool) -> None:
        pass  # the lock of a file names no address

    # -- news ------------------------------------------------------------------------------------

    def notify(self, session: str) -> None:
        for hear in [*self._watchers]:  # other processes look for themselves
            hear(session)

    def watch(self, hear: Callable[[str], None]) -> Callable[[], None]:
        self._watchers.append(hear)
        return lambda: self._watchers.remove(hear)

    def watch_all(self, hear: Callable[[], None]) -> Callable[[], None]:
        return self.watch(lambda session: hear())

    # -- small records ---------------------------------------------------------------------------

    def get(self, kind: str, key: str) -> SmallRecord | None:
        try:
            return _record(self._record_path(kind, key).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreGone(f"Cannot read the record {kind} {key}: {error.strerror}") from None

    def put(self, kind: str, key: str, value: bytes | None, expected: int) -> int:
        path = self._record_path(kind, key)
        try:
            make_private_dir(path.parent)
            with _alone(path.parent):
                found = self.get(kind, key)
                if (0 if found is None else found.revision) != expected:
                    raise Conflict(f"The record {kind} {key} is not at revision {expected}")
                if value is None:
                    path.unlink(missing_ok=True)
                    return 0
                fresh = path.with_name(f"{path.name}.tmp")
                fresh.write_bytes(b"%d\n%b" % (expected + 1, value))
                os.replace(fresh, path)
                return expected + 1
        except OSError as error:
            raise StoreGone(f"Cannot write the record {kind} {key}: {error.strerror}") from None

    def close(self) -> None:
        for lease, _ in [*self._leases.values()]:
            self.release(lease)

    # -- files -----------------------------------------------------------------------------------

    def _path(self, session: str) -> Path | None:
        """Return the file of a session, or of a subagent's session."""
        for pattern in ("", f"*{SUBAGENTS}/"):
            for path in self._directory.glob(f"{pattern}*{session}.jsonl"):
                with suppress(OSError), open_for_reading(path) as file:
                    if (header := read_header(file)) is not None and header.id == session:
                        return path
        return None

    def _new_path(self, session: str, header: bytes, of: str | None) -> Path:
        folder = self._directory
        if of is not None:
            parent = self._path(of)
            if parent is None:
                raise StoreError(f"There is no session {of}")
            folder = parent.with_suffix(SUBAGENTS)
            make_private_dir(folder)
        return folder / session_file_name(Header(header).timestamp, session)

    def _record_path(self, kind: str, key: str) -> Path:
        return self._directory / "records" / quote(kind, safe="") / quote(key, safe="")


def _count(path: Path) -> int:
    with open_for_reading(path) as file:
        return sum(line.endswith(b"\n") for line in file)


def _card(path: Path, lines: Sequence[bytes]) -> Card:
    tally = Tally()
    for line in lines[1:]:
        tally.add(line)
    return Card(tally.info(str(path), Header(lines[0]), int(path.stat().st_mtime * 1000)), works=tally.works)


def _record(data: bytes) -> SmallRecord:
    revision, _, value = data.partition(b"\n")
    return SmallRecord(value, int(revision))


def _held(session: str, error: SessionLocked) -> SessionHeld:
    return SessionHeld(session, Holder(f"process {error.pid} on {error.host}"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes and threads out while a record changes."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
