"""A session as one HTML page that needs nothing but a browser.

`export_session` writes the page of an open session, `export_file` that of a file, `page.build_page` makes it from plain
values. The session file is never touched.
"""

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spindle.sessions.session import Session
    from spindle.tools.base import Tool

__all__ = ["ExportError", "export_file", "export_session", "run_export", "write_page"]


class ExportError(Exception):
    """The page was not written; nothing was changed. The text is for the person who asked."""


def export_session(
    session: "Session",
    out: Path | None = None,
    *,
    system_prompt: str | None = None,
    tools: Sequence["Tool"] = (),
    redact: bool = False,
) -> Path:
    """Write the page of a session and return its path.

    Without `out` the page goes to the current folder. Raises `ExportError` if the session has no messages yet, or the
    page cannot be written.
    """
    from spindle.export.page import build_page

    source = session.path
    # In this order, because the session may grow meanwhile: so the leaf is always among the entries.
    leaf_id = session.leaf_id
    entries = session.entries
    if not any(entry.type == "message" for entry in entries):
        raise ExportError("Nothing to export yet - start a conversation first")
    target = out if out is not None else Path(f"pi-session-{source.stem if source else session.id}.html")
    page = build_page(
        session.header.value,
        (entry.value for entry in entries),
        leaf_id,
        name=session.name,
        system_prompt=system_prompt,
        tools=[{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools],
        damage_notes=[str(note) for note in session.damage],
        redact=redact,
    )
    write_page(target, page, source=source)
    return target


def export_file(session_path: Path, out: Path | None = None, *, redact: bool = False) -> Path:
    """Write the page of a session file and return its path. The file is only read. Raises `ExportError`."""
    from spindle.sessions.entries import SessionError
    from spindle.sessions.open import load

    if not session_path.exists():
        raise ExportError(f"File not found: {session_path}")
    try:
        session = load(session_path, read_only=True)
    except SessionError as error:
        raise ExportError(str(error)) from None
    return export_session(session, out, redact=redact)


def run_export(session_path: str, out: str | None, *, redact: bool) -> int:
    """Write the page that the command line asks for, print how it went, and return the exit code."""
    try:
        written = export_file(Path(session_path), Path(out) if out is not None else None, redact=redact)
    except ExportError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"Exported to: {written}")
    return 0


def write_page(path: Path, page: Iterable[bytes], *, source: Path | None = None) -> None:
    """Write the pieces of a page to `path`, replacing an ordinary file of that name.

    A link, a device or a folder is refused, and so is `source`, the session itself. The page is written beside
    the target and renamed, so a full disk or a crash leaves the earlier file. Raises `ExportError`.
    """
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    if found is not None:
        _check_replaceable(path, found, source)
    # A name of its own: another export of the same session may be under way, or have been killed.
    scratch = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        # For the user alone: the page holds the whole session. Sharing it is the user's decision.
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    try:
        with os.fdopen(handle, "wb", buffering=1 << 18) as file:
            file.writelines(page)
        scratch.replace(path)
    except OSError as error:
        raise _refusal(path, error) from None
    finally:
        scratch.unlink(missing_ok=True)


def _check_replaceable(path: Path, found: os.stat_result, source: Path | None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ExportError(f"Cannot write {path}: it is a folder; name a file in it")
    if stat.S_ISLNK(found.st_mode):
        raise ExportError(f"Cannot write {path}: it is a symbolic link; name the file it points to")
    if not stat.S_ISREG(found.st_mode):
        raise ExportError(f"Cannot write {path}: it is not an ordinary file")
    if source is not None and source.exists() and os.path.samestat(found, source.stat()):
        raise ExportError(f"Cannot write {path}: it is the session itself; choose another name")


def _refusal(path: Path, error: OSError | ValueError) -> ExportError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ExportError(f"Cannot write {path}: the folder {path.parent} does not exist")
    reason = error.strerror if isinstance(error, OSError) else None
    return ExportError(f"Cannot write {path}: {reason or error}")
