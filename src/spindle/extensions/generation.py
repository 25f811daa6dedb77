"""One generation of extensions: all that was loaded together, bound to one agent, and retired together.

While extensions load there is no agent yet; after a reload or a change of session the old objects are stale. Both are
decided here, once, for the facade and every context of the generation.
"""

import asyncio
import concurrent.futures
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from spindle import limits
from spindle.agent.dialogs import Dialogs
from spindle.agent.session import AgentSession
from spindle.extensions.threads import call
from spindle.flow import Tasks
from spindle.llm.stream import StreamFunction
from spindle.resources.sources import SourceInfo
from spindle.shapes.events import Event
from spindle.tools.base import Tool

__all__ = [
    "Binding",
    "Bus",
    "BusView",
    "Command",
    "Extension",
    "Flag",
    "Generation",
    "Handler",
    "Provider",
    "Shortcut",
    "StaleExtensionError",
]

T = TypeVar("T")

NOT_YET = "Extension runtime not initialized. Action methods cannot be called during extension loading."
STALE = (
    "This object belongs to extensions that were reloaded or to a session that was left. "
    "Use the ctx of the current event, or the one given to with_session."
)
Listener = Callable[[Any], Any]


# -- what one extension registered ------------------------------------------------------------------


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


# -- the tie to the agent --------------------------------------------------------------------------


class StaleExtensionError(RuntimeError):
    """An `agent` or `ctx` was used after its generation of extensions had ended."""


class Surroundings(Protocol):
    """What there is of an agent while a project's trust is undecided. An `AgentSession` has all of it."""

    dialogs: Dialogs

    @property
    def mode(self) -> str: ...
    @property
    def cwd(self) -> str: ...
    @property
    def aborting(self) -> bool: ...
    def publish(self, event: Event) -> None: ...


class Binding:
    """The tie between what extensions hold and the agent."""

    def __init__(self) -> None:
        self._agent: AgentSession | None = None
        self.surroundings: Surroundings | None = None
        """Kept when this generation has ended, too: for telling what went wrong in it."""
        self._stale = False
        self.tasks = Tasks()
        """What extensions began and did not wait for."""
        self.successor: Callable[[str], Any] = lambda path: None
        """Returns a command context of the extension at a path, in the generation that is in force now."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def bind(self, agent: AgentSession) -> None:
        """Give access to the agent, from the loop that runs now."""
        self._agent = agent
        self.place(agent)

    def place(self, surroundings: Surroundings) -> None:
        """Give access to what there is before the agent."""
        self.surroundings = surroundings
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def retire(self) -> None:
        self._stale = True

    @property
    def bound(self) -> bool:
        return self._agent is not None and not self._stale

    @property
    def agent(self) -> AgentSession:
        """The agent. Raises `StaleExtensionError`, or `RuntimeError` while extensions load."""
        return self._valid(self._agent)

    @property
    def here(self) -> Surroundings:
        """What there is of an agent so far. Raises like `agent`."""
        return self._valid(self.surroundings)

    def _valid(self, held: T | None) -> T:
        if self._stale:
            raise StaleExtensionError(STALE)
        if held is None:
            raise RuntimeError(NOT_YET)
        return held

    def do(self, action: Callable[[AgentSession], T]) -> T:
        """Let `action` change the agent, on the loop's thread wherever the caller is."""
        agent = self.agent
        return self.on_loop(lambda: action(agent))

    def on_loop(self, action: Callable[[], T]) -> T:
        """Do something on the loop's thread wherever the caller is; extensions that load are there already."""
        if self._stale:
            raise StaleExtensionError(STALE)
        if self._loop is None or threading.get_ident() == self._thread:
            return action()
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def perform() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(perform)
        return done.result()


# -- messages between extensions --------------------------------------------------------------------


class Bus:
    """A board where extensions leave notes for each other: channels, any data, nothing in return."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[tuple[object, Listener], ...]] = {}
        self._tasks = Tasks()

    def add(self, channel: str, owner: object, listener: Listener) -> Callable[[], None]:
        item = (owner, listener)
        self._listeners[channel] = (*self._listeners.get(channel, ()), item)

        def remove() -> None:
            others = self._listeners.get(channel, ())
            self._listeners[channel] = tuple(other for other in others if other is not item)

        return remove

    def forget(self, owner: object) -> None:
        """Drop everything `owner` listens to."""
        self._listeners = {
            channel: tuple(item for item in items if item[0] is not owner) for channel, items in self._listeners.items()
        }

    def emit(self, channel: str, data: Any) -> None:
        """Hand `data` to every listener, soon; one that fails is only noted on stderr."""
        for _, listener in self._listeners.get(channel, ()):
            self._tasks.spawn(self._deliver(channel, listener, data), "spindle-bus")

    async def close(self) -> None:
        """Drop all listeners and stop those at work."""
        self._listeners.clear()
        await self._tasks.end(limits.TASKS_END)

    async def _deliver(self, channel: str, listener: Listener, data: Any) -> None:
        try:
            await call(listener, data)
        except Exception as error:
            print(f"Extension error (events {channel!r}): {error or type(error).__name__}", file=sys.stderr)


class BusView:
    """The bus as one extension holds it: `agent.events`."""

    def __init__(self, bus: Bus, owner: object, binding: Binding) -> None:
        self._bus = bus
        self._owner = owner
        self._binding = binding

    def on(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Call `listener(data)` for everything on `channel`. Returns the way to stop that."""
        return self._bus.add(channel, self._owner, listener)

    def emit(self, channel: str, data: Any = None) -> None:
        """Send `data` to all who listen to `channel`, without waiting for them."""
        self._binding.on_loop(lambda: self._bus.emit(channel, data))


# -- the generation --------------------------------------------------------------------------------


# Turns are counted even for handlers that only want their ends.
_IMPLIED = {"turn_start": ("agent_start",), "turn_end": ("agent_start", "turn_start")}


class Generation:
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
        """Merge again after something was registered."""
        handlers: dict[str, list[Handler]] = {}
        for extension in self.extensions:
            for handler in extension.handlers:
                handlers.setdefault(handler.event, []).append(handler)
        self.handlers = {event: tuple(found) for event, found in handlers.items()}
        implied = (name for event in handlers for name in _IMPLIED.get(event, ()))
        self.listening = frozenset((*handlers, *implied))
        self.commands = self._name_commands()

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

    async def retire(self) -> None:
        """End this generation: what its extensions still hold is stale from here on."""
        self.binding.retire()
        await self.bus.close()
        await self.binding.tasks.end(limits.TASKS_END)
