"""Replacing stretches of a text: find each old text, exactly or nearly, and say which lines changed.

Nearly means: as if both were written with plain quotes, dashes and spaces and without spaces at line ends.
Indentation always counts. Lines no replacement touches keep their every byte.
"""

import re
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

from spindle.tools.base import ToolError

__all__ = ["Edit", "Lines", "Region", "Replaced", "normalize", "replace_texts", "split_lines"]

_LINE_END_SPACE = "\t\v\f \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_LINE_END = re.compile(f"(?<![{_LINE_END_SPACE}])[{_LINE_END_SPACE}]++(?=\n|\\Z)")
_PLAIN = (
    dict.fromkeys(range(0x2018, 0x201C), "'")
    | dict.fromkeys(range(0x201C, 0x2020), '"')
    | dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
    | dict.fromkeys([0x00A0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000], " ")
)


@dataclass(frozen=True, slots=True)
class Edit:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Region:
    """Old lines `start` to `end` (from 0, end not included) became `lines`, newlines included."""

    start: int
    end: int
    lines: list[str]


class Lines(Sequence[str]):
    """The lines of a text, split after every newline character and nowhere else; cut out when they are asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.starts = array("Q", [0])
        """Where each line begins; the end of the text closes the list."""
        at = 0
        while at := text.find("\n", at) + 1:
            self.starts.append(at)
        if self.starts[-1] < len(text):
            self.starts.append(len(text))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return self._text[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True, slots=True)
class Replaced:
    text: str
    old_lines: Lines
    regions: list[Region]


@dataclass(frozen=True, slots=True)
class _Match:
    start: int
    end: int
    new: str
    index: int
    """Of the edit it belongs to."""


def normalize(text: str) -> str:
    """Return the text with plain punctuation and without spaces at line ends; the number of lines stays."""
    if not text.isascii():
        from unicodedata import normalize as unicode_form

        text = unicode_form("NFKC", text)
        return _LINE_END.sub("", text).translate(_PLAIN)
    return _LINE_END.sub("", text)


def split_lines(text: str) -> list[str]:
    """Split after every newline character, and nowhere else."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def replace_texts(text: str, edits: Sequence[Edit], path: str) -> Replaced:
    """Apply all edits, each to the text as it was. All or nothing: raises `ToolError`, naming `path`."""
    for index, edit in enumerate(edits):
        if not edit.old:
            name = "oldText" if len(edits) == 1 else f"edits[{index}].oldText"
            raise ToolError(f"{name} must not be empty in {path}.")
    normal = normalize(text)
    base = text if all(edit.old in text for edit in edits) else normal
    matches = sorted(
        (_find(base, normal, edits, index, path) for index in range(len(edits))), key=lambda match: match.start
    )
    for left, right in pairwise(matches):
        if left.end > right.start:
            raise ToolError(
                f"edits[{left.index}] and edits[{right.index}] overlap in {path}. "
                "Merge them into one edit or target disjoint regions."
            )
    old_lines = Lines(text)
    regions = _regions(old_lines, base, old_lines if base is text else Lines(base), matches)
    pieces: list[str] = []
    done = 0
    for region in regions:
        pieces += text[done : old_lines.starts[region.start]], *region.lines
        done = old_lines.starts[region.end]
    new_text = "".join([*pieces, text[done:]])
    if new_text == text:
        raise ToolError(_unchanged(len(edits), path))
    return Replaced(new_text, old_lines, regions)


def _find(base: str, normal: str, edits: Sequence[Edit], index: int, path: str) -> _Match:
    edit = edits[index]
    old, start = edit.old, base.find(edit.old)
    normal_old = normalize(edit.old)
    if start < 0 and normal_old:
        old, start = normal_old, base.find(normal_old)
    single = len(edits) == 1
    if start < 0:
        raise ToolError(
            f"Could not find {'the exact text' if single else f'edits[{index}]'} in {path}. "
            f"The {'old text' if single else 'oldText'} must match exactly including all whitespace and newlines."
        )
    count = normal.count(normal_old) if normal_old else base.count(old)
    if count > 1:
        raise ToolError(
            f"Found {count} occurrences of {'the text' if single else f'edits[{index}]'} in {path}. "
            f"{'The text' if single else 'Each oldText'} must be unique. Please provide more context to make it unique."
        )
    return _Match(start, start + len(old), edit.new, index)


def _regions(old_lines: Lines, base: str, base_lines: Lines, matches: list[_Match]) -> list[Region]:
    """Turn replaced characters of `base`, which has as many lines as the old text, into replaced lines."""
    starts = base_lines.starts
    regions: list[Region] = []
    waiting = deque(matches)
    while waiting:
        first = end = bisect_right(starts, waiting[0].start) - 1
        pieces: list[str] = []
        # More lines belong to it as long as they hold matches, or the new text ends inside of one.
        while end == first or (end < len(old_lines) and _ends_inside_line(pieces)):
            if not waiting or waiting[0].start >= starts[end + 1]:
                pieces.append(old_lines[end])
                end += 1
                continue
            done = starts[end]
            while waiting and waiting[0].start < starts[end + 1]:
                match = waiting.popleft()
                pieces += base[done : match.start], match.new
                done = match.end
                end = bisect_right(starts, match.end - 1) - 1
            end += 1
            pieces.append(base[done : starts[end]])
        regions.append(Region(first, end, split_lines("".join(pieces))))
    return regions


def _ends_inside_line(pieces: list[str]) -> bool:
    return not next((piece for piece in reversed(pieces) if piece), "\n").endswith("\n")


def _unchanged(count: int, path: str) -> str:
    if count == 1:
        return (
            f"No changes made to {path}. The replacement produced identical content. This might indicate an issue with "
            "special characters or the text not existing as expected."
        )
    return f"No changes made to {path}. The replacements produced identical content."
