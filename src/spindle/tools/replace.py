"""Replacing stretches of a text: find each old text, exactly or nearly, and show which lines changed.

Nearly means: as if both were written with plain quotes, dashes and spaces and without spaces at line ends.
Indentation always counts. Lines that no replacement touches keep every byte. The changes are computed from the
replaced stretches, in time proportional to them and not to the square of the file.
"""

import re
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import inf
from typing import overload

from msgspec import Struct

from spindle.tools.base import ToolError

_LINE_END_SPACE = "\t\v\f \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_LINE_END = re.compile(f"(?<![{_LINE_END_SPACE}])[{_LINE_END_SPACE}]++(?=\n|\\Z)")
_PLAIN = (
    dict.fromkeys(range(0x2018, 0x201C), "'")
    | dict.fromkeys(range(0x201C, 0x2020), '"')
    | dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
    | dict.fromkeys([0x00A0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000], " ")
)

_CONTEXT = 4
_MOST_PLACES = 5
_MAX_COMPARED = 250_000
"""Pairs of lines compared within one region; a bigger region is shown as replaced whole."""


class Edit(Struct, frozen=True):
    old: str
    new: str
    everywhere: bool = False
    """Whether the old text may occur more than once, and all of it is replaced."""


class Region(Struct, frozen=True):
    """Old lines `start` to `end` (from 0, end not included) became `lines`, newlines included."""

    start: int
    end: int
    lines: list[str]


class Lines(Sequence[str]):
    """The lines of a text, split after every newline character and nowhere else; cut out on access."""

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


class NewText(Struct, frozen=True):
    text: str
    old_lines: Lines
    regions: list[Region]


class _Match(Struct, frozen=True):
    start: int
    end: int
    new: str
    index: int
    """Index of its edit."""


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


def replace_texts(text: str, edits: Sequence[Edit], path: str) -> NewText:
    """Apply all edits, each to the text as it was. All or nothing: raises `ToolError`, naming `path`."""
    for index, edit in enumerate(edits):
        if not edit.old:
            name = "oldText" if len(edits) == 1 else f"edits[{index}].oldText"
            raise ToolError(f"{name} must not be empty in {path}.")
    normal = normalize(text)
    base = text if all(edit.old in text for edit in edits) else normal
    matches = sorted(
        (match for index in range(len(edits)) for match in _find(base, normal, edits, index, path)),
        key=lambda match: match.start,
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
        several = "s" if len(edits) > 1 else ""
        hint = " This might indicate an issue with special characters or the text not existing as expected."
        raise ToolError(
            f"No changes made to {path}. The replacement{several} produced identical content.{'' if several else hint}"
            " If there is something to change, call edit again with the changed lines as newText."
        )
    return NewText(new_text, old_lines, regions)


def _find(base: str, normal: str, edits: Sequence[Edit], index: int, path: str) -> list[_Match]:
    """Return the place of an edit, or all its places. Raises `ToolError`."""
    edit = edits[index]
    old, start = edit.old, base.find(edit.old)
    normal_old = normalize(edit.old)
    if start < 0 and normal_old:
        old, start = normal_old, base.find(normal_old)
    single = len(edits) == 1
    if start < 0:
        from spindle.tools.nearest import near_lines

        raise ToolError(
            f"Could not find {'the exact text' if single else f'edits[{index}]'} in {path}. "
            f"The {'old text' if single else 'oldText'} must match exactly including all whitespace and newlines."
            f"{near_lines(Lines(base), edit.old)}"
        )
    if edit.everywhere:
        return [_Match(at, at + len(old), edit.new, index) for at in _places(base, old)]
    count = normal.count(normal_old) if normal_old else base.count(old)
    if count > 1:
        from spindle.tools.nearest import same_lines

        more = old.rstrip("\n").count("\n")
        numbers = _line_numbers(normal, normal_old) if normal_old else _line_numbers(base, old)
        raise ToolError(
            f"Found {count} occurrences of {'the text' if single else f'edits[{index}]'} in {path}. "
            f"{'The text' if single else 'Each oldText'} must be unique. Please provide more context to make it unique."
            f"{same_lines(Lines(base), numbers, more, count)}"
        )
    return [_Match(start, start + len(old), edit.new, index)]


def _places(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + len(wanted))


def _line_numbers(text: str, wanted: str) -> list[int]:
    """Return where the first few occurrences begin, from 1."""
    numbers: list[int] = []
    line = 1
    done = 0
    for at in islice(_places(text, wanted), _MOST_PLACES):
        line += text.count("\n", done, at)
        numbers.append(line)
        done = at
    return numbers


def _regions(old_lines: Lines, base: str, base_lines: Lines, matches: list[_Match]) -> list[Region]:
    """Turn replaced characters of `base`, which has as many lines as the old text, into replaced lines."""
    starts = base_lines.starts
    regions: list[Region] = []
    waiting = deque(matches)
    while waiting:
        first = end = bisect_right(starts, waiting[0].start) - 1
        pieces: list[str] = []
        # The region grows as long as the next lines hold matches, or the new text ends inside a line.
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


# -- diffs: one form for people, one for `patch` -----------------------------------------------------


class LineChange(Struct, frozen=True):
    """Old lines `start` to `end` became new lines `new_start` to `new_end`; from 0, ends not included."""

    start: int
    end: int
    new_start: int
    new_end: int


def find_changes(old: Sequence[str], regions: Sequence[Region]) -> list[LineChange]:
    """Narrow replaced regions down to the lines that really differ."""
    changes: list[LineChange] = []
    shift = 0
    for region in regions:
        before, after = old[region.start : region.end], region.lines
        for change in _narrow(before, after, region.start, region.start + shift):
            if changes and changes[-1].end == change.start:
                change = LineChange(changes[-1].start, change.end, changes.pop().new_start, change.new_end)
            changes.append(change)
        shift += len(after) - len(before)
    return changes


def display_diff(old: Sequence[str], new: Sequence[str], changes: Sequence[LineChange], most: float = inf) -> str:
    """Return numbered lines marked `+`, `-` or blank; lines far from any change are left out, marked `...`.

    It ends after the line that makes it longer than `most` characters.
    """
    width = len(str(max(_line_count(old), _line_count(new))))
    skipped = f" {'':{width}} ..."
    out: list[str] = []
    shown = 0
    for hunk in _hunks(changes, len(old)):
        if hunk.start > shown:
            out.append(skipped)
        for sign, number, line in _marked(hunk, old, new):
            out.append(f"{sign}{number + 1:{width}} {line.removesuffix(chr(10))}")
            most -= len(out[-1]) + 1
            if most < -1:  # the last line ends without a newline
                return "\n".join(out)
        shown = hunk.end
    if shown < len(old):
        out.append(skipped)
    return "\n".join(out)


def unified_patch(
    old: Sequence[str], new: Sequence[str], changes: Sequence[LineChange], path: str, most: float = inf
) -> str:
    """Return a unified diff that `patch` and `git apply` read; it ends as `display_diff` does."""
    out = [f"--- {path}\n+++ {path}\n"]
    for hunk in _hunks(changes, len(old)):
        count = hunk.end - hunk.start
        new_count = count + sum(item.new_end - item.new_start - (item.end - item.start) for item in hunk.changes)
        start, new_start = hunk.start + (count > 0), hunk.new_start + (new_count > 0)
        out.append(f"@@ -{start},{count} +{new_start},{new_count} @@\n")
        for sign, _, line in _marked(hunk, old, new):
            out.append(sign + (line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"))
            most -= len(out[-1])
            if most < 0:
                return "".join(out)
    return "".join(out)


class _LineHunk(Struct, frozen=True):
    """Neighbouring changes with the lines around them: old lines `start` to `end`."""

    start: int
    end: int
    new_start: int
    changes: list[LineChange]


def _hunks(changes: Sequence[LineChange], old_count: int) -> Iterator[_LineHunk]:
    groups: list[list[LineChange]] = []
    for change in changes:
        if groups and change.start - groups[-1][-1].end <= 2 * _CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    for group in groups:
        lead = min(_CONTEXT, group[0].start)
        end = min(old_count, group[-1].end + _CONTEXT)
        yield _LineHunk(group[0].start - lead, end, group[0].new_start - lead, group)


def _marked(hunk: _LineHunk, old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    position = hunk.start
    for change in hunk.changes:
        yield from ((" ", index, old[index]) for index in range(position, change.start))
        yield from (("-", index, old[index]) for index in range(change.start, change.end))
        yield from (("+", index, new[index]) for index in range(change.new_start, change.new_end))
        position = change.end
    yield from ((" ", index, old[index]) for index in range(position, hunk.end))


def _narrow(before: Sequence[str], after: Sequence[str], start: int, new_start: int) -> Iterator[LineChange]:
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    before, after = before[head : len(before) - tail], after[head : len(after) - tail]
    start, new_start = start + head, new_start + head
    if not before or not after or len(before) * len(after) > _MAX_COMPARED:
        if before or after:
            yield LineChange(start, start + len(before), new_start, new_start + len(after))
        return
    from difflib import SequenceMatcher

    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield LineChange(start + a, start + b, new_start + c, new_start + d)


def _line_count(lines: Sequence[str]) -> int:
    """Count as an editor does: a final newline opens one more line."""
    return len(lines) + (not lines or lines[-1].endswith("\n"))
