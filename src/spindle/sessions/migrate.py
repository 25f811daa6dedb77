"""Sessions of the first two versions of the format, brought to version 3 in memory.

Version 1 was a plain list: entries get ids and hang below each other, and compactions name the first kept
entry by id instead of by line. Version 2 called the role `custom` `hookMessage`. Everything else keeps its bytes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from spindle.sessions.entries import Entry, Header, edit_inner, edit_line
from spindle.sessions.ids import new_entry_id
from spindle.shapes.codec import DecodeError
from spindle.shapes.entries import SESSION_VERSION

__all__ = ["link", "migrate", "needs_migration"]


class _Role(msgspec.Struct):
    role: str = ""


class _RoleLine(msgspec.Struct):
    message: _Role | None = None


_decode_role = msgspec.json.Decoder(_RoleLine).decode


def needs_migration(header: Header) -> bool:
    return header.version < SESSION_VERSION


def migrate(header: Header, entries: Sequence[Entry]) -> tuple[Header, list[Entry]]:
    """Return header and entries as version 3 would have written them. The arguments stay as they are."""
    linked = link(entries) if header.version < 2 else list(entries)
    for index, entry in enumerate(linked):
        if entry.type == "message" and _role(entry) == "hookMessage":
            line = edit_inner(entry.raw, "message", {"role": "custom"}) + b"\n"
            linked[index] = Entry(entry.type, entry.id, entry.parent_id, entry.timestamp, line)
    return Header(edit_line(header.raw, {"version": SESSION_VERSION}) + b"\n"), linked


def link(entries: Sequence[Entry]) -> list[Entry]:
    """Hang entries that know nothing of each other below one another, in file order, with new ids."""
    linked: list[Entry] = []
    taken: set[str] = set()
    for entry in entries:
        parent_id = linked[-1].id if linked else None
        changes: dict[str, Any] = {"id": new_entry_id(taken), "parentId": parent_id}
        taken.add(changes["id"])
        drop = []
        if entry.type == "compaction":
            index = entry.value.get("firstKeptEntryIndex")
            if isinstance(index, (int, float)):
                drop.append("firstKeptEntryIndex")
                # The header counts as 0. What comes later than the compaction had no id when pi looked.
                if index == int(index) and 1 <= index <= len(linked):
                    changes["firstKeptEntryId"] = linked[int(index) - 1].id
        linked.append(entry.edited(changes, drop))
    return linked


def _role(entry: Entry) -> str:
    try:
        line = _decode_role(entry.raw)
    except (DecodeError, UnicodeDecodeError):
        message = entry.value.get("message")
        return str(message.get("role")) if isinstance(message, dict) else ""
    return line.message.role if line.message else ""
