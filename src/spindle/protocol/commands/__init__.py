"""Every command a client can send, and the one method of the agent it calls.

The parameters of a handler are the fields of its command, in camelCase on the wire; its return value is `data` of the
response. `COMMANDS` is the only list of commands: dispatch, the JSON Schema and the reference page are made from it.
"""

from spindle.protocol.commands import (
    contents,
    folder,
    owner,
    places,
    setup,
    subagents,
    work,
)  # each adds its commands to the list
from spindle.protocol.registry import COMMANDS

__all__ = ["COMMANDS", "contents", "folder", "owner", "places", "setup", "subagents", "work"]
