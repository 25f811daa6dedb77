"""A stretch of lines out of a text of any length, in bounded memory."""

from spindle.tools.text import utf8_length
from spindle.tools.truncate import MAX_BYTES, MAX_LINES, TextSize

__all__ = ["LineWindow"]


class LineWindow:
    """Takes a text piece by piece and keeps the lines from `start` (counted from 0), at most `limit` of them.

    Of a stretch longer than the limits of `truncate` only the beginning is kept; the rest is counted.
    """

    def __init__(self, start: int, limit: int | None) -> None:
        self._start = start
        self._end = None if limit is None else start + limit
        self._newlines = 0
        """Seen in the whole text."""
        self._kept: list[str] = []
        self._kept_size = TextSize(0, 0)
        self._bytes = 0
        self._inner_newlines = 0
        """Within the stretch."""
        self._last = ""
        """Last character of the stretch."""
        self.first_line_bytes = 0

    @property
    def text(self) -> str:
        return "".join(self._kept)

    @property
    def size(self) -> TextSize:
        """Of the whole stretch, kept or not."""
        return TextSize(self._inner_newlines + (self._last not in ("", "\n")), self._bytes)

    @property
    def total_lines(self) -> int:
        """Of the whole text; a final newline opens one more."""
        return self._newlines + 1

    def feed(self, text: str) -> None:
        newlines = text.count("\n")
        first, last = self._newlines, self._newlines + newlines
        self._newlines = last
        if last < self._start or (self._end is not None and max(first, self._start) >= self._end):
            return
        if self._end is not None and last >= self._end:
            lines = self._end - first
            text = "\n".join(text.split("\n", lines)[:lines])
            newlines = lines - 1
        if first < self._start:
            text = text.split("\n", self._start - first)[-1]
            newlines -= self._start - first
        if text:
            self._add(text, newlines)

    def _add(self, text: str, newlines: int) -> None:
        if not self._inner_newlines:
            self.first_line_bytes += utf8_length(text.partition("\n")[0])
        size = utf8_length(text)
        if self._kept_size.lines <= MAX_LINES and self._kept_size.bytes <= MAX_BYTES:
            self._kept.append(text)
            self._kept_size = TextSize(self._kept_size.lines + newlines, self._kept_size.bytes + size)
        self._inner_newlines += newlines
        self._bytes += size
        self._last = text[-1]
