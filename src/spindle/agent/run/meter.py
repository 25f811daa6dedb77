"""Limits of one run: model calls, money, time, tokens; and signs that it leads nowhere.

Limits are checked before each model call, so that money and tokens exceed them by at most one call. A run that is
stopped here ends gracefully: its history is whole, and another prompt goes on from there.
"""

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from spindle.agent import AgentError
from spindle.base.settings import Runaway
from spindle.shapes.approvals import Denial
from spindle.shapes.builtin_tools import OUTPUT_TOOL, kind_of
from spindle.shapes.codec import encode
from spindle.shapes.messages import AssistantMessage, Usage
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RUN_LIMITS, Limit, RunLimits
from spindle.shapes.run_result import RunTokens

if TYPE_CHECKING:
    from spindle.llm.stream import Request


_PLAUSIBLE = 8
"""A count that is this many times smaller than our estimate is wrong."""
_MOST_TOKENS = 100_000_000
"""No request and answer have so many tokens together."""


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


REPEATED = (
    "The call of {name} gave the same result as before, and will give it again. Take the next step. If the work is "
    "done, say what came of it."
)
_TOO_OFTEN = 2
_MARKS = (0.5, 0.75, 0.9)
"""Parts of a limit; the model is told when one is used up."""


def _of(limit: Limit) -> str:
    """Return the unit of a limit inside a sentence."""
    unit = limit.words.unit
    return unit if unit[:2].isupper() else unit[0].lower() + unit[1:]


def _amount(value: float) -> str:
    """Write an amount: cents for little, whole numbers for the rest."""
    return f"{value:.2f}" if 0 < value < 10 and value % 1 else f"{max(value, 0):.0f}"


class Meter(Struct):
    """Counts what a run has used up."""

    limits: RunLimits
    runaway: Runaway
    outer: "Meter | None" = None
    """Meter of the run whose limits hold for this one as well: what is used up here is used up there, too."""
    follows: bool = False
    """Whether the outer run was over when this one began."""
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
    tokens: int = 0
    """Tokens that count for the limit: as reported, or as estimated where a report makes no sense."""
    _sent: tuple[int, int] = (0, 0)
    """Estimated tokens of the last request, and of its messages alone."""
    ended: float | None = None
    """When the run was over."""
    stopped: str | None = None
    """The limit that ended the run, or `denied`."""
    _uncounted: bool = False
    """Whether an answer came without its cost, so that a limit of money cannot be kept."""
    _told: int = 0
    """How many marks the model has been told of."""
    _seen: dict[int, int] = field(default_factory=dict)
    """How often the same call gave the same result, by a hash of both."""
    _changes: int = 0
    """How often a file was edited or written."""
    _last_failure: Any = None
    _failures: int = 0
    """How often that call has failed in a row."""
    _outside: tuple["Meter", ...] = ()
    """Meters whose limits hold for this one as well, the outermost last."""

    def __post_init__(self) -> None:
        self._outside = () if self.outer is None else (self.outer, *self.outer._outside)

    def exhausted(self) -> bool:
        """Say whether a limit forbids another model call; the run then ends because of it."""
        self.stopped = self.stopped or self.reached()
        return self.stopped is not None

    def reached(self) -> str | None:
        """Return the limit that forbids another model call, if one does."""
        found = self._own_limit()
        for meter in self._outside:
            found = found or meter.stopped or meter._own_limit()
        return found

    def _own_limit(self) -> str | None:
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
            "max_time": self.seconds,
            "max_total_tokens": self.tokens,
        }

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return (self.ended or time.monotonic()) - self.began

    def seconds_left(self) -> float | None:
        """Return how long the run may go on; None: any time."""
        meters = (self, *self._outside)
        lefts = [one.limits.max_time - one.seconds for one in meters if one.limits.max_time is not None]
        return max(0.0, min(lefts)) if lefts else None

    def denied(self, denial: Denial) -> None:
        """Note that a call was refused, also in the run that this one works for."""
        self.denials.append(denial)
        if self.outer is not None and not self.follows:
            self.outer.denied(denial)

    def end(self) -> None:
        """Note that the run is over: its time stands still, and so does that of the run that it followed."""
        for meter in self._followed():
            meter.ended = time.monotonic()

    def go_on(self) -> "Meter":
        """Return the meter of a run that follows from this one, which is over, within the same limits."""
        for meter in self._followed():  # the time in between does not count
            meter.began += time.monotonic() - (meter.ended or time.monotonic())
            meter.ended = None
        return Meter(self.limits, self.runaway, self, follows=True)

    def _followed(self) -> Iterator["Meter"]:
        """Yield this meter, and those of the runs that it follows."""
        for meter in (self, *self._outside):
            yield meter
            if not meter.follows:
                return

    def asks(self, request: "Request") -> None:
        """Measure a request for an answer, if tokens are limited."""
        if self.limits.max_total_tokens is not None:
            from spindle.llm.cost import estimate_messages, estimate_request

            self._sent = estimate_request(request), estimate_messages(request)

    def left(self) -> str | None:
        """Return how much is left of the limits, when a half, and so on, is used up."""
        return (self, *self._outside)[-1]._left()

    def _left(self) -> str | None:
        used = self._used()
        limited = {one: limit for one in RUN_LIMITS if (limit := getattr(self.limits, one.name)) is not None}
        if not limited:
            return None
        part = max(used[one.name] / limit for one, limit in limited.items())
        level = sum(part >= mark for mark in _MARKS)
        if level <= self._told:
            return None
        self._told = level
        amounts = [
            f"{_amount(limit - used[one.name])} of {_amount(limit)} {_of(one)}" for one, limit in limited.items()
        ]
        return f"Left for this work: {', '.join(amounts)}."

    def answered(self, answer: AssistantMessage) -> None:
        for meter in (self, *self._outside):
            meter.turns += 1
            if answer.usage.cost.unknown is True and answer.stop_reason not in ("error", "aborted"):
                meter._uncounted = True
        own = (0, 0)
        if self.limits.max_total_tokens is not None and answer.content:  # a request that failed at once cost nothing
            from spindle.llm.history import estimate_tokens

            said = estimate_tokens(answer)
            own = self._sent[0] + said, self._sent[1] + said
        self.spent(answer.usage, *own)

    def spent(self, usage: Usage, estimated: int = 0, at_least: int = 0) -> None:
        """Count tokens and money, also of a request that is not part of the conversation.

        `estimated` is our own estimate of the tokens, `at_least` that of the messages alone: much less is no count.
        """
        reported = usage.input + usage.output + usage.cache_read + usage.cache_write
        if estimated and not (usage.output > 0 and at_least / _PLAUSIBLE <= reported < _MOST_TOKENS):
            reported = max(estimated, reported if reported < _MOST_TOKENS else 0)
        for meter in (self, *self._outside):
            meter._count(usage, reported)

    def _count(self, usage: Usage, tokens: int) -> None:
        self.tokens += tokens
        self.usage.add(usage)
        self.cost += usage.cost.total
        self.cost_sources.add(usage.cost.source)

    def remarks(self, name: str, arguments: Any, content: list[Any]) -> list[str]:
        """Return what the model should be told after a call: that it repeats itself, what is left."""
        # After a change the same command is no repetition: tests are run again.
        since = 0 if kind_of(name) == "edit" else self._changes
        key = hash((name, encode(arguments), encode(content), since))
        self._seen[key] = self._seen.get(key, 0) + 1
        left = self.left()
        repeated = self._seen[key] >= _TOO_OFTEN and name != OUTPUT_TOOL  # that one is asked again on purpose
        return ([REPEATED.format(name=name)] if repeated else []) + ([left] if left else [])

    def tool_ended(self, name: str, arguments: Any, *, failed: bool, cut: bool) -> None:
        """Count a call, and failures in a row of the same call, or of calls that are cut off."""
        path = arguments.get("path") if isinstance(arguments, dict) and kind_of(name) == "edit" else None
        for meter in (self, *self._outside):
            meter.tool_calls += 1
            if isinstance(path, str) and not failed:
                meter.files_changed[path] = None
                meter._changes += 1
        if not failed:
            self._last_failure, self._failures = None, 0
            return
        failure = (name, b"" if cut else encode(arguments), cut)
        self._failures = self._failures + 1 if failure == self._last_failure else 1
        self._last_failure = failure
