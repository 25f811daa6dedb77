"""Which other models may answer when one cannot, when they do, and how the first one gets its job back.

A `ModelLine` holds the models for one job: the chosen one and those of its chain. `Failover` moves a line on after a
failure that retries cannot mend, and says so: in the session, to clients and to the trace. A model that has failed
rests for a while; the first run after that begins with it again. Without a chain there is no line.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hub import Hub
from spindle.agent.run.meter import check_limits
from spindle.base import limits, trace
from spindle.base.settings import Role, Settings
from spindle.llm.stream import Failure
from spindle.models.credentials import MissingCredentials
from spindle.models.model_registry import ModelRegistry
from spindle.models.select import ModelChoice, ModelNotFound, resolve_model
from spindle.sessions.facts import keep
from spindle.sessions.stand_ins import ROUTE, StandIn
from spindle.shapes.events import Fallback, Notice, RetryFallbackApplied, RetryFallbackSucceeded
from spindle.shapes.messages import AssistantMessage
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RunLimits

if TYPE_CHECKING:
    from spindle.agent.model_choice import ModelState
    from spindle.agent.run.options import Chain

Check = Callable[[Model], None]
"""Raises `AgentError` or `MissingCredentials` if a model cannot be asked."""

CAUSES = {
    "broken": "its answer broke off",
    "connection": "it could not be reached",
    "context": "the conversation is too long for it",
    "key": "its key is missing or was refused",
    "model": "its provider does not know it",
    "overload": "it is overloaded",
    "quota": "its account is used up",
    "rate_limit": "it takes no more requests for now",
    "region": "it is not offered here",
    "resting": "it failed a short while ago",
    "server": "its server failed",
    "timeout": "it did not answer in time",
}
_OF_THE_REQUEST = ("context",)
"""Causes that say nothing about the next request."""


class ModelLine:
    """The models for one job, in their order."""

    def __init__(self, role: str, chosen: ModelChoice, names: Sequence[str | Model], registry: ModelRegistry) -> None:
        self.role = role
        self.chosen = chosen.model
        self.now = chosen
        """The model that is asked, and the thinking level if it has one of its own."""
        self.offer: ModelChoice | None = None
        """The model that may be asked next, once it was looked for."""
        self.applied: Fallback | None = None
        """The last switch, until the other model has answered."""
        self.problems: list[str] = []
        """Why models of the chain could not be used."""
        self._left = list(names)
        self._aside: dict[str, ModelChoice] = {}
        """Models that were resting, or have failed in this run. One whose rest is over, or that was not asked in this
        run, is asked if no other is left."""
        self._failed: set[str] = set()
        self._registry = registry

    @property
    def has_more(self) -> bool:
        return bool(self._left) or any(map(self._may_return, self._aside.values()))

    def _may_return(self, choice: ModelChoice) -> bool:
        return choice.model.full_name not in self._failed or not self._registry.is_resting(choice.model)

    def why_not(self) -> str | None:
        """Return why the model that is asked now should not be asked; None: it may be."""
        if self._registry.is_resting(self.now.model):
            return "resting"
        try:
            self._registry.require_credentials(self.now.model)
        except MissingCredentials:
            return "key"
        return None

    def rest(self, seconds: float) -> None:
        """Let the model that is asked now, and has failed, rest."""
        name = self.now.model.full_name
        self._registry.rest(self.now.model, seconds)
        self._aside[name] = self.now
        self._failed.add(name)

    def pass_over(self) -> None:
        """Leave out the model that would be asked now, because it is resting."""
        self._aside[self.now.model.full_name] = self.now

    async def look(self, check: Check, least_window: int = 0) -> ModelChoice | None:
        """Find the next model of the chain that can be asked. `least_window`: the room that it must have, and more."""
        while self.offer is None and self._left:
            name = self._left.pop(0)
            try:
                choice = await find(self._registry, name)
            except ModelNotFound as error:
                self.problems.append(f"{name}: {error}")
                continue
            model = choice.model
            if model in (self.now.model, self.chosen):
                continue
            if self._registry.is_resting(model):
                self._aside[model.full_name] = choice
            elif self._fits(model, check, least_window):
                self.offer = choice
        return self.offer

    def look_again(self, check: Check, least_window: int = 0) -> ModelChoice | None:
        """Find a model among those that were resting, if no other is left."""
        for name, choice in [*self._aside.items()]:
            if self.offer is None and self._may_return(choice):
                del self._aside[name]
                if self._fits(choice.model, check, least_window):
                    self.offer = choice
        return self.offer

    def _fits(self, model: Model, check: Check, least_window: int) -> bool:
        if 0 < model.context_window <= least_window:
            self.problems.append(f"{model.full_name} has no more room")
            return False
        try:
            self._registry.require_credentials(model)
            check(model)
        except (MissingCredentials, AgentError) as error:
            self.problems.append(f"{model.full_name}: {error}")
            return False
        return True

    def take(self, cause: str) -> Fallback:
        """Go on with the model that was found."""
        assert self.offer is not None
        before, self.now, self.offer = self.now.model, self.offer, None
        model = self.now.model
        price = None if model.cost_unknown else model.cost
        self.applied = Fallback(
            before=before.full_name, after=model.full_name, role=self.role, cause=cause, price=price
        )
        return self.applied


async def find(registry: ModelRegistry, name: str | Model) -> ModelChoice:
    """Return a model of a chain. Raises `ModelNotFound`."""
    if isinstance(name, Model):
        return ModelChoice(name)
    return await asyncio.to_thread(resolve_model, registry, name)  # a server on this machine may be asked


class FailoverPort(Protocol):
    """What failing over needs of the engine."""

    choice: "ModelState"
    conversation: Conversation
    chain: "Chain | None"
    hub: Hub

    @property
    def settings(self) -> Settings: ...

    @property
    def run_limits(self) -> RunLimits: ...


class Failover:
    def __init__(self, port: FailoverPort) -> None:
        self._port = port
        self._noted: Model | None = None
        """The model that the session was told to answer in the place of a virtual one."""

    def _check(self, model: Model) -> None:
        self._port.hub.hooks.model_call(model)
        check_limits(self._port.run_limits, model)

    async def begin(self, line: ModelLine) -> None:
        """Begin with another model if the chosen one is resting, or has no key."""
        if line.now.model is line.chosen and (cause := line.why_not()) is not None and await line.look(self._check):
            if cause == "resting":
                line.pass_over()
            await self._switch(line, cause)

    async def line_for(self, role: Role) -> ModelLine | None:
        """Return the models for a job beside the conversation; None: the current model does it, and no other.

        The current model is the last one of them.
        """
        port = self._port
        choice, own, settings = port.choice, port.choice.answering, port.settings
        if own is None or not (settings.roles or settings.fallback or choice.fallback or choice.line):
            return None
        chosen, names = ModelChoice(own), list(choice.chain(role, settings) or ())
        if (wanted := settings.roles.get(role)) is not None:
            try:
                found = await find(choice.registry, wanted)
                choice.registry.require_credentials(found.model)
                self._check(found.model)
                chosen, names = found, [*names, own]
            except (ModelNotFound, MissingCredentials, AgentError) as error:
                port.hub.publish(Notice(f"The model for {role} cannot be used: {error}"))
        line = ModelLine(role, chosen, names, choice.registry)
        await self.begin(line)
        return line

    async def has_spare(self, line: ModelLine, answer: AssistantMessage, failure: Failure | None) -> bool:
        """Say whether another model is there that may do better after a failure."""
        cause = _cause(line, answer, failure)
        if cause is None:
            return False
        window = line.now.model.context_window if cause == "context" else 0
        if await line.look(self._check, window) or line.look_again(self._check, window):
            return True
        if line.problems:
            self._port.hub.publish(Notice(f"No other model can answer. {'; '.join(line.problems)}"))
            line.problems = []
        return False

    async def is_in_vain(self, line: ModelLine, answer: AssistantMessage, failure: Failure | None) -> bool:
        """Say whether the same model need not be tried again: its server cannot be reached, and another model is
        there."""
        return _cause(line, answer, failure) == "connection" and await self.has_spare(line, answer, failure)

    async def stand_in(self, line: ModelLine, answer: AssistantMessage, failure: Failure | None) -> bool:
        """Let another model of the line go on, if one may do better. Returns whether one does."""
        cause = _cause(line, answer, failure)
        if cause is None or not await self.has_spare(line, answer, failure):
            return False
        if cause not in _OF_THE_REQUEST:
            line.rest(max(limits.MODEL_RESTS, (failure.retry_after or 0) if failure is not None else 0))
        await self._switch(line, cause)
        return True

    async def _switch(self, line: ModelLine, cause: str) -> None:
        port = self._port
        switch = line.take(cause)
        keep(
            port.conversation.session,
            StandIn(
                before=switch.before,
                after=switch.after,
                chosen=line.chosen.full_name,
                role=line.role,
                cause=cause,
                price=switch.price,
            ),
        )
        price = switch.price
        trace.tell(
            "fallback",
            before=switch.before,
            model=switch.after,
            role=line.role,
            cause=cause,
            input_price=None if price is None else price.input,
            output_price=None if price is None else price.output,
        )
        if port.chain is not None:
            port.chain.fallbacks.append(switch)
        await port.hub.emit(RetryFallbackApplied(switch.before, switch.after, line.role, cause))
        port.hub.publish(Notice(f"{switch.before}: {CAUSES[cause]}. {switch.after} answers instead."))

    def note_route(self, model: Model) -> None:
        """Note in the session which model answers in the place of a virtual one, if it is another than before."""
        if model == self._noted:
            return
        self._noted, choice = model, self._port.choice
        own = choice.model if choice.line is None else choice.line.now.model
        assert own is not None
        name, after = own.full_name, model.full_name
        keep(
            self._port.conversation.session,
            StandIn(before=name, after=after, chosen=choice.name or name, role=choice.role, cause=ROUTE),
        )

    async def succeeded(self, line: ModelLine) -> None:
        """Tell that the other model has answered, the first time."""
        if line.applied is not None:
            line.applied = None
            await self._port.hub.emit(RetryFallbackSucceeded(line.now.model.full_name, line.role))


def _cause(line: ModelLine, answer: AssistantMessage, failure: Failure | None) -> str | None:
    facts = failure or Failure()
    if answer.stop_reason != "error" or facts.stop_reason:
        return None
    from spindle.llm.errors import cause_of

    return cause_of(answer, facts.status, facts.error, line.now.model.context_window)
