"""What belongs to a session besides its file, and goes with it: uploads, whole outputs, states of files, subagents.

Uploads, the kept queue and the sessions of subagents lie beside the file. Whole outputs are in the folder for temporary
files and checkpoints in a store of their folder: the session names them. What a fork has from its parent stays as long
as the parent is there.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from spindle.base.agent_dir import agent_dir
from spindle.sessions.entries import UNREADABLE
from spindle.sessions.load import read_header
from spindle.shapes.codec import decode
from spindle.workspace.texts import KEPT_PREFIXES, kept_folder

SUBAGENTS, UPLOADS, QUEUE = ".subagents", ".uploads", ".queue"
"""Ends of the names of what lies beside a session file."""
_SIGNS = (b"spindle-", b"checkpoint")
"""A line without any of these names nothing."""
_STORES = ("checkpoints", "checkpoints-elsewhere/*")


class Belongings(Struct):
    """What a session names."""

    outputs: set[str] = set()
    checkpoints: dict[str, set[str]] = {}
    """Folder → the ids of its states."""

    def without(self, other: "Belongings") -> "Belongings":
        kept = {root: ids - other.checkpoints.get(root, set()) for root, ids in self.checkpoints.items()}
        return Belongings(self.outputs - other.outputs, kept)

    def remove(self) -> None:
        """Delete it. What is in use, or cannot be deleted, is left: it ends by its age."""
        for path in self.outputs:
            with suppress(OSError):
                os.unlink(path)
        if any(self.checkpoints.values()):
            from spindle.states.store import release

            for stores in (found for pattern in _STORES for found in agent_dir().glob(pattern)):
                for root, ids in self.checkpoints.items():
                    release(stores, root, ids)


def beside(session_file: Path) -> tuple[Path, Path, Path]:
    """Return where the kept queue, the subagents and the uploads of a session are, if it has any."""
    queue = session_file.with_name(session_file.name + QUEUE)
    return queue, session_file.with_suffix(SUBAGENTS), session_file.with_suffix(UPLOADS)


def belongings(session_file: Path) -> Belongings:
    """Return what a session and its subagents name, without what they have from a parent that is still there."""
    own = _named_in([session_file, *beside(session_file)[1].rglob("*.jsonl")])
    try:
        with open(session_file, "rb") as lines:
            header = read_header(lines)
    except OSError:
        return own
    parent = header.parent_session if header is not None else None
    return own.without(_named_in([Path(parent)])) if isinstance(parent, str) and os.path.isfile(parent) else own


def _named_in(files: Iterable[Path]) -> Belongings:
    outputs, checkpoints = set[str](), defaultdict[str, set[str]](set)
    for file in files:
        for entry in _entries(file):
            if (path := _output_in(entry)) is not None:
                outputs.add(path)
            data = entry.get("data")
            if entry.get("customType") == "checkpoint" and isinstance(data, dict):
                root, id = data.get("root"), data.get("id")
                if isinstance(root, str) and isinstance(id, str) and id.isalnum():
                    checkpoints[root].add(id)
    return Belongings(outputs, dict(checkpoints))


def _output_in(entry: dict[str, Any]) -> str | None:
    """Return the file with the whole output of the call that an entry is about."""
    message = entry.get("message")
    if not isinstance(message, dict):
        return None
    details = message.get("details")
    path = message.get("fullOutputPath") or (details.get("fullOutputPath") if isinstance(details, dict) else None)
    # A session file may come from anywhere: only what we have made there is ours to delete.
    if not isinstance(path, str) or os.path.dirname(path) != kept_folder():
        return None
    name = os.path.basename(path)
    return path if name.startswith(KEPT_PREFIXES) and name.endswith(".log") else None


def _entries(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with open(file, "rb") as lines:
            for line in lines:
                if any(sign in line for sign in _SIGNS):
                    with suppress(*UNREADABLE):
                        entry = decode(line)
                        if isinstance(entry, dict):
                            yield entry
    except OSError:
        pass


def remove_beside(session_file: Path) -> None:
    """Delete what lies beside a session file."""
    queue, subagents, uploads = beside(session_file)
    queue.unlink(missing_ok=True)
    for other in subagents.glob("*.jsonl"):
        remove_beside(other)
    for other in subagents.glob("*.jsonl*"):
        other.unlink(missing_ok=True)
    with suppress(OSError):  # there is no such folder, or other files are in it
        subagents.rmdir()
    import shutil  # with all kinds of archives

    shutil.rmtree(uploads, ignore_errors=True)
