"""A session file, read into a tree: migrated in memory if it is old, with a list of what is wrong with it."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from spindle.sessions.damage import Damage
from spindle.sessions.errors import InvalidSession, SessionError
from spindle.sessions.file import AppendFile, open_for_reading
from spindle.sessions.migrate import migrate, needs_migration
from spindle.sessions.parse import Parsed, parse_file
from spindle.sessions.tree import Tree

__all__ = ["Loaded", "load_session"]


class Loaded(Struct):
    tree: Tree | None
    """None: the file is there but empty."""
    file: AppendFile
    damage: list[Damage]
    line_numbers: Sequence[int]
    """Where each entry of the tree stands."""
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
    was_migrated = needs_migration(header)
    if was_migrated:
        header, entries = migrate(header, entries)
    tree = Tree(header, entries)
    damage = parsed.damage + _flaws(tree, parsed)
    return Loaded(tree, file, damage, parsed.line_numbers, was_migrated, has_new_ids=old_version < 2)


def _read(path: Path) -> tuple[Parsed, AppendFile]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SessionError(f"Session path is a directory: {path}")
        if not stat.S_ISREG(mode):  # a pipe or device might never end
            raise InvalidSession(path)
        with open_for_reading(path) as opened:
            parsed = parse_file(opened)
            file = AppendFile(path, os.fstat(opened.fileno()), ends_open=parsed.ends_open)
            file.size = opened.tell()  # a writer may have been quicker; what it added is read later
            return parsed, file
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise SessionError(f"Session file cannot be read ({reason}): {path}") from error


def _flaws(tree: Tree, parsed: Parsed) -> list[Damage]:
    if not tree.flaws:
        return []
    lines = {id(entry): line for entry, line in zip(tree.entries, parsed.line_numbers, strict=True)}
    return [Damage(flaw.kind, lines[id(flaw.entry)], flaw.text, flaw.entry.id) for flaw in tree.flaws]
