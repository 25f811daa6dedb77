"""One generation of extensions: all that was loaded together, merged in load order, and retired together."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from spindle.extensions.binding import Binding
from spindle.extensions.bus import Bus
from spindle.extensions.record import Command, Extension, Flag, Handler
from spindle.tools.base import Tool

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
        self.on_change: Callable[[], None] = lambda: None

    def add(self, extension: Extension) -> None:
        """Take in an extension that loaded."""
        self.extensions.append(extension)
        self.refresh()

    def sort(self, paths: Sequence[str]) -> None:
        """Bring extensions into this order, whichever was loaded first."""
        self.extensions.sort(key=lambda extension: paths.index(extension.path))
        self.refresh()

    def conflicts(self) -> list[str]:
        """Return a line for everything that two extensions both wanted to be."""
        found = []
        tools: dict[str, str] = {}
        flags: dict[str, str] = {}
        for extension in self.extensions:
            found += [
                f'Tool "{name}" of {extension.path} conflicts with {tools[name]}'
                for name in extension.tools
                if name in tools
            ]
            found += [
                f'Flag "--{name}" of {extension.path} conflicts with {flags[name]}'
                for name in extension.flags
                if name in flags
            ]
            tools = {**dict.fromkeys(extension.tools, extension.path), **tools}
            flags = {**dict.fromkeys(extension.flags, extension.path), **flags}
        return found

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

    def flags(self) -> dict[str, Flag]:
        found: dict[str, Flag] = {}
        for extension in self.extensions:
            for name, flag in extension.flags.items():
                found.setdefault(name, flag)
        return found

    def providers(self) -> list[str]:
        return [name for extension in self.extensions for name in extension.providers]

    async def retire(self) -> None:
        """End this generation: whatever its extensions still hold is stale from here on."""
        self.binding.retire()
        await self.bus.close()
