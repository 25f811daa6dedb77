"""Limits of one run: model calls, money, time, tokens; and signs that it leads nowhere.

Limits are checked before each model call, so that money and tokens exceed them by at most one call. A run that is
stopped here ends gracefully: its history is whole, and another prompt goes on from there.
"""

import math
import time
from typing import Any

from msgspec import Struct, field

from spindle.agent import AgentError
from spindle.agent.run.result import RunTokens
from spindle.base.settings import Runaway
from spindle.shapes.builtin_tools import kind_of
from spindle.shapes.codec import encode
from spindle.shapes.events import Denial
from spindle.shapes.messages import AssistantMessage, Usage
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RUN_LIMITS, RunLimits


def check_limits(limits: RunLimits, model: Model) -> None:
    """Raise `AgentError` for a limit that makes no sense, or that cannot be kept with this model."""
    for limit in RUN_LIMITS:
        value = getattr(limits, limit.name)
        if value is not None and value <= 0:
            raise AgentError(f"{limit.wire_name} must be above 0")
    if limits.max_cost is not None and model.cost_unknown:
        raise AgentError(
            f"maxCost cannot be kept: the price of {model.provider}/{model.id} is unknown. "
            "Give its cost in models.json, or use another limit."
        )


class Meter(Struct):
    """Counts what a run has used up."""

    limits: RunLimits
    runaway: Runaway
    began: float = field(default_factory=time.monotonic)
    turns: int = 0
    usage: RunTokens = field(default_factory=RunTokens)
    cost: float = 0
    """US dollars, as far as known."""
    cost_sources: set[str] = field(default_factory=set)
    """How the costs of the calls are known."""
    tool_calls: int = 0
    files_changed: dict[str, None] = field(default_factory=dict)
    """Paths that tools wrote to, in order."""
    denials: list[Denial] = field(default_factory=list)
    stopped: str | None = None
    """The limit that ended the run, or `denied`."""
    _uncounted: bool = False
    """Whether an answer came without its cost, so that a limit of money cannot be kept."""
    _last_failure: Any = None
    _failures: int = 0
    """How often that call has failed in a row."""

    def exhausted(self) -> bool:
        """Say whether a limit forbids another model call; the run then ends because of it."""
        self.stopped = self.stopped or self.reached()
        return self.stopped is not None

    def reached(self) -> str | None:
        """Return the limit that forbids another model call, if one does."""
        if self.turns >= self.runaway.max_model_calls:
            return "maxTurns"
        used = self._used()
        for limit in RUN_LIMITS:
            allowed = getattr(self.limits, limit.name)
            if allowed is not None and used[limit.name] >= allowed:
                return limit.wire_name
        return "repeated" if self._failures >= self.runaway.max_repeated_failures else None

    def _used(self) -> dict[str, float]:
        """Return the amounts that were used up, by the name of their limit."""
        return {
            "max_turns": self.turns,
            "max_cost": math.inf if self._uncounted else self.cost,
            "max_time": time.monotonic() - self.began,
            "max_total_tokens": self.usage.total,
        }

    def answered(self, answer: AssistantMessage) -> None:
        self.turns += 1
        self.spent(answer.usage)
        if answer.usage.cost.unknown is True and answer.stop_reason not in ("error", "aborted"):
            self._uncounted = True

    def spent(self, usage: Usage) -> None:
        """Count tokens and money, also of a request that is not part of the conversation."""
        self.usage.add(usage)
        self.cost += usage.cost.total
        self.cost_sources.add(usage.cost.source)

    def tool_ended(self, name: str, arguments: Any, *, failed: bool, cut: bool) -> None:
        """Count a call, and failures in a row of the same call, or of calls that are cut off."""
        self.tool_calls += 1
        if not failed:
            if kind_of(name) == "edit" and isinstance(arguments, dict) and isinstance(arguments.get("path"), str):
                self.files_changed[arguments["path"]] = None
            self._last_failure, self._failures = None, 0
            return
        failure = (name, b"" if cut else encode(arguments), cut)
        self._failures = self._failures + 1 if failure == self._last_failure else 1
        self._last_failure = failure
