"""Streamed Markdown: cut where a block has ended, so that no text has to be printed twice, and rendered.

rich is imported when the first block is rendered.
"""

import io
import re
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

from spindle.apps.console.look import Look

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$")
_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")
_CODE_AT_ONCE = 8
"""Lines of a code block that are printed together."""
_CODE_CONTEXT = 60
"""Lines before them that tell the highlighter where it is."""
_EMPTY = re.compile(r"\x1b\[[\d;]*m\x1b\[0m")
_TRAILING = re.compile(r" +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)


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
        self._next_item = False
        """The block that goes on is an item, and so was the one before it."""
        self._fence = self._language = ""
        self._before: tuple[str, ...] = ()

    @property
    def open(self) -> str:
        """The text received so far of the block that is not finished."""
        return "\n".join([*self._lines, self._rest])

    def feed(self, text: str) -> list[Block]:
        """Take the next piece; return the blocks that are finished now."""
        *lines, self._rest = (self._rest + text).split("\n")
        return [block for line in lines for block in self._line(line)]

    def flush(self) -> list[Block]:
        """End the text, and return the remaining blocks."""
        rest, self._rest = self._rest, ""
        found = [*(self._line(rest) if rest else ()), *self._end()]
        self._fence = ""
        return found

    def _line(self, line: str) -> list[Block]:
        if self._fence:
            return self._code_line(line)
        listing = bool(self._lines and _ITEM.match(self._lines[0]))
        if not line.strip():
            self._lines += [""] if listing else []  # a list may go on
            return [] if listing else self._end()
        at_margin, found = not line[0].isspace(), list[Block]()
        if listing and at_margin and (_ITEM.match(line) or self._lines[-1] == ""):
            found = self._end()
            self._next_item = bool(_ITEM.match(line))
        if (fence := _FENCE.match(line)) and (at_margin or not listing):
            found += [*self._end(), Block("open", line)]
            self._fence, self._language, self._before = fence[1], fence[2], ()
        else:
            self._lines.append(line)
        return found

    def _code_line(self, line: str) -> list[Block]:
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            found = [*self._end(), Block("close", line)]
            self._fence = ""
            return found
        self._lines.append(line)
        return self._end() if len(self._lines) >= _CODE_AT_ONCE else []

    def _end(self) -> list[Block]:
        lines, self._lines = self._lines, []
        kind: Any = "item" if self._next_item else "text"
        self._next_item = False
        if not self._fence:
            return [Block(kind, "\n".join(lines).strip("\n"))] if lines else []
        before, self._before = self._before, (*self._before, *lines)[-_CODE_CONTEXT:]
        return [Block("code", "\n".join(lines), self._language, before)] if lines else []


def render(block: Block, look: Look) -> str:
    """Return a block as the scrollback shows it."""
    if block.kind in ("open", "close"):
        return look.paint(block.text, "dim")
    if block.kind == "code":
        return _code(block, look)
    return block.text if look.plain else _print(_markdown()(block.text), look)


def _code(block: Block, look: Look) -> str:
    if not look.colour or not block.language:
        return block.text
    from rich.syntax import Syntax

    text = "\n".join([*block.before, block.text])
    lines = Syntax(text, block.language, theme="ansi_dark").highlight(text).split("\n", allow_blank=True)
    shown = lines[len(block.before) : len(block.before) + block.text.count("\n") + 1]
    return "\n".join(_print(line, look, soft_wrap=True) for line in shown)


def _print(item: Any, look: Look, **how: Any) -> str:
    from rich.console import Console
    from rich.theme import Theme

    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        no_color=not look.colour,
        highlight=False,
        markup=False,
        emoji=False,
        theme=Theme({"markdown.code": "cyan", "markdown.h1": "bold", "markdown.h2": "bold"}),
        width=max(20, look.width - 1),
    )
    with console.capture() as caught:
        console.print(item, **how)
    return _EMPTY.sub("", _TRAILING.sub(r"\1", caught.get())).strip("\n")


@cache
def _markdown() -> Any:
    """Return rich's Markdown, with headings on the left instead of in boxes, and with nothing left out.

    rich itself leaves out HTML (which is often `Vec<T>`), the addresses of links and pictures, and ends of lines.
    """
    from markdown_it import MarkdownIt
    from rich.markdown import Heading, Markdown
    from rich.text import Text

    class LeftHeading(Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            self.text.justify = "left"
            yield Text("#" * int(self.tag[1:]) + " ", style="bold", end="") + self.text

    class PlainMarkdown(Markdown):
        elements: ClassVar = {**Markdown.elements, "heading_open": LeftHeading}
        reader = MarkdownIt().enable(["strikethrough", "table"])
        reader.disable(["html_block", "html_inline", "reference", "image", "autolink"])

        def __init__(self, text: str) -> None:
            super().__init__("", code_theme="ansi_dark", hyperlinks=False)
            self.parsed = self.reader.parse(text)
            for token in (child for block in self.parsed for child in block.children or ()):
                token.type = "hardbreak" if token.type == "softbreak" else token.type

    return PlainMarkdown
