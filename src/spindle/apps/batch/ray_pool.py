"""Attempts on a Ray cluster: one actor on each node, which holds many sessions.

Results are written here, by the driver; an attempt on a node works in a temporary folder and sends its files. Attempts
of a lost node are made again. The driver passes news between nodes: money spent, and providers that refuse requests.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.apps.batch.attempt import FILES, Try
from spindle.apps.batch.folder import Place, locate
from spindle.apps.batch.ledger import Attempt
from spindle.apps.batch.plan import Hold, Plan, Progress, Shared
from spindle.apps.batch.tasks import Job
from spindle.base import limits
from spindle.base.flow import Tasks
from spindle.resources.loader import load_resources
from spindle.shapes.messages import Image

_LOSSES = 3
"""How often a task begins again on another node; after that, it counts as the cause of the losses."""
_AT_ONCE = 10_000
_CLIENT_PORT, _PORT = 10001, 6379
"""Ray's own ports for clients (`ray://`) and for drivers."""


class Node:
    """The actor: many attempts in one process of a node."""

    def __init__(self, plan: Plan, spent: float) -> None:
        self._warnings: list[str] = []
        plan = replace(plan, agent=replace(plan.agent, warn=self._warnings.append))
        self._shared = Shared(plan, spent, self._tell)
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._news: list[Progress | Hold] = []
        self._told = asyncio.Event()

    def _tell(self, news: Progress | Hold) -> None:
        if isinstance(news, Progress):  # only the latest of each task counts
            self._news = [old for old in self._news if isinstance(old, Hold) or old.id != news.id]
            news = replace(news)
        self._news.append(news)
        self._told.set()

    async def check(self) -> list[str]:
        """Make an agent like those of the tasks. Returns the warnings. Raises `AgentError`."""
        await self._shared.check()
        return self._warnings

    async def attempt(
        self, job: Job, number: int, images: list[Image], place: Place | None
    ) -> tuple[Attempt, bool, dict[str, bytes]]:
        """Make an attempt in a temporary folder, and return its files too."""
        with tempfile.TemporaryDirectory(prefix="spindle-batch-", ignore_cleanup_errors=True) as name:
            folder = Path(name, job.folder)
            scratch = folder / "work"
            scratch.mkdir(parents=True)
            self._shared.places[job.id] = place or Place(str(scratch), is_scratch=True)
            task = asyncio.create_task(Try(job, number, images, folder, self._shared).run(keep=False))
            self._running[job.id] = task
            try:
                line, again = await task
            finally:
                del self._running[job.id], self._shared.places[job.id]
            files = {file: (folder / file).read_bytes() for file in FILES if (folder / file).exists()}
            return line, again, files

    async def cancel(self, job_id: str) -> None:
        if (task := self._running.get(job_id)) is not None:
            task.cancel()

    async def news(self) -> tuple[list[Progress | Hold], float]:
        """Wait for news, and return them with the money spent here."""
        await self._told.wait()
        self._told.clear()
        news, self._news = self._news, []
        return news, self._shared.spent_here

    async def learn(self, spent_elsewhere: float, hold: Hold | None = None) -> None:
        """Take over news of the other nodes."""
        self._shared.spent_elsewhere = spent_elsewhere
        if hold is not None:
            self._shared.gates.of(hold.provider).hold(hold.seconds)


def _nowhere(text: str) -> None:
    """Drop a warning."""


class _Member:
    """A node as the driver knows it."""

    def __init__(self, node_id: str, actor: Any) -> None:
        self.node_id = node_id
        self.actor = actor
        self.running = 0
        self.spent = 0.0


class RayPool:
    def __init__(self, plan: Plan, spent: float, tell: Callable[[Any], None]) -> None:
        self._warn = plan.agent.warn
        agent = replace(plan.agent, dialogs=None, warn=_nowhere)  # a node cannot use those of this process
        self._plan = replace(plan, workspace="clone", agent=agent)
        self._withheld = load_resources(os.getcwd(), plan.agent.resources).secret_variables()
        self._tell = tell
        self._spent_before = spent
        self._spent_on_lost = 0.0
        self._members: dict[str, _Member] = {}
        self._is_connected = False
        self._looking = asyncio.Lock()
        self._tasks = Tasks()

    async def start(self, *, check: bool) -> None:
        if self._plan.on != "ray":
            await self._require_reachable(self._plan.on)
        # Ray's client tries three times, each longer than the last: together 21 s instead of 30.
        os.environ.setdefault("RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S", "8")
        try:
            await asyncio.to_thread(__import__, "ray")
        except ImportError:
            from spindle.base.installation import extra_command

            raise AgentError(f"Ray is not installed: {extra_command('ray')}") from None
        try:
            await asyncio.to_thread(self._connect)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise AgentError(f"Cannot use Ray ({self._plan.on}): {reason}") from None
        self._is_connected = True
        await self._look_for_nodes()
        first = next(iter(self._members.values()), None)
        if first is None:
            raise AgentError("There is no node in the Ray cluster")
        if check:
            await self._check(first)

    async def _check(self, member: "_Member") -> None:
        from ray.exceptions import RayTaskError

        try:
            warnings = await member.actor.check.remote()
        except RayTaskError as error:
            raise AgentError(str(error.cause)) from None
        for warning in warnings:
            self._warn(warning)

    async def _require_reachable(self, address: str) -> None:
        """Raise `AgentError` if nothing answers at an address: Ray itself tries for minutes."""
        try:
            place = urlsplit(address if "://" in address else f"//{address}")
            host, port = place.hostname, place.port or (_CLIENT_PORT if place.scheme == "ray" else _PORT)
        except ValueError:
            raise AgentError(f"Cannot use Ray ({address}): this is no address of a cluster") from None
        if host is None or place.scheme not in ("ray", ""):
            return
        try:
            async with asyncio.timeout(limits.CLUSTER_CONNECT):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            reason = f"it did not answer within {limits.CLUSTER_CONNECT:g} s"
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            writer.close()
            return
        raise AgentError(f"Cannot use Ray ({address}): {host}:{port} cannot be reached: {reason}")

    def _connect(self) -> None:
        import ray

        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self._plan.on != "ray":
            ray.init(self._plan.on, **quiet)
            return
        try:
            ray.init("auto", **quiet)  # a cluster that runs on this machine
        except ConnectionError:
            os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # a busy machine takes more than a minute
            ray.init("local", include_dashboard=False, **quiet)

    async def attempt(self, job: Job, number: int, images: list[Image], folder: Path) -> tuple[Attempt, bool]:
        import ray

        place: Place | None = await locate(job.task, job.base, self._withheld)
        if place is not None and place.repository is None and not place.is_remote:
            if job.task.cwd is not None:
                raise AgentError(
                    f"{place.source} is no git repository with a commit: only those can be cloned on a node"
                )
            place = None
        for _ in range(_LOSSES):
            member = await self._choose()
            member.running += 1
            try:
                line, again, files = await self._ask(member, job, number, images, place)
            except ray.exceptions.RayTaskError as error:
                raise AgentError(f"The node failed: {error.cause}") from None
            except ray.exceptions.RayError:
                self._lose(member)
                continue
            finally:
                member.running -= 1
            for name, data in files.items():
                (folder / name).write_bytes(data)
            return line, again
        raise AgentError(f"{_LOSSES} nodes were lost while they did this task")

    async def _ask(self, member: _Member, job: Job, number: int, images: list[Image], place: Place | None) -> Any:
        """Let a node make an attempt. Cancelling this cancels the attempt, and its result is still returned."""
        answer = asyncio.ensure_future(member.actor.attempt.remote(job, number, images, place))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await member.actor.cancel.remote(job.id)
            async with asyncio.timeout(limits.BATCH_STOP):
                return await answer

    def finish(self) -> None:
        """Do nothing: no attempt waits for its turn, because each has a clone of its own."""

    # -- nodes -----------------------------------------------------------------------------------

    async def _choose(self) -> _Member:
        """Return the node with the least to do; wait for one if all are lost. Raises `AgentError`."""
        end = asyncio.get_running_loop().time() + limits.NODE_RETURN
        while not self._members:
            if asyncio.get_running_loop().time() > end:
                raise AgentError("All nodes of the Ray cluster are lost")
            await self._look_for_nodes()
            if not self._members:
                await asyncio.sleep(limits.NODE_LOOK)
        return min(self._members.values(), key=lambda member: member.running)

    async def _look_for_nodes(self) -> None:
        """Put an actor on every node that has none."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        async with self._looking:
            for node in await asyncio.to_thread(ray.nodes):
                node_id = node["NodeID"]
                if node["Alive"] and node_id not in self._members:
                    where = NodeAffinitySchedulingStrategy(node_id, soft=False)
                    options = {"num_cpus": 0, "max_concurrency": _AT_ONCE, "scheduling_strategy": where}
                    actor = ray.remote(Node).options(**options).remote(self._plan, self._spent_before)
                    member = _Member(node_id, actor)
                    try:
                        await actor.learn.remote(self.spent)
                    except ray.exceptions.RayError:
                        continue  # the node is gone, or going
                    self._members[node_id] = member
                    self._tasks.spawn(self._listen(member), f"spindle-node-{node_id[:8]}")

    async def _listen(self, member: _Member) -> None:
        import ray

        while True:
            try:
                news, spent = await member.actor.news.remote()
            except ray.exceptions.RayError:
                self._lose(member)
                await self._look_for_nodes()  # perhaps only the process is lost
                return
            changed, member.spent = spent != member.spent, spent
            holds = [item for item in news if isinstance(item, Hold)]
            for item in news:
                self._tell(item)
            for other in self._members.values():
                if other is not member and (changed or holds):
                    other.actor.learn.remote(self.spent - other.spent, holds[-1] if holds else None)

    def _lose(self, member: _Member) -> None:
        if self._members.get(member.node_id) is member:
            del self._members[member.node_id]
            self._spent_on_lost += member.spent

    @property
    def spent(self) -> float:
        """US dollars, before and on all nodes."""
        return self._spent_before + self._spent_on_lost + sum(member.spent for member in self._members.values())

    @property
    def exhausted(self) -> bool:
        return self._plan.total_cost is not None and self.spent >= self._plan.total_cost

    async def close(self) -> None:
        await self._tasks.end(limits.TASKS_END)
        if self._is_connected:
            import ray

            await asyncio.to_thread(ray.shutdown)
