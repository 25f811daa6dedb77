"""How a batch is done (`Plan`), and what the attempts of one process share (`Shared`): places, money, gates."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.run.meter import check_limits
from spindle.apps.batch.folder import Place, Turns, WorkspaceError, locate, obeyed
from spindle.apps.batch.gate import Gates
from spindle.apps.batch.tasks import Job
from spindle.models.credentials import MissingCredentials
from spindle.recipe import AgentOptions, make_agent
from spindle.resources.loader import Resources, load_resources
from spindle.sessions import open as sessions
from spindle.shapes.run_limits import RunLimits


class Plan(RunLimits, frozen=True, kw_only=True):
    """How a batch is done, with the limits of every attempt's run. A task's own fields come first."""

    jobs: int = 8
    """How many tasks run at a time."""
    workspace: str | None = None
    """`none`, `copy`, `worktree` or `clone`; None: a worktree of a git repository, the directory itself elsewhere."""
    retries: int = 2
    """How often a task is tried again if the model, the network or the machine failed; not after a wrong answer."""
    timeout: float | None = None
    """Seconds for an attempt; waiting for a provider that refuses requests is not counted."""
    total_cost: float | None = None
    """US dollars for all attempts of all runs with the same results."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the result."""
    verify: str | None = None
    """A shell command that decides, by its exit code, whether a task was done."""
    container: str | None = None
    """An image: tasks work in containers of it."""
    start: str | None = None
    stop: str | None = None
    """Shell commands here, before and after an attempt that works elsewhere (`agent.exec`, or a container)."""
    redo: str | None = None
    """`failed`: do tasks again that did not end well; `all`: do all tasks again."""
    filter: str | None = None
    """A regular expression: do only the tasks whose id matches."""
    on: str = "local"
    """`local`, `ray`, or `ray://host:port`."""
    agent: AgentOptions = AgentOptions()


class Progress(Struct, tag_field="type", tag="task_progress"):
    """The progress of a running attempt."""

    id: str
    attempt: int
    turn: int = 0
    tool: str | None = None
    cost: float = 0.0
    note: str | None = None
    """Why it waits: a retry, a provider that refuses requests."""


class Hold(Struct, tag_field="type", tag="hold"):
    """A provider takes no more requests for now."""

    provider: str
    seconds: float


class Shared:
    """State that the attempts of one process share."""

    def __init__(self, plan: Plan, spent: float, tell: Callable[[Progress | Hold], None]) -> None:
        self.plan = plan
        self.tell = tell
        self.gates = Gates(lambda provider, seconds: tell(Hold(provider, round(seconds, 3))))
        self.turns: Turns = defaultdict(asyncio.Lock)
        self.spent_elsewhere = spent
        """US dollars, before and in other processes."""
        self.spent_here = 0.0
        self.finishing = False
        """Whether attempts that wait for their turn should not begin any more."""
        self.resources: Resources = load_resources(os.getcwd(), replace(plan.agent.resources, unattended=True))
        self.places: dict[str, Place] = {}
        """Places that the driver of a cluster has found, by task; for other tasks `place` looks itself."""
        self.withheld = self.resources.secret_variables()
        """Variables with keys: no program that we start gets them."""
        self._obeyed: dict[str, bytes] = {}
        """What git obeyed in each repository before the first agent began."""
        self._located: dict[tuple[str | None, str | None, str], Place] = {}

    @property
    def exhausted(self) -> bool:
        """Whether all money is spent."""
        total = self.plan.total_cost
        return total is not None and self.spent_elsewhere + self.spent_here >= total

    async def place(self, job: Job) -> Place:
        """Return the place that a task works on. Raises `WorkspaceError`."""
        if job.id in self.places:
            return self.places[job.id]
        key = job.task.repo, job.task.cwd, job.base
        if key not in self._located:
            self._located[key] = await locate(job.task, job.base, self.withheld)
        return self._located[key]

    async def check_source(self, place: Place) -> None:
        """Raise `WorkspaceError` if git would obey other settings in a repository than before the first agent began.

        An agent that found the repository behind its workspace could have written them.
        """
        if place.repository is not None:
            found = await obeyed(place, self.withheld)
            if self._obeyed.setdefault(place.repository, found) != found:
                raise WorkspaceError(
                    f"Settings or attributes of {place.repository} have changed since the batch began. "
                    "If that was you, run the batch again"
                )

    async def check(self) -> None:
        """Make an agent like those of the tasks. Raises `AgentError` for a problem that all of them would have."""
        session, options = sessions.in_memory(os.getcwd()), replace(self.plan.agent, mode="batch", exec="")
        agent, _ = await make_agent(session, options, self.resources)
        try:
            model, registry = agent.model, self.resources.registry
            if model is None:
                raise AgentError(registry.no_model_text())
            registry.require_credentials(model)
            check_limits(RunLimits(max_cost=self.plan.max_cost or self.plan.total_cost), model)
        except MissingCredentials as error:
            raise AgentError(str(error)) from None
        finally:
            await agent.close()
