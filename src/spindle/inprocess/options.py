"""The options of an agent in process: their names and types, what they may be, and how the recipe takes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.dialogs import Dialogs
from spindle.agent.fences.callback import CanUseTool
from spindle.agent.fences.options import ON_QUESTION, OnQuestion, PermissionOptions
from spindle.base.signature import read_type
from spindle.base.spelling import did_you_mean
from spindle.inprocess.declared import AnyHook, Budget, Subagent, definitions, hooks_extension
from spindle.inprocess.tools import Surroundings
from spindle.recipe import AgentOptions
from spindle.resources.loader import HERMETIC, ResourceOptions
from spindle.sessions import SessionManager
from spindle.sessions.session import Session
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
    "check_names",
    "check_options",
    "json_schema",
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
    budget: Budget | None
    max_session_cost: float | None


class CreateOptions(OpenOptions, total=False):
    """The same, with the directory and the session of a new agent."""

    cwd: str | Path
    persist: bool
    session: str | Path | Session | SessionManager | None
    session_file: str | Path | None


def run_limits(given: Limits) -> RunLimits:
    """Return the limits of a run. Raises `TypeError` for a name that is none, `AgentError` for a senseless value."""
    check_names(given, (*Limits.__optional_keys__, "schema", "images"), "run")
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
    "on_question": ('"deny" or "wait"', (str,)),
    "fallback": ("a list of names and Models", (Iterable,)),
    "sandbox": ("a level, or a dict with level, writable and network", (str, SandboxOptions, Mapping)),
    "mcp_servers": ("a dict of servers by name, or False", (Mapping, list, bool)),
    "hermetic": ("a bool", (bool,)),
    "sources": ("a list of sources", (Iterable,)),
    "append_system_prompt": ("a str, or a list of them", (str, list, tuple)),
    "skills": ("a list of paths", (Iterable,)),
    "add_dirs": ("a list of paths", (Iterable,)),
    "agents": ("a dict of Subagents by name", (Mapping,)),
    "hooks": ("a dict of functions by event", (Mapping,)),
    "budget": ("a Budget", (Budget,)),
    "max_session_cost": ("a number above 0", (int, float)),
    "persist": ("a bool", (bool,)),
    "cwd": ("a path", (str, Path)),
    "session_file": ("a path", (str, Path)),
    "ui": ("an object with ask, tell, open_requests and withdraw", (object,)),
}


_ELSEWHERE = {
    "system": "system_prompt",
    "instructions": "system_prompt",
    "prompt": "system_prompt",
    "resume": "session",
    "session_id": "session",
    "directory": "cwd",
    "path": "cwd",
    "max_budget_usd": "max_cost",
    "budget": "max_cost",
    "timeout": "max_time",
    "allowed_tools": "tools",
    "reasoning_effort": "thinking",
}
"""Names that other libraries have for an option."""


def check_names(given: Mapping[str, Any], known: Iterable[str] = (), function: str = "Agent.create") -> None:
    """Raise `TypeError` for an option that does not exist; `known` are those that do, by default those of `create`."""
    names = frozenset(known or CreateOptions.__optional_keys__)
    for name in given:
        if name not in names:
            other = _ELSEWHERE.get(name, "")
            near = f" Did you mean {other}?" if other in names else did_you_mean(name, names)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}.{near}")


def thinking_level(level: str) -> ThinkingLevel:
    """Return the level. Raises `AgentError` for a word that is none."""
    if level not in THINKING_LEVELS:
        raise AgentError(f'Invalid thinking level "{level}". Valid values: {", ".join(THINKING_LEVELS)}')
    return level


def check_options(given: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an option that does not exist, and for a value of a type that it cannot have."""
    check_names(given)
    for name, value in given.items():
        words, types = _ALLOWED.get(name, ("", (object,)))
        is_list = types == (Iterable,)
        if value is None or (isinstance(value, types) and not (is_list and isinstance(value, str | bytes | Mapping))):
            continue
        hint = f" Did you mean {name}=[{value!r}]?" if is_list and isinstance(value, str) else ""
        raise TypeError(f"{name} must be {words}, not {value!r}.{hint}")


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
        raise TypeError(f"tools must be {_NAMES}, and {item!r} is none of them")
    return item if isinstance(item, str | Tool) else around.tool(item)


def json_schema(schema: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a type. Raises `TypeError` if there is none."""
    if schema is None:
        return None
    try:
        found = read_type(schema)[0]
    except TypeError as error:
        raise TypeError(f"schema must be a type that JSON can hold, or a JSON Schema: {error}") from None
    if (wrong := next(_wrong_types(found), None)) is not None:
        raise TypeError(f"schema is no JSON Schema: there is no type {wrong!r}.{did_you_mean(wrong, _JSON_TYPES)}")
    return found


_JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_VALUES = ("enum", "const", "default", "examples")
"""Keywords whose values are no schemas."""


def _wrong_types(schema: Any) -> Iterator[str]:
    """Yield the types that a schema names and JSON does not have."""
    if isinstance(schema, list):
        for item in schema:
            yield from _wrong_types(item)
    elif isinstance(schema, dict):
        kinds = schema.get("type", [])
        yield from (kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind not in _JSON_TYPES)
        for key, value in schema.items():
            if key == "properties" and isinstance(value, dict):
                yield from _wrong_types([*value.values()])
            elif key not in _VALUES and key != "type":
                yield from _wrong_types(value)
