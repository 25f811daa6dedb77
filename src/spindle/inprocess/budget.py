"""Money that agents of a program share."""

from spindle.agent.hooks import Hooks
from spindle.shapes.messages import Usage


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
