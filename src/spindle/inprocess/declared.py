"""What other programs keep in files, as values of a program: subagents and hooks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from msgspec import Struct

from spindle.agent import AgentError
from spindle.agent.fences.callback import takes
from spindle.agent.session import AgentSession
from spindle.base.spelling import did_you_mean
from spindle.inprocess.checks import check_number
from spindle.plugins.extensions.events import EVENTS
from spindle.recipe import check_fallback, check_tools
from spindle.resources.agent_files import AgentDefinition
from spindle.shapes.made_by_hand import MadeByHand
from spindle.shapes.model import THINKING_LEVELS


class Subagent(Struct, metaclass=MadeByHand, frozen=True, kw_only=True):
    """A subagent that the model can give tasks to, under its name in `Agent.create(agents={name: Subagent(…)})`."""

    description: str
    """What it is good for: the model chooses by it."""
    prompt: str | None = None
    """Takes the place of the built-in part of its system prompt; None: that part stays."""
    tools: Sequence[str] | None = None
    """Names of the tools that it may use, of yours too; None: those of the agent."""
    model: str | None = None
    """None: the model of the agent."""
    thinking: str | None = None


def definitions(agents: Mapping[str, Subagent]) -> list[AgentDefinition]:
    """Return subagents as the recipe takes them. Raises `TypeError` for one that is none, `AgentError` for one that
    the model could not use."""
    return [_definition(name, agent) for name, agent in agents.items()]


def _definition(name: str, agent: Subagent) -> AgentDefinition:
    where = f"agents[{name!r}]"
    if not isinstance(agent, Subagent):
        raise TypeError(f"{where} must be a Subagent, not {agent!r}")
    if not isinstance(name, str):
        raise TypeError(f"{where}: the name of a subagent must be a str")
    for field in ("description", "prompt", "model", "thinking"):
        if not isinstance(value := getattr(agent, field), str) and (value is not None or field == "description"):
            raise TypeError(f"{where}: {field} must be a str, not {value!r}")
    if isinstance(agent.tools, str) or not all(isinstance(tool, str) for tool in agent.tools or ()):
        raise TypeError(f"{where}: tools must be a list of names, not {agent.tools!r}")
    if not name.strip() or not agent.description.strip():
        raise AgentError(f"{where} needs a name and a description: the model chooses by them")
    if agent.thinking is not None and agent.thinking not in THINKING_LEVELS:
        raise AgentError(f"{where}: there is no thinking level {agent.thinking!r}: {', '.join(THINKING_LEVELS)}")
    tools = None if agent.tools is None else tuple(agent.tools)
    return AgentDefinition(
        name,
        agent.description,
        tools=tools,
        model=agent.model,
        thinking=agent.thinking,
        prompt=agent.prompt,
        given=True,
    )


def check_definitions(agent: AgentSession, given: Sequence[AgentDefinition]) -> None:
    """Raise `AgentError` for tools and models of subagents that do not exist."""
    for one in given:
        where = f"agents[{one.name!r}]"
        with named(where):
            check_tools(agent, [entry.partition("(")[0].strip() for entry in one.tools or ()])
            check_fallback(agent.resources.registry, [one.model] if one.model else (), "model")


@contextmanager
def named(where: str) -> Iterator[None]:
    """Let an `AgentError` that leaves the block begin with the option that it is about."""
    try:
        yield
    except AgentError as error:
        raise AgentError(f"{where}: {error}") from None


class Hook(Struct, metaclass=MadeByHand, frozen=True):
    """A function that is called for an event, and for which tools."""

    function: Callable[..., Any]
    """Takes the event, or the event and `ctx`. Plain or async; what it may return depends on the event."""
    matcher: str | None = None
    """Names of tools with `|` between them, for events of tools; None: all."""
    timeout: float | None = None
    """Seconds that it may take."""


AnyHook: TypeAlias = Hook | Callable[..., Any]


def hooks_extension(hooks: Mapping[str, AnyHook | Sequence[AnyHook]]) -> Callable[[Any], None]:
    """Return an extension that has these hooks. Raises `AgentError` for an event that does not exist, and `TypeError`
    for what cannot be called for it."""
    made = [(event, hook) for event, items in hooks.items() for hook in _hooks(items)]
    for event, hook in made:
        _check_hook(event, hook)

    def extension(agent: Any) -> None:
        for event, hook in made:
            agent.on(event, _of_two(hook.function), tool=_tools(hook), timeout=hook.timeout)

    return extension


def check_matchers(agent: AgentSession, hooks: Mapping[str, AnyHook | Sequence[AnyHook]]) -> None:
    """Raise `AgentError` for a matcher with the name of a tool that does not exist."""
    for event, items in hooks.items():
        for hook in _hooks(items):
            with named(f"hooks[{event!r}]"):
                check_tools(agent, _tools(hook) or ())


def _hooks(items: AnyHook | Sequence[AnyHook]) -> list[Hook]:
    several = items if isinstance(items, list | tuple) else [items]
    return [item if isinstance(item, Hook) else Hook(item) for item in cast(list[AnyHook], several)]


def _tools(hook: Hook) -> list[str] | None:
    return None if hook.matcher is None else [name.strip() for name in hook.matcher.split("|")]


def _check_hook(event: str, hook: Hook) -> None:
    where = f"hooks[{event!r}]"
    if event not in EVENTS:
        meant = _ELSEWHERE.get(event)
        near = f" Did you mean {meant}?" if meant else did_you_mean(str(event), EVENTS)
        raise AgentError(f"{where}: there is no such event.{near} There are: {', '.join(sorted(EVENTS))}")
    if not callable(hook.function):
        raise TypeError(f"{where} must be functions or Hooks, not {hook.function!r}")
    if not any(takes(hook.function, count) for count in (1, 2)):
        raise TypeError(f"{where}: {hook.function!r} must take the event, or the event and ctx")
    if hook.timeout is not None:
        check_number(f"{where}: timeout", hook.timeout)
    if hook.matcher is None:
        return
    if not isinstance(hook.matcher, str) or not all(_tools(hook) or ()):
        raise TypeError(f"{where}: matcher must be names of tools with | between them, not {hook.matcher!r}")
    if not hasattr(EVENTS[event], "tool_name"):
        raise AgentError(f"{where}: matcher is for events of tools, as tool_call; {event} is none")


_ELSEWHERE = {
    **dict.fromkeys(("PreToolUse", "on_tool_start", "pre_tool_use", "PermissionRequest"), "tool_call"),
    **dict.fromkeys(("PostToolUse", "PostToolUseFailure", "on_tool_end", "post_tool_use"), "tool_result"),
    **dict.fromkeys(("UserPromptSubmit", "user_prompt_submit"), "input"),
    **dict.fromkeys(("Stop", "on_agent_end"), "agent_end"),
    **dict.fromkeys(("SessionStart",), "session_start"),
    **dict.fromkeys(("SessionEnd",), "session_shutdown"),
    **dict.fromkeys(("PreCompact",), "session_before_compact"),
    **dict.fromkeys(("on_agent_start",), "agent_start"),
    **dict.fromkeys(("on_llm_start",), "before_provider_request"),
    **dict.fromkeys(("on_llm_end",), "message_end"),
}
"""Names that other libraries have for an event."""


def _of_two(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return function if takes(function, 2) else lambda event, ctx: function(event)
