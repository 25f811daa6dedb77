"""ripgrep, which grep and find stand on: where it is, and how it is asked."""

import os
import sys
from collections.abc import Callable, Sequence

from spindle.children import environment, on_path
from spindle.process import Process
from spindle.tools.base import ToolError, ToolSettings, os_error_text, well_formed

__all__ = ["argument", "find_ripgrep", "run_ripgrep"]

_MAX_ERROR_BYTES = 64 * 1024
_MAX_LINE_BYTES = 16 * 1024 * 1024


def find_ripgrep(bin_dir: str | None) -> str | None:
    """Return rg from `bin_dir` (the agent's own folder), from PATH, or from next to our Python, where its wheel is."""
    folders = (bin_dir or "", None, os.path.dirname(sys.executable))
    return next((program for folder in folders if (program := on_path("rg", folder))), None)


def argument(pattern: str) -> str:
    """Return a pattern as it can stand on a command line. Raises `ToolError` if it cannot."""
    if "\0" in pattern:
        raise ToolError("Pattern must not contain null bytes")
    return well_formed(pattern)


async def run_ripgrep(
    settings: ToolSettings, options: Sequence[str], cwd: str, take: Callable[[bytes], bool]
) -> tuple[int, str]:
    """Run rg; return its exit code and what it complained of.

    `take` gets every line of output and says whether it wants more; rg is killed when it does not. Raises `ToolError`
    if rg cannot be started, or prints a line that would take too much memory.
    """
    rg = find_ripgrep(settings.bin_dir)
    if rg is None:
        raise ToolError("ripgrep (rg) is not available")
    rest: list[bytes] = []
    """Pieces of the line that has not ended yet; joined once, not once per piece."""
    errors = bytearray()
    too_long = False

    def take_output(data: bytes) -> None:
        nonlocal rest, too_long
        rest.append(data)
        wants_more = True
        if b"\n" in data:
            *lines, last = b"".join(rest).split(b"\n")
            rest = [last]
            wants_more = all(map(take, lines))
        too_long = wants_more and sum(map(len, rest)) > _MAX_LINE_BYTES
        if too_long or not wants_more:
            process.kill()

    def take_errors(data: bytes) -> None:
        errors.extend(data[: _MAX_ERROR_BYTES - len(errors)])

    try:
        # --no-config: the user's own options would change what is printed.
        process = Process(
            [rg, "--no-config", *options],
            cwd=cwd,
            env=environment(settings.withheld_variables),
            on_output=take_output,
            on_errors=take_errors,
            owner=settings.owner,
        )
    except OSError as error:
        raise ToolError(f"Failed to run ripgrep: {os_error_text(error, 'spawn', rg)}") from None
    code = await process.wait()
    if too_long:
        raise ToolError(f"ripgrep printed a line of more than {_MAX_LINE_BYTES} bytes")
    return code, errors.decode("utf-8", "replace").strip() or f"ripgrep exited with code {code}"
