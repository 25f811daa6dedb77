"""`results.jsonl`: one line per finished attempt, appended and on the disk before the attempt is reported.

The file is the only record of a batch; resuming needs nothing else. A line that was cut off by a crash is dropped when
the file is opened the next time; a line that did not fit on the disk is removed at once.
"""

import asyncio
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from spindle.agent import AgentError
from spindle.apps.batch.tasks import Job
from spindle.sessions.file import sync_directory
from spindle.shapes.codec import decode, encode
from spindle.shapes.messages import Wire
from spindle.shapes.run_result import RunTokens

NAME = "results.jsonl"
TOTAL_COST = "totalCost"
"""The stop reason of an attempt that ended because the whole batch has used up its money."""
KILLED = "killed"
"""The stop reason of an attempt whose process was killed; the next process has recorded its cost."""


class Attempt(Wire, kw_only=True, omit_defaults=False):
    """The result of one attempt at a task: a line of the file. Fields that a `RunResult` has too have its names."""

    id: str
    attempt: int
    """Counted from 1, over all runs of the batch."""
    status: str
    """`ok`, `failed`, `error`, `timeout`, `budget`, `denied` or `cancelled`."""
    stop_reason: str
    text: str = ""
    """Text of the last answer."""
    value: Any | UnsetType = UNSET
    """The result that the model handed in, if a schema was given."""
    error: str | None = None
    exit: int | None = None
    """Exit code of the command that verified it."""
    turns: int = 0
    tool_calls: int = 0
    tokens: RunTokens = msgspec.field(default_factory=RunTokens)
    cost: float | None = 0.0
    """US dollars; None: the price of the model is unknown."""
    duration_ms: int = 0
    model: str | None = None
    session_id: str | None = None
    session_file: str | None = None
    """Path of the session, relative to the results."""
    patch_bytes: int | None = None
    """None: there was nothing to compare with."""
    commit: str | None = None
    """The commit at which the work began."""
    finished: str = ""
    task_hash: str = ""
    meta: Any = None

    @property
    def is_answer(self) -> bool:
        """Whether the task counts as done, well or not. Otherwise the next run of the batch does it again."""
        return self.status in ("ok", "failed", "denied") or (self.status == "budget" and self.stop_reason != TOTAL_COST)

    # The names of 0.1, for programs; lines of results have each field once.

    @property
    def cost_usd(self) -> float | None:
        return self.cost

    @property
    def seconds(self) -> float:
        return self.duration_ms / 1000

    @property
    def output(self) -> Any:
        return self.text if self.value is UNSET else self.value

    @property
    def session(self) -> str | None:
        return self.session_file


_FORMER = {
    "stop_reason": "stopReason",
    "tool_calls": "toolCalls",
    "cost_usd": "cost",
    "session": "sessionFile",
    "session_id": "sessionId",
    "patch_bytes": "patchBytes",
    "task_hash": "taskHash",
}
_FORMER_TOKENS = {"cache_read": "cacheRead", "cache_write": "cacheWrite"}
"""Keys that lines of 0.1 have, and their names now."""


def _renamed(line: Any) -> Any:
    """Return a line of 0.1 with the names of now."""
    if not isinstance(line, dict) or "stop_reason" not in line or "stopReason" in line:
        return line
    line |= {now: line[former] for former, now in _FORMER.items() if former in line}
    if isinstance(tokens := line.get("tokens"), dict):
        tokens |= {now: tokens[former] for former, now in _FORMER_TOKENS.items() if former in tokens}
    if isinstance(seconds := line.get("seconds"), int | float):
        line["durationMs"] = round(seconds * 1000)
    if (output := line.get("output")) is not None:
        line["text" if isinstance(output, str) else "value"] = output
    return line


def read_attempt(path: Path, number: int, line: bytes) -> Attempt:
    """Read a line of results. Raises `LedgerError`."""
    try:
        return msgspec.convert(_renamed(decode(line)), Attempt)
    except msgspec.DecodeError as error:
        raise LedgerError(f"{path}:{number} is not a result: {error}. Mend or remove that line") from None


class LedgerError(AgentError):
    """The results cannot be read or written."""


class Ledger:
    def __init__(self, folder: Path) -> None:
        """Open the results of a folder, and lock them. Raises `LedgerError`."""
        self.path = folder / NAME
        self.attempts: dict[str, list[Attempt]] = {}
        """By task, oldest first."""
        self._waiting: list[bytes] = []
        """Lines that are not in the file yet."""
        self._lock = threading.Lock()
        """Held while the file is written."""
        is_new = not self.path.exists()
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LedgerError(f"Cannot open {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise LedgerError(f"Another batch is writing to {self.path}") from None
        try:
            self._read()
            if is_new:
                sync_directory(folder)
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        self._size = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):  # the last writer was killed in the middle of the line
                    os.ftruncate(self._descriptor, self._size)
                    break
                self._size += len(line)
                if line.strip():
                    self._learn(number, line)

    def _learn(self, number: int, line: bytes) -> None:
        attempt = read_attempt(self.path, number, line)
        self.attempts.setdefault(attempt.id, []).append(attempt)

    @property
    def spent(self) -> float:
        """US dollars, over all attempts of all runs."""
        return sum(attempt.cost or 0.0 for attempts in self.attempts.values() for attempt in attempts)

    def done(self, job: Job, retries: int, redo: str | None) -> Attempt | None:
        """Return the attempt by which a job counts as done; None: it has to be done."""
        found = [attempt for attempt in self.attempts.get(job.id, ()) if attempt.task_hash == job.hash]
        if not found or redo == "all" or (redo == "failed" and found[-1].status != "ok"):
            return None
        tried = sum(attempt.status == "timeout" for attempt in found)
        return found[-1] if found[-1].is_answer or tried > retries else None

    async def append(self, attempt: Attempt) -> None:
        """Write a line, and return when it is on the disk. Raises `LedgerError`; the file is as before then.

        A thread writes the line to its end even if the caller is cancelled, and needs no task that could be cancelled.
        """
        line = encode(attempt) + b"\n"
        self._waiting.append(line)
        error = await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._write, line))
        if error is not None:
            text = f"Cannot write to {self.path}: {error.strerror}. Run the same command again to go on"
            raise LedgerError(text)
        self.attempts.setdefault(attempt.id, []).append(attempt)

    def _write(self, line: bytes) -> OSError | None:
        """Write all waiting lines, so that they share a sync. Do nothing if another thread has written this line."""
        with self._lock:
            if not any(other is line for other in self._waiting):
                return None
            lines = self._waiting.copy()
            try:
                self._put(b"".join(lines))
            except OSError as error:
                self._waiting.remove(line)  # threads of the other lines try again
                return error
            del self._waiting[: len(lines)]
            return None

    def _put(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1
