"""Makes the uploads of a session of a store again where the hands are: they need files at the paths the model knows.

As with the session itself, nothing has to be on the disk of one machine: the files are there from the first call of a
tool in a process on, and end with its agent.
"""

import asyncio
import shutil
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks
from spindle.resources.loader import Resources
from spindle.sessions.entries import SessionError
from spindle.sessions.session import Session
from spindle.sessions.store import SessionStore
from spindle.sessions.uploads import Upload, content_of, uploads_in
from spindle.tools.base import Tool, ToolError
from spindle.workspace.replacing import put_upload
from spindle.workspace.viewing import regular_files


class UploadsPort(Protocol):
    """What is needed of the engine."""

    conversation: Conversation
    resources: Resources


class Uploads(Hooks):
    def __init__(self, port: UploadsPort) -> None:
        self._port = port
        self._looked_at = weakref.WeakSet[Session]()
        """Sessions whose files were made."""
        self._here: set[str] = set()
        """Folders on this machine."""
        weakref.finalize(self, _remove, self._here)

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        session = self._port.conversation.session
        if session.store is not None and session not in self._looked_at:
            self._looked_at.add(session)
            if uploads := uploads_in(session.entries):
                with suppress(SessionError, ToolError, OSError):  # the tool says that there is no such file
                    await self._make(session.store, uploads)
        return args

    async def _make(self, store: SessionStore, uploads: Sequence[Upload]) -> None:
        hands = self._port.resources.workspace
        if self._port.resources.far is None:
            self._here.update(upload.folder for upload in uploads)
        there = await hands.do(regular_files, [upload.path for upload in uploads])
        for upload, is_there in zip(uploads, there, strict=True):
            if not is_there and (content := await asyncio.to_thread(content_of, store, upload)) is not None:
                await hands.change(put_upload, upload.path, content)


def _remove(folders: set[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
