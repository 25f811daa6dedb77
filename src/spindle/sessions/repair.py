"""Finding the damage of a session file, and making a sound copy of it. The file itself is never changed."""

import io
import re
from pathlib import Path

from spindle.sessions.entries import (
    SESSION_VERSION,
    Entry,
    Header,
    SessionError,
    edit_line,
    new_entry_id,
    new_header,
    new_session_id,
)
from spindle.sessions.file import write_new_file
from spindle.sessions.load import SKIPPED, Damage, link, load_session, migrate, parse_tail
from spindle.sessions.tree import Tree

_LOST_LINK = re.compile(rb'"id":"([^"\\]+)","parentId":(?:"([^"\\]+)"|null)')
"""The part that most broken lines still have at their beginning."""


def examine(path: Path) -> list[Damage]:
    """Return all damage of a file. Raises `FileNotFoundError`, `InvalidSession` and `SessionError`."""
    loaded = load_session(path)
    damage = list(loaded.damage)
    if loaded.tree is not None:
        for entry, line in zip(loaded.tree.entries, loaded.line_numbers, strict=True):
            if _lacks_message(entry):
                damage.append(Damage("no message", line, "a message entry without a message", entry.id))
            if entry.raw.decode("utf-8", "replace").encode() != entry.raw:
                damage.append(Damage("bad text", line, "some characters are not UTF-8", entry.id))
    return sorted(damage, key=lambda item: item.line)


def repair_copy(source: Path, target: Path, cwd: str) -> list[str]:
    """Write a sound copy of a damaged session. Return a line of text for each repair.

    The copy has an id of its own, so that an id names one session. `cwd` is for a session that has lost its header.
    Raises `SessionError`; never overwrites.
    """
    try:
        repair = _Repair(source.read_bytes(), cwd)
        header = Header(edit_line(repair.header.wire, {"id": new_session_id()}))
        write_new_file(target, b"".join(line.wire + b"\n" for line in (header, *repair.entries)))
    except OSError as error:
        raise SessionError(f"Cannot repair session ({error.strerror}): {error.filename or target}") from error
    return repair.done


class _Repair:
    def __init__(self, data: bytes, cwd: str) -> None:
        self.done: list[str] = []
        lines = self._split(data)
        self.header = self._find_header(lines, cwd)
        parsed = parse_tail(lines, ids_needed=False)
        self.entries = parsed.entries
        bad = [item.line for item in parsed.damage if item.kind in SKIPPED]
        self.done += [f"left out line {number}, which cannot be read" for number in bad]
        if self.header.version < SESSION_VERSION:
            self.header, self.entries = migrate(self.header, self.entries)
            self.done.append("brought it to version 3 of the format")
        if self.entries and not any(entry.id for entry in self.entries):
            self.entries = link(self.entries)
            self.done.append("gave the entries ids, one below the other")
        self._make_valid()
        self._make_unique()
        self._reattach([lines[number - 1] for number in bad])
        self._break_circles()

    def _split(self, data: bytes) -> list[bytes]:
        if data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
            self.done.append("took away the byte order mark")
        if b"\n" not in data and b"\r" in data:
            data = data.replace(b"\r", b"\n")  # JSON strings hold no raw carriage return
            self.done.append("turned carriage returns into newlines")
        return io.BytesIO(data).readlines()

    def _find_header(self, lines: list[bytes], cwd: str) -> Header:
        for line in lines:
            if b'"session"' in line and (header := Header(line)).value.get("type") == "session":
                if isinstance(header.id, str) and header.id:
                    return header
                self.done.append("gave the session a new id")
                return Header(edit_line(line, {"id": new_session_id()}))
        self.done.append("wrote a new header")
        return new_header(cwd)

    def _make_valid(self) -> None:
        """Give every entry an id and the right types; a message entry without a message gets the type `unknown`."""
        taken = {entry.id for entry in self.entries}
        time = self.header.timestamp
        for index, entry in enumerate(self.entries):
            value = entry.value
            changes: dict[str, str | None] = {}
            if not entry.id:
                changes["id"] = fresh = new_entry_id(taken)
                taken.add(fresh)
            if not isinstance(value.get("parentId"), str) and value.get("parentId", ...) is not None:
                changes["parentId"] = None
            if not isinstance(value.get("timestamp"), str):
                changes["timestamp"] = time
            if not entry.type or _lacks_message(entry):
                changes["type"] = "unknown"
            if changes:
                self.entries[index] = entry = entry.edited(changes)
                self.done.append(f"set {', '.join(changes)} of entry {entry.id}")
            time = entry.timestamp or time

    def _make_unique(self) -> None:
        """Let the last entry with an id keep it. Earlier ones are dropped if they are equal, else they get new ids."""
        last = {entry.id: entry for entry in self.entries}
        taken = set(last)
        kept = []
        for entry in self.entries:
            holder = last[entry.id]
            if entry is holder:
                kept.append(entry)
            elif entry.raw == holder.raw:
                self.done.append(f"left out a second copy of entry {entry.id}")
            else:
                kept.append(entry.edited({"id": new_entry_id(taken)}))
                taken.add(kept[-1].id)
                self.done.append(f"gave the first of two entries {entry.id} the id {kept[-1].id}")
        self.entries = kept

    def _reattach(self, bad_lines: list[bytes]) -> None:
        """Give an entry whose parent is lost a new one: the parent of the lost entry, or the entry before it."""
        known = {entry.id for entry in self.entries}
        lost: dict[str, str | None] = {}
        for line in bad_lines:
            if found := _LOST_LINK.search(line):
                lost[found[1].decode("utf-8", "replace")] = found[2].decode("utf-8", "replace") if found[2] else None
        before = None
        for index, entry in enumerate(self.entries):
            parent_id = entry.parent_id
            seen = {entry.id}
            while parent_id in lost and parent_id not in known and parent_id not in seen:
                seen.add(parent_id)
                parent_id = lost[parent_id]
            if parent_id is not None and parent_id not in known:
                parent_id = before
            if parent_id != entry.parent_id:
                self.entries[index] = entry.edited({"parentId": parent_id})
                self.done.append(f"hung entry {entry.id} below {parent_id or 'nothing'}: its parent is lost")
            before = entry.id

    def _break_circles(self) -> None:
        tree = Tree(self.header, self.entries)
        for index, entry in enumerate(self.entries):
            if entry.parent_id is not None and tree.parent(entry) is None:
                self.entries[index] = entry.edited({"parentId": None})
                self.done.append(f"made entry {entry.id} a root: it was among its own ancestors")


def _lacks_message(entry: Entry) -> bool:
    return entry.type == "message" and not isinstance(entry.value.get("message"), dict)
