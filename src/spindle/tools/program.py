"""Programs that search for us: what they are asked, the lines they print, what they complain of."""

import os
from collections.abc import Callable, Sequence

from spindle.tools.base import ToolError
from spindle.tools.oserrors import os_error_text
from spindle.tools.process import Process
from spindle.tools.text import well_formed

__all__ = ["LineTooLongError", "argument", "run_program"]

_MAX_ERROR_BYTES = 64 * 1024
_MAX_LINE_BYTES = 16 * 1024 * 1024


class LineTooLongError(ToolError):
    """The program prints a line that would take too much memory."""


def argument(pattern: str) -> str:
    """Return a pattern as it can stand on a command line. Raises `ToolError` if it cannot."""
    if "\0" in pattern:
        raise ToolError("Pattern must not contain null bytes")
    return well_formed(pattern)


async def run_program(name: str, command: Sequence[str], cwd: str, take: Callable[[bytes], bool]) -> tuple[int, str]:
    """Run a command that prints lines; return its exit code and what it complained of.

    `take` gets every line and says whether it wants more; the program is killed when it does not. Raises `ToolError`
    if `name`, as people know the program, cannot be started, and `LineTooLongError`.
    """
    splitter = _LineSplitter()
    errors = bytearray()
    too_long = False

    def take_output(data: bytes) -> None:
        nonlocal too_long
        satisfied = not all(take(line) for line in splitter.feed(data))
        too_long = too_long or (not satisfied and splitter.rest_bytes > _MAX_LINE_BYTES)
        if satisfied or too_long:
            process.kill()

    def take_errors(data: bytes) -> None:
        errors.extend(data[: _MAX_ERROR_BYTES - len(errors)])

    try:
        process = Process(command, cwd=cwd, env=os.environ, on_output=take_output, on_errors=take_errors)
    except OSError as error:
        raise ToolError(f"Failed to run {name}: {os_error_text(error, 'spawn', command[0])}") from None
    code = await process.wait()
    if too_long:
        raise LineTooLongError(f"{name} printed a line of more than {_MAX_LINE_BYTES} bytes")
    return code, errors.decode("utf-8", "replace").strip() or f"{name} exited with code {code}"


class _LineSplitter:
    """Cuts a stream into lines; a line in many pieces is joined once, not once per piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.rest_bytes = 0
        """Length of the line that has not ended yet."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their newlines."""
        if b"\n" not in data:
            self._pieces.append(data)
            self.rest_bytes += len(data)
            return []
        *lines, rest = b"".join([*self._pieces, data]).split(b"\n")
        self._pieces = [rest]
        self.rest_bytes = len(rest)
        return lines
