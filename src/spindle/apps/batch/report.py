"""What the results of a batch say: a row per task, failures by reason. Reading disturbs no batch that runs."""

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from spindle.apps.batch.attempt import PATCH
from spindle.apps.batch.ledger import NAME, Attempt, LedgerError, read_attempt

_NUMBER = re.compile(r"(?<!ended with )(?<!code )\b\d+(\.\d+)?")


class TaskRow(Struct, frozen=True):
    """A task as its last attempt left it."""

    id: str
    status: str
    reason: str
    """Why it is not ok, in one line; else empty."""
    attempts: int
    turns: int
    tokens: int
    cost: float | None
    """Of all attempts, in US dollars. None: the price of the model is not known."""
    seconds: float
    """Of all attempts."""
    model: str
    session: str
    """Path of the session below the results; empty if there is none."""
    patch: str


class Report(Struct, frozen=True):
    rows: list[TaskRow]

    @property
    def failures(self) -> dict[str, list[TaskRow]]:
        """The tasks that are not ok by their reasons, the most frequent first.

        Numbers make no other reason, but for exit codes.
        """
        groups: dict[str, list[TaskRow]] = {}
        for row in self.rows:
            if row.status != "ok":
                groups.setdefault(_NUMBER.sub("N", f"{row.status}: {row.reason}"), []).append(row)
        ordered = sorted(groups.values(), key=len, reverse=True)
        return {f"{rows[0].status}: {rows[0].reason}": rows for rows in ordered}

    @property
    def statuses(self) -> dict[str, int]:
        names = [row.status for row in self.rows]
        return {name: names.count(name) for name in dict.fromkeys(["ok", *sorted(names)]) if name in names}

    @property
    def cost(self) -> float:
        return sum(row.cost or 0.0 for row in self.rows)

    @property
    def is_cost_known(self) -> bool:
        return all(row.cost is not None for row in self.rows)

    @property
    def is_cost_unknown(self) -> bool:
        return all(row.cost is None for row in self.rows)


def read_report(folder: Path) -> Report:
    """Read the results of a folder. Raises `LedgerError`."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LedgerError(f"Cannot read {path}: {error.strerror}") from None
    by_task: dict[str, list[Attempt]] = {}
    for number, line in enumerate(data.split(b"\n")[:-1], 1):  # what has no end is being written
        if line.strip():
            attempt = read_attempt(path, number, line)
            by_task.setdefault(attempt.id, []).append(attempt)
    return Report([_row(attempts, folder) for attempts in by_task.values()])


def _row(attempts: list[Attempt], folder: Path) -> TaskRow:
    last = attempts[-1]
    session = last.session_file or ""
    patch = f"{session.rpartition('/')[0]}/{PATCH}" if session else ""
    known = [attempt.cost for attempt in attempts if attempt.cost is not None]
    return TaskRow(
        id=last.id,
        status=last.status,
        reason="" if last.status == "ok" else _reason(last),
        attempts=len(attempts),
        turns=_sum(attempt.turns for attempt in attempts),
        tokens=_sum(attempt.tokens.total for attempt in attempts),
        cost=sum(known) if len(known) == len(attempts) else None,
        seconds=_sum(attempt.duration_ms for attempt in attempts) / 1000,
        model=last.model or "",
        session=session if session and (folder / session).exists() else "",
        patch=patch if patch and (folder / patch).exists() else "",
    )


def _sum(numbers: Iterable[int]) -> int:
    return sum(numbers)


def _reason(attempt: Attempt) -> str:
    lines = (attempt.error or "").strip().splitlines()
    if lines:
        return " ".join(lines[0].split())[:160]
    if attempt.exit:
        return f"verify ended with exit code {attempt.exit}"
    return attempt.stop_reason
