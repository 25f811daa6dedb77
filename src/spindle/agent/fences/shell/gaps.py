"""Text with gaps: parts that are not known before a command runs. Says whether such a text may fit a pattern.

A gap is a null character, which no word of a command can have, and a letter for what may stand there.
"""

import re
from collections.abc import Iterable
from typing import Final

ANY: Final = "\0a"
"""Any text."""
WORDS: Final = "\0w"
"""Any number of words: an expansion without quotes."""
STAR: Final = "\0s"
"""Any text without a slash: a `*` of the shell."""
ONE: Final = "\0q"
"""A character that is no slash."""
NUMBER: Final = "\0n"
PLACE: Final = "\0p"
"""The folder in which the command runs."""
FOLDERS: Final = ["\0f", ANY, "/"]
"""Tokens of a pattern: any number of folders, each with its slash."""

_TOKEN = re.compile(r"(?s)\0.|[^\0]")


def has_gap(text: str) -> bool:
    return "\0" in text


class Pattern:
    """A pattern made of tokens: characters, `ONE`, `STAR`, `ANY` and those of `FOLDERS`.

    The pattern is a machine with a state before each token. A set of states is a number with a bit for each, so that a
    text takes time in proportion to its length.
    """

    __slots__ = ("_all", "_any", "_characters", "_digits", "_ends", "_folders", "_ones", "_stars")

    def __init__(self, tokens: list[str], ends: Iterable[int] = ()) -> None:
        """`ends`: states, besides the last one, in which the text may end."""
        size = len(tokens)
        self._all = (1 << size + 1) - 1
        self._ends = 1 << size | sum(1 << end for end in set(ends) - {size})
        self._characters: dict[str, int] = {}
        for at, token in enumerate(tokens):
            self._characters[token] = self._characters.get(token, 0) | 1 << at
        self._ones = self._characters.pop(ONE, 0)
        self._stars = self._characters.pop(STAR, 0)
        self._any = self._characters.pop(ANY, 0)
        self._folders = self._characters.pop(FOLDERS[0], 0)
        self._digits = sum(self._characters.get(digit, 0) for digit in "0123456789")

    def may_fit(self, text: str) -> bool:
        states, last = self._closed(1), ""
        for token in _TOKEN.findall(text):
            if token in (ANY, WORDS, PLACE):
                states = self._all & -(states & -states)  # every later state can be reached
            elif token in (STAR, NUMBER):
                more = self._after_unknown(states, last, digit=token == NUMBER)
                states |= more
                while more:
                    more = self._after_unknown(more, "", digit=token == NUMBER) & ~states
                    states |= more
            elif token == ONE:
                states = self._after_unknown(states, last)
            else:
                states = self._after(states, token)
            if not states:
                return False
            last = token
        return bool(states & self._ends)

    def _after(self, states: int, character: str) -> int:
        after = (states & self._characters.get(character, 0)) << 1 | states & self._any
        if character != "/":
            after |= (states & self._ones) << 1 | states & self._stars
        return self._closed(after)

    def _after_unknown(self, states: int, last: str, *, digit: bool = False) -> int:
        """Return the states after some character that is no slash, nor a dot at the start of a name."""
        stay = self._stars | self._any
        if digit:
            states &= stay | self._ones | self._digits
        never = stay | self._characters.get("/", 0) | (self._characters.get(".", 0) if last == "/" else 0)
        return self._closed((states & ~never) << 1 & self._all | states & stay)

    def _closed(self, states: int) -> int:
        """Add the states that are reached without a character."""
        before = 0
        while states != before:
            before = states
            states |= (states & (self._stars | self._any | self._folders)) << 1
            states |= (states & self._folders) << len(FOLDERS)
        return states
