"""What a slash command of the chat is."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class SlashOption(NamedTuple):
    value: str
    """A possible argument."""
    label: str = ""
    is_now: bool = False


class SlashCommand(NamedTuple):
    run: Callable[[str], Awaitable[Any]]
    usage: str
    about: str
    options: Callable[[], Awaitable[list[SlashOption]]] | None = None
    question: str = ""
    """Asked if the argument is not one of the options."""
