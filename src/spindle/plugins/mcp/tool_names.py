"""Names by which the model and permissions know what servers offer."""

import re
from typing import Final

from spindle.shapes.tool_lists import may_match

_MAX_NAME: Final = 64


def tool_name(server: str, tool: str) -> str:
    """Return the name of a tool for the model: one that model servers accept, and that no other tool has.

    The first "__" after "mcp__" ends the name of the server, so that a permission rule for one is not for another.
    """
    if "__" in server or server != server.strip("_"):
        server = f"{re.sub('_+', '_', server).strip('_')}-{_checksum(server)}"
    name = f"mcp__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _MAX_NAME and name == f"mcp__{server}__{tool}":
        return name
    return f"{name[: _MAX_NAME - 9]}_{_checksum(f'{server}/{tool}')}"


def serves(server: str, tool: str) -> bool:
    """Say whether a name, or a pattern of names, may be for a tool of this server."""
    return may_match(tool, tool_name(server, ""))


def _checksum(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]
