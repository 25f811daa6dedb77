"""What a session says about a model that answered in the place of another one."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import field

from spindle.sessions.facts import Fact
from spindle.shapes.events import Fallback
from spindle.shapes.messages import AssistantMessage
from spindle.shapes.model import ModelCost

MAIN_ROLES = ("main", "subagents")
"""Jobs whose model is the model of a session."""

ROUTE = "route"
"""The cause, if the chosen model is virtual: nothing has failed."""


class StandIn(Fact, kw_only=True):
    """From here on another model does a job, because the one before could not. A `model_change` ends it."""

    entry_type: ClassVar[str] = "spindle.fallback"
    before: str = field(name="from")
    """`provider/id` of the model that could not answer."""
    after: str = field(name="to")
    """The model that takes over."""
    chosen: str
    """The model that the user has chosen for the job; it gets the job back."""
    role: str
    cause: str
    price: ModelCost | None = None
    """US dollars per million tokens of the model that takes over; None: unknown."""

    def as_fallback(self) -> Fallback:
        return Fallback(before=self.before, after=self.after, role=self.role, cause=self.cause, price=self.price)


def count_fallback(switches: Sequence[Fallback], answer: AssistantMessage) -> None:
    """Add the cost of an answer to the switch that brought its model, if one did."""
    name = f"{answer.provider}/{answer.model}"
    for switch in reversed(switches):
        if switch.role in MAIN_ROLES and switch.after == name:
            switch.cost += answer.usage.cost.total
            return
