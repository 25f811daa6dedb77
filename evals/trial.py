"""One harness on one task, once: the workspace, the run, the verdict, and why it failed."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from evals.harnesses import Harness, Launch, classes
from evals.meter import Meter, Sampling
from evals.tasks import Task

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
    """Why it did not pass, in one word or two: wrong, untouched, empty, call as text, time, crashed."""
    said: str = ""
    """The last line of the check, or of the harness if that crashed."""
    calls: int = 0
    input: int = 0
    output: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    """Failed tool calls by kind."""


@dataclass(frozen=True)
class Model:
    url: str
    key: str = "none"
    sampling: Sampling = field(default_factory=Sampling)


async def run_trial(harness: Harness, task: Task, number: int, model: Model, folder: Path, seconds: float) -> Trial:
    """Run one trial in `folder`, which keeps the workspace, the session, every answer of the model, and the result."""
    shutil.rmtree(folder, ignore_errors=True)
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir(parents=True)
    home.mkdir()
    task.prepare(workspace)
    before = _state(workspace)
    trial = Trial(harness.name, task.name, number)
    begin = time.monotonic()
    async with Meter(model.url, model.key, model.sampling, folder / "answers.jsonl") as meter:
        launch = harness.launch(harness, home, task.prompt, meter.url, seconds)
        code, late = await _run(launch, workspace, folder, seconds)
    trial.seconds = round(time.monotonic() - begin, 1)
    usage = meter.usage
    trial.calls, trial.input, trial.output = usage.calls, usage.input, usage.output
    trial.errors = dict(classes(harness.failures(home)))
    untouched = _state(workspace) == before
    verdict = task.judge(workspace)
    trial.passed, trial.said = verdict.passed, verdict.reason
    if not verdict.passed:
        if late:
            trial.reason = "time"
        elif usage.calls == 0 or usage.failed == usage.calls:
            trial.reason, trial.said = "crashed", f"exit code {code}: {_last_line(folder / 'stderr.txt')}"
        elif usage.last_calls == 0 and _CALL_AS_TEXT.search(usage.last_text):
            trial.reason = "call as text"
        elif usage.last_calls == 0 and not usage.last_text.strip():
            trial.reason = "empty"
        else:
            trial.reason = "untouched" if untouched else "wrong"
    (folder / "result.json").write_text(json.dumps(asdict(trial), ensure_ascii=False, indent=1))
    return trial


async def _run(launch: Launch, workspace: Path, folder: Path, seconds: float) -> tuple[int | None, bool]:
    """Run the harness. Return its exit code and whether its time was over."""
    with (folder / "stdout.txt").open("wb") as stdout, (folder / "stderr.txt").open("wb") as stderr:
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                cwd=workspace,
                env=launch.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            stderr.write(f"{launch.command[0]}: {error.strerror}\n".encode())
            return None, False
        late = False
        try:
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
            except TimeoutError:
                late = True
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await process.wait()
        finally:
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
