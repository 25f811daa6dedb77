"""One path of a tree as a session of its own: for forking, cloning and exporting."""

from collections.abc import Iterable, Mapping

from spindle.sessions.entries import Entry
from spindle.sessions.ids import new_entry_id
from spindle.sessions.tree import Tree
from spindle.shapes.entries import LabelEntry

__all__ = ["branched_entries", "chain"]


def branched_entries(tree: Tree, leaf_id: str) -> list[Entry]:
    """Return copies of the entries from the root to `leaf_id`, linked without gaps.

    Label entries of the path are left out; labels that are in force on it are set anew at its end.
    """
    path = tree.path_to(leaf_id)
    successors: dict[str, str | None] = {}
    following = None
    for entry in reversed(path):
        if entry.type == "label":
            successors[entry.id] = following
        else:
            following = entry.id
    entries = chain((entry for entry in path if entry.type != "label"), successors)
    kept = {entry.id for entry in entries}
    taken = set(kept)
    for target, (label, timestamp) in tree.labels().items():
        if target in kept:
            entries.append(Entry.of(LabelEntry(new_entry_id(taken), entries[-1].id, timestamp, target, label)))
            taken.add(entries[-1].id)
    return entries


def chain(path: Iterable[Entry], successors: Mapping[str, str | None] | None = None) -> list[Entry]:
    """Return the entries as one line of descent; `successors` says what takes the place of those left out."""
    chained: list[Entry] = []
    for entry in path:
        changes: dict[str, str | None] = {}
        parent_id = chained[-1].id if chained else None
        if entry.parent_id != parent_id:
            changes["parentId"] = parent_id
        if successors and entry.type == "compaction":
            first_kept = entry.value.get("firstKeptEntryId")
            if isinstance(first_kept, str) and first_kept in successors:
                changes["firstKeptEntryId"] = successors[first_kept] or entry.id
        chained.append(entry.edited(changes) if changes else entry)
    return chained
