"""What `Session` and the functions of `open` promise beyond pi's names: one object stays one session."""

import os
from pathlib import Path

import pytest

from spindle.sessions import EntryNotFound, Session, SessionError, SessionLocked, open

from .helpers import answer, text


def begun(directory: Path) -> Session:
    """Return a session that has a file, with a question and an answer."""
    session = open.create("/srv/demo", directory)
    session.append_message(text("question"))
    session.append_message(answer("reply"))
    return session


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*.jsonl")}
