"""The store that is a database of PostgreSQL: the extra `postgres`.

What PostgreSQL guarantees is what we promise. One statement adds to a session, and decides between two writers; times
are those of the database, never ours. A node is a row that is renewed all the time; the leases of a node end with it.
"""

import os
import re
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from spindle.base.installation import extra_command
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
    read_card,
)
from spindle.shapes.codec import encode

if TYPE_CHECKING:
    from psycopg import Connection

LEASE_SECONDS = 6.0
"""How long a node that does not renew its row keeps its leases; `SPINDLE_LEASE_SECONDS` changes it."""
RENEWALS = 4
"""How often a row is renewed in that time."""
MARGIN = 1 / 6
"""Part of a lease at its end that counts as doubtful: what is begun then may be done twice."""
CONNECTIONS = 8
"""Of one process, besides that which watches."""
CONNECT_SECONDS, STATEMENT_SECONDS = 4, 8
SILENT_SECONDS = STATEMENT_SECONDS + 1.0
"""After this a database that says nothing is taken for gone."""
CHANNEL = "spindle"
LOCK = 0x5350494E
"""The advisory lock under which the schema is made and migrated."""

SCHEMA = (
    """
    CREATE TABLE spindle_nodes (
        name text PRIMARY KEY, address text, until timestamptz NOT NULL
    );
    CREATE TABLE spindle_sessions (
        space text, id text, revision integer NOT NULL DEFAULT 0, lease bigint NOT NULL DEFAULT 1, node text,
        cwd text, modified bigint, works boolean NOT NULL DEFAULT false, "of" text, card bytea,
        PRIMARY KEY (space, id)
    ) WITH (fillfactor = 70);
    CREATE INDEX spindle_listed ON spindle_sessions (space, modified DESC, id) WHERE "of" IS NULL AND revision > 0;
    CREATE INDEX spindle_works ON spindle_sessions (node) WHERE works;
    CREATE INDEX spindle_of ON spindle_sessions (space, "of") WHERE "of" IS NOT NULL;
    CREATE TABLE spindle_lines (
        space text, session text, revision integer, line bytea NOT NULL,
        PRIMARY KEY (space, session, revision),
        FOREIGN KEY (space, session) REFERENCES spindle_sessions (space, id) ON DELETE CASCADE
    );
    CREATE TABLE spindle_records (
        space text, kind text, key text, revision bigint NOT NULL, value bytea NOT NULL,
        PRIMARY KEY (space, kind, key)
    );
    """,
)
"""What each version of the schema adds to the one before it."""

ALIVE = "EXISTS (SELECT 1 FROM spindle_nodes n WHERE n.name = s.node AND n.until > clock_timestamp())"
APPEND = """
    WITH own AS (
        UPDATE spindle_sessions SET revision = revision + %(count)s, card = %(card)s, modified = %(modified)s,
            cwd = %(cwd)s, works = %(works)s, "of" = %(of)s
        WHERE space = %(space)s AND id = %(id)s AND revision = %(expected)s AND lease = %(lease)s AND node = %(node)s
        RETURNING 1
    ), added AS (
        INSERT INTO spindle_lines (space, session, revision, line)
        SELECT %(space)s, %(id)s, %(expected)s + number, line
        FROM own, unnest(%(lines)s::bytea[]) WITH ORDINALITY AS t (line, number)
    ) SELECT count(*) FROM own
"""
LEASE = f"""
    INSERT INTO spindle_sessions AS s (space, id, node) VALUES (%(space)s, %(id)s, %(node)s)
    ON CONFLICT (space, id) DO UPDATE SET node = excluded.node, lease = s.lease + 1 WHERE s.node IS NULL OR NOT {ALIVE}
        OR (s.node = %(node)s AND %(unknown)s)
    RETURNING s.lease
"""
RENEW = """
    WITH before AS (SELECT until > clock_timestamp() AS lives FROM spindle_nodes WHERE name = %(name)s)
    INSERT INTO spindle_nodes VALUES (%(name)s, %(address)s, clock_timestamp() + %(seconds)s * interval '1 second')
    ON CONFLICT (name) DO UPDATE SET until = excluded.until, address = excluded.address
    RETURNING (SELECT lives FROM before)
"""


class PostgresStore:
    def __init__(self, address: str, space: str = "", core: "_Core | None" = None) -> None:
        """Connect, and make or migrate the schema. Raises `StoreError`."""
        self._core = core or _Core(address)
        self._space = space
        self.name = self._core.name

    def within(self, space: str) -> SessionStore:
        return PostgresStore("", space, self._core)

    # -- sessions --------------------------------------------------------------------------------

    def append(self, lease: Lease, lines: Sequence[bytes], expected: int, card: Card) -> None:
        info = card.info
        given = {
            "space": self._space,
            "id": lease.session,
            "lease": lease.number,
            "node": lease.node,
            "expected": expected,
            "count": len(lines),
            "lines": [*lines],
            "card": encode(card),
            "modified": info.modified,
            "cwd": _text(info.cwd),
            "works": card.works,
            "of": card.of,
        }
        if self._one(APPEND, given) != (1,):
            self._why_not(lease, expected)

    def _why_not(self, lease: Lease, expected: int) -> None:
        """Raise what has kept an append from being made."""
        found = self._one(
            "SELECT lease, node, revision FROM spindle_sessions WHERE space = %s AND id = %s",
            (self._space, lease.session),
        )
        if found is None:
            raise LeaseLost(f"Session {lease.session} was deleted")
        if found[:2] != (lease.number, lease.node):
            raise LeaseLost(f"Session {lease.session} goes on at {found[1] or 'another node'}")
        raise Conflict(f"Session {lease.session} is at revision {found[2]}, not {expected}")

    def load(self, session: str, since: int = 0) -> StoredLines | None:
        with self._core.connection() as connection:
            found = connection.execute(
                "SELECT revision, card FROM spindle_sessions WHERE space = %s AND id = %s AND revision > 0",
                (self._space, session),
            ).fetchone()
            if found is None:
                return None
            rows = connection.execute(
                "SELECT line FROM spindle_lines WHERE space = %s AND session = %s AND revision > %s AND revision <= %s"
                " ORDER BY revision",
                (self._space, session, since, found[0]),
                binary=True,
            ).fetchall()
        return StoredLines(found[0], [bytes(row[0]) for row in rows], read_card(bytes(found[1])))

    def page(
        self, *, cwd: str | None = None, of: str | None = None, limit: int = PAGE, cursor: str | None = None
    ) -> CardPage:
        from spindle.sessions.pages import read_cursor

        after, query = read_cursor(cursor), f"SELECT card, {ALIVE} FROM spindle_sessions s WHERE space = %s"
        given: list[Any] = [self._space]
        query += ' AND revision > 0 AND "of" ' + ("IS NULL" if of is None else "= %s")
        given += [] if of is None else [of]
        if cwd is not None:
            query, given = f"{query} AND cwd = %s", [*given, _text(cwd)]
        if after is not None:
            query += " AND (modified < %s OR (modified = %s AND id > %s))"
            given += [after[0], after[0], after[1]]
        query += " ORDER BY modified DESC, id LIMIT %s"
        rows = self._all(query, [*given, limit + 1])
        cards = [_card(bytes(card), alive) for card, alive in rows[:limit]]
        last = cards[-1].info if len(rows) > limit else None
        return CardPage(cards, None if last is None else f"{last.modified}.{last.id}")

    def delete(self, session: str) -> None:
        gone = self._one(
            f"""WITH gone AS (
                DELETE FROM spindle_sessions s WHERE space = %(space)s AND (id = %(id)s OR "of" = %(id)s)
                AND NOT EXISTS (SELECT 1 FROM spindle_sessions s WHERE space = %(space)s AND id = %(id)s AND {ALIVE})
                RETURNING 1
            ) SELECT count(*) FROM gone""",
            {"space": self._space, "id": session},
        )
        if gone == (0,) and (holder := self.holder(session)) is not None:
            raise SessionHeld(session, holder)
        self.notify(session)

    # -- leases ----------------------------------------------------------------------------------

    def lease(self, session: str) -> Lease:
        node, key = self._core.alive(), (self._space, session)
        self._core.leaked.discard(key)
        given = {"space": self._space, "id": session, "node": node, "unknown": key not in self._core.leases}
        try:
            found = self._one(LEASE, given)
        except StoreGone:
            self._core.leaked.add(key)  # it may have been given to us all the same
            raise
        if found is None:
            raise SessionHeld(session, self.holder(session) or Holder("another node"))
        self._core.leases[key] = found[0]
        return Lease(session, node, found[0])

    def release(self, lease: Lease) -> None:
        own = (self._space, lease.session, lease.number, lease.node)
        key = (self._space, lease.session)
        if self._core.leases.get(key) == lease.number:
            del self._core.leases[key]
        where = "WHERE space = %s AND id = %s AND lease = %s AND node = %s"
        try:
            with self._core.connection() as connection:
                if connection.execute(f"DELETE FROM spindle_sessions {where} AND revision = 0", own).rowcount == 0:
                    connection.execute(f"UPDATE spindle_sessions SET node = NULL {where}", own)
        except StoreGone:
            self._core.leaked.add(key)
            raise
        self.notify(lease.session)

    def holder(self, session: str) -> Holder | None:
        found = self._one(
            "SELECT n.name, n.address FROM spindle_sessions s JOIN spindle_nodes n ON n.name = s.node"
            " WHERE s.space = %s AND s.id = %s AND n.until > clock_timestamp()",
            (self._space, session),
        )
        return None if found is None else Holder(*found)

    def holds(self, lease: Lease) -> bool:
        held = self._core.leases.get((self._space, lease.session))
        return held == lease.number and time.monotonic() < self._core.sure_until

    def cut_off(self) -> list[str]:
        rows = self._all(
            f'SELECT id FROM spindle_sessions s WHERE space = %s AND works AND "of" IS NULL AND NOT {ALIVE}',
            (self._space,),
        )
        return [id for (id,) in rows]

    # -- nodes -----------------------------------------------------------------------------------

    @property
    def node(self) -> Holder:
        return self._core.node

    @property
    def lease_seconds(self) -> float:
        return self._core.lease_seconds

    @property
    def is_alive(self) -> bool:
        self._core.alive()
        return time.monotonic() < self._core.sure_until

    def nodes(self) -> list[Holder]:
        rows = self._all("SELECT name, address FROM spindle_nodes WHERE until > clock_timestamp() ORDER BY name", ())
        return [Holder(*row) for row in rows]

    def seen_as(self) -> str:
        (host,) = self._one("SELECT host(inet_client_addr())", ())
        return str(host or "127.0.0.1")

    def answers_at(self, address: str, *, is_ours: bool) -> None:
        self._core.node = Holder(self._core.node.node, address)
        self._core.alive()
        self._core.renew()
        if is_ours:
            self._one("DELETE FROM spindle_nodes WHERE address = %s AND name <> %s RETURNING 1", self._core.own())

    # -- news ------------------------------------------------------------------------------------

    def notify(self, session: str) -> None:
        self._one("SELECT pg_notify(%s, %s)", (CHANNEL, f"{self._space}/{session}"))

    def watch(self, hear: Callable[[str], None]) -> Callable[[], None]:
        def own(told: str) -> None:
            space, _, session = told.rpartition("/")
            if space == self._space:
                hear(session)

        self._core.watch(own)
        return lambda: self._core.watchers.remove(own)

    def watch_all(self, hear: Callable[[], None]) -> Callable[[], None]:
        def any_of(told: str) -> None:
            hear()

        self._core.watch(any_of)
        return lambda: self._core.watchers.remove(any_of)

    # -- small records ---------------------------------------------------------------------------

    def get(self, kind: str, key: str) -> SmallRecord | None:
        found = self._one(
            "SELECT value, revision FROM spindle_records WHERE space = %s AND kind = %s AND key = %s",
            (self._space, kind, key),
        )
        return None if found is None else SmallRecord(bytes(found[0]), found[1])

    def put(self, kind: str, key: str, value: bytes | None, expected: int) -> int:
        given = {"space": self._space, "kind": kind, "key": key, "value": value, "expected": expected}
        where = "space = %(space)s AND kind = %(kind)s AND key = %(key)s AND revision = %(expected)s"
        if value is None:
            query = f"DELETE FROM spindle_records WHERE {where} RETURNING 0"
        elif expected:
            query = f"UPDATE spindle_records SET value = %(value)s, revision = revision + 1 WHERE {where}"
            query += " RETURNING revision"
        else:
            query = "INSERT INTO spindle_records VALUES (%(space)s, %(kind)s, %(key)s, 1, %(value)s)"
            query += " ON CONFLICT DO NOTHING RETURNING revision"
        found = self._one(query, given)
        if found is None and (value is not None or expected):
            raise Conflict(f"The record {kind} {key} is not at revision {expected}")
        return 0 if found is None else int(found[0])

    def close(self) -> None:
        self._core.close()

    def _one(self, query: str, given: Any) -> Any:
        return next(iter(self._all(query, given)), None)

    def _all(self, query: str, given: Any) -> list[Any]:
        with self._core.connection() as connection:
            rows: list[Any] = connection.execute(query, given).fetchall()
            return rows


class _Core:
    """What the spaces of a store share: connections, and the node."""

    def __init__(self, address: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(f"PostgreSQL needs psycopg ({error}): {extra_command('postgres')}") from None
        self._psycopg: Any = psycopg
        self.address = address
        self.name = _without_password(address)
        self.node = Holder(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
        self.lease_seconds = _lease_seconds()
        self.sure_until = 0.0
        """By our monotonic clock: until then no other node can take our leases."""
        self.leases: dict[tuple[str, str], int] = {}
        """The leases that this process knows to have: their numbers, by space and session."""
        self.leaked: set[tuple[str, str]] = set()
        """Sessions that may be leased to us though we do not use them: the answer of the database was lost."""
        self.watchers: list[Callable[[str], None]] = []
        self._free: list[Connection] = []
        self._lent: dict[Connection, float] = {}
        """Connections that are used, and since when by our monotonic clock."""
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self._lock = threading.Lock()
        self._renewing: threading.Thread | None = None
        self._watching: threading.Thread | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._hang_up, name="spindle-deadline", daemon=True).start()
        try:
            with self.connection() as connection:
                self._prepare(connection)
        except StoreError:
            self._ended.set()
            raise

    # -- connections -----------------------------------------------------------------------------

    @contextmanager
    def connection(self) -> Iterator["Connection"]:
        """Lend a connection. Raises `StoreError`."""
        with self._room:
            connection = None
            try:
                while self._free and connection is None:
                    with suppress(IndexError):  # another thread was quicker
                        connection = _if_alive(self._free.pop())
                if connection is None:
                    connection = self.connect()
                with self._timed(connection):
                    yield connection
            except self._psycopg.Error as error:
                raise self._said(error) from None
            finally:
                if connection is not None:
                    if connection.closed or connection.broken or self._ended.is_set():
                        connection.close()
                    else:
                        self._free.append(connection)

    def connect(self) -> "Connection":
        found: Connection = self._psycopg.connect(
            self.address,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name="spindle",
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=1000 * STATEMENT_SECONDS,
            options=f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout={STATEMENT_SECONDS}s",
        )
        return found

    @contextmanager
    def _timed(self, connection: "Connection") -> Iterator[None]:
        self._lent[connection] = time.monotonic()
        try:
            yield
        finally:
            self._lent.pop(connection, None)

    def _hang_up(self) -> None:
        """End connections whose database says nothing: the limits that it keeps by itself hold only while it works."""
        while not self._ended.wait(1.0):
            for connection, since in [*self._lent.items()]:
                if time.monotonic() - since > SILENT_SECONDS:
                    with suppress(OSError, self._psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as s:
                        s.shutdown(socket.SHUT_RDWR)

    def _said(self, error: Any) -> StoreError:
        """Return an error of the database in our words."""
        errors = self._psycopg.errors
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, errors.ReadOnlySqlTransaction):
            return StoreGone(f"{self.name} is read-only: is it a replica? Give the address of the primary")
        if isinstance(error, errors.DiskFull):
            return StoreGone(f"The disk of {self.name} is full")
        if isinstance(error, errors.UndefinedTable):
            return StoreError(f"{self.name} has no tables of Spindle any more")
        if isinstance(error, errors.InsufficientPrivilege):
            return StoreError(f"{self.name} does not let its user do that: {text}")
        if isinstance(error, self._psycopg.ProgrammingError) and error.sqlstate is None:
            return StoreError(f"{self.name} is no address of a database: {text}")
        if re.search(r"password authentication failed|no password supplied|role .* does not exist", text):
            return StoreError(f"{self.name} does not let us in: {text}")
        if re.search(r"database .* does not exist", text):
            return StoreError(f"There is no such database: {self.name}. Make it with createdb")
        if isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
            return StoreGone(f"{self.name} does not answer: {text}")
        return StoreError(f"{self.name}: {text}")

    def _prepare(self, connection: "Connection") -> None:
        """Make the tables, or those that a newer version has. Raises `StoreError`."""
        if self._version(connection) == len(SCHEMA):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            connection.execute("CREATE TABLE IF NOT EXISTS spindle_schema (version integer NOT NULL)")
            now = self._version(connection)
            if now > len(SCHEMA):
                raise StoreError(
                    f"{self.name} was written by a newer Spindle (schema {now}; this one knows {len(SCHEMA)}): "
                    "update this one"
                )
            for step in SCHEMA[now:]:
                connection.execute(step)
            connection.execute("DELETE FROM spindle_schema")
            connection.execute("INSERT INTO spindle_schema VALUES (%s)", (len(SCHEMA),))

    def _version(self, connection: "Connection") -> int:
        found = connection.execute("SELECT to_regclass('spindle_schema') IS NOT NULL").fetchone()
        if found != (True,):
            return 0
        row = connection.execute("SELECT max(version) FROM spindle_schema").fetchone()
        return int(row[0] or 0) if row else 0

    # -- the node --------------------------------------------------------------------------------

    def alive(self) -> str:
        """Return the name of this node, which is alive from now on."""
        with self._lock:
            if self._renewing is None:
                self.renew()
                self._renewing = threading.Thread(target=self._renew_always, name="spindle-lease", daemon=True)
                self._renewing.start()
        return self.node.node

    def own(self) -> tuple[str | None, str]:
        return self.node.address, self.node.node

    def renew(self) -> None:
        began = time.monotonic()
        given = {"name": self.node.node, "address": self.node.address, "seconds": self.lease_seconds}
        with self.connection() as connection:
            lived = connection.execute(RENEW, given).fetchone() == (True,)
            lost = [] if lived else self._lost(connection)
        for key in lost:
            self.leases.pop(key, None)
        self.sure_until = began + self.lease_seconds * (1 - MARGIN)
        for space, session in lost:
            self._tell(f"{space}/{session}")

    def _lost(self, connection: "Connection") -> list[tuple[str, str]]:
        """Return the sessions that other nodes took while this one was not alive."""
        if not self.leases:
            return []
        rows = connection.execute("SELECT space, id, lease FROM spindle_sessions WHERE node = %s", (self.node.node,))
        ours = {(space, id): lease for space, id, lease in rows}
        return [key for key, number in [*self.leases.items()] if ours.get(key) != number]

    def _renew_always(self) -> None:
        while not self._ended.wait(self.lease_seconds / RENEWALS):
            with suppress(StoreError):  # whoever needs the lease is told
                self.renew()
                self._give_back()

    def _give_back(self) -> None:
        """Free the sessions that nobody here uses."""
        for key in [*self.leaked]:
            if key not in self.leases:
                with self.connection() as connection:
                    connection.execute(
                        "UPDATE spindle_sessions SET node = NULL WHERE space = %s AND id = %s AND node = %s",
                        (*key, self.node.node),
                    )
            self.leaked.discard(key)

    # -- news ------------------------------------------------------------------------------------

    def watch(self, hear: Callable[[str], None]) -> None:
        self.watchers.append(hear)
        with self._lock:
            if self._watching is None:
                self._watching = threading.Thread(target=self._listen, name="spindle-watch", daemon=True)
                self._watching.start()

    def _tell(self, news: str) -> None:
        for hear in [*self.watchers]:
            hear(news)

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                with self.connect() as connection:
                    with self._timed(connection):
                        connection.execute(f"LISTEN {CHANNEL}")
                    while not self._ended.is_set():
                        for news in connection.notifies(timeout=1.0):
                            self._tell(news.payload)
            except self._psycopg.Error:
                self._ended.wait(1.0)

    def close(self) -> None:
        if self._ended.is_set():
            return
        with suppress(StoreError), self.connection() as connection:
            connection.execute("UPDATE spindle_sessions SET node = NULL WHERE node = %s", (self.node.node,))
            connection.execute("DELETE FROM spindle_nodes WHERE name = %s", (self.node.node,))
            connection.execute("DELETE FROM spindle_nodes WHERE until < clock_timestamp() - interval '1 day'")
        self._ended.set()
        while self._free:
            self._free.pop().close()


def _if_alive(connection: "Connection") -> "Connection | None":
    """Return a connection that nobody uses; None if it has ended: then there is something to read, if only the end."""
    if not connection.closed:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        if not waiting.poll(0):
            return connection
    connection.close()
    return None


def _card(data: bytes, is_held: bool) -> Card:
    from msgspec.structs import replace

    card = read_card(data)
    # A run that goes on at a node that lives is not interrupted.
    return replace(card, info=replace(card.info, interrupted=False)) if is_held else card


def _lease_seconds() -> float:
    given = os.environ.get("SPINDLE_LEASE_SECONDS") or str(LEASE_SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise StoreError(f"SPINDLE_LEASE_SECONDS must be a number from 1 to 3600, not {given}")
    return seconds


def _text(value: str) -> str:
    """Return what a column of text can hold."""
    return value.encode("utf-8", "replace").decode().replace("\0", "")


def _without_password(address: str) -> str:
    return re.sub(r"(?<=//)([^/@:]*):[^/]*@", r"\1@", re.sub(r"password=[^&\s]*&?", "", address))
