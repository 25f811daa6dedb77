"""Spindle in process: an agent as an object of a Python program.

from spindle import Agent

async with Agent.create(cwd="project", model="anthropic/claude-sonnet-4-5") as agent:
    async for event in agent.run("What is in this directory?"):
        print(event.text_delta, end="")
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Unpack, cast, overload

from msgspec import UNSET
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs
from spindle.agent.hooks import NeverFull
from spindle.agent.permissions.approval import CanUseTool, PermissionOptions
from spindle.agent.run.awaited import AgentRun, Later
from spindle.agent.run.handle import Run
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import SchemaNotMet, failure
from spindle.agent.session import AgentSession
from spindle.base.signature import read_type
from spindle.base.spelling import did_you_mean
from spindle.plugins.extensions.tools import make_tool
from spindle.recipe import AgentOptions, check_tools, make_agent
from spindle.resources.loader import HERMETIC, ResourceOptions, load_resources
from spindle.sessions import SessionManager
from spindle.sessions import open as sessions
from spindle.sessions.session import Session
from spindle.shapes.checkpoints import CheckpointList, FileChanges, Restored
from spindle.shapes.events import Event
from spindle.shapes.messages import AgentMessage, Image
from spindle.shapes.model import THINKING_LEVELS, Model
from spindle.shapes.run_limits import LimitArguments as Limits
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.sandbox import SandboxLevel, SandboxOptions, read_sandbox
from spindle.tools.base import Tool

__all__ = ["Agent", "CreateOptions", "Limits", "OpenOptions", "Opening", "ask", "run"]

T = TypeVar("T")

AnyTool: TypeAlias = str | Tool | Callable[..., Any]
"""The name of a tool, a tool, or a function that becomes one."""


class OpenOptions(Limits, total=False):
    """Options of an agent; `Agent.create` explains them."""

    model: str | Model | None
    thinking: str | None
    tools: Sequence[AnyTool] | None
    system_prompt: str | None
    api_key: str | None
    base_url: str | None
    extensions: Sequence[str | Callable[[Any], Any]]
    ui: Dialogs | None
    permission_mode: str | None
    allow: Sequence[str]
    ask: Sequence[str]
    deny: Sequence[str]
    can_use_tool: CanUseTool | None
    sandbox: SandboxLevel | SandboxOptions | Mapping[str, Any] | None
    mcp_servers: Mapping[str, Any] | Literal[False] | None
    exec: str | None
    exec_cwd: str | None
    hermetic: bool


class CreateOptions(OpenOptions, total=False):
    """The same, with the directory and the session of a new agent."""

    cwd: str | Path
    persist: bool
    session: Session | SessionManager | None


class _Callback(NeverFull):
    """A listener that is a plain function."""

    def __init__(self, function: Callable[[Event], None]) -> None:
        self.put = function


def _limits(given: Limits) -> RunLimits:
    """Return the limits of a run. Raises `AgentError` for a limit that makes no sense."""
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < float("inf")):  # type: ignore[operator]
            raise AgentError(f"{name} must be a number above 0, not {value!r}")
    return RunLimits(**given)


# What an option may be, if it is not None, in words and as types. `AgentError`s about values come later.
_NAMES = "a list of names, functions and Tools"
_RULES = "a list of permission rules"
_TEXT = ("a str", (str,))
_ALLOWED: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("a name or a Model", (str, Model)),
    "thinking": _TEXT,
    "system_prompt": _TEXT,
    "api_key": _TEXT,
    "base_url": _TEXT,
    "permission_mode": _TEXT,
    "exec": _TEXT,
    "exec_cwd": _TEXT,
    "tools": (_NAMES, (Iterable,)),
    "extensions": ("a list of paths and functions", (Iterable,)),
    "allow": (_RULES, (Iterable,)),
    "ask": (_RULES, (Iterable,)),
    "deny": (_RULES, (Iterable,)),
    "can_use_tool": ("a function", (Callable,)),  # type: ignore[dict-item]
    "sandbox": ("a level, or a dict with level, writable and network", (str, SandboxOptions, Mapping)),
    "mcp_servers": ("a dict of servers by name, or False", (Mapping, list, bool)),
    "hermetic": ("a bool", (bool,)),
    "persist": ("a bool", (bool,)),
}


def _check_types(given: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an option that does not exist, and for a value of a type that it cannot have."""
    for name, value in given.items():
        if name not in CreateOptions.__optional_keys__:
            near = did_you_mean(name, CreateOptions.__optional_keys__)
            raise TypeError(f"Agent.create() got an unexpected keyword argument {name!r}.{near}")
        words, types = _ALLOWED.get(name, ("", (object,)))
        is_list = types == (Iterable,)
        if value is None or (isinstance(value, types) and not (is_list and isinstance(value, str | bytes | Mapping))):
            continue
        hint = f" Did you mean {name}=[{value!r}]?" if is_list and isinstance(value, str) else ""
        raise TypeError(f"{name} must be {words}, not {value!r}.{hint}")


def _agent_options(given: Mapping[str, Any]) -> AgentOptions:
    """Return the options of `create` as the recipe takes them. Raises as `create` does."""
    _check_types(given)

    def some(*names: str) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    thinking, tools, extensions = given.get("thinking"), given.get("tools"), given.get("extensions") or ()
    if thinking is not None and thinking not in THINKING_LEVELS:
        raise AgentError(f'Invalid thinking level "{thinking}". Valid values: {", ".join(THINKING_LEVELS)}')
    if given.get("base_url") is not None and not given.get("model"):
        raise ValueError("base_url needs a model: the name that the server there has for it")
    if servers := given.get("mcp_servers"):
        from spindle.plugins.mcp.server_config import check_keys

        check_keys(servers, "mcp_servers")
    try:
        sandbox = read_sandbox(given.get("sandbox"))
    except ValueError as error:
        raise AgentError(str(error)) from None
    extensions = list(extensions)
    return AgentOptions(
        **some("model", "thinking", "api_key", "base_url", "mcp_servers", "exec", "exec_cwd"),
        tools=None if tools is None else [_as_tool(item) for item in tools],
        limits=_limits(cast(Limits, some(*Limits.__optional_keys__))),
        dialogs=given.get("ui"),
        permissions=PermissionOptions(
            given.get("permission_mode"), **some("allow", "ask", "deny", "can_use_tool"), sandbox=sandbox
        ),
        resources=replace(
            HERMETIC if given.get("hermetic") else ResourceOptions(),
            **some("system_prompt"),
            extensions=[item for item in extensions if isinstance(item, str)],
        ),
        factories=[item for item in extensions if not isinstance(item, str)],
    )


class Opening(Later["Agent"]):
    """An agent that is being made: `async with` gives it, and closes it at the end; `await` only gives it."""

    def __init__(self, work: Coroutine[Any, Any, "Agent"]) -> None:
        self._work = work
        self._agent: Agent | None = None

    def _begin(self) -> Coroutine[Any, Any, "Agent"]:
        assert self._work is not None
        return self._work

    async def __aenter__(self) -> "Agent":
        self._agent = await self
        return self._agent

    async def __aexit__(self, *_: object) -> None:
        if self._agent is not None:
            await self._agent.close()


class Agent:
    """One agent with its session. Make it with `create` or `open`; close it when done."""

    def __init__(self, session: AgentSession) -> None:
        self._closed = False
        self.session = session
        """The whole agent, as wires use it; the methods here are for everyday use."""

    @classmethod
    def create(cls, **options: Unpack[CreateOptions]) -> Opening:
        """Start an agent on a new session (or on `session`, which the agent owns from then on).

            async with Agent.create(cwd="project") as agent: ...    # closes it at the end
            agent = await Agent.create(cwd="project")               # `await agent.close()` does

        It works in `cwd`, by default the current directory; `persist=False` keeps the session in memory.
        `model`, `thinking` and `api_key` are as on the command line; `model` may be a `Model` of your own.
        With `base_url` the model is asked at that address: one of the catalogue (`provider/id`) with its own API, any
        other name as the server there has it, with the chat completions of OpenAI.
        `system_prompt` takes the place of the built-in one. `tools` are the only ones the model may use: names,
        `Tool`s, and functions, whose signatures become the schema and whose docstrings the description.
        `extensions` are paths, or functions that take `agent`; `ui` is where their dialogs are shown.
        `allow`, `ask` and `deny` are permission rules; `can_use_tool(name, arguments)` decides where a rule asks: True,
        or False, or a text that says why not. With it `permission_mode` is `default` unless another one is set.
        `sandbox` is a level (`read-only`, `workspace-write`), or a dict with `level`, `writable` and `network`.
        `exec` is a command that gives a pipe to a shell elsewhere (`docker exec -i NAME`, `ssh host`): all tools work
        there, in `exec_cwd` or where the command leads; `""`: here, whatever the session and the settings say.
        `mcp_servers` are MCP servers by name, besides those of the user's files; False: none at all.
        `hermetic=True` leaves out everything that the program does not name: settings, extensions, skills, prompt
        templates, rules, context files, prompt files and MCP servers of the user and the project. Models and keys stay.
        `max_turns`, `max_cost` and the other `Limits` hold for every run that does not set its own.

        Raises `AgentError` for a directory that does not exist, an unknown model, thinking level or tool, a limit or
        permission rule that makes no sense, and an extension that cannot be loaded; `TypeError` for an option that does
        not exist or has a value of the wrong type; `ValueError` for an MCP server or an address that makes no sense;
        one of the two for a function that cannot be a tool.
        """
        return Opening(cls._create(options))

    @classmethod
    async def _create(cls, options: CreateOptions) -> "Agent":
        session = options.pop("session", None)
        if isinstance(session, SessionManager):
            session = session.session
        if not isinstance(session, Session | None):
            raise AgentError("session must be a Session; Agent.open(path) goes on with a file")
        try:
            directory = Path(options.get("cwd", ".")).resolve()
            if not directory.is_dir():
                raise AgentError(f"Not a directory: {directory}")
            wanted = _agent_options(options)
            found = load_resources(directory, wanted.resources)
            if session is None and options.get("persist", True):
                folder = sessions.wanted_directory(None, found.settings.session_dir)
                session = sessions.create(str(directory), folder, fsync=found.settings.fsync)
        except BaseException:
            if session is not None:
                session.close()  # it must not stay locked
            raise
        made, _ = await make_agent(session or sessions.in_memory(str(directory)), wanted, found)
        try:
            _check_servers(made, wanted.mcp_servers or ())
            await made.begin()
            check_tools(made, wanted.tools or ())
        except BaseException:
            await made.close()
            raise
        return cls(made)

    @classmethod
    def open(cls, path: str | Path, **options: Unpack[OpenOptions]) -> Opening:
        """Go on with a session file. Takes the options of `create`, except for the directory."""
        return Opening(cls._open(path, options))

    @classmethod
    async def _open(cls, path: str | Path, options: OpenOptions) -> "Agent":
        session = sessions.load(path)
        return await cls._create(cast(CreateOptions, {"cwd": session.cwd, "session": session, **options}))

    def _require_open(self) -> None:
        if self._closed:
            raise AgentError("The agent is closed")

    def run(self, text: str, images: Sequence[Image] = (), *, schema: Any = None, **limits: Unpack[Limits]) -> AgentRun:
        """Send a message: `await` gives the result of the run, `async for` every event until the agent is settled.

        The result has to fit `schema` (a type or a JSON Schema); `limits` hold for this run. An agent that is being
        aborted gets the message afterwards.
        """
        return AgentRun(self._handing_in(text, images, schema, limits))

    prompt = run

    async def _handing_in(
        self, text: str, images: Sequence[Image], schema: Any, limits: Limits
    ) -> AsyncGenerator[Run, None]:
        self._require_open()
        options = RunOptions(limits=_limits(limits), schema=None if schema is None else read_type(schema)[0])
        yield await self.session.submit(text, images, source="sdk", options=options)

    @overload
    async def ask(
        self, text: str, images: Sequence[Image] = (), *, schema: None = None, **limits: Unpack[Limits]
    ) -> str: ...

    @overload
    async def ask(self, text: str, images: Sequence[Image] = (), *, schema: type[T], **limits: Unpack[Limits]) -> T: ...

    @overload
    async def ask(
        self, text: str, images: Sequence[Image] = (), *, schema: dict[str, Any], **limits: Unpack[Limits]
    ) -> Any: ...

    async def ask(
        self, text: str, images: Sequence[Image] = (), *, schema: Any = None, **limits: Unpack[Limits]
    ) -> Any:
        """Send a message, wait, and return the text of the last answer: empty if no model was needed.

        With `schema` (a msgspec Struct, dataclass, pydantic model, any other type that JSON can hold, or a JSON Schema)
        return the value that the model handed in: an instance of the type, or plain JSON.

        Raises `ModelError`, `Refused`, `LimitReached` or `SchemaNotMet`, or plain `RunFailed` if the run was aborted;
        all of them are `RunFailed` and have the `result`. Raises `AgentError` if the prompt is refused. Cancelling the
        task aborts the run.
        """
        result = await self.run(text, images, schema=schema, **limits)
        if (error := failure(result)) is not None:
            raise error
        if schema is None:
            return result.text.strip()
        if result.value is UNSET:
            raise SchemaNotMet("No model was asked, so there is no result", result)
        try:
            return read_type(schema)[1](result.value)
        except ValueError as problem:
            raise SchemaNotMet(f"What the model handed in does not fit: {problem}", result) from None

    async def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Queue a message that is delivered before the next model call."""
        self._require_open()
        await self.session.steer(text, images, source="sdk")

    async def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        """Queue a message that is delivered when the run would end."""
        self._require_open()
        await self.session.follow_up(text, images, source="sdk")

    async def abort(self) -> None:
        """Stop the agent's work, and return when it is idle."""
        await self.session.abort()

    async def fork(self, entry_id: str) -> str:
        """Go on in a new session that ends before that user message. Returns the message's text."""
        self._require_open()
        text, _ = await self.session.fork(entry_id)
        return text

    async def checkpoints(self) -> CheckpointList:
        """Return the states of the files that can be restored."""
        from spindle.agent.features import undo

        return await undo.checkpoints_of(self.session)

    async def changes(self, since: str | None = None, until: str | None = None) -> FileChanges:
        """Return how files differ between two checkpoints; by default between the first one and now."""
        from spindle.agent.features import undo

        return await undo.changes(self.session, since, until)

    async def restore(
        self,
        checkpoint: str,
        files: Sequence[str] | None = None,
        *,
        hunks: Sequence[str] | None = None,
        conversation: bool = False,
        dry_run: bool = False,
        force: bool = False,
    ) -> Restored:
        """Give files, and the conversation if wanted, the state of a checkpoint; `dry_run` only says what would change.

        Raises `AgentError` if the agent is at work, and if files were changed outside of its runs, unless `force`.
        """
        from spindle.agent.features import undo

        how = {"conversation": conversation, "dry_run": dry_run, "force": force}
        return await undo.restore(self.session, checkpoint, files, hunks=hunks, **how)

    def subscribe(self, function: Callable[[Event], None]) -> Callable[[], None]:
        """Call `function` with every event. Returns a function that ends the subscription."""
        listener = _Callback(function)
        self.session.subscribe(listener)
        return lambda: self.session.unsubscribe(listener)

    @property
    def messages(self) -> list[AgentMessage]:
        """The conversation as the model knows it, oldest message first."""
        return list(self.session.messages)

    async def close(self) -> None:
        """End all work at once and leave the session file whole. A closed agent takes no prompts."""
        self._closed = True
        await self.session.close()

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _as_tool(item: AnyTool) -> str | Tool:
    if not isinstance(item, str | Tool) and not callable(item):
        raise TypeError(f"tools must be {_NAMES}, and {item!r} is none of them")
    return item if isinstance(item, str | Tool) else make_tool(item)


def _check_servers(agent: AgentSession, wanted: Iterable[Any]) -> None:
    """Raise `ValueError` for a server of the program that cannot be used as it is written."""
    names = [item["name"] if isinstance(item, dict) else item for item in wanted]
    for state in agent.mcp_servers.states() if names else ():
        if state.state == "invalid" and state.name in names:
            raise ValueError(f"mcp_servers[{state.name!r}]: {(state.error or '').removeprefix('client: ')}")


# -- one-liners ----------------------------------------------------------------------------------


@overload
async def ask(
    text: str, images: Sequence[Image] = (), *, schema: None = None, **options: Unpack[CreateOptions]
) -> str: ...


@overload
async def ask(text: str, images: Sequence[Image] = (), *, schema: type[T], **options: Unpack[CreateOptions]) -> T: ...


@overload
async def ask(
    text: str, images: Sequence[Image] = (), *, schema: dict[str, Any], **options: Unpack[CreateOptions]
) -> Any: ...


async def ask(text: str, images: Sequence[Image] = (), *, schema: Any = None, **options: Unpack[CreateOptions]) -> Any:
    """Make an agent, ask it, close it: `Agent.ask` with the options of `Agent.create`."""
    async with Agent.create(**options) as agent:
        return await agent.ask(text, images, schema=schema)


def run(text: str, images: Sequence[Image] = (), *, schema: Any = None, **options: Unpack[CreateOptions]) -> AgentRun:
    """Make an agent, send it a message, close it: `Agent.run` with the options of `Agent.create`.

    Leaving the loop over its events ends the agent.
    """
    return AgentRun(_alone(text, images, schema, options))


async def _alone(text: str, images: Sequence[Image], schema: Any, options: CreateOptions) -> AsyncGenerator[Run, None]:
    async with Agent.create(**options) as own:
        async for run in own._handing_in(text, images, schema, {}):
            yield run
