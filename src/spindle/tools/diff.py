"""Differences between two texts whose changed stretches are known: one form for people, one for `patch`.

Work is proportional to what changed, not to the square of the file as with a diff of two unknown texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spindle.tools.replace import Region

__all__ = ["Change", "display_diff", "find_changes", "unified_patch"]

_CONTEXT = 4
_MAX_COMPARED = 250_000
"""Pairs of lines compared within one region; a bigger one is shown as replaced whole."""


@dataclass(frozen=True, slots=True)
class Change:
    """Old lines `start` to `end` became new lines `new_start` to `new_end`; from 0, ends not included."""

    start: int
    end: int
    new_start: int
    new_end: int


def find_changes(old: Sequence[str], regions: Sequence[Region]) -> list[Change]:
    """Narrow replaced regions down to the lines that really differ."""
    changes: list[Change] = []
    shift = 0
    for region in regions:
        before, after = old[region.start : region.end], region.lines
        for change in _narrow(before, after, region.start, region.start + shift):
            if changes and changes[-1].end == change.start:
                change = Change(changes[-1].start, change.end, changes.pop().new_start, change.new_end)
            changes.append(change)
        shift += len(after) - len(before)
    return changes


def display_diff(old: Sequence[str], new: Sequence[str], changes: Sequence[Change]) -> str:
    """Return numbered lines marked `+`, `-` or blank; lines far from any change are left out, marked `...`."""
    width = len(str(max(_line_count(old), _line_count(new))))
    skipped = f" {'':{width}} ..."
    out: list[str] = []
    shown = 0
    for hunk in _hunks(changes, len(old)):
        if hunk.start > shown:
            out.append(skipped)
        for sign, number, line in _marked(hunk, old, new):
            out.append(f"{sign}{number + 1:{width}} {line.removesuffix(chr(10))}")
        shown = hunk.end
    if shown < len(old):
        out.append(skipped)
    return "\n".join(out)


def unified_patch(old: Sequence[str], new: Sequence[str], changes: Sequence[Change], path: str) -> str:
    """Return a unified diff that `patch` and `git apply` read."""
    out = [f"--- {path}\n+++ {path}\n"]
    for hunk in _hunks(changes, len(old)):
        count = hunk.end - hunk.start
        new_count = count + sum(
            change.new_end - change.new_start - (change.end - change.start) for change in hunk.changes
        )
        start, new_start = hunk.start + (count > 0), hunk.new_start + (new_count > 0)
        out.append(f"@@ -{start},{count} +{new_start},{new_count} @@\n")
        for sign, _, line in _marked(hunk, old, new):
            out.append(sign + (line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"))
    return "".join(out)


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Neighbouring changes with the lines around them: old lines `start` to `end`."""

    start: int
    end: int
    new_start: int
    changes: list[Change]


def _hunks(changes: Sequence[Change], old_count: int) -> Iterator[_Hunk]:
    groups: list[list[Change]] = []
    for change in changes:
        if groups and change.start - groups[-1][-1].end <= 2 * _CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    for group in groups:
        lead = min(_CONTEXT, group[0].start)
        end = min(old_count, group[-1].end + _CONTEXT)
        yield _Hunk(group[0].start - lead, end, group[0].new_start - lead, group)


def _marked(hunk: _Hunk, old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    position = hunk.start
    for change in hunk.changes:
        yield from ((" ", index, old[index]) for index in range(position, change.start))
        yield from (("-", index, old[index]) for index in range(change.start, change.end))
        yield from (("+", index, new[index]) for index in range(change.new_start, change.new_end))
        position = change.end
    yield from ((" ", index, old[index]) for index in range(position, hunk.end))


def _narrow(before: Sequence[str], after: Sequence[str], start: int, new_start: int) -> Iterator[Change]:
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
            yield Change(start, start + len(before), new_start, new_start + len(after))
        return
    from difflib import SequenceMatcher

    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Change(start + a, start + b, new_start + c, new_start + d)


def _line_count(lines: Sequence[str]) -> int:
    """Count as an editor does: a final newline opens one more line."""
    return len(lines) + (not lines or lines[-1].endswith("\n"))
