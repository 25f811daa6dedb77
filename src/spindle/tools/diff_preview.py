"""The change of a file as a question about it shows it."""

from spindle.shapes.approvals import DiffPreview

_MOST = 512 * 1024
"""Characters of a diff; a longer one is cut."""


def diff_preview(path: str, diff: str, patch: str, *, place: str | None = None) -> DiffPreview:
    added = diff.count("\n+") + diff.startswith("+")
    removed = diff.count("\n-") + diff.startswith("-")
    return _preview(path, diff, patch, (added, removed), place=place)


def _preview(
    path: str, diff: str, patch: str, counts: tuple[int, int], *, new_file: bool = False, place: str | None
) -> DiffPreview:
    return DiffPreview(
        path=path,
        diff=_cut(diff),
        patch=_cut(patch),
        added=counts[0],
        removed=counts[1],
        new_file=new_file,
        cut=max(len(diff), len(patch)) > _MOST,
        place=place,
    )


def whole_preview(path: str, shown: str, old: str | None, new: str, place: str | None) -> DiffPreview:
    """Return the change from the whole of an old text, if there is one, to the whole of a new one.

    `shown`: the path as it was given.
    """
    from spindle.tools.replace import Region, display_diff, find_changes, split_lines, unified_patch

    before, after = split_lines(old or ""), split_lines(new)
    changes = find_changes(before, [Region(0, len(before), after)])
    diff = display_diff(before, after, changes, _MOST)
    patch = unified_patch(before, after, changes, shown, _MOST)
    added = sum(change.new_end - change.new_start for change in changes)
    removed = sum(change.end - change.start for change in changes)
    return _preview(path, diff, patch, (added, removed), new_file=old is None, place=place)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else text[: text.rfind("\n", 0, _MOST) + 1]
