"""What other programs keep in files, as values of a program: subagents, hooks, and budgets."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct

from spindle.agent.hooks import Hooks
from spindle.resources.agent_files import AgentDefinition
from spindle.shapes.messages import Usage


class Subagent(Struct, frozen=True, kw_only=True):
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
    """Return subagents as the recipe takes them. Raises `TypeError` for one that is none."""
    for name, agent in agents.items():
        if not isinstance(agent, Subagent):
            raise TypeError(f"agents[{name!r}] must be a Subagent, not {agent!r}")
    return [
        AgentDefinition(
            name,
            one.description,
            tools=None if one.tools is None else tuple(one.tools),
            model=one.model,
            thinking=one.thinking,
            prompt=one.prompt,
            given=True,
        )
        for name, one in agents.items()
    ]


class Hook(Struct, frozen=True):
    """A function that is called for an event, and for which tools."""

    function: Callable[..., Any]
    """Takes the event, or the event and `ctx`. Plain or async; what it may return depends on the event."""
    matcher: str | None = None
    """Names of tools with `|` between them, for events of tools; None: all."""
    timeout: float | None = None
    """Seconds that it may take."""


AnyHook: TypeAlias = Hook | Callable[..., Any]


def hooks_extension(hooks: Mapping[str, AnyHook | Sequence[AnyHook]]) -> Callable[[Any], None]:
    """Return an extension that has these hooks. It raises `ValueError` for an event that does not exist."""
    made = [
        (event, item if isinstance(item, Hook) else Hook(item))
        for event, items in hooks.items()
        for item in (items if isinstance(items, list | tuple) else cast(list[AnyHook], [items]))
    ]
    for event, hook in made:
        if not callable(hook.function):
            raise TypeError(f"hooks[{event!r}] must be functions or Hooks, not {hook.function!r}")

    def extension(agent: Any) -> None:
        for event, hook in made:
            tools = None if hook.matcher is None else [name.strip() for name in hook.matcher.split("|")]
            agent.on(event, _of_two(hook.function), tool=tools, timeout=hook.timeout)

    return extension


def _of_two(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    try:
        inspect.signature(function).bind(0, 0)
    except TypeError:
        return lambda event, ctx: function(event)
    return function


class Budget(Hooks):
    """Money that agents of a program may spend together: give the same object to each `Agent.create(budget=…)`.

    A prompt is refused when the budget is spent, and a run ends (`max_cost`) when it has used what was left at its
    beginning. Runs at the same time do not see each other until then.
    """

    def __init__(self, max_cost: float) -> None:
        if isinstance(max_cost, bool) or not isinstance(max_cost, int | float) or not 0 < max_cost < float("inf"):
            raise ValueError(f"max_cost must be a number above 0, not {max_cost!r}")
        self.max_cost = float(max_cost)
        """US dollars."""
        self.used = 0.0
        """What the agents have spent so far, their subagents included."""

    def __repr__(self) -> str:
        return f"<Budget ${self.used:.4f} of ${self.max_cost:.2f} used>"

    @property
    def left(self) -> float:
        """What may still be spent; never below 0."""
        return max(0.0, self.max_cost - self.used)

    def spent(self, usage: Usage) -> None:
        """Count a model call; the agent calls this."""
        self.used += usage.cost.total
