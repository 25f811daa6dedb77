"""Bytes in, lines out: how a stream of JSON lines is cut into commands.

Only `\\n` ends a line (U+2028 and friends are data), one `\\r` before it is removed. No input, no event loop and no
meaning of lines here.
"""

from msgspec import Struct

MAX_LINE = 64 * 1024 * 1024


class LineTooLong(Struct, frozen=True):
    """Takes the place of a line that was longer than `limit` bytes and was skipped."""

    limit: int

    def __str__(self) -> str:
        return f"the line is longer than {self.limit} bytes"


class LineReader:
    """Cuts a stream into lines, whatever pieces it comes in. Looks at every byte once."""

    __slots__ = ("_held", "_limit", "_pieces", "_skipping")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        """The beginning of a line whose end has not come yet."""
        self._held = 0
        """Bytes in `_pieces`."""
        self._skipping = False
        """Whether the present line was too long and was reported; its rest is dropped."""

    def receive(self, data: bytes) -> list[bytes | LineTooLong]:
        """Return the lines that `data` completes, without their ends.

        A line that is too long is reported once, as soon as that is known, and skipped up to its end.
        """
        *endings, rest = data.split(b"\n")
        lines: list[bytes | LineTooLong] = []
        for ending in endings:
            self._hold(ending, lines)
            if not self._skipping:
                lines.append(self._line())
            self._skipping = False
        self._hold(rest, lines)
        return lines

    def close(self) -> bytes | None:
        """Return the last line if it has no newline; None if there is none."""
        return self._line() if self._held else None

    def _hold(self, piece: bytes, lines: list[bytes | LineTooLong]) -> None:
        if self._skipping or not piece:
            return
        self._held += len(piece)
        if self._held > self._limit:
            self._drop()
            self._skipping = True
            lines.append(LineTooLong(self._limit))
        else:
            self._pieces.append(piece)

    def _line(self) -> bytes:
        line = b"".join(self._pieces)
        self._drop()
        return line.removesuffix(b"\r")

    def _drop(self) -> None:
        self._pieces.clear()
        self._held = 0
