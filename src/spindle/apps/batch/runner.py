"""A batch: jobs go through a pool of workers; every attempt ends as a line of the results.

`Batch` is an async iterator of those lines. Everything that is known of a batch is in the results: to resume it, run it
again.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from spindle.agent import AgentError
from spindle.apps.batch.attempt import FILES, SESSION, Try, killed
from spindle.apps.batch.folder import KINDS
from spindle.apps.batch.ledger import Attempt, Ledger, LedgerError
from spindle.apps.batch.plan import Hold, Plan, Progress, Shared
from spindle.apps.batch.tasks import Job, TaskSource, chosen, read_jobs
from spindle.base import limits
from spindle.base.flow import Mailbox, Tasks
from spindle.shapes.messages import Image
from spindle.shapes.run_limits import RunLimits

_LINES_WAITING = 1000
"""The workers pause while so many lines wait to be read."""
_ROOM = 1 << 20
"""Free bytes on the disk without which no attempt begins: its files and its line would not fit."""


class TaskStart(Struct, tag_field="type", tag="task_start"):
    """An attempt begins."""

    id: str
    attempt: int


News = TaskStart | Progress | Hold
"""Events between two results."""


class AttemptPool(Protocol):
    """Where attempts are made."""

    async def start(self, *, check: bool) -> None:
        """Get ready. With `check`, look for problems that all tasks would have. Raises `AgentError`."""

    async def attempt(self, job: Job, number: int, images: list[Image], folder: Path) -> tuple[Attempt, bool]:
        """Make an attempt, and leave its files in `folder`."""

    def finish(self) -> None:
        """Begin no attempt that still waits for its turn."""

    @property
    def exhausted(self) -> bool:
        """Whether all money is spent."""

    async def close(self) -> None: ...


class LocalPool:
    """Sessions in this process. Agents wait for models nearly all of the time, so one process is enough."""

    def __init__(self, plan: Plan, spent: float, tell: Callable[[News], None]) -> None:
        self._shared = Shared(plan, spent, tell)

    async def start(self, *, check: bool) -> None:
        if check:
            await self._shared.check()

    async def attempt(self, job: Job, number: int, images: list[Image], folder: Path) -> tuple[Attempt, bool]:
        return await Try(job, number, images, folder, self._shared).run()

    def finish(self) -> None:
        self._shared.finishing = True

    @property
    def exhausted(self) -> bool:
        return self._shared.exhausted

    async def close(self) -> None: ...


class Batch:
    """Make it, iterate over it once, then look at `skipped`, `undone` and `failures`."""

    def __init__(self, tasks: TaskSource, out: str | Path, plan: Plan) -> None:
        """Read the tasks and the results so far. Raises `AgentError`."""
        _check(plan)
        every = read_jobs(tasks, plan.schema)
        self.plan = plan
        self.out = Path(out).resolve()
        self.jobs = chosen(every, plan.filter)
        """The jobs that the filter lets through."""
        self.tell: Callable[[News], None] = lambda news: None
        """Called with events between two results."""
        _make_folder(self.out)
        self._ledger = Ledger(self.out)
        self.skipped: list[Attempt] = []
        """The attempts by which jobs were done before."""
        self._waiting: deque[Job] = deque()
        for job in self.jobs:
            done = self._ledger.done(job, plan.retries, plan.redo)
            self._waiting.append(job) if done is None else self.skipped.append(done)
        self.to_do = len(self._waiting)
        self.results: dict[str, Attempt] = {}
        """The last attempt of every job that was done this time."""
        self._finishing = self._cancelled = False
        self._lines: Mailbox[Attempt] = Mailbox(_LINES_WAITING)
        self._workers = Tasks()
        self._pool: AttemptPool | None = None

    # -- for the caller --------------------------------------------------------------------------

    @property
    def spent(self) -> float:
        """US dollars, over all runs with these results."""
        return self._ledger.spent

    @property
    def over_budget(self) -> bool:
        """Whether jobs are undone because all money is spent."""
        return self._pool is not None and self._pool.exhausted and any(self.undone())

    def undone(self) -> list[Job]:
        answered = {line.id for line in self.skipped}
        answered |= {line.id for line in self.results.values() if line.is_answer or line.status == "timeout"}
        return [job for job in self.jobs if job.id not in answered]

    def failures(self) -> list[Attempt]:
        """Return the last attempts of jobs that did not end well, now or before."""
        return [line for line in [*self.skipped, *self.results.values()] if line.status != "ok"]

    def finish(self) -> None:
        """Start no more attempts; running ones may end."""
        self._finishing = True
        if self._pool is not None:
            self._pool.finish()

    def cancel(self) -> None:
        """Stop the running attempts; the next run of the batch makes them again."""
        self._finishing = True
        if not self._cancelled:  # cancelling twice would interrupt the clearing up
            self._cancelled = True
            self._workers.cancel()

    async def __aiter__(self) -> AsyncGenerator[Attempt, None]:
        """Yield every attempt when it is in the results. Leaving the loop cancels the rest. Raises `AgentError`."""
        try:
            if self._waiting:
                await self._record_killed()
                self._pool = self._make_pool()
                await self._pool.start(check=any(job.task.model is None for job in self._waiting))
                for number in range(min(self.plan.jobs, len(self._waiting))):
                    self._workers.spawn(self._work(), f"spindle-batch-{number}")
                ending = asyncio.create_task(self._end(), name="spindle-batch-end")
                try:
                    async for line in self._lines:
                        yield line
                finally:
                    self.cancel()
                    await self._workers.join(limits.BATCH_STOP)
                    ending.cancel()
        finally:
            if self._pool is not None:
                await self._pool.close()
            self._ledger.close()

    async def _record_killed(self) -> None:
        """Record the cost of attempts that were killed in an earlier run of the batch."""
        for job in self._waiting:
            if (self.out / job.folder / SESSION).exists():
                known = self._ledger.attempts.get(job.id, ())
                line = await asyncio.to_thread(killed, job, known, self.out / job.folder)
                if line is not None:
                    await self._ledger.append(line)

    def _make_pool(self) -> AttemptPool:
        if self.plan.on == "local":
            return LocalPool(self.plan, self._ledger.spent, self.tell)
        from spindle.apps.batch.ray_pool import RayPool

        return RayPool(self.plan, self._ledger.spent, self.tell)

    async def _end(self) -> None:
        """Close the stream of lines when all workers have ended."""
        await self._workers.join()
        self._lines.close()

    # -- a worker --------------------------------------------------------------------------------

    async def _work(self) -> None:
        assert self._pool is not None
        while self._waiting and not self._finishing and not self._pool.exhausted:
            job = self._waiting.popleft()
            try:
                await self._do(job, self._pool)
            except LedgerError as error:  # no more attempts, if they cannot be recorded
                self._lines.close(error)
                self.cancel()
                return

    async def _do(self, job: Job, pool: AttemptPool) -> None:
        for tried in range(self.plan.retries + 1):
            if tried:
                await asyncio.sleep(limits.BATCH_RETRY * 2 ** (tried - 1))
                if self._finishing or pool.exhausted:
                    return
            number = len(self._ledger.attempts.get(job.id, ())) + 1
            self.tell(TaskStart(job.id, number))
            line, again = await self._try(job, number, pool)
            await self._ledger.append(line)
            self.results[job.id] = line
            self._lines.put(line)
            await self._lines.room()
            if not again:
                return

    async def _try(self, job: Job, number: int, pool: AttemptPool) -> tuple[Attempt, bool]:
        folder = self.out / job.folder
        try:
            if shutil.disk_usage(self.out).free < _ROOM:
                raise LedgerError(f"No space left for {self.out}. Run the same command again to go on")
            _set_aside(folder)
            return await pool.attempt(job, number, job.images(), folder)
        except LedgerError:
            raise
        except (OSError, AgentError) as error:
            text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
            line = Attempt(id=job.id, attempt=number, status="error", stop_reason="error", error=text)
            line.task_hash, line.meta = job.hash, job.task.meta
            return line, False


def _check(plan: Plan) -> None:
    """Raise `AgentError` for a plan that makes no sense."""
    if plan.jobs < 1 or plan.retries < 0:
        raise AgentError("There must be at least one task at a time, and no less than no retries")
    for name in ("timeout", *RunLimits.__struct_fields__, "total_cost"):
        value = getattr(plan, name)
        if value is not None and not 0 < value < float("inf"):
            raise AgentError(f"{name} must be a number above 0, not {value}")
    if plan.workspace not in (None, *KINDS):
        raise AgentError(f'There is no workspace "{plan.workspace}". There are: {", ".join(KINDS)}')
    if plan.redo not in (None, "failed", "all"):
        raise AgentError(f'redo must be "failed" or "all", not "{plan.redo}"')
    if plan.on not in ("local", "ray") and not plan.on.startswith("ray://"):
        raise AgentError(f'A batch runs on "local", "ray" or "ray://host:port", not on "{plan.on}"')
    if plan.on != "local" and plan.workspace not in (None, "clone"):
        raise AgentError("On Ray every task works in a clone of its repository: leave out --workspace")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not any(out.iterdir()):
            (out / ".gitignore").write_text("*\n")  # results inside a repository are not part of it
    except OSError as error:
        raise AgentError(f"Cannot make {out}: {error.strerror}") from None


def _set_aside(folder: Path) -> None:
    """Make the folder of a task ready for an attempt; files of an earlier attempt go into a folder `before-…` in it."""
    folder.mkdir(exist_ok=True)
    left = [folder / name for name in FILES if (folder / name).exists()]
    if left:
        number = 1 + sum(1 for _ in folder.glob("before-*"))
        before = folder / f"before-{number}"
        before.mkdir(exist_ok=True)
        for path in left:
            path.rename(before / path.name)
