"""Hunks of a diff, taken back: the text before them, made of the text after them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_HEAD = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\"


class _Hunk(NamedTuple):
    at: int
    """The first of its lines in the text, counted from 0."""
    old: list[bytes]
    new: list[bytes]


def taken_back(content: bytes, hunks: Sequence[str]) -> bytes:
    """Return a text as it was before some hunks in git's form. Raises `ValueError` if they do not fit the text."""
    lines = _lines(content)
    for hunk in sorted(map(_read, hunks), key=lambda hunk: hunk.at, reverse=True):
        end = hunk.at + len(hunk.new)
        if lines[hunk.at : end] != hunk.new:
            raise ValueError(f"the lines from {hunk.at + 1} on are others")
        lines[hunk.at : end] = hunk.old
    return b"".join(lines)


def _lines(content: bytes) -> list[bytes]:
    """Return the lines with their newlines; other line ends are part of a line, as for git."""
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _read(text: str) -> _Hunk:
    head, _, body = text.partition("\n")
    if (found := _HEAD.match(head)) is None:
        raise ValueError(f"not a hunk: {head[:80]!r}")
    hunk = _Hunk(int(found[1]) - (found[2] != "0"), [], [])
    sides: list[list[bytes]] = []
    for line in body.removesuffix("\n").split("\n"):
        if line.startswith(_NO_NEWLINE):  # the line above is the last one
            for side in sides:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        sides = {"-": [hunk.old], "+": [hunk.new]}.get(line[:1], [hunk.old, hunk.new])
        for side in sides:
            side.append(line[1:].encode() + b"\n")
    return hunk
