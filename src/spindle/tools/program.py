"""Programs that search for us: what they are asked, the lines they print, what they complain of."""

import os
from collections.abc import Callable, Sequence

from .base import ToolError
from .oserrors import os_error_text
from .process import Process
from .text import well_formed

__all__ = ["argument", "run_program"]

_MAX_ERROR_BYTES = 64 * 1024


def argument(pattern: str) -> str:
    """Return a pattern as it can stand on a command line. Raises `ToolError` if it cannot."""
    if "\0" in pattern:
        raise ToolError("Pattern must not contain null bytes")
    return well_formed(pattern)


async def run_program(name: str, command: Sequence[str], cwd: str, take: Callable[[bytes], bool]) -> tuple[int, str]:
    """Run a command that prints lines; return its exit code and what it complained of.

    `take` gets every line and says whether it wants more; the program is killed when it does not. Raises `ToolError`
    if `name`, as people know the program, cannot be started.
    """
    splitter = _LineSplitter()
    errors = bytearray()

    def take_output(data: bytes) -> None:
        if not all(take(line) for line in splitter.feed(data)):
            process.kill()

    def take_errors(data: bytes) -> None:
        errors.extend(data[: _MAX_ERROR_BYTES - len(errors)])

    try:
        process = Process(command, cwd=cwd, env=os.environ, on_output=take_output, on_errors=take_errors)
    except OSError as error:
        raise ToolError(f"Failed to run {name}: {os_error_text(error, 'spawn', command[0])}") from None
    code = await process.wait()
    return code, errors.decode("utf-8", "replace").strip() or f"{name} exited with code {code}"


class _LineSplitter:
    """Cuts a stream into lines; a line in many pieces is joined once, not once per piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their newlines."""
        if b"\n" not in data:
            self._pieces.append(data)
            return []
        *lines, rest = b"".join([*self._pieces, data]).split(b"\n")
        self._pieces = [rest]
        return lines
