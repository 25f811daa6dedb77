"""The session that a person or a program names: by its id, by the beginning of the id, or by its file."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from spindle.base.spelling import letters_apart
from spindle.sessions.entries import SessionNotFound
from spindle.sessions.file import StrPath, absolute, is_path
from spindle.sessions.index import FoundFile, all_session_files, find_sessions

_WRONG = 3
"""Letters that a misspelt name may have wrong."""
_LOOKED_AT = 200
"""Names that are compared letter by letter with one that was not found."""


def named_file(name: StrPath, cwd: StrPath, session_dir: StrPath | None = None) -> Path:
    """Return the file of the session that `name` stands for. Raises `SessionNotFound`, and as `named_session`.

    A `Path` is a file; a text is one if it has a slash in it or ends like one. A file's path is taken from here, not
    from `cwd`.
    """
    if isinstance(name, str) and not is_path(name):
        return Path(named_session(name, cwd, session_dir).path)
    file = Path(absolute(name))
    if not file.is_file():
        others = (other.name for other in file.parent.glob("*.jsonl")) if file.parent.is_dir() else ()
        raise SessionNotFound(f"No session file {file}{_near(file.name, others)}")
    return file


def named_session(name: str, cwd: StrPath, session_dir: StrPath | None = None) -> FoundFile:
    """Return the session whose id is `name` or begins with it, of this project, else of any.

    Raises `SessionNotFound`, also if several begin so.
    """
    found = find_sessions(name, cwd, session_dir) if name else []
    if not found:
        ids = (file.stem.rpartition("_")[2] for file in all_session_files(session_dir))
        raise SessionNotFound(f"No session found matching '{name}'{_near(name, ids)}")
    if len(found) > 1:
        candidates = "\n".join(f"  {item.id}  {item.path}" for item in found)
        raise SessionNotFound(f"Several sessions match '{name}':\n{candidates}")
    return found[0]


def _near(name: str, others: Iterable[str]) -> str:
    """Return a hint at the names that share one half with `name` and differ in few letters; empty without any."""
    half = max(len(name) // 2, 1)
    alike = (other for other in others if other[:half] == name[:half] or other[-half:] == name[-half:])
    near = sorted(other for other in islice(alike, _LOOKED_AT) if letters_apart(name, other) <= _WRONG)
    return f". Did you mean {' or '.join(near[:3])}?" if near else ""
