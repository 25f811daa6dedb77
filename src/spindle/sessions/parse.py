"""From the lines of a session file to its header and entries.

Reading never fails and never changes anything: a line that cannot be used is skipped and reported.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from spindle.sessions.damage import Damage
from spindle.sessions.entries import UNREADABLE, Entry, Header, read_entry
from spindle.sessions.memory import collector_paused
from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.entries import SESSION_VERSION

__all__ = ["Parsed", "parse_file", "parse_tail", "read_header"]

_BOM = b"\xef\xbb\xbf"
_GARBAGE_LIMIT = 1 << 20
"""How much may stand before the header; beyond that the file is something else."""


class Parsed(msgspec.Struct):
    header: Header | None = None
    entries: list[Entry] = []
    line_numbers: "array[int]" = msgspec.field(default_factory=lambda: array("L"))
    """Where each entry stands."""
    damage: list[Damage] = []
    line_count: int = 0
    is_blank: bool = True
    """Nothing but white space."""
    ends_open: bool = False
    """The last line has no newline; the next append must write one first."""

    @property
    def is_session(self) -> bool:
        """Say whether one can work with it: a header with an id, and entries that can be told apart."""
        if self.header is None or not isinstance(self.header.id, str) or not self.header.id:
            return False
        return bool(self.entries) or not any(item.kind == "no id" for item in self.damage)


def parse_file(file: BinaryIO) -> Parsed:
    """Read a whole file. If it does not begin with a header, the rest is not read."""
    parsed = Parsed()
    _find_header(file, parsed)
    if parsed.header is not None:
        # The first version of the format had no ids; migration gives them.
        _read_entries(enumerate(file, parsed.line_count + 1), parsed, ids_needed=parsed.header.version >= 2)
        if parsed.ends_open:
            _report_open_end(parsed)
    return parsed


def parse_tail(lines: Iterable[bytes], *, ids_needed: bool = True) -> Parsed:
    """Read lines of which none need be a header: what was added to a file, or what is left of a ruined one."""
    parsed = Parsed()
    _read_entries(enumerate(lines, 1), parsed, ids_needed)
    return parsed


def read_header(file: BinaryIO) -> Header | None:
    """Read no further than the header. None if something else comes first."""
    parsed = Parsed()
    _find_header(file, parsed)
    return parsed.header


def _find_header(file: BinaryIO, parsed: Parsed) -> None:
    garbage = 0
    # With a limit, because a file that is something else may hold no newline at all.
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


def _read_slowly(line: bytes, number: int, parsed: Parsed) -> Entry | None:
    """Read a line that is blank, broken, or merely unusual (lone surrogates, wrong types)."""
    if not line.strip():
        return None
    value = _decode_or_report(line, number, parsed)
    if not isinstance(value, dict):
        return None
    found = {}
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


def _report_open_end(parsed: Parsed) -> None:
    number = parsed.line_count
    last = parsed.damage[-1] if parsed.damage else None
    if last is not None and last.line == number and last.kind == "bad line":
        parsed.damage[-1] = Damage("torn line", number, f"the file ends in the middle of it ({last.text})")
    else:
        parsed.damage.append(Damage("no final newline", number, "the last line is whole but not ended"))
