"""Cutting long output: whole lines from the start, whole lines from the end, or one long line.

`TruncationResult` goes out as it is in `details.truncation`. Text that was not kept whole while it was read is
cut here too: its caller passes the piece it kept and the size of all of it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from spindle.shapes.content import Wire
from spindle.tools.text import utf8_length

__all__ = [
    "MAX_BYTES",
    "MAX_LINES",
    "MAX_LINE_LENGTH",
    "NO_LINE_LIMIT",
    "TextSize",
    "TruncationResult",
    "measure",
    "truncate_head",
    "truncate_line",
    "truncate_tail",
]

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_LINE_LENGTH = 500
"""Of one line of grep output, in UTF-16 units."""
NO_LINE_LIMIT = 2**53 - 1


class TruncationResult(Wire):
    content: str
    truncated: bool
    truncated_by: str | None
    """`lines` or `bytes`."""
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    last_line_partial: bool
    first_line_exceeds_limit: bool
    max_lines: int
    max_bytes: int


class TextSize(NamedTuple):
    lines: int
    bytes: int


def measure(text: str) -> TextSize:
    """Count lines (a final newline opens no new one) and UTF-8 bytes."""
    return TextSize(text.count("\n") + (not text.endswith("\n")) if text else 0, utf8_length(text))


def truncate_head(
    text: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, whole: TextSize | None = None
) -> TruncationResult:
    """Keep whole lines from the start within both limits.

    With `whole`, `text` is the beginning of something that big; it must itself pass a limit if `whole` does.
    """
    total = whole or measure(text)
    if total.lines <= max_lines and total.bytes <= max_bytes:
        return _untouched(text, total, max_lines, max_bytes)
    lines = text.split("\n", max_lines)[: min(measure(text).lines, max_lines)]
    kept, size = _fitting(lines, max_bytes)
    by = "lines" if kept == len(lines) else "bytes"
    content = "\n".join(lines[:kept])
    return TruncationResult(content, True, by, *total, kept, size, False, kept == 0, max_lines, max_bytes)


def truncate_tail(
    text: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, whole: TextSize | None = None
) -> TruncationResult:
    """Keep whole lines from the end within both limits; of a last line that is too long, its end.

    With `whole`, `text` is the end of something that big; it must itself pass a limit if `whole` does.
    """
    total = whole or measure(text)
    if total.lines <= max_lines and total.bytes <= max_bytes:
        return _untouched(text, total, max_lines, max_bytes)
    lines = text.removesuffix("\n").rsplit("\n", max_lines)[-max_lines:]
    kept, size = _fitting(reversed(lines), max_bytes)
    by = "lines" if kept == len(lines) else "bytes"
    if kept:
        content = "\n".join(lines[-kept:])
        return TruncationResult(content, True, by, *total, kept, size, False, False, max_lines, max_bytes)
    end = _last_bytes(lines[-1], max_bytes)
    by = "lines" if max_lines == 1 else "bytes"
    return TruncationResult(end, True, by, *total, 1, utf8_length(end), True, False, max_lines, max_bytes)


def truncate_line(line: str, limit: int = MAX_LINE_LENGTH) -> tuple[str, bool]:
    """Return the line cut to `limit` UTF-16 units, and whether it was cut."""
    if len(line) <= limit and (line.isascii() or len(line.encode("utf-16-le", "surrogatepass")) <= 2 * limit):
        return line, False
    # A character outside the BMP takes two units; half of one is left out.
    head = line[:limit].encode("utf-16-le", "surrogatepass")[: 2 * limit].decode("utf-16-le", "ignore")
    return head + "... [truncated]", True


def _fitting(lines: Iterable[str], max_bytes: int) -> tuple[int, int]:
    """Return how many of the lines fit, and the bytes they take with newlines between them."""
    kept, size = 0, 0
    for line in lines:
        cost = utf8_length(line) + (kept > 0)
        if size + cost > max_bytes:
            break
        size += cost
        kept += 1
    return kept, size


def _untouched(text: str, size: TextSize, max_lines: int, max_bytes: int) -> TruncationResult:
    return TruncationResult(text, False, None, *size, *size, False, False, max_lines, max_bytes)


def _last_bytes(line: str, count: int) -> str:
    data = line.encode("utf-8", "surrogatepass")[-count:]
    start = 0
    while start < len(data) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:].decode("utf-8", "surrogatepass")
