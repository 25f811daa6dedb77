"""Links to conversations: with one, the other users of a server may look at a conversation of its owner.

A link names its owner and a random word. It is of no use without being signed in to the same server, so it is kept as
it is: the owner may want to copy it again.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from spindle.agent import AgentError
from spindle.server.records import Records
from spindle.shapes.links import LinkInfo

_MOST: Final = 200
"""Conversations of a user with a link."""


class SharedLink(Struct, frozen=True):
    text: str
    owner: str
    session: str


class Links:
    def __init__(self, records: Records) -> None:
        self._records = records
        self.on_removed: Callable[[], None] = lambda: None
        """Called when a link was removed."""

    def find(self, text: str, users: Any) -> SharedLink | None:
        """Return a link of one of these users; None: there is none. Blocks. Raises `SessionError`."""
        owner, _, word = text.partition(":")
        entry = self._records.read(owner).get(word) if owner in users else None
        return None if entry is None else SharedLink(text, owner, str(entry["session"]))

    def holds(self, link: SharedLink) -> bool:
        """Say whether a link was not removed. Blocks. Raises `SessionError`."""
        return self.find(link.text, (link.owner,)) == link

    async def make(self, owner: str, session: str) -> LinkInfo:
        """Return the link to a conversation; a new one if it has none. Raises `SessionError`, `AgentError`."""

        def add(kept: dict[str, Any]) -> None:
            if any(entry["session"] == session for entry in kept.values()):
                return
            if len(kept) >= _MOST:
                raise AgentError(f"{_MOST} conversations are shared: remove a link first")
            created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            kept[secrets.token_urlsafe(16)] = {"session": session, "created": created}

        await asyncio.to_thread(self._records.change, owner, add)
        return next(link for link in await self.all(owner) if link.session == session)

    async def all(self, owner: str) -> list[LinkInfo]:
        """Return the links of a user. Raises `SessionError`."""
        kept = await asyncio.to_thread(self._records.read, owner)
        return [LinkInfo(f"{owner}:{word}", one["session"], one["created"]) for word, one in kept.items()]

    async def remove(self, owner: str, text: str) -> None:
        """Remove a link; who looks on by it is disconnected. Raises `SessionError`, `AgentError`."""
        if text not in [link.link for link in await self.all(owner)]:
            raise AgentError("There is no such link: get_links lists those of you")
        word = text.partition(":")[2]
        await asyncio.to_thread(self._records.change, owner, lambda kept: kept.pop(word, None))
        self.on_removed()
