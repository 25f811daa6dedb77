"""A session file, read into a tree: its lines, old versions of the format, and its damage.

Reading never changes anything. A line that cannot be used is skipped and reported.

Old versions are migrated to version 3 in memory. Version 1 was a plain list: each entry gets an id and the entry before
it as its parent, and compactions name the first kept entry by id instead of by line. Version 2 called the role `custom`
`hookMessage`. All other bytes stay the same.
"""

import os
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from spindle.sessions.entries import (
    SESSION_VERSION,
    UNREADABLE,
    Entry,
    Header,
    SessionError,
    collector_paused,
    edit_inner,
    edit_line,
    new_entry_id,
    read_entry,
)
from spindle.sessions.file import AppendFile, open_for_reading
from spindle.sessions.tree import Tree
from spindle.shapes.codec import DecodeError, decode

_BOM = b"\xef\xbb\xbf"
_GARBAGE_LIMIT = 1 << 20
"""How many bytes may come before the header; with more, the file is no session."""
SKIPPED = frozenset({"bad line", "torn line", "no id"})
"""Kinds of damage for which a line is not part of the session. It stays in the file, but for a torn line at the end,
which goes with the next append."""


class InvalidSession(SessionError):
    """The file is no session; it was left as it is."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(f"Session file is not a valid pi session: {path}")


class Damage(msgspec.Struct, frozen=True):
    kind: str
    line: int
    """Counted from 1."""
    text: str
    entry_id: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.text}"


# -- lines -----------------------------------------------------------------------------------------


class Parsed(msgspec.Struct):
    header: Header | None = None
    entries: list[Entry] = []
    line_numbers: "array[int]" = msgspec.field(default_factory=lambda: array("L"))
    """The line of each entry."""
    damage: list[Damage] = []
    line_count: int = 0
    is_blank: bool = True
    """Whether there is only white space."""
    ends_open: bool = False
    """The last line has no newline; the next append must write one first."""
    last: bytes = b""
    """The last line, if it has no newline."""
    torn: int = 0
    """Bytes of a last line that is the beginning of an entry; the next append takes them away."""

    @property
    def is_session(self) -> bool:
        """Whether it can be used: it has a header with an id, and entries with ids."""
        if self.header is None or not isinstance(self.header.id, str) or not self.header.id:
            return False
        return bool(self.entries) or not any(item.kind == "no id" for item in self.damage)


def _parse_file(file: BinaryIO) -> Parsed:
    """Read a whole file. If it does not begin with a header, the rest is not read."""
    parsed = Parsed()
    _find_header(file, parsed)
    if parsed.header is not None:
        # The first version of the format had no ids; migration gives them.
        _read_entries(enumerate(file, parsed.line_count + 1), parsed, ids_needed=parsed.header.version >= 2)
        if parsed.ends_open:
            last = parsed.damage[-1] if parsed.damage else None
            if last is not None and last.line == parsed.line_count and last.kind == "bad line":
                parsed.damage[-1] = Damage("torn line", last.line, f"the file ends in the middle of it ({last.text})")
                parsed.torn = len(parsed.last) if parsed.last.startswith(b"{") else 0
            else:
                text = "the last line is whole but not ended"
                parsed.damage.append(Damage("no final newline", parsed.line_count, text))
    return parsed


def parse_tail(lines: Iterable[bytes], *, ids_needed: bool = True) -> Parsed:
    """Read lines without a header: lines that were added to a file, or the rest of a damaged one."""
    parsed = Parsed()
    _read_entries(enumerate(lines, 1), parsed, ids_needed)
    return parsed


def read_header(file: BinaryIO) -> Header | None:
    """Read no further than the header. None if another object comes first."""
    parsed = Parsed()
    _find_header(file, parsed)
    return parsed.header


def _find_header(file: BinaryIO, parsed: Parsed) -> None:
    garbage = 0
    # Bounded, because a file that is no session may have no newline at all.
    for number, line in enumerate(iter(lambda: file.readline(_GARBAGE_LIMIT), b""), 1):
        parsed.line_count = number
        parsed.ends_open = not line.endswith(b"\n")
        if line.startswith(_BOM):
            line = line.removeprefix(_BOM)
            parsed.damage.append(Damage("BOM", number, "a byte order mark stands before the text"))
        if not line.strip():
            continue
        parsed.is_blank = False
        value = _decode_or_report(line, number, parsed)
        if isinstance(value, dict):
            if value.get("type") == "title":  # oh-my-pi keeps the title before the header
                continue
            if value.get("type") != "session":
                return
            parsed.header = Header(line)
            if line.endswith(b"\r\n"):
                parsed.damage.append(Damage("CRLF", number, "lines end in carriage return and newline"))
            if parsed.header.version > SESSION_VERSION:
                text = f"written in version {parsed.header.version} of the format, read as version {SESSION_VERSION}"
                parsed.damage.append(Damage("newer version", number, text))
            return
        garbage += len(line)
        if garbage > _GARBAGE_LIMIT:
            return


def _read_entries(numbered: Iterator[tuple[int, bytes]], parsed: Parsed, ids_needed: bool) -> None:
    entries, line_numbers = parsed.entries, parsed.line_numbers
    number, line = 0, b""
    with collector_paused():
        for number, line in numbered:
            try:
                entry = read_entry(line)
            except UNREADABLE:
                slow = _read_slowly(line, number, parsed)
                if slow is None:
                    continue
                entry = slow
            if entry.type == "session":
                parsed.damage.append(Damage("second header", number, "a header in the middle is passed over"))
            elif entry.id or not ids_needed:
                entries.append(entry)
                line_numbers.append(number)
            else:
                parsed.damage.append(Damage("no id", number, f"this {entry.type or 'entry'} has no id"))
    if number:
        parsed.line_count = number
        parsed.ends_open = not line.endswith(b"\n")
        parsed.last = line if parsed.ends_open else b""


def _read_slowly(line: bytes, number: int, parsed: Parsed) -> Entry | None:
    """Read a line that is blank, broken, or merely unusual (lone surrogates, wrong types)."""
    if not line.strip():
        return None
    value = _decode_or_report(line, number, parsed)
    if not isinstance(value, dict):
        return None
    found: dict[str, Any] = {}
    for name, key in (("type", "type"), ("id", "id"), ("parent_id", "parentId"), ("timestamp", "timestamp")):
        item = value.get(key)
        if isinstance(item, str):
            found[name] = item
        elif item is not None:
            parsed.damage.append(Damage("wrong type", number, f"{key} is not a string", found.get("id")))
    return Entry(**found, _line=line)


def _decode_or_report(line: bytes, number: int, parsed: Parsed) -> object:
    try:
        value = decode(line)
    except (DecodeError, RecursionError) as error:
        reason = "NUL bytes, as a power failure leaves them" if b"\0" in line else str(error)
        parsed.damage.append(Damage("bad line", number, f"not JSON: {reason}"))
        return None
    if not isinstance(value, dict):
        parsed.damage.append(Damage("bad line", number, "not a JSON object"))
    return value


# -- old versions ----------------------------------------------------------------------------------


def migrate(header: Header, entries: Sequence[Entry]) -> tuple[Header, list[Entry]]:
    """Return header and entries in version 3 of the format. The arguments stay as they are."""
    linked = link(entries) if header.version < 2 else list(entries)
    for index, entry in enumerate(linked):
        if entry.type == "message" and b"hookMessage" in entry.raw:
            message = entry.value.get("message")
            if isinstance(message, dict) and message.get("role") == "hookMessage":
                line = edit_inner(entry.raw, "message", {"role": "custom"}) + b"\n"
                linked[index] = Entry(entry.type, entry.id, entry.parent_id, entry.timestamp, line)
    return Header(edit_line(header.raw, {"version": SESSION_VERSION}) + b"\n"), linked


def link(entries: Sequence[Entry]) -> list[Entry]:
    """Give entries without links new ids, and each the one before it as parent, in file order."""
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
                # The header counts as 0. Entries after the compaction had no id yet when pi migrated it.
                if index == int(index) and 1 <= index <= len(linked):
                    changes["firstKeptEntryId"] = linked[int(index) - 1].id
        linked.append(entry.edited(changes, drop))
    return linked


# -- the whole file --------------------------------------------------------------------------------


class Loaded(msgspec.Struct):
    tree: Tree | None
    """None: the file is there but empty."""
    file: AppendFile
    damage: list[Damage]
    line_numbers: Sequence[int]
    """The line of each entry of the tree."""
    was_migrated: bool = False
    has_new_ids: bool = False


def load_session(path: Path) -> Loaded:
    """Read a session without touching it. Raises `FileNotFoundError`, `InvalidSession` and `SessionError`."""
    parsed, file = _read(path)
    if parsed.is_blank:
        return Loaded(None, file, [], ())
    header, entries = parsed.header, parsed.entries
    if header is None or not parsed.is_session:
        raise InvalidSession(path)
    old_version = header.version
    was_migrated = old_version < SESSION_VERSION
    if was_migrated:
        header, entries = migrate(header, entries)
    tree = Tree(header, entries)
    damage = parsed.damage
    if tree.flaws:
        lines = {id(entry): line for entry, line in zip(tree.entries, parsed.line_numbers, strict=True)}
        damage += [Damage(flaw.kind, lines[id(flaw.entry)], flaw.text, flaw.entry.id) for flaw in tree.flaws]
    return Loaded(tree, file, damage, parsed.line_numbers, was_migrated, has_new_ids=old_version < 2)


def _read(path: Path) -> tuple[Parsed, AppendFile]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SessionError(f"Session path is a directory: {path}")
        if not stat.S_ISREG(mode):  # a pipe or device might never end
            raise InvalidSession(path)
        with open_for_reading(path) as opened:
            parsed = _parse_file(opened)
            file = AppendFile(path, os.fstat(opened.fileno()), ends_open=parsed.ends_open, torn=parsed.torn)
            file.size = opened.tell()  # another program may have added lines since; they are read later
            return parsed, file
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise SessionError(f"Session file cannot be read ({reason}): {path}") from error
