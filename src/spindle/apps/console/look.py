"""How text looks on this terminal: what it can show, colours, widths. Nothing here knows of the agent."""

import os
import re

from rich.cells import cell_len, chop_cells, set_cell_size

from spindle.base.terminal import CONTROL, plain

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_COLOURS = frozenset({"red", "green", "yellow", "cyan"})
_ASCII = str.maketrans(
    "❯❮●✓✗…·→∴•" + "━─╴╶╸╺–—‑" + "│┃▌╷╵" + "┏┓┗┛┡┩╇└┘┴┼├┤┬" + "’‘“”",
    "><*+x~|>~*" + "-" * 9 + "|" * 5 + "+" * 14 + "''\"\"",
)
"""Our own signs and those of rich, for terminals that only know ASCII."""


def clean(text: str) -> str:
    """Take out everything that would move the cursor or change the terminal: what a model writes is only text."""
    return plain(text).replace("\t", "    ")


def visible(text: str) -> str:
    """Show the characters that `clean` would take out: a user who decides must see everything."""
    return re.sub(CONTROL, lambda found: ascii(found[0])[1:-1], text.replace("\t", "    "))


def printed(output: str) -> str:
    """Return the output of a program as a terminal shows it in the end: of an overwritten line, the last text."""
    return clean("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in output.split("\n")))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def fit(text: str, width: int) -> str:
    """Cut a line so that it takes at most so many columns."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def rows(text: str, width: int) -> list[str]:
    """Return a text in rows, broken between words if they fit; of a very long text only the end."""
    end = text[max(0, len(text) // width - 80) * width :]
    parts = re.findall(rf".{{1,{width - 1}}}(?: |$)|.{{1,{width}}}|^$", end, re.MULTILINE)
    return [row for part in parts for row in chop_cells(part, width) or [part]]


class Look:
    """What this terminal can do, found out from its environment."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        environ = os.environ
        locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
        self.plain = environ.get("TERM", "dumb") in ("dumb", "unknown", "")
        """No cursor to move: lines in, lines out."""
        self.unicode = "utf" in locale.lower()
        self.colour = not self.plain and not environ.get("NO_COLOR") and not environ["TERM"].endswith("-m")

    @property
    def width(self) -> int:
        return self.size()[0]

    def size(self) -> tuple[int, int]:
        """Return columns and lines; not from the environment, which does not change with the window."""
        try:
            columns, lines = os.get_terminal_size(self._fd)
        except OSError:
            columns, lines = 0, 0
        return columns or 80, lines or 24

    def paint(self, text: str, *styles: str) -> str:
        codes = [_SGR[style] for style in styles if self.colour or style not in _COLOURS]
        return text if self.plain or not codes or not text else f"\x1b[{';'.join(codes)}m{text}\x1b[0m"

    def signs(self, text: str) -> str:
        """Return a text with signs that this terminal can show."""
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()
