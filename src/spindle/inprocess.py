"""Spindle in process: an agent as an object of a Python program.

from spindle import Agent

async with await Agent.create(cwd="project", model="anthropic/claude-sonnet-4-5") as agent:
    async for event in agent.prompt("What is in this directory?"):
        print(event.text_delta, end="")
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Unpack, cast, overload

from msgspec import UNSET

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs
from spindle.agent.hooks import NeverFull
from spindle.agent.permissions.approval import CanUseTool, PermissionOptions
from spindle.agent.run.handle import Run
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import RunResult, SchemaNotMet, failure
from spindle.agent.session import AgentSession
from spindle.base.signature import read_type
from spindle.plugins.extensions.tools import make_tool
from spindle.recipe import AgentOptions, check_tools, make_agent
from spindle.resources.loader import ResourceOptions, load_resources
from spindle.sessions import SessionManager
from spindle.sessions import open as sessions
from spindle.sessions.session import Session
from spindle.shapes.events import Event
from spindle.shapes.messages import AgentMessage, Image
from spindle.shapes.model import THINKING_LEVELS, Model
from spindle.shapes.run_limits import LimitArguments as Limits
from spindle.shapes.run_limits import RunLimits
from spindle.tools.base import Tool

__all__ = ["Agent", "CreateOptions", "Limits", "OpenOptions", "ask", "run"]

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
    extensions: Sequence[str | Callable[[Any], Any]]
    ui: Dialogs | None
    permission_mode: str | None
    allow: Sequence[str]
    ask: Sequence[str]
    deny: Sequence[str]
    can_use_tool: CanUseTool | None
    mcp_servers: Mapping[str, Any] | Literal[False] | None


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


def _agent_options(given: Mapping[str, Any]) -> AgentOptions:
    """Return the options of `create` as the recipe takes them. Raises as `create` does."""
    for name in given:
        if name not in CreateOptions.__optional_keys__:
            raise TypeError(f"Agent.create() got an unexpected keyword argument {name!r}")

    def some(*names: str) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    thinking, tools, extensions = given.get("thinking"), given.get("tools"), given.get("extensions", ())
    if thinking is not None and thinking not in THINKING_LEVELS:
        raise AgentError(f'Invalid thinking level "{thinking}". Valid values: {", ".join(THINKING_LEVELS)}')
    return AgentOptions(
        **some("model", "thinking", "api_key", "mcp_servers"),
        tools=None if tools is None else [_as_tool(item) for item in tools],
        limits=_limits(cast(Limits, some(*Limits.__optional_keys__))),
        dialogs=given.get("ui"),
        permissions=PermissionOptions(given.get("permission_mode"), **some("allow", "ask", "deny", "can_use_tool")),
        resources=ResourceOptions(
            **some("system_prompt"), extensions=[item for item in extensions if isinstance(item, str)]
        ),
        factories=[item for item in extensions if not isinstance(item, str)],
    )


class Agent:
    """One agent with its session. Make it with `create` or `open`; close it when done."""

    def __init__(self, session: AgentSession) -> None:
        self._closed = False
        self.session = session
        """The whole agent, as wires use it; the methods here are for everyday use."""

    @classmethod
    async def create(cls, **options: Unpack[CreateOptions]) -> "Agent":
        """Start an agent on a new session (or on `session`, which the agent owns from then on).

        It works in `cwd`, by default the current directory; `persist=False` keeps the session in memory.
        `model`, `thinking` and `api_key` are as on the command line; `model` may be a `Model` of your own.
        `system_prompt` takes the place of the built-in one. `tools` are the only ones the model may use: names,
        `Tool`s, and functions, whose signatures become the schema and whose docstrings the description.
        `extensions` are paths, or functions that take `agent`; `ui` is where their dialogs are shown.
        `allow`, `ask` and `deny` are permission rules; `can_use_tool(name, arguments)` decides where a rule asks: True,
        or False, or a text that says why not. With it `permission_mode` is `default` unless another one is set.
        `mcp_servers` are MCP servers by name, besides those of the user's files; False: none at all.
        `max_turns`, `max_cost` and the other `Limits` hold for every run that does not set its own.

        Raises `AgentError` for a directory that does not exist, an unknown model, thinking level or tool, a limit or
        permission rule that makes no sense, and an extension that cannot be loaded; `TypeError` or `ValueError` for a
        function that cannot be a tool; `TypeError` for an option that does not exist.
        """
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
            await made.begin()
            check_tools(made, wanted.tools or ())
        except BaseException:
            await made.close()
            raise
        return cls(made)

    @classmethod
    async def open(cls, path: str | Path, **options: Unpack[OpenOptions]) -> "Agent":
        """Go on with a session file. Takes the options of `create`, except for the directory."""
        session = sessions.load(path)
        return await cls.create(cwd=session.cwd, session=session, **options)

    def _require_open(self) -> None:
        if self._closed:
            raise AgentError("The agent is closed")

    async def prompt(
        self, text: str, images: Sequence[Image] = (), *, schema: Any = None, **limits: Unpack[Limits]
    ) -> AsyncGenerator[Event, None]:
        """Send a message and yield every event until the agent is settled.

        The result has to fit `schema` (a type or a JSON Schema); `limits` hold for this run. Leaving the loop early
        does not stop the agent; cancelling the task while it waits for an event does. An agent that is being aborted
        gets the message afterwards. Raises `AgentError` if the prompt is refused: the agent is at work, closed, or has
        no model or key.
        """
        run = await self._submit(text, images, schema, limits)
        async with self._stopped_if_cancelled(run), aclosing(run.events()) as events:
            async for event in events:
                yield event
            if run.disposition == "handled":
                await run.result()

    async def _submit(self, text: str, images: Sequence[Image], schema: Any, limits: Limits) -> Run:
        self._require_open()
        options = RunOptions(limits=_limits(limits), schema=None if schema is None else read_type(schema)[0])
        return await self.session.submit(text, images, source="sdk", options=options)

    @asynccontextmanager
    async def _stopped_if_cancelled(self, run: Run) -> AsyncGenerator[None, None]:
        try:
            yield
        except asyncio.CancelledError:
            await run.stop()
            raise

    async def run(
        self, text: str, images: Sequence[Image] = (), *, schema: Any = None, **limits: Unpack[Limits]
    ) -> RunResult:
        """Send a message, wait, and return the result of the run, however it ended. Takes the arguments of `prompt`.

        The `value` of the result is the JSON that the model handed in for `schema`. Raises `AgentError` if the prompt
        is refused; cancelling the task aborts the run.
        """
        run = await self._submit(text, images, schema, limits)
        async with self._stopped_if_cancelled(run):
            return await run.result()

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
    return item if isinstance(item, str | Tool) else make_tool(item)


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
    async with await Agent.create(**options) as agent:
        return await agent.ask(text, images, schema=schema)


async def run(
    text: str, images: Sequence[Image] = (), *, schema: Any = None, **options: Unpack[CreateOptions]
) -> AsyncGenerator[Event, None]:
    """Make an agent, send it a message, yield every event, close it. Leaving the loop ends the agent."""
    async with await Agent.create(**options) as agent:
        async for event in agent.prompt(text, images, schema=schema):
            yield event
