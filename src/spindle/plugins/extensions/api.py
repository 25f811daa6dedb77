"""`agent`: the object that `def extension(agent)` gets.

Registrations (`on`, `tool`, `command`, `flag`, …) work at any time; everything that touches the conversation works
once all extensions are loaded, from events, tools and commands.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from msgspec.structs import replace

from spindle.base.spelling import did_you_mean
from spindle.models.model_registry import VIRTUAL
from spindle.models.virtual import Router
from spindle.plugins.extensions.events import EVENTS
from spindle.plugins.extensions.generation import Board, Extension, ExtensionCommand, Flag, Handler
from spindle.plugins.extensions.handlers import ExtensionHooks
from spindle.plugins.extensions.providers import make_provider
from spindle.plugins.extensions.tools import WrappedTool, as_content, as_custom_message, make_tool, require_json
from spindle.programs.children import environment
from spindle.programs.process import run
from spindle.shapes.codec import to_builtins
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Image, Text, custom_message, text_of
from spindle.shapes.model import THINKING_LEVELS, Model, ThinkingLevel
from spindle.tools.base import Tool, ToolError
from spindle.workspace.settings import ToolSettings

F = TypeVar("F", bound=Callable[..., Any])
UserContent = str | list[Text | Image]
Delivery = Literal["steer", "followUp", "nextTurn"]
_DEFAULTS = ToolSettings()


@dataclass(frozen=True, slots=True)
class ExecResult:
    stdout: str
    stderr: str
    code: int
    """127 if the program could not be started; negative: the signal that ended it."""
    killed: bool
    """Whether it was killed because the time ran out."""


class Agent:
    ToolError = ToolError
    """Raise it in a tool; the model reads the text."""

    def __init__(self, extension: Extension, hooks: ExtensionHooks) -> None:
        self._extension = extension
        self._hooks = hooks
        self._generation = generation = hooks.generation
        self._binding = generation.binding
        self.events = Board(extension, generation)
        """A board for messages between extensions."""

    @property
    def path(self) -> str:
        """Where this extension was loaded from."""
        return self._extension.path

    # -- events ----------------------------------------------------------------------------------

    @overload
    def on(
        self,
        event: str,
        handler: Callable[..., Any],
        *,
        tool: str | Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Callable[[], None]: ...

    @overload
    def on(
        self, event: str, *, tool: str | Sequence[str] | None = None, timeout: float | None = None
    ) -> Callable[[F], F]: ...

    def on(
        self,
        event: str,
        handler: Callable[..., Any] | None = None,
        *,
        tool: str | Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Call `handler(event, ctx)` for an event: `agent.on(name, function)`, or `@agent.on(name)`.

        `tool` limits events of tools to some of them, `timeout` (seconds) the time a handler may take. With a
        handler given, returns a function that removes it again. Raises `ValueError` for an unknown event.
        """
        if event not in EVENTS:
            near = did_you_mean(event, EVENTS)
            raise ValueError(f'Unknown event "{event}".{near} Known are: {", ".join(sorted(EVENTS))}')
        tools = None if tool is None else frozenset([tool] if isinstance(tool, str) else tool)

        def add(function: Callable[..., Any]) -> Handler:
            _require_arguments(function, f"A handler of {event}", "event", "ctx")
            made = Handler(event, function, self._extension, tools, timeout)
            self._extension.handlers.append(made)
            self._changed()
            return made

        def decorate(function: F) -> F:
            add(function)
            return function

        if handler is None:
            return decorate
        added = add(handler)
        return lambda: self._remove(added)

    def _remove(self, handler: Handler) -> None:
        self._extension.handlers = [other for other in self._extension.handlers if other is not handler]
        self._changed()

    def _changed(self) -> None:
        if self._extension in self._generation.extensions:
            self._generation.refresh()

    # -- answers of handlers ---------------------------------------------------------------------

    @staticmethod
    def block(reason: str | None = None, *, terminate: bool = False) -> dict[str, Any]:
        """Answer of a `tool_call` handler: the tool must not run. `terminate` ends the run as well."""
        return {"block": True, "reason": reason, "terminate": terminate}

    @staticmethod
    def transform(text: str, images: Sequence[Image] | None = None) -> dict[str, Any]:
        """Answer of an `input` handler: go on with this input instead."""
        changed: dict[str, Any] = {"action": "transform", "text": text}
        return changed if images is None else {**changed, "images": list(images)}

    @staticmethod
    def handled() -> dict[str, Any]:
        """Answer of an `input` handler: the input is dealt with, the model does not get it."""
        return {"action": "handled"}

    @staticmethod
    def cancel() -> dict[str, Any]:
        """Answer of a `session_before_…` handler: do not make this change."""
        return {"cancel": True}

    # -- tools -----------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, **options: Any) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        label: str = "",
        description: str | None = None,
        snippet: str = "",
        guidelines: Sequence[str] = (),
        parameters: Any = None,
        sequential: bool = False,
        interruptible: bool = True,
        safe_to_retry: bool = False,
        prepare: Callable[[Any], Any] | None = None,
        annotations: Mapping[str, bool] | None = None,
        output_schema: dict[str, Any] | None = None,
        exposure: Literal["direct", "hidden"] = "direct",
        render_call: Any = None,
        render_result: Any = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        *,
        guidelines: Sequence[str] = (),
        render_call: Any = None,
        render_result: Any = None,
        **options: Any,
    ) -> Any:
        """Let the model call a function: `@agent.tool`, or `@agent.tool(snippet=…)`.

        Name, description and parameters come from the function, its docstring and its signature unless given
        (`parameters` may be a JSON Schema or a pydantic model). Keyword-only `ctx`, `update` and `call_id` are
        filled in. A tool named like a built-in one replaces it. Of `annotations`, those of MCP, `readOnlyHint` and
        `destructiveHint` tell permissions what a call does. `output_schema` describes the structured result
        (`details`), which is checked. A tool with `exposure` `hidden` is for `execute_tool` only, until `active_tools`
        names it. `render_call` and `render_result` are accepted and ignored, like `shortcut`. Raises `TypeError`, and
        `ValueError` for a bad name.
        """

        def add(function: F) -> F:
            make_context = functools.partial(self._hooks.context_for, self._extension)
            home = self._extension.home
            tool = make_tool(function, make_context, report, home, guidelines=tuple(guidelines), **options)
            self._extension.tools[tool.name] = tool
            if self._binding.bound and self._generation.tools()[tool.name] is tool:
                self._binding.do(lambda agent: agent.toolbox.add_extension_tool(tool))
            return function

        def report(name: str, error: Exception) -> None:
            self._hooks.report(self._extension.path, f"tool {name}", error)

        return add if function is None else add(function)

    @staticmethod
    def result(
        text: str = "", *, images: Sequence[Image] = (), details: Any = None, terminate: bool = False
    ) -> ToolResult:
        """Make the result of a tool if a plain text is not enough. `details` is for user interfaces, not the model."""
        return ToolResult([*([Text(text)] if text or not images else []), *images], details, terminate)

    def builtin(self, name: str) -> WrappedTool:
        """Return a built-in tool, to wrap it in a tool of your own. Raises `LookupError`."""
        tool = self._generation.builtin_tool(name)
        if tool is None:
            raise LookupError(f'There is no built-in tool "{name}"')
        return WrappedTool(tool, self._binding)

    @property
    def active_tools(self) -> list[str]:
        """Names of the tools the model may use; assign to change them."""
        return [tool.name for tool in self._binding.agent.toolbox.active_tools()]

    @active_tools.setter
    def active_tools(self, names: Sequence[str]) -> None:
        if isinstance(names, str):
            raise TypeError(f"active_tools is a list of names: [{names!r}]")
        self._binding.do(lambda agent: agent.set_active_tools(list(names)))

    async def register_mcp_server(self, name: str, **config: Any) -> None:
        """Add an MCP server to this session, with the keys of `.mcp.json`: `command` and `args`, or `url`.

        Call it in a handler, such as that of `session_start`. Servers of the user's files of that name count more.
        Raises `AgentError` for a configuration that makes no sense.
        """
        await self._binding.carry_out(lambda agent: agent.mcp_servers.add(name, config))

    def all_tools(self) -> list[Tool]:
        return self._binding.agent.toolbox.all()

    # -- commands, options -----------------------------------------------------------------------

    def command(
        self, name: str, *, help: str = "", complete: Callable[[str], Any] | None = None
    ) -> Callable[[Callable[..., Any]], ExtensionCommand]:
        """Add a slash command: `@agent.command("name")` on a function `(args, ctx)`; `args` is the rest of the line."""
        if not name or name != name.strip().lstrip("/") or " " in name:
            raise ValueError(f'"{name}" cannot be the name of a command: no spaces, no leading slash')

        def add(function: Callable[..., Any]) -> ExtensionCommand:
            _require_arguments(function, f"Command {name}", "args", "ctx")
            made = ExtensionCommand(name, function, self._extension, help or _first_line(function.__doc__), complete)
            self._extension.commands[name] = made
            self._changed()
            return made

        return add

    def commands(self) -> list[Any]:
        """Return everything that may follow a slash: commands, prompt templates, skills."""
        items: list[Any] = to_builtins(self._binding.agent.commands())
        return items

    def flag(self, name: str, *, type: type = bool, default: bool | str | None = None, help: str = "") -> None:
        """Add a command line option `--name`; its value is `get_flag(name)`."""
        if type not in (bool, str):
            raise ValueError(f"Flag {name}: type must be bool or str")
        self._extension.flags[name] = Flag(name, type, default, help)

    def get_flag(self, name: str) -> bool | str | None:
        """Return the value of an option this extension added. Raises `LookupError` for other options."""
        flag = self._extension.flags.get(name)
        if flag is None:
            raise LookupError(f'This extension has no flag "{name}"')
        given = self._generation.given_flags.get(name)
        if given is None or (flag.type is str and not isinstance(given, str)):
            return flag.default
        return True if flag.type is bool else given

    def shortcut(self, name: str, *, help: str = "") -> Callable[[F], F]:
        """Accept and ignore the function: Spindle draws no screen, but extensions made for pi's screen still load."""
        return lambda function: function

    message_renderer = entry_renderer = shortcut

    # -- models ----------------------------------------------------------------------------------

    def provider(self, name: str, *, stream: Callable[..., Any] | None = None, **config: Any) -> None:
        """Add or change a model provider, with the settings of `models.json` in Python's spelling.

        `models` replaces all models of that provider. `stream(model, request, options)`, an async generator, asks
        the models whose `api` is given here; it yields texts, `Thinking`, `ToolCall` and `Usage`.
        Raises `ValueError`.
        """
        made = make_provider(name, config, stream, self._extension.home)
        self._extension.providers[name] = made
        if self._binding.bound:
            self._binding.do(lambda agent: agent.resources.registry.register_provider(name, made.config, made.stream))

    def virtual_model(self, name: str, route: Callable[..., Any], **model: Any) -> None:
        """Add a model whose requests are answered by others: `route(request)` gives the name of one, or a `Model`.

        `model` has what the list of models shows, in the spelling of `models.json`: `contextWindow`, `cost`, `input` …
        An answer has the name and the price of the model that gave it. Raises `ValueError`.
        """
        config = {"api": VIRTUAL, "base_url": "http://virtual.invalid", "api_key": "none"}
        wanted = {"id": name, "name": name, **model}
        made = make_provider(name, {**config, "models": [wanted]}, None, self._extension.home)
        router = Router(name, lambda request: self._extension.home.call(route, request))
        self._extension.providers[name] = made = replace(made, stream=router)
        if self._binding.bound:
            self._binding.do(lambda agent: agent.resources.registry.register_provider(name, made.config, made.stream))

    def remove_provider(self, name: str) -> None:
        """Undo `provider`."""
        self._extension.providers.pop(name, None)
        if self._binding.bound:
            self._binding.do(lambda agent: agent.resources.registry.unregister_provider(name))

    async def set_model(self, model: Model) -> bool:
        """Use another model from the next turn on. Returns False if there is no key for it."""
        if not isinstance(model, Model):
            raise TypeError("set_model takes a Model: one of ctx.models.all(), or ctx.models.find(provider, id)")
        agent = self._binding.agent
        if not agent.resources.registry.has_credentials(model.provider):
            return False
        await self._binding.carry_out(lambda agent: agent.models.use(model, None, "set"))
        return True

    @property
    def thinking_level(self) -> ThinkingLevel:
        """How hard the model thinks; assign to change it, as far as the model can."""
        return self._binding.agent.thinking_level

    @thinking_level.setter
    def thinking_level(self, level: ThinkingLevel) -> None:
        if level not in THINKING_LEVELS:
            raise ValueError(f"Unknown thinking level {level!r}. Known are: {', '.join(THINKING_LEVELS)}")
        tasks = self._binding.tasks
        self._binding.do(lambda agent: tasks.spawn(agent.models.set_level(level), "spindle-thinking-level"))

    # -- the conversation ------------------------------------------------------------------------

    async def send_message(
        self,
        custom_type: str,
        content: UserContent,
        *,
        display: bool = True,
        details: Any = None,
        trigger_turn: bool = False,
        deliver_as: Delivery | None = None,
    ) -> None:
        """Put a message of your own into the conversation; the model sees its content.

        While the agent works, the message is queued (`steer` by default, or `followUp`); `nextTurn` holds it until the
        next prompt. While the agent is idle, the message is appended, and with `trigger_turn` the model answers it.
        """
        _check_delivery(deliver_as, "steer", "followUp", "nextTurn")
        shown = content if isinstance(content, str) else as_content(content)
        sent = as_custom_message(custom_message(custom_type, shown, display=display, details=details))
        await self._binding.carry_out(
            lambda agent: agent.prompting.send(sent, trigger_turn=trigger_turn, deliver_as=deliver_as)
        )

    async def send_user_message(
        self, content: UserContent, *, deliver_as: Literal["steer", "followUp"] | None = None, expand: bool = False
    ) -> None:
        """Send a prompt as the user would. Returns once the prompt is accepted.

        While the agent works, `deliver_as` is needed. `expand` expands skills and prompt templates.
        """
        _check_delivery(deliver_as, "steer", "followUp")
        shown = content if isinstance(content, str) else as_content(content)
        images = [] if isinstance(shown, str) else [block for block in shown if isinstance(block, Image)]
        text = text_of(shown, "\n")
        await self._binding.carry_out(
            lambda agent: agent.submit(text, images, deliver_as, source="extension", expand=expand)
        )

    def append_entry(self, custom_type: str, data: Any = None) -> str:
        """Keep `data` in the session; the model does not see it. Returns the entry's id."""
        require_json(data, "The data of the entry")
        return self._binding.do(lambda agent: agent.append_entry(custom_type, data))

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Name an entry of the session; None removes the name."""
        self._binding.do(lambda agent: agent.set_label(entry_id, label))

    @property
    def session_name(self) -> str | None:
        return self._binding.agent.session.name

    @session_name.setter
    def session_name(self, name: str) -> None:
        self._binding.do(lambda agent: agent.set_name(name))

    # -- programs --------------------------------------------------------------------------------

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,
    ) -> ExecResult:
        """Run a program (no shell) in the working directory. Never raises; it is ended when its time runs out."""
        if isinstance(argv, str):
            raise TypeError(f"exec takes a list: {argv.split()!r}, or for a shell ['sh', '-c', {argv!r}]")
        agent = self._binding.agent
        settings, folder = agent.tool_context(lambda result: None).settings, Path(agent.cwd, cwd or ".")
        return await self._binding.await_on_loop(
            lambda: execute(argv, settings, cwd=folder, timeout=timeout, input=input)
        )


def _require_arguments(function: Any, what: str, *names: str) -> None:
    """Raise `TypeError` if the function cannot be called with these names: at load time, not at the first call."""
    if not callable(function):
        raise TypeError(f"{what} must be a function, not {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # some functions written in C have no signature
    try:
        signature.bind(*names)
    except TypeError as error:
        called = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"{what} is called as {called}({', '.join(names)}), but it is {called}{signature}: {error}"
        ) from None


def _check_delivery(given: str | None, *known: str) -> None:
    if given is not None and given not in known:
        raise ValueError(f"deliver_as must be {' or '.join(known)}, not {given!r}")


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n", 1)[0]


async def execute(
    argv: Sequence[str],
    settings: ToolSettings = _DEFAULTS,
    *,
    cwd: Path,
    timeout: float | None = None,
    input: str | bytes | None = None,
) -> ExecResult:
    """Run a program to its end, with the environment that tools get.

    Never raises, except when cancelled; then the program is killed.
    """
    data = input.encode() if isinstance(input, str) else input
    try:
        env = environment(settings.withheld_variables)
        done = await run(argv, cwd=str(cwd), env=env, owner=settings.owner, input=data, timeout=timeout)
    except (OSError, ValueError, TypeError, IndexError) as error:
        return ExecResult("", f"{argv[0] if argv else 'No program'}: {error}", 127, False)
    out, err = (text.decode("utf-8", "replace") for text in (done.output, done.errors))
    return ExecResult(out, err, done.code, done.timed_out)
