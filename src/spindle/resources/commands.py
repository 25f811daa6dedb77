"""The slash commands a client may offer: those of extensions, then templates, then skills."""

from collections.abc import Sequence
from typing import Literal

from spindle.resources.skills import Skill
from spindle.resources.sources import SourceInfo
from spindle.resources.templates import Template
from spindle.shapes.content import Wire

__all__ = ["CommandItem", "command_item", "command_items"]

_LOCATIONS: dict[str, Literal["user", "project", "path"]] = {"user": "user", "project": "project", "temporary": "path"}


class CommandItem(Wire):
    """One entry of `get_commands`, with the keys of old clients (`location`, `path`) and of new ones."""

    name: str
    source: Literal["extension", "prompt", "skill"]
    source_info: SourceInfo
    location: Literal["user", "project", "path"]
    path: str
    description: str | None = None


def command_item(
    name: str, description: str | None, source: Literal["extension", "prompt", "skill"], info: SourceInfo
) -> CommandItem:
    return CommandItem(name, source, info, _LOCATIONS[info.scope], info.path, description or None)


def command_items(
    extension_commands: Sequence[CommandItem], templates: Sequence[Template], skills: Sequence[Skill]
) -> list[CommandItem]:
    """Return all commands in the order clients show them."""
    return [
        *extension_commands,
        *(command_item(item.name, item.description, "prompt", item.info) for item in templates),
        *(command_item(f"skill:{item.name}", item.description, "skill", item.info) for item in skills),
    ]
