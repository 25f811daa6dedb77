"""One generation of extensions: all that was loaded together, merged in load order, and retired together."""

from collections import Counter
from collections.abc import Callable, Mapping

from spindle.tools.base import Tool

from .binding import Binding
from .bus import Bus
from .record import Command, Extension, Flag, Handler

__all__ = ["Registry"]

# Turns are counted even for those who only want their ends.
_IMPLIED = {"turn_start": ("agent_start",), "turn_end": ("agent_start", "turn_start")}


class Registry:
    def __init__(
        self,
        flags: Mapping[str, str | bool] | None = None,
        builtin_tool: Callable[[str], Tool | None] = lambda name: None,
    ) -> None:
        self.binding = Binding()
        self.bus = Bus()
        self.extensions: list[Extension] = []
        self.given_flags = dict(flags or {})
        """Options of the command line that are not the agent's own."""
        self.builtin_tool = builtin_tool
        """Finds a built-in tool, also while extensions load."""
        self.handlers: dict[str, tuple[Handler, ...]] = {}
        self.listening: frozenset[str] = frozenset()
        self.commands: dict[str, Command] = {}
        """By the name the user types."""
        self.conflicts: list[str] = []
        """What two extensions both wanted to be, one line each."""
        self.on_change: Callable[[], None] = lambda: None

    def add(self, extension: Extension) -> None:
        """Take in an extension that loaded."""
        self.extensions.append(extension)
        for name, first in self.tools().items():
            if name in extension.tools and first is not extension.tools[name]:
                self.conflicts.append(f'Tool "{name}" conflicts with {self._owner_of(first)} ({extension.path})')
        for name, flag in self.flags().items():
            if name in extension.flags and flag is not extension.flags[name]:
                self.conflicts.append(f'Flag "--{name}" is already taken by another extension ({extension.path})')
        self.refresh()

    def refresh(self) -> None:
        """Merge again after somebody registered something."""
        handlers: dict[str, list[Handler]] = {}
        for extension in self.extensions:
            for handler in extension.handlers:
                handlers.setdefault(handler.event, []).append(handler)
        self.handlers = {event: tuple(found) for event, found in handlers.items()}
        implied = (name for event in handlers for name in _IMPLIED.get(event, ()))
        self.listening = frozenset((*handlers, *implied))
        self.commands = self._name_commands()
        self.on_change()

    def _name_commands(self) -> dict[str, Command]:
        """Give commands of the same name numbers: none of them is lost, none silently wins."""
        found = [command for extension in self.extensions for command in extension.commands.values()]
        many = Counter(command.name for command in found)
        seen: Counter[str] = Counter()
        named = {}
        for command in found:
            seen[command.name] += 1
            name = f"{command.name}:{seen[command.name]}" if many[command.name] > 1 else command.name
            named[name] = command
        return named

    def tools(self) -> dict[str, Tool]:
        """Return the tools by name; the first extension that has a name keeps it."""
        found: dict[str, Tool] = {}
        for extension in self.extensions:
            for name, tool in extension.tools.items():
                found.setdefault(name, tool)
        return found

    def _owner_of(self, tool: Tool) -> str:
        return next(e.path for e in self.extensions if tool in e.tools.values())

    def flags(self) -> dict[str, Flag]:
        found: dict[str, Flag] = {}
        for extension in self.extensions:
            for name, flag in extension.flags.items():
                found.setdefault(name, flag)
        return found

    async def retire(self) -> None:
        """End this generation: whatever its extensions still hold is stale from here on."""
        self.binding.retire()
        await self.bus.close()
