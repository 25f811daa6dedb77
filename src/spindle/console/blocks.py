"""Cuts streamed Markdown where a block has ended, so that what is printed never has to be printed again."""

import re
from typing import Literal, NamedTuple

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$")
_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")
_CODE_AT_ONCE = 8
"""So many lines of a code block are printed together."""
_CODE_CONTEXT = 60
"""So many lines before them tell the highlighter where it is."""


class Block(NamedTuple):
    kind: Literal["text", "item", "open", "code", "close"]
    """Markdown; the next item of a list; the fence before code; finished lines of it; the fence after it."""
    text: str
    language: str = ""
    before: tuple[str, ...] = ()
    """Lines of the same code block that were given out already."""


class Blocks:
    def __init__(self) -> None:
        self._lines: list[str] = []
        """Finished lines of the block that goes on."""
        self._rest = ""
        """The line that goes on."""
        self._fence: str | None = None
        self._language = ""
        self._before: list[str] = []
        self._listing = False
        """The block that goes on is an item, and so was the one before it."""

    @property
    def open(self) -> str:
        """What has come of the block that is not finished."""
        return "\n".join([*self._lines, self._rest])

    def feed(self, text: str) -> list[Block]:
        """Take the next piece; return the blocks that are finished now."""
        *lines, self._rest = (self._rest + text).split("\n")
        found = [block for line in lines for block in self._line(line)]
        if (
            self._fence is None
            and self._lines[-1:] == [""]
            and self._rest[:1].strip()
            and not _ITEM.match(self._lines[0])
        ):
            found += self._end()  # a new block begins; a list may go on
        return found

    def flush(self) -> list[Block]:
        """The text is over: return what is left."""
        rest, self._rest = self._rest, ""
        found = [*(self._line(rest) if rest else ()), *self._end()]
        self._fence, self._before = None, []
        return found

    def _line(self, line: str) -> list[Block]:
        if self._fence is not None:
            return self._code_line(line)
        starts_anew = bool(line.strip()) and not line[:1].isspace()
        next_item = starts_anew and bool(self._lines) and bool(_ITEM.match(line)) and bool(_ITEM.match(self._lines[0]))
        found = self._end() if starts_anew and (self._lines[-1:] == [""] or next_item) else []
        if found or not self._lines:
            self._listing = next_item
        in_item = bool(self._lines) and bool(_ITEM.match(self._lines[0])) and not starts_anew
        if (fence := _FENCE.match(line)) and not in_item:
            found += self._end()
            self._fence, self._language, self._before = fence[1], fence[2], []
            found.append(Block("open", line))
        elif line.strip() or self._lines:
            self._lines.append(line if line.strip() else "")
        return found

    def _code_line(self, line: str) -> list[Block]:
        assert self._fence is not None
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            found = [*self._end(), Block("close", line)]
            self._fence, self._before = None, []
            return found
        self._lines.append(line)
        return self._end() if len(self._lines) >= _CODE_AT_ONCE else []

    def _end(self) -> list[Block]:
        lines, self._lines = self._lines, []
        if self._fence is None:
            text = "\n".join(lines).strip("\n")
            return [Block("item" if self._listing else "text", text)] if text else []
        before = tuple(self._before)
        self._before = [*self._before, *lines][-_CODE_CONTEXT:]
        return [Block("code", "\n".join(lines), self._language, before)] if lines else []
