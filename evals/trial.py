"""One harness on one task, once: the workspace, the run, the verdict, and why it failed."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals import transcript
from evals.harnesses import TURNS, Harness, Launch, classes
from evals.meter import Meter, Sampling
from evals.stopwatch import Stopwatch
from evals.tasks import Place, Task

_GRACE = 10.0
"""Seconds that a harness has to end by itself after its time is over."""
_CALL_AS_TEXT = re.compile(r'<tool_call>|<function=|"arguments"\s*:|"name"\s*:\s*"(bash|read|write|edit|ls|grep|find)"')


@dataclass
class Trial:
    harness: str
    task: str
    number: int
    passed: bool = False
    reason: str = ""
    """Why it did not pass, in one word or two: wrong, untouched, empty, call as text, time, model calls, crashed."""
    said: str = ""
    """The last line of the check, or of the harness if that crashed."""
    calls: int = 0
    input: int = 0
    output: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    """Failed tool calls by kind."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """All that it depends on, besides chance; a trial under other conditions does not count."""


@dataclass(frozen=True)
class Model:
    url: str
    key: str = "none"
    name: str = ""
    """The name by which the server knows it."""
    sampling: Sampling = field(default_factory=Sampling)
    server: int | None = None
    """Its process, whose CPU time is the time of its answers; None: the wall counts."""
    threads: int = 1


async def run_trial(harness: Harness, task: Task, number: int, model: Model, folder: Path, seconds: float) -> Trial:
    """Run one trial in `folder`, an absolute path, and leave there the workspace, the session, every answer of the
    model, and the result."""
    shutil.rmtree(folder, ignore_errors=True)
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir(parents=True)
    home.mkdir()
    trial = Trial(harness.name, task.name, number)
    watch = Stopwatch(model.server, model.threads)
    with task.open(workspace) as place:
        before = _state(workspace)
        async with Meter(model.url, model.key, model.sampling, folder / "answers.jsonl", model.name, TURNS) as meter:
            launch = harness.launch(harness, home, task, meter.url)
            limit = watch.run(lambda: meter.answering > 0, seconds)
            code, late = await _run(launch, place, folder, limit)
        untouched = _state(workspace) == before
        verdict = await asyncio.to_thread(place.judge)
    trial.seconds = round(watch.spent, 1)
    usage = meter.usage
    trial.calls, trial.input, trial.output = usage.calls, usage.input, usage.output
    trial.errors = dict(classes(harness.failures(home)))
    trial.passed, trial.said = verdict.passed, verdict.reason
    if not verdict.passed:
        failed = usage.broken or (usage.calls and usage.failed == usage.calls)
        if late and not failed:
            trial.reason = "time"
        elif usage.refused:
            trial.reason = "model calls"
        elif failed or usage.calls == 0:
            trial.reason, trial.said = "crashed", f"exit code {code}: {_last_line(folder / 'stderr.txt')}"
        elif usage.last_calls == 0 and _CALL_AS_TEXT.search(usage.last_text):
            trial.reason = "call as text"
        elif usage.last_calls == 0 and not usage.last_text.strip():
            trial.reason = "empty"
        else:
            trial.reason = "untouched" if untouched else "wrong"
    end = "passed" if trial.passed else f"{trial.reason}: {trial.said}"
    transcript.write(folder, f"{harness.name}, {task.name}, trial {number}", end)
    return trial


async def _run(
    launch: Launch, place: Place, folder: Path, limit: Coroutine[None, None, None]
) -> tuple[int | None, bool]:
    """Run the harness until it ends or `limit` does. Return its exit code and whether its time was over."""
    over = asyncio.ensure_future(limit)
    with (folder / "stdout.txt").open("wb") as stdout, (folder / "stderr.txt").open("wb") as stderr:
        try:
            process = await asyncio.create_subprocess_exec(
                *place.enter,
                *launch.command,
                cwd=place.workspace,
                env=launch.env | place.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            stderr.write(f"{launch.command[0]}: {error.strerror}\n".encode())
            over.cancel()
            return None, False
        try:
            ended = asyncio.ensure_future(process.wait())
            await asyncio.wait((ended, over), return_when=asyncio.FIRST_COMPLETED)
            late = not ended.done()
            if late:
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await process.wait()
        finally:
            over.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = await process.wait()
    return code, late


def _state(workspace: Path) -> dict[str, bytes]:
    """Return the contents of a workspace, without caches and the insides of git."""
    skipped = {".git", "__pycache__"}
    return {
        str(path): path.read_bytes()
        for path in workspace.rglob("*")
        if path.is_file() and not skipped & set(path.relative_to(workspace).parts)
    }


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
