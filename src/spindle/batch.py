"""Many tasks, one command: `spindle batch`, and the same for programs.

from spindle.batch import AgentOptions, Plan, run

async for attempt in run("tasks.jsonl", "runs", Plan(jobs=4, verify="make test", agent=AgentOptions(model="…"))):
    print(attempt.id, attempt.status, attempt.cost)
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from spindle.apps.batch.ledger import Attempt
from spindle.apps.batch.plan import Plan
from spindle.apps.batch.runner import Batch
from spindle.apps.batch.tasks import Task, TaskSource
from spindle.recipe import AgentOptions

__all__ = ["AgentOptions", "Attempt", "Batch", "Plan", "Task", "run"]


async def run(tasks: TaskSource, out: str | Path, plan: Plan = Plan()) -> AsyncGenerator[Attempt, None]:  # noqa: B008
    """Do the tasks that are not done yet, and yield every attempt when it is in `out/results.jsonl`.

    Leaving the loop cancels the running attempts. Raises `AgentError` for tasks or a plan that make no sense, and if
    the results cannot be written.
    """
    async with aclosing(aiter(Batch(tasks, out, plan))) as attempts:
        async for attempt in attempts:
            yield attempt
