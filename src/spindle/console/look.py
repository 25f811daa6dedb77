"""How text looks on this terminal: what it can show, colours, widths, Markdown. Nothing here knows of the agent.

rich is imported when the first block is rendered.
"""

import io
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from prompt_toolkit.utils import get_cwidth

if TYPE_CHECKING:
    from rich.console import Console

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_COLOURS = frozenset({"red", "green", "yellow", "cyan"})
_ASCII = str.maketrans(
    {"❯": ">", "●": "*", "✓": "+", "✗": "x", "…": "~", "·": "|", "→": ">", "∴": "~", "•": "*"}
    | dict.fromkeys("━─╴╶╸╺–—‑", "-")
    | dict.fromkeys("│┃▌╷╵", "|")
    | dict.fromkeys("┏┓┗┛┡┩╇└┘┴┼├┤┬", "+")
    | dict.fromkeys("’‘", "'")
    | dict.fromkeys("“”", '"')
)
"""Our own signs and those of rich, for terminals that only know ASCII."""
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""Also those that turn the direction of a text, so that it looks like another."""
_SEQUENCE = re.compile(rf"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]?|{_CONTROL}")
_EMPTY = re.compile(r"\x1b\[[\d;]*m\x1b\[0m")
_TRAILING = re.compile(r" +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)


def clean(text: str) -> str:
    """Take out everything that would move the cursor or change the terminal: what a model writes is only text."""
    return _SEQUENCE.sub("", text.replace("\r\n", "\n").replace("\t", "    "))


def visible(text: str) -> str:
    """Show what `clean` would take out: of what a user is to decide about nothing may be hidden."""
    return re.sub(_CONTROL, lambda found: ascii(found[0])[1:-1], text.replace("\t", "    "))


def printed(output: str) -> str:
    """Return what a program wrote as a terminal would show it in the end: of a line that was overwritten, the last."""
    return clean("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in output.split("\n")))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def fit(text: str, width: int) -> str:
    """Cut a line so that it takes at most so many columns."""
    if get_cwidth(text) <= width:
        return text
    used, end = 0, 0
    for end, letter in enumerate(text):  # noqa: B007 - the place of the cut
        used += get_cwidth(letter)
        if used > width - 1:
            break
    return text[:end] + "…"


def rows(text: str, width: int) -> list[str]:
    """Break lines where the terminal would; of a very long text only the end."""
    text = text[max(0, len(text) // width - 40) * width :]
    found: list[str] = []
    for line in text.split("\n"):
        row, used = "", 0
        for letter in line:
            size = get_cwidth(letter)
            if used + size > width:
                found.append(row)
                row, used = "", 0
            row += letter
            used += size
        found.append(row)
    return found


class Look:
    """What this terminal can do, found out from its environment."""

    def __init__(self) -> None:
        environ = os.environ
        locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
        self.plain = environ.get("TERM", "dumb") in ("dumb", "unknown", "")
        """No cursor to move: lines in, lines out."""
        self.unicode = "utf" in locale.lower().replace("-", "")
        self.colour = not self.plain and not environ.get("NO_COLOR") and not environ["TERM"].endswith("-m")
        self._console: Console | None = None

    @property
    def width(self) -> int:
        return self.size()[0]

    def size(self) -> tuple[int, int]:
        """Return columns and lines; not by the environment, which does not change with the window."""
        try:
            columns, lines = os.get_terminal_size(1)
        except OSError:
            columns, lines = 0, 0
        return columns or 80, lines or 24

    def paint(self, text: str, *styles: str) -> str:
        codes = [_SGR[style] for style in styles if self.colour or style not in _COLOURS]
        return text if self.plain or not codes or not text else f"\x1b[{';'.join(codes)}m{text}\x1b[0m"

    def signs(self, text: str) -> str:
        """Return a text with signs that this terminal can show."""
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()

    # -- rich ------------------------------------------------------------------------------------

    def markdown(self, text: str) -> str:
        """Return a Markdown block as it is to stand in the scrollback."""
        if self.plain:
            return text
        return self._printed(self._rich(), _markdown()(text, code_theme="ansi_dark", hyperlinks=False))

    def code(self, before: Sequence[str], new: Sequence[str], language: str) -> str:
        """Return `new` lines highlighted, knowing the lines before them."""
        if not self.colour or not language:
            return "\n".join(new)
        from rich.syntax import Syntax

        console = self._rich()
        text = "\n".join([*before, *new])
        lines = Syntax(text, language, theme="ansi_dark").highlight(text).split("\n", allow_blank=True)
        shown = lines[len(before) : len(before) + len(new)]
        return "\n".join(self._printed(console, line, soft_wrap=True) for line in shown)

    def _rich(self) -> "Console":
        if self._console is None:
            from rich.console import Console
            from rich.theme import Theme

            self._console = Console(
                file=io.StringIO(),
                force_terminal=True,
                color_system="standard" if self.colour else None,
                no_color=not self.colour,
                highlight=False,
                markup=False,
                emoji=False,
                legacy_windows=False,
                theme=Theme({"markdown.code": "cyan", "markdown.h1": "bold", "markdown.h2": "bold"}),
            )
        self._console.width = max(20, self.width - 1)
        return self._console

    def _printed(self, console: "Console", item: Any, **how: Any) -> str:
        with console.capture() as caught:
            console.print(item, **how)
        return _EMPTY.sub("", _TRAILING.sub(r"\1", caught.get())).strip("\n")


@cache
def _markdown() -> Any:
    """Return rich's Markdown, with headings on the left instead of in boxes, and all that is written in it.

    rich leaves out HTML, which is as often `Vec<T>`, what links refer to, and where pictures are.
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
        reader = (
            MarkdownIt()
            .enable(["strikethrough", "table"])
            .disable(["html_block", "html_inline", "reference", "image", "autolink"])
        )

        def __init__(self, text: str, **how: Any) -> None:
            super().__init__("", **how)
            self.parsed = self.reader.parse(text)

    return PlainMarkdown
