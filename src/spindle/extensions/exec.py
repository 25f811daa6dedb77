"""Programs that extensions run: no shell, output as text, an end for every one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spindle.children import environment
from spindle.process import run
from spindle.tools.base import ToolSettings

__all__ = ["ExecResult", "execute"]


_DEFAULTS = ToolSettings()


@dataclass(frozen=True, slots=True)
class ExecResult:
    stdout: str
    stderr: str
    code: int
    """127 if the program could not be started; negative: the signal that ended it."""
    killed: bool
    """Whether the time ran out."""


async def execute(
    argv: Sequence[str],
    settings: ToolSettings = _DEFAULTS,
    *,
    cwd: Path,
    timeout: float | None = None,
    input: str | bytes | None = None,
) -> ExecResult:
    """Run a program to its end, with the environment that tools get.

    Never raises, except when cancelled; then the program is killed.
    """
    data = input.encode() if isinstance(input, str) else input
    try:
        env = environment(settings.withheld_variables)
        done = await run(argv, cwd=str(cwd), env=env, owner=settings.owner, input=data, timeout=timeout)
    except (OSError, ValueError, TypeError, IndexError) as error:
        return ExecResult("", f"{argv[0] if argv else 'No program'}: {error}", 127, False)
    out, err = (text.decode("utf-8", "replace") for text in (done.output, done.errors))
    return ExecResult(out, err, done.code, done.timed_out)
