"""How much a server has stored, for its metrics. Many files are looked at for it, so that is done once a minute."""

import asyncio
import os
from collections.abc import Iterable
from time import monotonic
from typing import Final

from spindle.base.agent_dir import agent_dir
from spindle.server import room
from spindle.server.account import Terms
from spindle.sessions.holdings import holdings, places

FRESH: Final = 60.0
"""Seconds for which figures hold."""
Figure = tuple[str, tuple[str | None, ...], float]


class DiskFigures:
    def __init__(self) -> None:
        self.figures: list[Figure] = []
        """Name, labels, value."""
        self._looked = -FRESH

    async def look(self, users: Iterable[Terms | None]) -> None:
        """Look again if the figures are too old."""
        if monotonic() - self._looked >= FRESH:
            self._looked = monotonic()
            folders = {os.path.dirname(terms.session_dir) for terms in users if terms is not None}
            self.figures = await asyncio.to_thread(_figures, folders)


def _figures(folders: set[str]) -> list[Figure]:
    found = holdings(places(*folders))
    figures: list[Figure] = [("disk_bytes", (one.kind.name,), one.bytes) for one in found]
    left = room.free(agent_dir())
    return figures if left is None else [*figures, ("disk_free_bytes", (), left)]
