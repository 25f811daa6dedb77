"""The options of an agent in process: their names and types, what they may be, and how the recipe takes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs
from spindle.agent.fences.callback import CanUseTool
from spindle.agent.fences.options import ON_QUESTION, OnQuestion, PermissionOptions
from spindle.base.spelling import did_you_mean
from spindle.inprocess.budget import Budget
from spindle.inprocess.checks import check_names, check_number, check_values
from spindle.inprocess.declared import AnyHook, Subagent, definitions, hooks_extension
from spindle.inprocess.tools import Surroundings
from spindle.recipe import AgentOptions
from spindle.resources.loader import HERMETIC, ResourceOptions
from spindle.sessions import SessionManager
from spindle.sessions.session import Session
from spindle.sessions.store import SessionStore
from spindle.shapes.builtin_tools import TASK_TOOL
from spindle.shapes.model import THINKING_LEVELS, Model, ThinkingLevel
from spindle.shapes.run_limits import LimitArguments as Limits
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.sandbox import SandboxLevel, SandboxOptions, read_sandbox
from spindle.shapes.tool_lists import is_change
from spindle.tools.base import Tool

__all__ = [
    "CreateOptions",
    "Limits",
    "OpenOptions",
    "agent_options",
    "check_options",
    "check_paths",
    "run_limits",
    "thinking_level",
]

AnyTool: TypeAlias = str | Tool | Callable[..., Any]
"""The name of a tool, a tool, or a function that becomes one."""


Source: TypeAlias = Literal["settings", "extensions", "skills", "prompts", "context", "rules"]
"""Files of the user and the project that an agent may read."""


class OpenOptions(Limits, total=False):
    """Options of an agent; `Agent.create` explains them."""

    model: str | Model | None
    thinking: str | None
    tools: Sequence[AnyTool] | None
    system_prompt: str | None
    api_key: str | None
    base_url: str | None
    fallback: Sequence[str | Model] | None
    extensions: Sequence[str | Callable[[Any], Any]]
    ui: Dialogs | None
    permission_mode: str | None
    allow: Sequence[str]
    ask: Sequence[str]
    deny: Sequence[str]
    can_use_tool: CanUseTool | None
    on_question: OnQuestion
    sandbox: SandboxLevel | SandboxOptions | Mapping[str, Any] | None
    mcp_servers: Mapping[str, Any] | Literal[False] | None
    exec: str | None
    exec_cwd: str | None
    hermetic: bool
    sources: Sequence[Source] | None
    append_system_prompt: str | Sequence[str]
    skills: Sequence[str | Path]
    add_dirs: Sequence[str | Path]
    agents: Mapping[str, Subagent] | None
    hooks: Mapping[str, AnyHook | Sequence[AnyHook]] | None
    deps: Any
    env: Mapping[str, str] | None
    checkpoints: bool | None
    budget: Budget | None
    max_session_cost: float | None


class CreateOptions(OpenOptions, total=False):
    """The same, with the directory and the session of a new agent."""

    cwd: str | Path
    persist: bool
    session: str | Path | Session | SessionManager | None
    session_file: str | Path | None
    store: str | SessionStore | None


def run_limits(given: Limits) -> RunLimits:
    """Return the limits of a run. Raises `TypeError` for a name that is none, `AgentError` for a senseless value."""
    check_names(given, (*Limits.__optional_keys__, *_OF_RUNS, "fallback"), "run", CreateOptions.__optional_keys__)
    for name, value in given.items():
        if value is not None:
            check_number(name, value)
    return RunLimits(**given)


def check_options(given: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an option that does not exist, and for a value of a type that it cannot have.

    Raises `AgentError` for a value that makes no sense by itself.
    """
    check_names(given, CreateOptions.__optional_keys__, "Agent.create", _OF_RUNS)
    check_values(given)
    if given.get("max_session_cost") is not None:
        check_number("max_session_cost", given["max_session_cost"])
    if given.get("persist") is False and (name := next(filter(given.get, ("session", "session_file")), None)):
        raise AgentError(f"persist=False and {name} exclude each other: a session that is stored stays so")
    if given.get("exec_cwd") and not given.get("exec"):
        raise AgentError("exec_cwd is a directory at the far side: it needs exec, the command that leads there")
    if (ui := given.get("ui")) is not None and (lacks := [name for name in _OF_UI if not hasattr(ui, name)]):
        raise TypeError(f"ui must be an object with {', '.join(_OF_UI)}; {ui!r} lacks {', '.join(lacks)}")
    if not isinstance(store := given.get("store"), str | None) and not hasattr(store, "lease"):
        raise TypeError(f"store must be an address, or a SessionStore, not {store!r}")
    _check_env(given.get("env") or {})


_OF_RUNS = ("schema", "images")
_OF_UI = ("ask", "tell", "open_requests", "withdraw")


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"env must be a dict of texts by name, not {env!r}")
        if not name or "=" in name or "\0" in name + value:
            raise AgentError(f"env: {name!r} cannot be a variable with the value {value!r}")
        if name == "HOME":  # the rules of permissions and the sandbox read `~` as this program does
            raise AgentError("env cannot change HOME: permissions and sandbox go by the one of this program")


def check_paths(given: Mapping[str, Any], directory: Path) -> None:
    """Raise `AgentError` for a path of an option that leads nowhere."""
    if given.get("exec"):  # they are at the far side
        return
    for path in given.get("add_dirs") or ():
        if not Path(path).is_dir():
            raise AgentError(f"add_dirs: not a directory: {path}")
    for path in map(str, given.get("skills") or ()):
        is_pattern = path[:1] in ("!", "+", "-") or any(sign in path for sign in "*?[")
        if not is_pattern and not (directory / Path(path).expanduser()).exists():
            raise AgentError(f"skills: there is no {path}")


def thinking_level(level: str) -> ThinkingLevel:
    """Return the level. Raises `AgentError` for a word that is none."""
    if level not in THINKING_LEVELS:
        raise AgentError(f'Invalid thinking level "{level}". Valid values: {", ".join(THINKING_LEVELS)}')
    return level


def agent_options(given: Mapping[str, Any], around: Surroundings) -> AgentOptions:
    """Return the options of `create` as the recipe takes them. Raises as `create` does."""

    def some(*names: str) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    thinking, tools, extensions = given.get("thinking"), given.get("tools"), given.get("extensions") or ()
    if thinking is not None:
        thinking_level(thinking)
    if given.get("base_url") is not None and not given.get("model"):
        raise ValueError("base_url needs a model: the name that the server there has for it")
    if servers := given.get("mcp_servers"):
        from spindle.plugins.mcp.server_config import check_keys

        check_keys(servers, "mcp_servers")
    try:
        sandbox = read_sandbox(given.get("sandbox"))
    except ValueError as error:
        raise AgentError(str(error)) from None
    if given.get("on_question", "deny") not in ON_QUESTION:
        raise AgentError(f'on_question must be "deny" or "wait", not {given["on_question"]!r}')
    extensions = list(extensions)
    return AgentOptions(
        **some("model", "thinking", "api_key", "base_url", "fallback", "mcp_servers", "exec", "exec_cwd"),
        tools=_with_task([_as_tool(item, around) for item in tools or ()], tools is None, bool(given.get("agents"))),
        agents=definitions(given.get("agents") or {}),
        limits=run_limits(cast(Limits, some(*Limits.__optional_keys__))),
        dialogs=given.get("ui"),
        permissions=PermissionOptions(
            given.get("permission_mode"),
            **some("allow", "ask", "deny", "can_use_tool", "on_question"),
            directories=[str(Path(item).absolute()) for item in given.get("add_dirs") or ()],
            sandbox=sandbox,
        ),
        resources=_resources(given, extensions),
        factories=[
            *(item for item in extensions if not isinstance(item, str)),
            *([hooks_extension(hooks)] if (hooks := given.get("hooks")) else ()),
        ],
    )


def _resources(given: Mapping[str, Any], extensions: Sequence[Any]) -> ResourceOptions:
    more = given.get("append_system_prompt") or ()
    return replace(
        _sources(given),
        system_prompt=given.get("system_prompt"),
        append_system_prompt=[more] if isinstance(more, str) else list(more),
        skills=[str(item) for item in given.get("skills") or ()],
        extensions=[item for item in extensions if isinstance(item, str)],
        env=dict(given.get("env") or {}),
        checkpoints=given.get("checkpoints"),
    )


_SOURCES = {
    "settings": "no_user_files",
    "extensions": "no_extensions",
    "skills": "no_skills",
    "prompts": "no_prompt_templates",
    "context": "no_context_files",
    "rules": "no_rules",
}


def _sources(given: Mapping[str, Any]) -> ResourceOptions:
    """Return which files of the user and the project are read. Raises `AgentError` for a source that does not exist."""
    wanted = given.get("sources")
    if wanted is None:
        return HERMETIC if given.get("hermetic") else ResourceOptions()
    if given.get("hermetic"):
        raise AgentError("hermetic and sources exclude each other: hermetic=True is sources=[]")
    for name in wanted:
        if name not in _SOURCES:
            near = did_you_mean(str(name), _SOURCES)
            raise AgentError(f"There is no source {name!r}.{near} Sources are: {', '.join(_SOURCES)}")
    left_out = {option: True for name, option in _SOURCES.items() if name not in wanted}
    return ResourceOptions(**left_out, approve=None if wanted else False)  # type: ignore[arg-type]


def _with_task(tools: list[str | Tool], is_usual: bool, has_agents: bool) -> list[str | Tool] | None:
    """Return the list of tools for the recipe, with the tool that gives tasks away if there are agents for them."""
    if not has_agents:
        return None if is_usual else tools
    names = [tool for tool in tools if isinstance(tool, str)]
    return [*tools, f"+{TASK_TOOL}" if is_usual or is_change(names) else TASK_TOOL]


def _as_tool(item: AnyTool, around: Surroundings) -> str | Tool:
    if not isinstance(item, str | Tool) and not callable(item):
        raise TypeError(f"tools must be a list of names, functions and Tools, and {item!r} is none of them")
    return item if isinstance(item, str | Tool) else around.tool(item)
