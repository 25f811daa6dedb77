"""What the server reads of a request before it answers: the headers that decide, who sent it, its path and query."""

import asyncio
import os
from typing import Final
from urllib.parse import parse_qs

from aiohttp import web

from spindle.server.links import SharedLink
from spindle.server.sign_ins import KnownBrowser
from spindle.wires.network.access import owner
from spindle.wires.network.listener import HttpConnection

HEADERS: Final = ("Host", "Origin", "Authorization", "Sec-WebSocket-Protocol")
"""The headers that decide about access."""
WHO = web.RequestKey[str | None]("who")
"""The key of a request under which there is the name of the user who sent it; None if the server has no users."""
SIGNED_IN = web.RequestKey[KnownBrowser | None]("signed_in")
"""The sign-in of the browser that sent it, if it is one."""
LINK = web.RequestKey[SharedLink | None]("link")
"""The link to the conversation of another user that it is about, if there is such a link."""


def deciding(request: web.BaseRequest) -> dict[str, str]:
    """Return the headers that decide about access."""
    return {name: ", ".join(values) for name in HEADERS if (values := request.headers.getall(name, []))}


def by(request: web.BaseRequest, owner: str | None) -> dict[str, str | None]:
    """Return the admin who uses the sessions of another user, for the trace."""
    assert isinstance(request.protocol, HttpConnection)
    return {} if request.protocol.user == owner else {"by": request.protocol.user}


async def is_own(request: web.BaseRequest) -> bool:
    """Say whether the process at the other end of a connection runs as the same user as we do."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    if connection.own is None:
        transport = request.transport
        theirs = transport and transport.get_extra_info("peername")
        ours = transport and transport.get_extra_info("sockname")
        if not theirs or not ours:  # the connection is lost already
            return False
        connection.own = await asyncio.to_thread(owner, theirs[:2], ours[:2]) == os.geteuid()
    return connection.own


def split(target: str) -> tuple[str, dict[str, str]]:
    """Return path and query of a request; of a key that comes twice, the last value counts."""
    path, _, fields = target.partition("?")
    return path, {key: values[-1] for key, values in parse_qs(fields).items()}
