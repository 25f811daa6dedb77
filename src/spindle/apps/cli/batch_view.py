"""How a batch is shown: a table that lives on a terminal, a line per finish elsewhere, or events as JSON."""

import asyncio
import io
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from spindle.apps.batch.ledger import Attempt
from spindle.apps.batch.plan import Hold, Progress
from spindle.apps.batch.runner import Batch, TaskStart
from spindle.base.spelling import counted
from spindle.base.terminal import plain, unguarded
from spindle.shapes.codec import encode, to_builtins

if TYPE_CHECKING:
    from rich.console import RenderableType

_REFRESH = 0.25
"""Seconds from one picture to the next."""


class BatchView:
    """Prints one line per finished attempt, and a summary. The other views do more."""

    def __init__(self, batch: Batch, out: TextIO) -> None:
        self.batch = batch
        self.out = out
        self.began = time.monotonic()
        self.running: dict[str, tuple[float, Progress]] = {}
        """By task: when it began, and its progress."""
        self._ended: set[str] = set()
        """Tasks, not attempts."""

    def __enter__(self) -> None:
        if self.batch.skipped:
            of = counted(len(self.batch.jobs), "task")
            self.say(f"{len(self.batch.skipped)} of {of} {'is' if of == '1 task' else 'are'} done already")
        if limited := [line for line in self.batch.skipped if line.status == "budget"]:
            names = ", ".join(f"{line.id} ({line.stop_reason})" for line in limited[:8])
            more = f" and {len(limited) - 8} more" if len(limited) > 8 else ""
            self.say(
                f"{counted(len(limited), 'task')} had ended on a limit: {names}{more}. --redo failed does them again"
            )

    def __exit__(self, *failure: object) -> None:
        if self.batch.results or not any(failure):
            self.say(self.summary())

    def say(self, text: str) -> None:
        self._print(text)

    def news(self, news: object) -> None:
        """Take an event between two results."""
        if isinstance(news, TaskStart):
            self.running[news.id] = time.monotonic(), Progress(news.id, news.attempt)
        elif isinstance(news, Progress) and news.id in self.running:
            self.running[news.id] = self.running[news.id][0], news
        elif isinstance(news, Hold):
            self.say(f"{news.provider} takes no more requests: all its tasks wait {news.seconds:g} s")

    def ended(self, line: Attempt) -> None:
        self.running.pop(line.id, None)
        self._ended.add(line.id)
        self.show(line)

    @property
    def finished(self) -> int:
        return len(self._ended)

    def show(self, line: Attempt) -> None:
        width = len(str(self.batch.to_do))
        cost = "" if not line.cost else f"  ${line.cost:.4f}"
        error = "" if line.error is None else f"  {' '.join(line.error.split())[:200]}"
        again = f" (attempt {line.attempt})" if line.attempt > 1 else ""
        turns = "1 turn" if line.turns == 1 else f"{line.turns} turns"
        facts = f"{turns}  {line.duration_ms / 1000:.1f} s{cost}{error}"
        self._print(f"[{self.finished:>{width}}/{self.batch.to_do}] {line.status:<9} {line.id}{again}  {facts}")

    def summary(self) -> str:
        batch = self.batch
        states = [line.status for line in (*batch.skipped, *batch.results.values())]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(["ok", *sorted(states)])]
        left = len(batch.jobs) - len(states)
        if left:
            counts.append(f"{left} not begun")
        seconds = time.monotonic() - self.began
        where = batch.out / "results.jsonl"
        tasks = counted(len(batch.jobs), "task")
        return f"{tasks}: {', '.join(counts)}; {self._money()}, {seconds:.1f} s; {where}"

    def _money(self) -> str:
        if all(line.cost is not None for line in (*self.batch.skipped, *self.batch.results.values())):
            return f"${self.batch.spent:.4f}"
        return f"at least ${self.batch.spent:.4f}" if self.batch.spent else "unknown cost"

    def left_seconds(self) -> float | None:
        """Return how many seconds the rest may take; None until a task has ended."""
        if not self.finished:
            return None
        return (time.monotonic() - self.began) / self.finished * (self.batch.to_do - self.finished)

    def _print(self, text: str) -> None:
        self._write(plain(text).replace("\n", " "))

    def _write(self, line: str) -> None:
        with suppress(OSError, ValueError):  # the reader is gone; the batch goes on
            print(line, file=self.out, flush=True)


class JsonView(BatchView):
    """Prints events. Their keys of 0.1 are there, too, which 0.2 drops."""

    def __enter__(self) -> None:
        batch = self.batch
        before = {"toDo": batch.to_do, "doneBefore": len(batch.skipped)}
        former = {"to_do": batch.to_do, "done_before": len(batch.skipped)}
        self._event("batch_start", tasks=len(batch.jobs), **before, **former)

    def __exit__(self, *_: object) -> None:
        states = [line.status for line in (*self.batch.skipped, *self.batch.results.values())]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        seconds = round(time.monotonic() - self.began, 3)
        former = {"cost_usd": self.batch.spent, "seconds": seconds}
        self._event("batch_end", counts=counts, cost=self.batch.spent, durationMs=round(seconds * 1000), **former)

    def say(self, text: str) -> None:
        self._event("notice", message=text)

    def news(self, news: object) -> None:
        former = {"cost_usd": news.cost} if isinstance(news, Progress) else {}
        self._write(encode({**to_builtins(news), **former}).decode())

    def show(self, line: Attempt) -> None:
        self._event("task_end", **to_builtins(line))

    def _event(self, kind: str, **fields: Any) -> None:
        self._write(encode({"type": kind, **fields}).decode())


class TableView(BatchView):
    """Shows the running attempts as a table, drawn again a few times a second; failures scroll above it."""

    def __init__(self, batch: Batch, out: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(batch, out)
        self._console = Console(file=unguarded(out))
        # Text that others print goes through `_AboveTable`: rich would pass on codes in it.
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._streams = sys.stdout, sys.stderr
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._live.start()
        sys.stdout = sys.stderr = _AboveTable(self._print)
        super().__enter__()
        self._draw()

    def __exit__(self, *failure: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        sys.stdout, sys.stderr = self._streams
        self._live.stop()
        super().__exit__(*failure)

    def _draw(self) -> None:
        self._live.update(self._picture(), refresh=True)
        self._timer = asyncio.get_running_loop().call_later(_REFRESH, self._draw)

    def _print(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(plain(text)), soft_wrap=True)

    def show(self, line: Attempt) -> None:
        if line.status != "ok":
            super().show(line)

    def _picture(self) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        batch, now = self.batch, time.monotonic()
        table = Table(box=None, expand=True, pad_edge=False)
        for name, width in (("task", None), ("turn", 4), ("tool", 12), ("cost", 9), ("time", 7), ("", None)):
            table.add_column(name, width=width, no_wrap=True, ratio=None if width else 1)
        for since, at in list(self.running.values())[: max(1, self._console.height - 5)]:
            cells = (at.id, str(at.turn), at.tool or "", f"${at.cost:.4f}", _clock(now - since), at.note or "")
            table.add_row(*(Text(" ".join(plain(cell).split())) for cell in cells))
        failed = sum(line.status != "ok" for line in batch.results.values())
        spent = batch.spent + sum(at.cost for _, at in self.running.values())
        total, left = batch.plan.total_cost, self.left_seconds()
        facts = f"{self.finished} of {batch.to_do} done, {failed} failed, {len(self.running)} running, ${spent:.4f}"
        facts += "" if total is None else f" of ${total:g}"
        facts += "" if left is None else f", about {_clock(left)} left"
        foot = Table.grid(expand=True)
        foot.add_row(ProgressBar(total=max(1, batch.to_do), completed=self.finished))
        foot.add_row(Text(facts))
        return Group(table, foot)


class _AboveTable(io.TextIOBase):
    """Stands for stdout and stderr while a table is shown: whole lines go above it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._show(line)
        return len(text)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def make_view(batch: Batch, out: TextIO, *, as_json: bool) -> BatchView:
    if as_json:
        return JsonView(batch, out)
    if not out.isatty():
        return BatchView(batch, out)
    return TableView(batch, out)
