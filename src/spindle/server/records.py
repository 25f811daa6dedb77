"""Small things that a server keeps of its users: for each user and kind one JSON object, which only the server reads.

Without a store they are private files of the agent directory; with one they are records there, so that they hold on
all nodes. All methods may block.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spindle.base.user_files import BadFile, edit_json, read_object
from spindle.sessions.entries import SessionError
from spindle.sessions.store import Conflict, SessionStore
from spindle.shapes.codec import decode, encode

KEY: Final = "all"
NO_USER: Final = "_"
"""Stands for the name where a server has no users: no user can be called so."""
KINDS: Final = ("signed-in", "links")
"""What is kept: browsers that are signed in, and links to conversations."""


class Records:
    def __init__(self, kind: str, folder: Path, store: SessionStore | None) -> None:
        """`folder`: the agent directory. `store`: that of all users."""
        self._kind = kind
        self._folder = folder
        self._store = store

    def read(self, user: str | None) -> dict[str, Any]:
        """Return what is kept of a user. Raises `SessionError`."""
        if self._store is None:
            try:
                return read_object(self._file(user)) or {}
            except BadFile as error:
                raise SessionError(f"{self._file(user)}: {error}") from None
        record = self._space(self._store, user).get(self._kind, KEY)
        return {} if record is None else dict(decode(record.value))

    def change(self, user: str | None, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what is kept of a user. `change` may be called again, with another object. Raises `SessionError`."""
        if self._store is None:
            try:
                edit_json(self._file(user), change, 0o600)
            except (BadFile, OSError) as error:
                raise SessionError(f"Cannot change {self._file(user)}: {error}") from None
            return
        space = self._space(self._store, user)
        while True:
            record = space.get(self._kind, KEY)
            value = {} if record is None else decode(record.value)
            change(value)
            try:
                space.put(self._kind, KEY, encode(value), 0 if record is None else record.revision)
                return
            except Conflict:
                continue

    def forget(self, user: str) -> None:
        """Remove what is kept of a user. Raises `SessionError`."""
        if self._store is None:
            self._file(user).unlink(missing_ok=True)
        elif (record := (space := self._store.within(user)).get(self._kind, KEY)) is not None:
            space.put(self._kind, KEY, None, record.revision)

    def _file(self, user: str | None) -> Path:
        return self._folder / self._kind / f"{user or NO_USER}.json"

    @staticmethod
    def _space(store: SessionStore, user: str | None) -> SessionStore:
        return store if user is None else store.within(user)
