"""An agent of a Python program: everything that it can be asked for."""

import asyncio
import inspect
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from msgspec import UNSET
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.features.background import RunningCommand
from spindle.agent.fences.callback import takes
from spindle.agent.hooks import McpServerState, NeverFull
from spindle.agent.run.awaited import AgentRun
from spindle.agent.run.handle import Run
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import SchemaNotMet, failure
from spindle.agent.session import AgentSession
from spindle.agent.state import SessionStats
from spindle.base.signature import json_schema, read_type
from spindle.inprocess.budget import Budget
from spindle.inprocess.checks import check_type, check_values
from spindle.inprocess.images import AnyImage, read_images
from spindle.inprocess.making import Warnings, begin, session_in_store, wanted_session
from spindle.inprocess.opening import Opening
from spindle.inprocess.options import (
    CreateOptions,
    Limits,
    OpenOptions,
    agent_options,
    check_options,
    check_paths,
    run_limits,
    thinking_level,
)
from spindle.inprocess.stored import StoredSessions
from spindle.inprocess.tools import Surroundings
from spindle.inprocess.words import in_python, no_attribute, python_words
from spindle.models.select import ModelNotFound, resolve_model
from spindle.recipe import check_fallback, make_agent
from spindle.resources.loader import load_resources
from spindle.resources.sources import CommandItem
from spindle.sessions import open as sessions
from spindle.shapes.approvals import Allow, Deny, InterruptedRun
from spindle.shapes.checkpoints import CheckpointList, FileChanges, Restored
from spindle.shapes.events import CompactionResult, Event
from spindle.shapes.messages import AgentMessage
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RunLimits
from spindle.tools.todo import TodoPhase

if TYPE_CHECKING:
    from spindle.events import AnyEvent
    from spindle.inprocess.sync import SyncAgent

T = TypeVar("T")
Messages = list[AgentMessage]


class _Callback(NeverFull):
    """A listener that is a plain function."""

    def __init__(self, function: Callable[[Event], None]) -> None:
        self.put = function


class Agent(StoredSessions):
    """One agent with its session. Make it with `create` or `open`; close it when done."""

    __slots__ = ("__weakref__", "_budget", "_closed", "_max_session_cost", "session")

    if not TYPE_CHECKING:  # for those who have no type checker

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("Agent", name)

        def __new__(cls, *given: Any, **named: Any) -> "Agent":
            if named or not isinstance(given[0] if given else None, AgentSession):
                raise TypeError("Agent() makes no agent: `async with Agent.create(…) as agent`, or Agent.sync(…)")
            return super().__new__(cls)

    def __init__(self, session: AgentSession) -> None:
        self._closed = False
        self._budget: Budget | None = None
        self._max_session_cost: float | None = None
        self.session = session
        """The whole agent, as wires use it. Programs need the methods here alone."""

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"An agent was not closed: session {self.id}", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        model = self.model
        doing = "closed" if self._closed else self.session.phase
        return f"<Agent {self.id} {doing} model={model and f'{model.provider}/{model.id}'} cwd={self.cwd!r}>"

    @classmethod
    def create(cls, **options: Unpack[CreateOptions]) -> Opening:
        """Start an agent on a new session, or on a stored one.

            async with Agent.create(cwd="project") as agent: ...    # closes it at the end
            agent = await Agent.create(cwd="project")               # `await agent.close()` does

        It works in `cwd`, by default the current directory, or that of the session; `persist=False` keeps the session
        in memory. `session` is one to go on with: its id or file as for `open`, or a `Session`, which the agent owns
        from then on. `session_file` is a file of your own for the session, which may not exist yet.
        With a `store` (`postgresql://…`, or a `SessionStore` of your own) the session is there, and in no file:
        `session` is its id, which may not exist yet.
        `model`, `thinking` and `api_key` are as on the command line; `model` may be a `Model` of your own.
        With `base_url` the model is asked at that address: one of the catalogue (`provider/id`) with its own API, any
        other name as the server there has it, with the chat completions of OpenAI.
        `fallback` are models (names or `Model`s) that answer, in this order, when the model cannot.
        `system_prompt` takes the place of the built-in one. `tools` are the only ones the model may use: names,
        `Tool`s, and functions, whose signatures become the schema and whose docstrings the description.
        `extensions` are paths, or functions that take `agent`; `ui` is where their dialogs are shown.
        `allow`, `ask` and `deny` are permission rules; `can_use_tool(request)` decides where a rule asks: `Allow(…)`,
        `Deny(…)`, True, False, or a text that says why not. With it `permission_mode` is `default` unless another one
        is set; `bypass` and nothing that asks is an error. With `on_question="wait"` a run that gets no answer ends
        as `waiting`; `answer_question` and `resume_run` go on with it, in any process.
        `sandbox` is a level (`read-only`, `workspace-write`), or a dict with `level`, `writable` and `network`.
        `exec` is a command that gives a pipe to a shell elsewhere (`docker exec -i NAME`, `ssh host`): all tools work
        there, in `exec_cwd` or where the command leads; `""`: here, whatever the session and the settings say.
        `mcp_servers` are MCP servers by name, besides those of the user's files; False: none at all.
        `hermetic=True` leaves out everything that the program does not name: settings, extensions, skills, prompt
        templates, rules, context files, prompt files and MCP servers of the user and the project. Models and keys stay.
        `sources` are the files of the user and the project that are read, by kind: `settings`, `extensions`, `skills`,
        `prompts`, `context`, `rules`; all of them by default. `append_system_prompt` is added to the system prompt,
        `skills` are paths of more skills, `add_dirs` count as part of the directory.
        `agents` are subagents by name, `hooks` functions (or `Hook`s) by the name of an event of extensions.
        `deps` is what tools get as `Context.deps`, `env` are variables for commands besides those of this program.
        `checkpoints=False` keeps no states of the files, True does whatever the settings say.
        `budget` is a `Budget` that agents of the program share; `max_session_cost` is for the whole session.
        `max_turns`, `max_cost` and the other `Limits` hold for every run that does not set its own.

        A problem that is no reason to stop, such as a model that is not in the catalogue, is a `UserWarning`.
        Raises `AgentError` for a directory that does not exist, a session that is not there (`SessionNotFound`) or in
        use (`SessionLocked`), an unknown model, thinking level or tool, a limit or permission rule that makes no sense,
        and an extension that cannot be loaded; `TypeError` for an option that does not exist or has a value of the
        wrong type; `ValueError` for an MCP server or an address that makes no sense; one of the two for a function that
        cannot be a tool.
        """
        return Opening(cls._create(options))

    @classmethod
    async def _create(cls, options: CreateOptions) -> "Agent":
        with python_words():
            return await cls._made(options)

    @classmethod
    async def _made(cls, options: CreateOptions) -> "Agent":
        check_options(options)
        around, warn = Surroundings(options.get("deps")), Warnings()
        is_stored = options.get("store") is not None
        session = await asyncio.to_thread(session_in_store, options) if is_stored else wanted_session(options)
        try:
            directory = Path(options.get("cwd") or (session.cwd if session else ".")).resolve()
            if not directory.is_dir():
                raise AgentError(f"Not a directory: {directory}")
            check_paths(options, directory)
            wanted = replace(agent_options(options, around), warn=warn)
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
            await begin(made, wanted, options)
            warn.release()
        except BaseException:
            await made.close()
            raise
        around.agent = made.port
        agent = cls(made)
        agent._budget, agent._max_session_cost = options.get("budget"), options.get("max_session_cost")
        return agent

    @classmethod
    def open(cls, session: str | Path, **options: Unpack[OpenOptions]) -> Opening:
        """Go on with a stored session, named by its id, the beginning of the id, or its file.

        It works in its own directory. Takes the options of `create`. Raises `SessionNotFound` (with near names) if
        there is no such session, `SessionLocked` if it is in use, `InvalidSession` for a file that is none; all of them
        are `AgentError`s.
        """
        check_type("Agent.open()", "session", session, str, Path)
        return Opening(cls._create(cast(CreateOptions, {**options, "session": session})))

    @classmethod
    def sync(cls, **options: Unpack[CreateOptions]) -> "SyncAgent":
        """Make an agent for a program without asyncio, or for a notebook: the same names, as calls that wait.

            with Agent.sync(cwd="project") as agent:
                print(agent.ask("What is this?"))

        Takes the options of `create`, and raises as it does.
        """
        from spindle.inprocess.sync import SyncAgent

        return SyncAgent(**options)

    @property
    def closed(self) -> bool:
        """Whether the agent is closed and takes no more prompts."""
        return self._closed

    def _require_open(self) -> None:
        if self._closed:
            raise AgentError("The agent is closed")

    def run(
        self,
        text: str,
        images: Sequence[AnyImage] = (),
        *,
        schema: Any = None,
        fallback: Sequence[str | Model] | None = None,
        **limits: Unpack[Limits],
    ) -> AgentRun:
        """Send a message: `await` gives the result of the run, `async for` every event until the agent is settled.

        The result has to fit `schema` (a type or a JSON Schema); `fallback` (models that answer if the model cannot)
        and `limits` hold for this run. An agent that is being aborted gets the message afterwards.
        """
        return AgentRun(self._handing_in(text, images, schema, limits, fallback))

    prompt = run

    @property
    def interrupted_run(self) -> InterruptedRun | None:
        """The run that waits for an answer, or that the end of its process cut off: `resume_run`, or `abandon_run`."""
        return self.session.interrupted_run

    def resume_run(self) -> AgentRun:
        """Go on with the interrupted run; what is returned is used as that of `run`.

        A question that still waits is asked again. Raises `AgentError` there if there is no such run.
        """
        return AgentRun(self._resuming())

    async def _resuming(self) -> AsyncGenerator[Run, None]:
        self._require_open()
        with python_words():
            run = await self.session.resume_run()
        yield run

    async def abandon_run(self) -> None:
        """Give the interrupted run up; the conversation stays. Raises `AgentError` if there is none."""
        self._require_open()
        await self.session.abandon_run()

    async def answer_question(self, id: str, answer: Allow | Deny | bool | str) -> bool:
        """Answer a question that waits, as `can_use_tool` would. Returns whether `resume_run` can go on now.

        The ids are in `questions` of the result, and of `interrupted_run`. Raises `AgentError` for a question that is
        not there, or an answer that is refused; then it still waits.
        """
        self._require_open()
        check_type("answer_question()", "answer", answer, Allow, Deny, bool, str)
        if isinstance(answer, bool | str):
            answer = Allow() if answer is True else Deny(answer or "")
        with python_words():
            return await self.session.answer_question(id, answer)

    async def start(
        self,
        text: str,
        images: Sequence[AnyImage] = (),
        *,
        schema: Any = None,
        fallback: Sequence[str | Model] | None = None,
        **limits: Unpack[Limits],
    ) -> AgentRun:
        """Send a message as `run` does, and return its run when the agent has accepted it.

        Raises `AgentError` if the prompt is refused, before there is any event: a web server can still answer 409.
        """
        run = self.run(text, images, schema=schema, fallback=fallback, **limits)
        await run.accepted()
        return run

    async def _handing_in(
        self,
        text: str,
        images: Sequence[AnyImage],
        schema: Any,
        limits: Limits,
        fallback: Sequence[str | Model] | None = None,
    ) -> AsyncGenerator[Run, None]:
        self._require_open()
        wanted, text = run_limits(limits), _text(text)
        check_values({"fallback": fallback})
        schema, pictures = json_schema(schema), await read_images(images)
        with python_words():
            check_fallback(self.session.resources.registry, fallback or ())
            wanted = await self._affordable(wanted)
            options = RunOptions(limits=wanted, schema=schema, fallback=fallback, hooks=self._budget)
            run = await self.session.submit(text, pictures, source="sdk", options=options)
        yield run

    async def _affordable(self, limits: RunLimits) -> RunLimits:
        """Return the limits with what the budgets leave for one run. Raises `AgentError` if that is nothing."""
        left = [] if self._budget is None else [(self._budget.left, "the budget of the program")]
        if self._max_session_cost is not None:
            spent = (await self.session.stats()).cost
            left.append((self._max_session_cost - spent, "max_session_cost"))
        for amount, whose in left:
            if amount <= 0:
                raise AgentError(f"Nothing is left of {whose}")
        if not left:
            return limits
        own = limits.over(self.session.limits).max_cost
        return replace(limits, max_cost=min([*(amount for amount, _ in left), *([] if own is None else [own])]))

    @overload
    async def ask(
        self, text: str, images: Sequence[AnyImage] = (), *, schema: None = None, **limits: Unpack[Limits]
    ) -> str: ...

    @overload
    async def ask(
        self, text: str, images: Sequence[AnyImage] = (), *, schema: type[T], **limits: Unpack[Limits]
    ) -> T: ...

    @overload
    async def ask(
        self, text: str, images: Sequence[AnyImage] = (), *, schema: dict[str, Any], **limits: Unpack[Limits]
    ) -> Any: ...

    async def ask(
        self, text: str, images: Sequence[AnyImage] = (), *, schema: Any = None, **limits: Unpack[Limits]
    ) -> Any:
        """Send a message, wait, and return the text of the last answer: empty if no model was needed.

        With `schema` (a msgspec Struct, dataclass, pydantic model, any other type that JSON can hold, or a JSON Schema)
        return the value that the model handed in: an instance of the type, or plain JSON.

        Raises `ModelError`, `Refused`, `LimitReached` or `SchemaNotMet`, or plain `RunFailed` if the run was aborted;
        all of them are `RunFailed` and have the `result`. Raises `AgentError` if the prompt is refused. Cancelling the
        task aborts the run.
        """
        run = self.run(text, images, schema=schema, **limits)
        result = await run.result()
        if (error := failure(result)) is not None:
            error.args = (in_python(str(error)),)
            raise error from (run.exceptions[-1] if run.exceptions else None)
        if schema is None:
            return result.text.strip()
        if result.value is UNSET:
            raise SchemaNotMet("No model was asked, so there is no result", result)
        try:
            return read_type(schema)[1](result.value)
        except ValueError as problem:
            raise SchemaNotMet(f"What the model handed in does not fit: {problem}", result) from None

    async def steer(self, text: str, images: Sequence[AnyImage] = ()) -> None:
        """Queue a message that is delivered before the next model call; if the agent is idle, with the next prompt."""
        self._require_open()
        text, pictures = _text(text), await read_images(images)
        with python_words():
            await self.session.steer(text, pictures, source="sdk")

    async def follow_up(self, text: str, images: Sequence[AnyImage] = ()) -> None:
        """Queue a message that is delivered when the run would end: the next one, if the agent is idle."""
        self._require_open()
        text, pictures = _text(text), await read_images(images)
        with python_words():
            await self.session.follow_up(text, pictures, source="sdk")

    async def abort(self) -> None:
        """Stop the agent's work, and return when it is idle."""
        await self.session.abort()

    async def fork(self, entry_id: str) -> str:
        """Go on in a new session that ends before that user message. Returns the message's text."""
        self._require_open()
        with python_words():
            text, _ = await self.session.fork(entry_id)
        return text

    async def checkpoints(self) -> CheckpointList:
        """Return the states of the files that can be restored."""
        return await self.session.undo.checkpoints()

    async def changes(self, since: str | None = None, until: str | None = None) -> FileChanges:
        """Return how files differ between two checkpoints; by default between the first one and now."""
        with python_words():
            return await self.session.undo.changes(since, until)

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
        self._require_open()
        if isinstance(files, str):
            raise TypeError(f"files must be a list of paths. Did you mean files=[{files!r}]?")
        how = {"conversation": conversation, "dry_run": dry_run, "force": force}
        with python_words():
            return await self.session.undo.restore(checkpoint, files, hunks=hunks, **how)

    def subscribe(self, function: Callable[["AnyEvent"], None]) -> Callable[[], None]:
        """Call `function` with every event. Returns a function that ends the subscription."""
        self._require_open()
        if not callable(function) or inspect.iscoroutinefunction(function) or not takes(function, 1):
            raise TypeError(f"A listener must be a plain function of one argument, the event, not {function!r}")
        listener = _Callback(cast(Callable[[Event], None], function))
        self.session.subscribe(listener)
        return lambda: self.session.unsubscribe(listener)

    # -- the session -----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id of the session: `Agent.open(id)` goes on with it, once it has a message."""
        return self.session.session.id

    @property
    def session_file(self) -> Path | None:
        """The file of the session, which its first message creates; None if the session is in memory only."""
        return self.session.session.path

    @property
    def cwd(self) -> str:
        """The working directory."""
        return self.session.cwd

    @property
    def name(self) -> str | None:
        """The name of the session; None if it has none."""
        return self.session.session.name

    def set_name(self, name: str) -> None:
        """Name the session. Raises `AgentError` for an empty name."""
        self._require_open()
        check_type("set_name()", "name", name, str)
        self.session.set_name(name)

    @property
    def messages(self) -> Messages:
        """The conversation as the model knows it, oldest message first."""
        return [*self.session.messages]

    async def usage(self) -> SessionStats:
        """Return messages, tokens and cost of the whole session, and how full the context is."""
        return await self.session.stats()

    async def cost(self) -> float | None:
        """Return what the session has cost, in US dollars; None if no part of it is known."""
        stats = await self.session.stats()
        return None if stats.cost_source == "unknown" else float(stats.cost)

    async def compact(self, instructions: str | None = None) -> CompactionResult:
        """Replace the older part of the context by a summary. Raises `AgentError` if there is nothing to sum up."""
        self._require_open()
        check_type("compact()", "instructions", instructions, str, type(None))
        with python_words():
            return await self.session.compact(instructions)

    async def new_session(self) -> None:
        """Go on in an empty session with the same model; the agent has another `id` then."""
        self._require_open()
        if await self.session.new_session():
            raise AgentError("An extension did not allow a new session")

    # -- how it works ----------------------------------------------------------------------------

    @property
    def model(self) -> Model | None:
        """The model that is asked; None if there is none."""
        return self.session.model

    def models(self) -> Sequence[Model]:
        """Return the models that can be used."""
        return self.session.models.available()

    async def set_model(self, model: str | Model) -> Model:
        """Use another model from the next model call on: a name as for `create`, or a `Model` of your own.

        Raises `AgentError` for a model that is not known or has no key.
        """
        self._require_open()
        check_type("set_model()", "model", model, str, Model)
        check_values({"model": model})
        with python_words():
            if isinstance(model, Model):
                await self.session.models.use(model, None, "set")
                return model
            registry = self.session.resources.registry
            try:
                found = resolve_model(registry, model, None)
            except ModelNotFound as error:
                raise AgentError(str(error)) from None
            if not registry.has_credentials(found.model.provider):
                raise AgentError(registry.no_key_text(found.model.provider))
            await self.session.models.use(found.model, found.level, "set")
            return found.model

    @property
    def thinking(self) -> str:
        """How much the model thinks."""
        return self.session.thinking_level

    async def set_thinking(self, level: str) -> str:
        """Set how much the model thinks. Returns the level, which is lower where the model cannot think so much."""
        self._require_open()
        await self.session.models.set_level(thinking_level(level))
        return self.thinking

    @property
    def todos(self) -> Sequence[TodoPhase]:
        """The list of todos of the model."""
        return self.session.state().todo_phases

    def set_todos(self, phases: Sequence[dict[str, Any]]) -> Sequence[TodoPhase]:
        """Replace the list of todos: `[{"name": …, "tasks": [{"content": …}]}]`. Raises `AgentError`."""
        self._require_open()
        return self.session.todos.set([*phases])

    def commands(self) -> Sequence[CommandItem]:
        """Return the slash commands that a prompt may begin with: of extensions, prompt templates and skills."""
        return self.session.commands()

    @property
    def mcp_servers(self) -> Sequence[McpServerState]:
        """The MCP servers, and how each of them is."""
        return self.session.mcp_servers.states()

    def background_commands(self) -> Sequence[RunningCommand]:
        """Return the shell commands that run in the background."""
        return self.session.background.running()

    @property
    def busy(self) -> bool:
        """Whether anything goes on: a run, a compaction, a change of session."""
        return self.session.busy

    async def wait_idle(self) -> None:
        """Wait until the agent is idle."""
        await self.session.wait_idle()

    async def close(self) -> None:
        """End all work at once and leave the session file whole. A closed agent takes no prompts."""
        self._closed = True
        await self.session.close()

    async def __aenter__(self) -> "Agent":
        self._require_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"A message must be a str, not {text!r}; images are the second argument")
    if not text.strip():
        raise AgentError("The message is empty")
    return text
