"""One generation of extensions: loaded together, bound to one agent, and retired together.

While extensions load there is no agent yet; after a reload or a change of session the old objects are stale. Both cases
are handled here, once, for the facade and every context of the generation.
"""

import asyncio
import concurrent.futures
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from spindle.agent.dialogs import Dialogs, NoDialogs
from spindle.agent.session import AgentSession
from spindle.base import limits
from spindle.base.flow import Tasks
from spindle.llm.stream import StreamFunction
from spindle.plugins.extensions.threads import HERE, Home, OwnLoop
from spindle.resources.sources import SourceInfo
from spindle.shapes.approvals import QuestionKind
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import Event
from spindle.tools.base import Tool

T = TypeVar("T")

NOT_YET = "Extension runtime not initialized. Action methods cannot be called during extension loading."
STALE = (
    "This object belongs to extensions that were reloaded or to a session that was left. "
    "Use the ctx of the current event, or the one given to with_session."
)
Listener = Callable[[Any], Any]


# -- registrations of one extension -----------------------------------------------------------------


class Handler(Struct, frozen=True, eq=False):
    event: str
    function: Callable[..., Any]
    extension: "Extension"
    tools: frozenset[str] | None = None
    """Names of the tools whose events it gets; None: all."""
    timeout: float | None = None
    """Seconds."""


class ExtensionCommand(Struct, eq=False):
    """A slash command. Use `@command.complete` for a function that completes its arguments."""

    name: str
    function: Callable[..., Any]
    extension: "Extension"
    help: str = ""
    completer: Callable[[str], Any] | None = None

    def complete(self, function: Callable[[str], Any]) -> Callable[[str], Any]:
        """Use `function(prefix)` to list completions of the arguments."""
        self.completer = function
        return function


class Flag(Struct, frozen=True):
    """A command line option of an extension: `--name` or `--name VALUE`."""

    name: str
    type: type
    """`bool` or `str`."""
    default: bool | str | None = None
    help: str = ""


class Provider(Struct, frozen=True):
    config: dict[str, Any]
    """With the keys of `models.json`."""
    stream: StreamFunction | None = None


class Extension(Struct, eq=False):
    path: str
    """File, `module:attribute`, or name of an entry point, as shown in messages."""
    origin: SourceInfo
    factory: Callable[[Any], Any]
    """The function that was called to make it."""
    handlers: list[Handler] = []
    tools: dict[str, Tool] = {}
    commands: dict[str, ExtensionCommand] = {}
    flags: dict[str, Flag] = {}
    providers: dict[str, Provider] = {}
    listeners: list[tuple[str, Listener]] = []
    """Channels and functions of `agent.events`."""
    agent: Any = None
    """Its facade."""
    home: Home = HERE
    """Where its coroutines run."""

    def let_go(self) -> None:
        """Forget what it registered: its functions know the facade, which knows this extension."""
        self.agent = None
        self.handlers, self.tools, self.commands, self.providers = [], {}, {}, {}
        self.listeners.clear()


# -- the tie to the agent --------------------------------------------------------------------------


class StaleExtensionError(RuntimeError):
    """An `agent` or `ctx` was used after its generation of extensions had ended."""


class BeforeAgent:
    """Stands in for the agent while a project's trust is undecided: directory, mode, and dialogs."""

    aborting = False

    def __init__(self, cwd: str, mode: str, dialogs: Dialogs | None) -> None:
        self.cwd = cwd
        self.mode = mode
        self.dialogs = dialogs or NoDialogs()

    async def confirm(self, kind: QuestionKind, title: str, message: str, *, timeout: int | None = None) -> bool | None:
        """Ask a yes-or-no question, as a dialog: there are no permissions yet."""
        asked = ExtensionUIRequest(
            id=str(uuid.uuid4()), method="confirm", title=title, message=message, timeout=timeout
        )
        answer = await self.dialogs.ask(asked)
        return None if answer is None else answer.get("confirmed") is True

    def publish(self, event: Event) -> None:
        """No client listens yet; a traceback of an error is on stderr."""


class Binding:
    """The tie between the objects that extensions hold and the agent."""

    def __init__(self) -> None:
        self._agent: AgentSession | None = None
        self.surroundings: AgentSession | BeforeAgent | None = None
        """Stays set when this generation has ended, so that its errors can still be reported."""
        self.stale = False
        self.tasks = Tasks()
        """Tasks that extensions began and did not wait for."""
        self.successor: Callable[[str], Any] = lambda path: None
        """Returns a command context of the extension at a path, in the current generation."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def bind(self, agent: AgentSession) -> None:
        """Give access to the agent, from the loop that runs now."""
        self._agent = agent
        self.place(agent)

    def place(self, surroundings: AgentSession | BeforeAgent) -> None:
        """Give access to the agent, or to its stand-in before it exists."""
        self.surroundings = surroundings
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def let_go(self) -> None:
        """The agent has ended: no one is left to be told, and no other generation comes."""
        self.surroundings = None
        self.successor = lambda path: None

    @property
    def bound(self) -> bool:
        return self._agent is not None and not self.stale

    @property
    def agent(self) -> AgentSession:
        """The agent. Raises `StaleExtensionError`, or `RuntimeError` while extensions load."""
        self._check()
        if self._agent is None:
            raise RuntimeError(NOT_YET)
        return self._agent

    @property
    def here(self) -> AgentSession | BeforeAgent:
        """The agent, or its stand-in before it exists. Raises like `agent`."""
        self._check()
        return self.surroundings or self.agent

    def _check(self) -> None:
        if self.stale:
            raise StaleExtensionError(STALE)

    def do(self, action: Callable[[AgentSession], T]) -> T:
        """Let `action` change the agent, on the loop's thread whichever thread the caller is on."""
        agent = self.agent
        return self.on_loop(lambda: action(agent))

    def on_loop(self, action: Callable[[], T]) -> T:
        """Do something on the loop's thread; extensions that load are on it already."""
        self._check()
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

    def begin(self, action: Callable[[AgentSession], Coroutine[Any, Any, T]], name: str) -> "asyncio.Task[T]":
        """Let the agent begin something that the caller may await, on any event loop."""
        task = self.do(lambda agent: self.tasks.spawn(action(agent), name, report=False))
        if threading.get_ident() == self._thread:
            return task
        try:
            there = asyncio.get_running_loop()
        except RuntimeError:  # a plain function, which cannot await
            return task
        mirror = there.create_task(self.await_on_loop(lambda: asyncio.shield(task)))
        mirror.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return mirror

    async def carry_out(self, action: Callable[[AgentSession], Awaitable[T]]) -> T:
        """Let the agent do something that takes time, whichever thread the caller is on."""
        agent = self.agent
        return await self.await_on_loop(lambda: action(agent))

    async def await_on_loop(self, action: Callable[[], Awaitable[T]]) -> T:
        if self._loop is None or threading.get_ident() == self._thread:
            return await action()

        async def work() -> T:
            return await action()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))


# -- the generation --------------------------------------------------------------------------------


# Turns are counted even for handlers that only want the ends of turns.
_IMPLIED = {"turn_start": ("agent_start",), "turn_end": ("agent_start", "turn_start")}


class Generation:
    def __init__(
        self,
        flags: Mapping[str, str | bool] | None = None,
        builtin_tool: Callable[[str], Tool | None] = lambda name: None,
    ) -> None:
        self.binding = Binding()
        self.home = OwnLoop()
        """Where the coroutines of extensions run, except those of an embedding program."""
        self.extensions: list[Extension] = []
        self.given_flags = dict(flags or {})
        """Options of the command line that are not the agent's own."""
        self.builtin_tool = builtin_tool
        """Finds a built-in tool, also while extensions load."""
        self.handlers: dict[str, tuple[Handler, ...]] = {}
        self.listening: frozenset[str] = frozenset()
        self.commands: dict[str, ExtensionCommand] = {}
        """Commands by the name that the user types."""

    def add(self, extension: Extension) -> None:
        self.extensions.append(extension)
        self.refresh()

    def sort(self, paths: Sequence[str]) -> None:
        """Bring extensions into the order of `paths`, whichever was loaded first."""
        self.extensions.sort(key=lambda extension: paths.index(extension.path))
        self.refresh()

    def conflicts(self) -> list[str]:
        """Return a line for every tool and flag that two extensions both registered."""
        found = []
        seen: dict[str, Extension] = {}
        for extension in self.extensions:
            flags = (f'Flag "--{name}"' for name in extension.flags)
            for what in (*(f'Tool "{name}"' for name in extension.tools), *flags):
                if (first := seen.setdefault(what, extension)) is not extension:
                    found.append(f"{what} of {extension.path} conflicts with {first.path}")
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

    def _name_commands(self) -> dict[str, ExtensionCommand]:
        """Number commands of the same name: none of them is lost, none silently wins."""
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
        """Return the tools by name; the first extension with a name wins."""
        return _first_of_each(extension.tools for extension in self.extensions)

    def flags(self) -> dict[str, Flag]:
        return _first_of_each(extension.flags for extension in self.extensions)

    async def retire(self) -> None:
        """End this generation: objects that its extensions still hold are stale from here on."""
        self.binding.stale = True
        for extension in self.extensions:
            extension.let_go()
        self.refresh()
        await self.binding.tasks.end(limits.TASKS_END)
        self.home.close()


def _first_of_each(registered: Iterable[dict[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for items in registered:
        found = {**found, **{name: item for name, item in items.items() if name not in found}}
    return found


# -- messages between extensions --------------------------------------------------------------------


class Board:
    """`agent.events`, for messages between extensions: channels, any data, no answers."""

    def __init__(self, extension: Extension, generation: Generation) -> None:
        self._extension = extension
        self._generation = generation

    def on(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Call `listener(data)` for every message on `channel`. Returns a function that ends this."""
        item = (channel, listener)
        self._extension.listeners.append(item)

        def remove() -> None:
            if item in self._extension.listeners:
                self._extension.listeners.remove(item)

        return remove

    def emit(self, channel: str, data: Any = None) -> None:
        """Send `data` to all listeners of `channel`, without waiting for them. A failure is written to stderr."""
        self._generation.binding.on_loop(lambda: self._emit(channel, data))

    def _emit(self, channel: str, data: Any) -> None:
        loaded = self._generation.extensions
        for extension in loaded if self._extension in loaded else [*loaded, self._extension]:
            for name, listener in extension.listeners:
                if name == channel:
                    work = _deliver(extension.home, channel, listener, data)
                    self._generation.binding.tasks.spawn(work, "spindle-board")


async def _deliver(home: Home, channel: str, listener: Listener, data: Any) -> None:
    try:
        await home.call(listener, data)
    except Exception as error:
        print(f"Extension error (events {channel!r}): {str(error) or type(error).__name__}", file=sys.stderr)
