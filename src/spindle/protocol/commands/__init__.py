"""Every command a client can send, and the one method of the agent it calls.

The parameters of a handler are the fields of its command, in camelCase on the wire; its return value is `data` of the
response. `COMMANDS` is the only list of commands: the JSON Schema and the reference page are made from it. A process
loads only the modules that it needs for the commands it gets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spindle.protocol import registry

if TYPE_CHECKING:
    from spindle.protocol.registry import COMMANDS

__all__ = ["COMMANDS", "command_named"]

_unread = ["setup", "work", "contents", "places", "subagents", "folder", "owner", "sharing"]
"""Modules that were not needed yet, those with the usual commands first. Each adds its commands to the list."""


def command_named(name: str) -> registry.CommandSpec | None:
    while name not in registry.COMMANDS and _unread:
        import_module(f"{__name__}.{_unread.pop(0)}")
    return registry.COMMANDS.get(name)


def __getattr__(name: str) -> Any:
    if name != "COMMANDS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    while _unread:
        import_module(f"{__name__}.{_unread.pop(0)}")
    return registry.COMMANDS
