"""Where session files live: one directory per project under the agent directory, or one the user names."""

import os
import re
from pathlib import Path

from spindle.agent_dir import agent_dir, expand_home

__all__ = ["absolute", "encode_cwd", "make_private_dir", "session_dir_for", "session_file_name", "sessions_root"]


def sessions_root(agent_directory: Path | None = None) -> Path:
    """Return the directory that holds one directory per project."""
    return (agent_directory or agent_dir()) / "sessions"


def session_dir_for(cwd: str | os.PathLike[str], agent_directory: Path | None = None) -> Path:
    """Return the directory for sessions of the project in `cwd`; it may not exist yet."""
    return sessions_root(agent_directory) / encode_cwd(absolute(cwd))


def encode_cwd(cwd: str) -> str:
    """Return the directory name for `cwd`. Two projects may share one: `/a/b` and `/a-b` encode alike."""
    without_root = re.sub(r"^[/\\]", "", cwd)
    return "--" + re.sub(r"[/\\:]", "-", without_root) + "--"


def session_file_name(timestamp: str, session_id: str) -> str:
    """Return the name of a new session's file; `timestamp` is the one in its header."""
    return f"{re.sub('[:.]', '-', timestamp)}_{session_id}.jsonl"


def absolute(path: str | os.PathLike[str]) -> str:
    """Return `path` with `~` expanded, absolute and normalised; links are not followed."""
    return os.path.abspath(expand_home(os.fspath(path)))


def make_private_dir(path: Path) -> None:
    """Create `path` and its missing parents for the owner only; what exists keeps its mode."""
    missing = []
    while not path.is_dir() and path != path.parent:
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
