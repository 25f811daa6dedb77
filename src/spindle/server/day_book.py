"""What a user of a server has used up today: runs, and money.

Without a store it is in files; with one in small records there, which all nodes write to.
"""

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from spindle.sessions.store import Conflict, SessionStore, SmallRecord, StoreError
from spindle.shapes.codec import DecodeError, decode, encode

USAGE = "usage"
"""Kind of the records."""

log = logging.getLogger("spindle.users")


class AnyBook(Protocol):
    runs: int
    cost: float

    async def begin_run(self, most: int | None) -> bool:
        """Count a run; False if today has as many as allowed. Raises `OSError`, `StoreError`."""

    async def end_run(self) -> None:
        """Uncount a run that did not begin. Raises `OSError`, `StoreError`."""

    def spend(self, cost: float) -> None:
        """Count what a model call has cost. Raises `OSError`."""

    def refresh(self) -> None:
        """Bring the totals up to date. Raises `OSError`."""


class DayBook:
    """Runs and cost of a user, by day. Servers that share the directory share the book: a lock keeps them apart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._day = ""
        self._read = 0
        """Bytes of today's file that are in the totals."""
        self.runs = 0
        self.cost = 0.0

    def take_run(self, most: int | None) -> bool:
        """Count a run; False if today has as many as allowed. Raises `OSError`."""
        with self._open() as file:
            if most is not None and self.runs >= most:
                return False
            self._write(file, {"runs": 1})
            return True

    def give_back_run(self) -> None:
        """Uncount a run that did not begin. Raises `OSError`."""
        with self._open() as file:
            self._write(file, {"runs": -1})

    def spend(self, cost: float) -> None:
        """Count what a model call has cost. Raises `OSError`."""
        with self._open() as file:
            self._write(file, {"cost": cost})

    def refresh(self) -> None:
        """Read what other servers have written. Raises `OSError`."""
        with self._open():
            pass

    async def begin_run(self, most: int | None) -> bool:
        """Do the same as `take_run`."""
        return self.take_run(most)

    async def end_run(self) -> None:
        """Do the same as `give_back_run`."""
        self.give_back_run()

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Hold today's file with the totals up to date."""
        day = time.strftime("%Y-%m-%d", time.gmtime())
        if day != self._day:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._day, self._read, self.runs, self.cost = day, 0, 0, 0.0
        file = os.open(self._folder / f"{day}.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # others hold it for microseconds
            self._catch_up(file)
            yield file
        finally:
            os.close(file)

    def _catch_up(self, file: int) -> None:
        while data := os.pread(file, 1 << 20, self._read):
            whole = data[: data.rfind(b"\n") + 1]
            if not whole:
                break
            self._read += len(whole)
            for line in whole.splitlines():
                self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            entry = decode(line)
            self.runs += int(entry.get("runs", 0))
            self.cost += float(entry.get("cost", 0))
        except (DecodeError, AttributeError, TypeError, ValueError):
            pass  # a line that a crash has cut

    def _write(self, file: int, entry: dict[str, float]) -> None:
        cut = os.fstat(file).st_size > self._read  # a crash has left half a line
        os.write(file, b"\n" * cut + encode(entry) + b"\n")
        self._catch_up(file)


class StoreBook:
    """Runs and cost of a user, in the store of all nodes.

    Each model call is booked in a thread, and brings back what other nodes have booked: so the totals are at most one
    call of this node old, and no event loop waits for the database.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._day = ""
        self.runs = 0
        self.cost = 0.0

    async def begin_run(self, most: int | None) -> bool:
        return await asyncio.to_thread(self._add, 1, 0.0, most)

    async def end_run(self) -> None:
        await asyncio.to_thread(self._add, -1, 0.0)

    def spend(self, cost: float) -> None:
        asyncio.get_running_loop().run_in_executor(None, self._spend, cost)

    def refresh(self) -> None:
        if self._day != _today():
            self._day, self.runs, self.cost = _today(), 0, 0.0

    def _spend(self, cost: float) -> None:
        for wait in (0.5, 2.0, 5.0, 0.0):
            try:
                self._add(0, cost)
                return
            except StoreError as error:
                failed = error
                time.sleep(wait)
        log.error("$%.4f of a user are not booked: %s", cost, failed)

    def _add(self, runs: int, cost: float, most: int | None = None) -> bool:
        """Book runs and money, and read what all nodes have booked; False if there are `most` runs already."""
        day = _today()
        while True:
            record = self._store.get(USAGE, day)
            had_runs, had_cost = _totals(record)
            if most is not None and had_runs >= most:
                self._day, self.runs, self.cost = day, had_runs, had_cost
                return False
            value = encode({"runs": had_runs + runs, "cost": had_cost + cost})
            try:
                self._store.put(USAGE, day, value, 0 if record is None else record.revision)
            except Conflict:
                continue
            self._day, self.runs, self.cost = day, had_runs + runs, had_cost + cost
            return True


def _totals(record: SmallRecord | None) -> tuple[int, float]:
    if record is None:
        return 0, 0.0
    value = decode(record.value)
    return int(value["runs"]), float(value["cost"])


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
