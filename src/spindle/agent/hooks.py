"""Hooks: how todos, stream rules, approval, a wire and extensions see a run and change it.

All of them subclass `Hooks` and override the methods that they need. The engine holds one `HookChain`, which calls its
members in order. `Plugins` is how the agent sees extensions and MCP servers. Listeners only get to see events (`hub`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from spindle.agent import AgentError
from spindle.resources.loader import Resources
from spindle.shapes.approvals import By
from spindle.shapes.events import Event, MessageUpdate, ToolResult
from spindle.shapes.messages import AgentMessage, AssistantMessage, CustomMessage, Image, Usage, Wire
from spindle.shapes.model import Model
from spindle.tools.base import Tool

if TYPE_CHECKING:
    from spindle.agent.session import AgentSession

Hook = TypeVar("Hook", bound=Callable[..., Any])
Fields = Callable[[], dict[str, Any]]
"""Makes the fields of an event, if a handler wants the event."""

CALL: ContextVar[str | None] = ContextVar("spindle_tool_call", default=None)
"""Id of the call that the running code is part of: its hooks, or its tool."""
SUBAGENT: ContextVar[str | None] = ContextVar("spindle_subagent", default=None)
"""Name of the subagent whose call the hooks of its owner look at."""


class Blocked(Exception):
    """A tool call must not run; the model reads the text."""

    def __init__(
        self, reason: str, *, terminate: bool = False, by: By | None = "program", error: str | None = None
    ) -> None:
        super().__init__(reason)
        self.terminate = terminate
        """Whether the run should end as well."""
        self.by: By | None = by
        """Who refused it; None: the denial is noted already, or it is none: the model did something the wrong way."""
        self.error = error
        """What failed, if nobody has refused it. The model does not get it."""


class AnswerStopped(Exception):
    """Raised by `Hooks.piece`: this answer must not go on. The text is its error message."""


class Start:
    """A run that is about to start, as `before_agent_start` may change it."""

    def __init__(self, prompt: str, images: Sequence[Image], system_prompt: str, made_of: Mapping[str, Any]) -> None:
        self.prompt = prompt
        self.images = images
        self.system_prompt = system_prompt
        self.made_of = made_of
        """Facts that the system prompt was made of."""
        self.messages: list[CustomMessage] = []
        """Messages to add behind the prompt."""


class Hooks:
    """The defaults, which change nothing."""

    listening: frozenset[str] = frozenset()
    """Types of events that `observe` wants. It does not get the others, because every token is an event."""
    sees_pieces = False
    """Whether `piece` wants to be called, which happens for every token."""
    of_the_owner = False
    """Whether a subagent has none of its own: those of the agent that it works for see its calls."""
    of_the_conversation = False
    """Whether those of the agent that a subagent works for do not see its calls: it has its own, for what it knows."""

    def within(self) -> "Hooks":
        """Return the hooks for a run inside of this one, which is that of a subagent. They see its model calls
        (`model_call`, `before_provider_…`, `after_provider_response`, `spent`) and tool calls, nothing else."""
        return self

    # -- a prompt --------------------------------------------------------------------------------

    def has_command(self, name: str) -> bool:
        return False

    async def run_command(self, text: str) -> None:
        """Run `/name args`, where `has_command(name)` is true."""

    def commands(self) -> list[Any]:
        """Return the items that commands add to `get_commands`."""
        return []

    def loaded(self) -> "list[ExtensionInForce]":
        """Return the extensions whose hooks these are."""
        return []

    async def complete_command(self, name: str, prefix: str) -> list[str]:
        """Return completions of a command's arguments."""
        return []

    @property
    def wants_input(self) -> bool:
        """Whether `input` may change or take a message, so that it has to be asked first."""
        return False

    async def input(
        self, text: str, images: list[Image], source: str, behavior: str | None
    ) -> tuple[str, list[Image]] | None:
        """Return the text and images to go on with, or None if the input was dealt with."""
        return text, images

    async def before_agent_start(self, start: Start) -> None:
        """Change the run that is about to start."""

    # -- a run -----------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """Note that the calling task works on a run of its own, even if a handler started the task."""

    async def before_turn(self) -> bool:
        """Say whether the model may be called; false stops the run, as an abort does."""
        return True

    def model_call(self, model: Model) -> None:
        """Raise `AgentError` if this model may not be called now, for an answer, a summary or a subagent."""

    async def tool_missing(self, name: str) -> None:
        """Offer a tool that the model has called although it was not offered. Raises `ToolError` if that fails."""

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        """Return the conversation and the system prompt as this one model call should see them."""
        return messages, system_prompt

    @property
    def wants_payload(self) -> bool:
        """Whether `before_provider_request` is to be asked, if it is there. The body has to be decoded for it."""
        return True

    async def before_provider_request(self, payload: Any) -> Any:
        """Return the request body to send."""
        return payload

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        """Change request headers in place."""

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        """Learn how the server answered, also if it refused."""

    def spent(self, usage: Usage) -> None:
        """Learn what a model call of the run has used, also one that failed or is not part of the conversation."""

    async def observe(self, event: Event) -> None:
        """See an event before listeners do."""

    def observe_soon(self, event: Event) -> None:
        """See an event at some later time; the caller does not wait."""

    async def caught_up(self, limit: float | None = None) -> None:
        """Return when all events of `observe_soon` have been seen, or after `limit` seconds."""

    def piece(self, update: MessageUpdate) -> None:
        """See a piece of an answer that was published. Raises `AnswerStopped` to end the answer."""

    async def message_end(self, message: AgentMessage) -> AgentMessage:
        """Return the message to keep, of the same role."""
        return message

    def committed(self, message: AgentMessage) -> None:
        """Learn that a message is part of the conversation now."""

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        """Return the arguments to run with. Raises `Blocked`."""
        return args

    def was_changed(self, call_id: str) -> bool:
        """Say whether whoever allowed the call that is about to run has changed its arguments."""
        return False

    async def tool_result(
        self, call_id: str, tool: Tool, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        """Return the result to keep, and whether it is an error."""
        return result, failed

    def interrupt(self) -> None:
        """End handlers at work and open dialogs, because the user aborted."""

    def compacted(self) -> None:
        """Learn that a summary has taken the place of older messages."""

    async def go_on(self, answer: AssistantMessage) -> bool:
        """Say whether another run should follow one that would be the last."""
        return False

    async def before_settle(
        self, answer: AssistantMessage, context: Sequence[AgentMessage]
    ) -> list[CustomMessage] | None:
        """Return messages (perhaps none) if the model should go on, or None if all is done."""
        return None

    # -- a session -------------------------------------------------------------------------------

    async def ask(self, event: str, fields: Fields) -> dict[str, Any]:
        """Ask the handlers of a `session_before_…` event. Returns their answers, merged; `cancel` in them is a veto."""
        return {}

    async def notify(self, event: str, **fields: Any) -> None:
        """Tell of something that happened (`session_start`, `model_select`, `session_shutdown`, …)."""

    async def user_bash(self, command: str, exclude_from_context: bool, cwd: str) -> dict[str, Any] | None:
        """Return a bash result to use instead of running the command. Raises the errors of handlers."""
        return None


def _call_each(hook: Hook) -> Hook:
    """Make the method of a chain that calls every member."""

    def call(chain: "HookChain", *args: Any) -> None:
        for member in chain._with[hook]:
            getattr(member, hook.__name__)(*args)

    return cast(Hook, call)


def _await_each(hook: Hook, usual: Any = None) -> Hook:
    """Make the method of a chain that asks one member after the other, until one does not give the usual answer."""

    async def ask(chain: "HookChain", *args: Any, **fields: Any) -> Any:
        for member in chain._with[hook]:
            if (answer := await getattr(member, hook.__name__)(*args, **fields)) != usual:
                return answer
        return usual

    return cast(Hook, ask)


class _Overriding(dict[Callable[..., Any], list[Hooks]]):
    """By hook, the members of a chain that override it."""

    def __init__(self, members: Sequence[Hooks]) -> None:
        super().__init__()
        self._members = members

    def __missing__(self, hook: Callable[..., Any]) -> list[Hooks]:
        self[hook] = [member for member in self._members if getattr(type(member), hook.__name__) is not hook]
        return self[hook]


def _answering(name: str, members: Sequence[Hooks]) -> list[Hooks]:
    """Return the members with an attribute of their own, which may be a property, in the place of that of `Hooks`."""
    usual = getattr(Hooks, name)
    return [member for member in members if getattr(type(member), name) is not usual or name in vars(member)]


class HookChain(Hooks):
    """Several hooks as one. Each member gets the values as the member before it changed them."""

    def __init__(self, *members: Hooks) -> None:
        self.use(*members)

    def use(self, *members: Hooks) -> None:
        self._members = members
        self._with = _Overriding(members)
        self._observers = _answering("listening", members)
        self._readers = _answering("sees_pieces", members)

    def add(self, member: Hooks) -> None:
        self.use(*self._members, member)

    def remove(self, member: Hooks) -> None:
        self.use(*(other for other in self._members if other is not member))

    def replace(self, old: Hooks, new: Hooks) -> None:
        self.use(*(new if member is old else member for member in self._members))

    def lent(self) -> "HookChain":
        """Return the hooks that see the calls of subagents, too."""
        return HookChain(*(member for member in self._members if not member.of_the_conversation))

    def work_for(self, owner: Hooks) -> None:
        """Let the hooks of the run's owner see all calls before the other members do, in place of our own ones."""
        self.use(owner, *(member for member in self._members if not member.of_the_owner))

    before_agent_start = _await_each(Hooks.before_agent_start)
    begin_run = _call_each(Hooks.begin_run)
    before_turn = _await_each(Hooks.before_turn, True)
    model_call = _call_each(Hooks.model_call)
    spent = _call_each(Hooks.spent)
    tool_missing = _await_each(Hooks.tool_missing)
    before_provider_headers = _await_each(Hooks.before_provider_headers)
    after_provider_response = _await_each(Hooks.after_provider_response)
    caught_up = _await_each(Hooks.caught_up)
    committed = _call_each(Hooks.committed)
    interrupt = _call_each(Hooks.interrupt)
    compacted = _call_each(Hooks.compacted)
    go_on = _await_each(Hooks.go_on, False)
    before_settle = _await_each(Hooks.before_settle)
    notify = _await_each(Hooks.notify)
    user_bash = _await_each(Hooks.user_bash)

    # -- a prompt --------------------------------------------------------------------------------

    def has_command(self, name: str) -> bool:
        return any(member.has_command(name) for member in self._members)

    async def run_command(self, text: str) -> None:
        name = text[1:].split(" ", 1)[0]
        for member in self._members:
            if member.has_command(name):  # otherwise extensions were loaded again since, and lack it now
                await member.run_command(text)
                break

    def commands(self) -> list[Any]:
        return [item for member in self._members for item in member.commands()]

    async def complete_command(self, name: str, prefix: str) -> list[str]:
        return [item for member in self._members for item in await member.complete_command(name, prefix)]

    @property
    def wants_input(self) -> bool:
        return any(member.wants_input for member in self._with[Hooks.input])

    async def input(
        self, text: str, images: list[Image], source: str, behavior: str | None
    ) -> tuple[str, list[Image]] | None:
        for member in self._with[Hooks.input]:
            if (changed := await member.input(text, images, source, behavior)) is None:
                return None
            text, images = changed
        return text, images

    # -- a run -----------------------------------------------------------------------------------

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        for member in self._with[Hooks.context]:
            messages, system_prompt = await member.context(messages, system_prompt)
        return messages, system_prompt

    @property
    def wants_payload(self) -> bool:
        return any(member.wants_payload for member in self._with[Hooks.before_provider_request])

    async def before_provider_request(self, payload: Any) -> Any:
        for member in self._with[Hooks.before_provider_request]:
            payload = await member.before_provider_request(payload)
        return payload

    @property
    def sees_pieces(self) -> bool:  # type: ignore[override]
        for member in self._readers:  # noqa: SIM110 - a generator for every token would be felt
            if member.sees_pieces:
                return True
        return False

    @property
    def listening(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset[str]().union(*(member.listening for member in self._observers))

    def hears(self, kind: object) -> bool:
        for member in self._observers:  # noqa: SIM110 - as above
            if kind in member.listening:
                return True
        return False

    async def observe(self, event: Event) -> None:
        kind = event.type
        for member in self._observers:
            if kind in member.listening:
                await member.observe(event)

    def observe_soon(self, event: Event) -> None:
        kind = event.type
        for member in self._observers:
            if kind in member.listening:
                member.observe_soon(event)

    def piece(self, update: MessageUpdate) -> None:
        for member in self._members:
            member.piece(update)

    async def message_end(self, message: AgentMessage) -> AgentMessage:
        for member in self._with[Hooks.message_end]:
            message = await member.message_end(message)
        return message

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        for member in self._with[Hooks.tool_call]:
            args = await member.tool_call(call_id, tool, args)
        return args

    def was_changed(self, call_id: str) -> bool:
        return any(member.was_changed(call_id) for member in self._with[Hooks.was_changed])

    async def tool_result(
        self, call_id: str, tool: Tool, args: Any, result: ToolResult, failed: bool
    ) -> tuple[ToolResult, bool]:
        for member in self._with[Hooks.tool_result]:
            result, failed = await member.tool_result(call_id, tool, args, result, failed)
        return result, failed

    # -- a session -------------------------------------------------------------------------------

    async def ask(self, event: str, fields: Fields) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for member in self._members:
            answers |= await member.ask(event, fields)
            if answers.get("cancel"):
                break
        return answers


class Plugins(Protocol):
    """Extensions or MCP servers, as the agent sees them: they come and go with a session."""

    async def load(self, resources: Resources, builtin: Callable[[str], Tool | None], mode: str) -> None:
        """Load the plugins of a working directory. They are not in force before `bind`. Raises `AgentError`."""

    def bind(self, agent: "AgentSession", reason: str = "startup", previous: str | None = None) -> None:
        """Put the plugins that were loaded last in force, for a session that begins for this reason.

        `agent` is its port, which a plugin may hold: it does not keep the agent alive.
        """

    async def begin(self) -> None:
        """Tell plugins that the session has begun, unless they were told. Returns when all of them know."""

    async def leave(self, reason: str, target: str | None = None) -> None:
        """Tell plugins that the session ends. They stay in force until `bind`; without it, `begin` tells them again."""

    async def close(self) -> None:
        """End all plugins."""


class PluginChain:
    """Any number of plugins as one. They begin in this order, and end in reverse order."""

    def __init__(self, *members: Plugins) -> None:
        self._members = members

    async def load(self, resources: Resources, builtin: Callable[[str], Tool | None], mode: str) -> None:
        for member in self._members:
            await member.load(resources, builtin, mode)

    def bind(self, agent: "AgentSession", reason: str = "startup", previous: str | None = None) -> None:
        for member in self._members:
            member.bind(agent, reason, previous)

    async def begin(self) -> None:
        for member in self._members:
            await member.begin()

    async def leave(self, reason: str, target: str | None = None) -> None:
        for member in reversed(self._members):
            await member.leave(reason, target)

    async def close(self) -> None:
        for member in reversed(self._members):
            await member.close()


class ExtensionInForce(Wire, kw_only=True):
    path: str
    scope: str
    """`user`, `project` or `temporary`."""
    tools: list[str]
    commands: list[str]


class McpServerState(Wire, kw_only=True):
    name: str
    state: str
    """`idle` (not needed yet), `starting`, `ready`, `stopped` (started again when needed), `failed`, `login` (run
    `spindle mcp login`), `disabled`, or `invalid`."""
    transport: str | None = None
    """`stdio`, `http` or `sse`."""
    source: str | None = None
    """Where it is configured."""
    tools: int | None = None
    """The number of its tools; left out if it is not known yet."""
    pid: int | None = None
    protocol: str | None = None
    error: str | None = None
    stderr: str | None = None
    """The end of its error output."""


class McpServers(Protocol):
    """The MCP servers of a session."""

    def states(self) -> list[McpServerState]: ...

    def serves(self, tool: str) -> bool:
        """Say whether a tool, which may not be known yet, would be one of these servers."""

    async def set(self, servers: Any) -> list[McpServerState]:
        """Replace the servers that the client has set before. Raises `AgentError`, changing nothing."""

    async def add(self, name: str, config: dict[str, Any]) -> None:
        """Add a server of an extension, in the place of one of that name. Raises `AgentError`, changing nothing."""

    async def read_again(self) -> list[McpServerState]:
        """Read the files with servers again. Raises `AgentError`."""

    async def restart(self, name: str) -> None:
        """End a server and start it again; its state tells the outcome. Raises `AgentError` if there is none."""

    async def log_in(self, name: str) -> None:
        """Let the user log in at a server, and start it. Raises `AgentError`."""


class NoMcpServers:
    """Stands for the servers of an agent that has none."""

    def states(self) -> list[McpServerState]:
        return []

    def serves(self, tool: str) -> bool:
        return False

    async def set(self, servers: Any) -> list[McpServerState]:
        raise AgentError("MCP is off in this agent")

    async def add(self, name: str, config: dict[str, Any]) -> None:
        raise AgentError("MCP is off in this agent")

    async def read_again(self) -> list[McpServerState]:
        raise AgentError("MCP is off in this agent")

    async def restart(self, name: str) -> None:
        raise AgentError("MCP is off in this agent")

    async def log_in(self, name: str) -> None:
        raise AgentError("MCP is off in this agent")


class Listener(Protocol):
    """Gets every event: an outbox of a wire, a log, a program."""

    def put(self, event: Event) -> None:
        """Take an event, at once."""

    @property
    def full(self) -> bool:
        """Whether so many events wait that the agent should pause."""

    async def room(self) -> None:
        """Return when there is room again."""


class NeverFull:
    """A listener for which the agent never pauses: it handles an event at once, or drops old ones."""

    full = False

    async def room(self) -> None:
        """Return at once."""
