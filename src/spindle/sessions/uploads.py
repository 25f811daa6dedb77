"""Files that clients have uploaded into a session of a store: small records there, which any node can make files of."""

import os
import re
from collections.abc import Iterable
from typing import ClassVar

from spindle.sessions.entries import Entry, SessionError
from spindle.sessions.facts import Fact, facts, keep
from spindle.sessions.session import Session
from spindle.sessions.store import SessionStore

UPLOAD = "upload"
"""Kind of the records."""
LARGEST = 16 << 20
"""Bytes of the largest one."""
TEMPORARY = "spindle-upload-"
"""How the folder of an upload in the folder for temporary files begins."""


class Upload(Fact):
    """A file that a client has uploaded."""

    entry_type: ClassVar[str] = "spindle.upload"

    path: str
    """Where the hands find it; the model was told so."""
    key: str
    """Of the record. A fork names that of its parent."""

    @property
    def is_sound(self) -> bool:
        """Whether we have chosen that path: a session file may come from anywhere."""
        return re.fullmatch(rf"/(?:.*/)?{TEMPORARY}[0-9a-f]{{16}}/[\w.\- ]+", self.path) is not None

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


def check_upload(size: int) -> None:
    """Raise `SessionError` if a file is too large to be a record."""
    if size > LARGEST:
        raise SessionError(f"a store takes files of at most {LARGEST >> 20} MiB")


def keep_upload(session: Session, store: SessionStore, path: str, content: bytes) -> Upload:
    """Put the content of an upload into the store. Blocks. Raises `StoreError`."""
    upload = Upload(path=path, key=f"{session.id}/{os.path.basename(os.path.dirname(path))}")
    store.put(UPLOAD, upload.key, content, 0)
    return upload


def note_upload(session: Session, upload: Upload) -> None:
    """Say in the session that it has an upload. It is kept from then on, also before its first message."""
    keep(session, upload)
    session.save()


def uploads_in(entries: Iterable[Entry]) -> list[Upload]:
    return [upload for upload in facts(entries, Upload) if upload.is_sound]


def content_of(store: SessionStore, upload: Upload) -> bytes | None:
    """Return the content of an upload; None if it is gone. Raises `StoreError`."""
    record = store.get(UPLOAD, upload.key)
    return None if record is None else record.value


def remove_uploads(store: SessionStore, session: str, entries: Iterable[Entry]) -> None:
    """Remove the uploads of a session that is deleted. Raises `StoreError`."""
    for upload in facts(entries, Upload):
        if upload.key.startswith(f"{session}/") and (record := store.get(UPLOAD, upload.key)) is not None:
            store.put(UPLOAD, upload.key, None, record.revision)
