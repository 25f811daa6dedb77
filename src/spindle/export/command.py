"""`spindle --export FILE [OUT]`: the page of a session file that nobody has open, or somebody else has."""

import sys
from pathlib import Path

from spindle.export import export_session
from spindle.export.errors import ExportError

__all__ = ["export_file", "run_export"]


def export_file(session_path: Path, out: Path | None = None, *, redact: bool = False) -> Path:
    """Write the page of a session file and return its path. The file is only read. Raises `ExportError`."""
    from spindle.sessions.entries import SessionError
    from spindle.sessions.manager import SessionManager

    if not session_path.exists():
        raise ExportError(f"File not found: {session_path}")
    try:
        store = SessionManager.open(session_path, read_only=True)
    except SessionError as error:
        raise ExportError(str(error)) from None
    return export_session(store, out, redact=redact)


def run_export(session_path: str, out: str | None, *, redact: bool) -> int:
    """Do what the command line asks for, say how it went, and return the exit code."""
    try:
        written = export_file(Path(session_path), Path(out) if out is not None else None, redact=redact)
    except ExportError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"Exported to: {written}")
    return 0
