"""What one extension registered: handlers, tools, commands, options. Values only; nothing here runs anything."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spindle.llm.stream import StreamFunction
from spindle.resources.sources import SourceInfo
from spindle.tools.base import Tool

__all__ = ["Command", "Extension", "Flag", "Handler", "Provider", "Shortcut"]


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    event: str
    function: Callable[..., Any]
    extension: "Extension"
    tools: frozenset[str] | None = None
    """Names of the tools it is about; None: all."""
    timeout: float | None = None
    """Seconds."""


@dataclass(slots=True, eq=False)
class Command:
    """A slash command. Use `@command.complete` for a function that completes its arguments."""

    name: str
    function: Callable[..., Any]
    extension: "Extension"
    help: str = ""
    completer: Callable[[str], Any] | None = None

    def complete(self, function: Callable[[str], Any]) -> Callable[[str], Any]:
        """Use `function(prefix)` to list what the arguments may become."""
        self.completer = function
        return function


@dataclass(frozen=True, slots=True)
class Flag:
    """A command line option of an extension: `--name` or `--name VALUE`."""

    name: str
    type: type
    """`bool` or `str`."""
    default: bool | str | None = None
    help: str = ""


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A key for user interfaces that have keys."""

    key: str
    function: Callable[..., Any]
    help: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    config: dict[str, Any]
    """With the keys of `models.json`."""
    stream: StreamFunction | None = None


@dataclass(slots=True, eq=False)
class Extension:
    path: str
    """File, `module:attribute`, or name of an entry point: how messages speak of it."""
    origin: SourceInfo
    factory: Callable[[Any], Any]
    """What was called to make it."""
    handlers: list[Handler] = field(default_factory=list)
    tools: dict[str, Tool] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    flags: dict[str, Flag] = field(default_factory=dict)
    shortcuts: dict[str, Shortcut] = field(default_factory=dict)
    providers: dict[str, Provider] = field(default_factory=dict)
    message_renderers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    entry_renderers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    tool_renderers: dict[str, dict[str, Callable[..., Any]]] = field(default_factory=dict)
    """Tool name → `call` and `result`: functions that return lines of text."""
    agent: Any = None
    """The facade it was given."""
