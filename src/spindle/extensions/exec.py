"""Programs that extensions run: no shell, output as text, an end for every one of them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ExecResult", "execute"]

GRACE_S = 5.0
"""Between the polite and the impolite signal."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    stdout: str
    stderr: str
    code: int
    """127 if the program could not be started; negative: the signal that ended it."""
    killed: bool
    """Whether the time ran out."""


async def execute(
    argv: Sequence[str], *, cwd: Path, timeout: float | None = None, input: str | bytes | None = None
) -> ExecResult:
    """Run a program to its end. Never raises, except when cancelled; then the program is killed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError, TypeError) as error:
        return ExecResult("", f"{argv[0] if argv else 'No program'}: {error}", 127, False)
    data = input.encode() if isinstance(input, str) else input
    talking = asyncio.ensure_future(process.communicate(data))
    killed = False
    try:
        done, _ = await asyncio.wait([talking], timeout=timeout)
        if not done:
            killed = True
            await _stop(process, talking)
        out, err = talking.result() if talking.done() else (b"", b"")
    except asyncio.CancelledError:
        _signal(process, signal.SIGKILL)
        talking.cancel()
        raise
    code = process.returncode if process.returncode is not None else -signal.SIGKILL
    return ExecResult(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), code, killed)


async def _stop(process: asyncio.subprocess.Process, talking: "asyncio.Future[tuple[bytes, bytes]]") -> None:
    _signal(process, signal.SIGTERM)
    done, _ = await asyncio.wait([talking], timeout=GRACE_S)
    if not done:
        _signal(process, signal.SIGKILL)
        # A grandchild that left the group may hold the pipes for ever.
        await asyncio.wait([talking], timeout=1)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal the program and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
