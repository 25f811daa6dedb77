"""Commands for links, by which the other users of a server may look at a conversation."""

from typing import TYPE_CHECKING

from spindle.agent import AgentError
from spindle.protocol.registry import Call, command
from spindle.shapes.links import LinkInfo

if TYPE_CHECKING:
    from spindle.server.links import Links


@command("share_session")
async def share_session(call: Call) -> LinkInfo:
    """Return a link with which other users of this server may look at the conversation; nobody can do anything by it.
    A conversation has one link. For users of a server (`spindle tokens`)."""
    links, owner = _links(call)
    if not call.agent.session.is_there:
        raise AgentError("Nothing was said here yet: there is nothing to show")
    return await links.make(owner, call.agent.session.id)


@command("get_links", key="links")
async def get_links(call: Call) -> list[LinkInfo]:
    """Return the links to your conversations."""
    links, owner = _links(call)
    return await links.all(owner)


@command("remove_link")
async def remove_link(call: Call, link: str) -> None:
    """Remove a link to one of your conversations. Who looks on by it is disconnected."""
    links, owner = _links(call)
    await links.remove(owner, link)


def _links(call: Call) -> "tuple[Links, str]":
    links, owner = call.client.account.links, call.client.account.name
    if links is None or owner is None:
        raise AgentError("Links are for the users of a server (spindle tokens)")
    return links, owner
