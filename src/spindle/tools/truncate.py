"""Cutting long text: whole lines from the start, whole lines from the end, or one long line.

`TruncationResult` goes out as it is in `details.truncation`. Text that was too long to hold while it was read is
cut here too: `LineWindow` and `OutputBuffer` pass the part they hold and the size of the whole text.
"""

import codecs
import os
from collections.abc import Iterable
from typing import Any

from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Wire
from spindle.tools.base import format_size, text_result
from spindle.workspace import KeptOutput
from spindle.workspace.texts import MAX_BYTES as MAX_BYTES
from spindle.workspace.texts import MAX_LINES as MAX_LINES
from spindle.workspace.texts import Spool, open_kept, utf8_length
from spindle.workspace.texts import TextSize as TextSize

HEAD_BYTES = 4 * 1024
HEAD_LINES = 50
"""What is shown of the beginning of an output that is too long, besides its end."""
MAX_LINE_LENGTH = 500
"""The longest line of grep output, in UTF-16 units."""
_NO_LINE_LIMIT = 2**53 - 1
_KEEP_BYTES = 2 * MAX_BYTES
"""More than can be shown, so that a line cut at the front is never shown."""
_TRIM_BYTES = 2 * _KEEP_BYTES


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
        return TruncationResult(text, False, None, *total, *total, False, False, max_lines, max_bytes)
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
        return TruncationResult(text, False, None, *total, *total, False, False, max_lines, max_bytes)
    lines = text.removesuffix("\n").rsplit("\n", max_lines)[-max_lines:]
    kept, size = _fitting(reversed(lines), max_bytes)
    by = "lines" if kept == len(lines) else "bytes"
    if kept:
        content = "\n".join(lines[-kept:])
        return TruncationResult(content, True, by, *total, kept, size, False, False, max_lines, max_bytes)
    # Half a character at the start is dropped.
    tail = lines[-1].encode("utf-8", "surrogatepass")[-max_bytes:].lstrip(bytes(range(0x80, 0xC0)))
    end = tail.decode("utf-8", "surrogatepass")
    by = "lines" if max_lines == 1 else "bytes"
    return TruncationResult(end, True, by, *total, 1, utf8_length(end), True, False, max_lines, max_bytes)


def truncate_line(line: str) -> tuple[str, bool]:
    """Return the line cut to `MAX_LINE_LENGTH`, and whether it was cut."""
    limit = MAX_LINE_LENGTH
    if len(line) <= limit and (line.isascii() or len(line.encode("utf-16-le", "surrogatepass")) <= 2 * limit):
        return line, False
    # A character outside the BMP takes two units; half a character is dropped.
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


# -- results that are lists ----------------------------------------------------------------------


def listing_result(lines: list[str], limits: dict[str, Any], limit_notice: str = "", remark: str = "") -> ToolResult:
    """Return the lines, cut at the byte limit.

    `limits` are details about limits that were reached, `limit_notice` says so in words; `remark` comes last.
    """
    output = truncate_head("\n".join(lines), _NO_LINE_LIMIT)
    details = {**limits, "truncation": output} if output.truncated else limits
    notices = (limit_notice, f"{format_size(MAX_BYTES)} limit reached" if output.truncated else "", remark)
    bracket = ". ".join(notice for notice in notices if notice)
    return text_result(f"{output.content}\n\n[{bracket}]" if bracket else output.content, details or None)


# -- text that is cut while it is read -----------------------------------------------------------


def keep_whole(data: bytes, prefix: str) -> str:
    """Keep an output in a file for a day. Return its path, or a text that says why there is none."""
    try:
        path, file = open_kept(prefix)
        with os.fdopen(file, "wb") as out:
            out.write(data)
    except OSError as error:
        return f"not kept ({error.strerror})"
    return path


class OutputBuffer:
    """Takes raw bytes, gives the tail of the text. Memory is bounded, however long the text."""

    def __init__(self, kept: KeptOutput | None = None) -> None:
        self.kept = Spool() if kept is None else kept
        """Has the whole output, once it is too long."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        """Beginning of the decoded text, as UTF-8."""
        self._tail = bytearray()
        """End of it."""
        self._bytes = 0
        self._newlines = 0
        self._line_bytes = 0
        """Length of the line that is being written."""
        self._ended_line_bytes = 0
        """Length of the line before it."""

    def write(self, data: bytes) -> None:
        self._append(self._decoder.decode(data).encode())
        self.kept.write(data)

    def close(self) -> None:
        """Take no more bytes; half a character at the end becomes U+FFFD."""
        self._append(self._decoder.decode(b"", True).encode())
        self.kept.close()

    @property
    def path(self) -> str | None:
        return self.kept.path

    @property
    def size(self) -> TextSize:
        return TextSize(self._newlines + (self._line_bytes > 0), self._bytes)

    @property
    def last_line_bytes(self) -> int:
        return self._line_bytes or self._ended_line_bytes

    @property
    def location(self) -> str:
        return self.path or f"not kept ({self.kept.error})"

    def head(self, lines: int) -> str:
        """Return the beginning of the text, at most so many lines; a line that is too long is cut."""
        text = self._head.decode("utf-8", "ignore")
        whole = text.split("\n")[:lines]
        if len(whole) > 1 and len(self._head) == HEAD_BYTES and text.count("\n") < lines:
            whole.pop()  # cut somewhere
        return "\n".join(whole)

    def truncated(self) -> TruncationResult:
        return truncate_tail(self._tail.decode("utf-8", "replace"), whole=self.size)

    def _append(self, text: bytes) -> None:
        self._bytes += len(text)
        self._newlines += text.count(b"\n")
        last = text.rfind(b"\n")
        if last < 0:
            self._line_bytes += len(text)
        else:
            before = text.rfind(b"\n", 0, last)
            self._ended_line_bytes = last - before - 1 + (self._line_bytes if before < 0 else 0)
            self._line_bytes = len(text) - last - 1
        if len(self._head) < HEAD_BYTES:
            self._head += text[: HEAD_BYTES - len(self._head)]
        self._tail += text
        if len(self._tail) > _TRIM_BYTES:
            del self._tail[:-_KEEP_BYTES]
