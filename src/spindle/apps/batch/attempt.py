"""One attempt at a task: a workspace, an agent, a prompt, a patch, perhaps a command that verifies the result.

It leaves its files in a folder and returns the line for the results. The attempts of a process share one `Shared`.
"""

import asyncio
import errno
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import asdict, replace

from spindle.agent import AgentError
from spindle.agent.conversation import StatsCounter
from spindle.agent.fences.fencing import Fencing
from spindle.agent.hooks import Blocked, Hooks
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import why
from spindle.agent.session import AgentSession
from spindle.apps.batch.far_space import FarSpace, FarTask, far_task
from spindle.apps.batch.folder import AttemptFolder, Place, WorkspaceError
from spindle.apps.batch.ledger import KILLED, TOTAL_COST, Attempt
from spindle.apps.batch.plan import Progress, Shared
from spindle.apps.batch.tasks import Job
from spindle.base import trace
from spindle.llm.errors import ModelError, is_retryable
from spindle.programs.children import environment, kill_all
from spindle.recipe import check_tools, make_agent
from spindle.sessions import open as sessions
from spindle.sessions.entries import SessionError, iso_time, now_ms
from spindle.sessions.file import put_side_file
from spindle.shapes import events
from spindle.shapes.builtin_tools import only_reads
from spindle.shapes.codec import encode, to_builtins
from spindle.shapes.messages import AgentMessage, AssistantMessage, Image, Usage, joint_source
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RUN_LIMITS, RunLimits
from spindle.shapes.run_result import RunResult, RunTokens
from spindle.shapes.sandbox import read_sandbox
from spindle.tools.base import Tool
from spindle.workspace.disk import ToolError
from spindle.workspace.settings import ToolSettings

FILES = SESSION, RESULT, PATCH, LOG = "session.jsonl", "result.json", "patch.diff", "log"
_STATUSES = {
    **{limit.wire_name: "budget" for limit in RUN_LIMITS},
    "maxTime": "timeout",
    "stalled": "error",
    "error": "error",
    "denied": "denied",
    "aborted": "cancelled",
}
"""Status by the stop reason of the run; after any other reason the result decides."""
_SAID = 64_000
"""Bytes of a command's output that are kept."""
_SPENT = "The money of the whole batch is spent"
_STASH = re.compile(r"\bgit(?:\s+(?:-[cC]\s*\S+|--?[\w-]+(?:=\S+)?))*\s+stash\b")
_NO_STASH = "This checkout shares its stash with the repository of the user: commit, or copy files, instead."


class _Calls(Hooks):
    """Looks at each model call of a run: is there money left, does the provider take requests?

    The run of a subagent has one of its own, because a provider's gate lets one run go first.
    """

    def __init__(self, watch: "_AttemptWatch") -> None:
        self._watch = watch
        self._gate = watch.gates.of("")

    def model_call(self, model: Model) -> None:
        self._gate = self._watch.gates.of(model.provider)

    async def before_provider_headers(self, headers: dict[str, str]) -> None:
        with self._watch.clock.stopped():
            await self._gate.enter(self)
        self._watch.check_money()

    async def after_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        self._gate.answered(self, status, headers)

    async def tool_call(self, call_id: str, tool: Tool, args: Any) -> Any:
        self._watch.check_stash(tool, args)
        return args

    def spent(self, usage: Usage) -> None:
        self._gate.leave(self)  # the request may have failed without an answer
        self._watch.count(usage)

    def close(self) -> None:
        self._gate.leave(self)


class _Clock:
    """The time of an attempt, which stands still while all its runs wait for providers."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._waits = 0
        self._left = 0.0

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self._waits += 1
        if self._waits == 1 and (end := self._timeout.when()) is not None and not self._timeout.expired():
            self._left = end - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits and self._left:
                self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)
                self._left = 0.0

    def extend(self, seconds: float) -> None:
        """Add time."""
        if self._left:
            self._left += seconds
        elif (end := self._timeout.when()) is not None and not self._timeout.expired():
            self._timeout.reschedule(end + seconds)


class _AttemptWatch(_Calls):
    """Looks at an attempt: its calls, its money, and what is to be told of it."""

    listening = frozenset(
        ("turn_start", "tool_execution_start", "auto_retry_start", "subagent_event", "extension_error", "notice")
    )

    def __init__(self, shared: Shared, progress: Progress, log: "_Log", clock: asyncio.Timeout, *, keeps_stash: bool):
        self.agent: AgentSession | None = None
        self.stopped_by_total = False
        self.clock = _Clock(clock)
        self.gates = shared.gates
        self._shared = shared
        self._progress = progress
        self._log = log
        self._keeps_stash = keeps_stash
        self._inside: list[_Calls] = []
        """Of the runs of subagents."""
        super().__init__(self)

    def within(self) -> Hooks:
        self._inside.append(_Calls(self))
        return self._inside[-1]

    async def before_turn(self) -> bool:
        self.stopped_by_total = self._shared.exhausted
        is_kept = self.agent is None or self.agent.session.write_error is None
        return is_kept and not self.stopped_by_total

    def check_money(self) -> None:
        """Raise `ModelError` if the whole batch has no money left."""
        if self._shared.exhausted:
            self.stopped_by_total = True
            raise ModelError(_SPENT)

    def check_stash(self, tool: Tool, args: Any) -> None:
        """Raise `Blocked` for a call that would change the stash of the user."""
        if self._keeps_stash and tool.name == "bash" and _STASH.search(str(args.get("command", ""))):
            raise Blocked(_NO_STASH, by=None)

    def committed(self, message: AgentMessage) -> None:
        if isinstance(message, AssistantMessage) and message.error_message:
            self._log.write(f"model: {message.error_message}")

    async def observe(self, event: events.Event) -> None:
        if isinstance(event, events.TurnStart):
            self._tell(turn=self._progress.turn + 1, tool=None)
        elif isinstance(event, events.ToolExecutionStart):
            self._log.write(f"{event.tool_name}: {encode(event.args).decode()[:500]}")
            self._tell(tool=event.tool_name)
        elif isinstance(event, events.AutoRetryStart):
            self._retry(event)

    def observe_soon(self, event: events.Event) -> None:
        if isinstance(event, events.ExtensionError):
            self._log.write(f"error: {event.error}")
        elif isinstance(event, events.Notice):
            self._log.write(event.message)
        elif isinstance(event, events.SubagentEvent) and isinstance(event.event, events.AutoRetryStart):
            self._retry(event.event)

    def _retry(self, event: events.AutoRetryStart) -> None:
        self.clock.extend(event.delay_ms / 1000)
        self._tell(note=f"retry in {event.delay_ms / 1000:g} s: {event.error_message}")

    def count(self, usage: Usage) -> None:
        """Count what a model call has cost."""
        self._shared.spent_here += usage.cost.total
        self._progress.cost += usage.cost.total
        self._tell()

    def _tell(self, **news: Any) -> None:
        self._progress.note = None
        for name, value in news.items():
            setattr(self._progress, name, value)
        if self._progress.note:
            self._log.write(self._progress.note)
        self._shared.tell(self._progress)

    def close(self) -> None:
        super().close()
        for calls in self._inside:
            calls.close()


class _Log:
    """The attempt's log file. Errors of writing it are ignored."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO | None = None
        with suppress(OSError):
            self._file = open(path, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            if self._file is not None:
                self._file.write(f"{iso_time(now_ms())} {text.rstrip()}\n")

    def close(self) -> None:
        with suppress(OSError):
            if self._file is not None:
                self._file.close()


def killed(job: Job, known: Sequence[Attempt], folder: Path) -> Attempt | None:
    """Return a line for the attempt that was killed in `folder`, if it cost something and is not in `known`."""
    try:
        session = sessions.load(folder / SESSION, read_only=True)
    except SessionError:  # the attempt has no session yet
        return None
    used = StatsCounter()
    used.catch_up(session.entries)
    session.close()
    if not used.tokens.total or any(line.session_id == session.id for line in known):
        return None
    return Attempt(
        id=job.id,
        attempt=len(known) + 1,
        status="cancelled",
        stop_reason=KILLED,
        turns=used.assistant,
        tool_calls=used.calls,
        tokens=RunTokens(**asdict(used.tokens)),
        cost=None if joint_source(used.cost_sources) == "unknown" else used.cost,
        error="Killed in the middle",
        session_id=session.id,
        meta=job.task.meta,
    )


class Try:
    """One attempt, which leaves its files in `folder`."""

    def __init__(self, job: Job, number: int, images: list[Image], folder: Path, shared: Shared) -> None:
        task = job.task
        self.line = Attempt(
            id=job.id, attempt=number, status="error", stop_reason="error", task_hash=job.hash, meta=task.meta
        )
        self._job = job
        self._images = images
        self._folder = folder
        self._shared = shared
        self._log = _Log(folder / LOG)
        self._space: AttemptFolder | FarSpace | None = None
        self._began = time.monotonic()
        self._timeout = task.timeout or shared.plan.timeout
        wanted = shared.plan.agent.permissions.sandbox
        self._fencing = Fencing(wanted if task.sandbox is None else read_sandbox(task.sandbox))
        """For commands of the task; the agent has a fence of its own."""
        self._deadline: float | None = None
        """When the time is over, on the clock of the loop."""
        self._broken = False
        """Whether an error outside of the run has ended the attempt."""
        self._again = False
        """Whether trying again may help."""
        self._result: RunResult | None = None

    async def run(self, *, keep: bool = True) -> tuple[Attempt, bool]:
        """Do the task. Returns the line for the results, and whether trying again may help.

        A cancelled attempt ends as `cancelled`. With `keep` the workspace stays unless all is well. Raises nothing.
        """
        line = self.line
        await self._step(self._work)
        await self._step(self._save_patch)
        if line.stop_reason in ("end", "handled") and line.status in ("ok", "denied"):
            await self._step(self._verify)
        self._fencing.close(self, self._log.write)
        kill_all(self)
        if (space := self._space) is not None:
            await self._step(lambda: space.leave(keep=keep and line.status != "ok"))
        line.duration_ms = round((time.monotonic() - self._began) * 1000)
        line.finished = iso_time(now_ms())
        self._log.write(f"{line.status} after {line.seconds} s" + (f": {line.error}" if line.error else ""))
        await self._step(self._save_result)
        self._log.close()
        return line, self._again and line.status in ("error", "timeout")

    async def _step(self, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step. An error ends the attempt; the next steps still run, to clear up."""
        try:
            await step()
        except TimeoutError:
            self._failed("timeout", f"Not done within {self._timeout} s", again=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task is not None and task.uncancel():
                pass
            self._failed("cancelled", "Cancelled", again=False)
        except WorkspaceError as error:
            self._failed("error", str(error), again=True)
        except (AgentError, SessionError) as error:
            self._failed("error", str(error), again=False)
        except OSError as error:
            place = f" ({error.filename})" if error.filename else ""
            self._failed("error", f"{error.strerror or error}{place}", again=error.errno != errno.ENOSPC)
        except Exception as error:  # a bug of ours: the other tasks go on
            trace.bug(error)
            self._failed("error", f"{type(error).__name__}: {error}", again=False)

    def _failed(self, status: str, text: str, *, again: bool) -> None:
        if not self._broken:  # the first error counts
            self._broken, self._again = True, again
            self.line.status, self.line.stop_reason, self.line.error = status, status, text

    # -- the steps -------------------------------------------------------------------------------

    async def _work(self) -> None:
        job, shared = self._job, self._shared
        if (far := self._far_task()) is not None:
            self._fencing.check_far(far.command, shared.resources)
            env = environment(shared.withheld)
            await self._work_in(FarSpace(far, self._folder, shared.turns, env, self._shell_here), far.command)
            return
        place = await shared.place(job)
        kind = shared.plan.workspace or ("none" if place.repository is None else "worktree")
        kind = "clone" if place.is_remote else "none" if place.is_scratch else kind
        space = AttemptFolder(place, kind, self._folder, job.task.ref, shared.turns, self._log.write, shared.withheld)
        await self._work_in(space, place.source, None if kind == "none" else place)

    def _far_task(self) -> FarTask | None:
        """Return where the task works, if it does not work here. Raises `WorkspaceError`."""
        task, plan = self._job.task, self._shared.plan
        settings, own = self._shared.resources.settings, task.container or task.exec
        command = task.exec if own else plan.agent.exec if plan.agent.exec is not None else settings.exec
        return far_task(
            self._job.folder,
            None if not own and plan.container else command,
            task.exec_cwd or plan.agent.exec_cwd or settings.exec_cwd,
            task.start or plan.start,
            task.stop or plan.stop,
            task.container if own else plan.container,
        )

    async def _work_in(self, space: AttemptFolder | FarSpace, where: str, checked: Place | None = None) -> None:
        """Make the workspace, and let the agent work in it. `checked`: where it comes from, if that must not change."""
        job, shared, self._space = self._job, self._shared, space
        if space.kind in ("none", "far") and not self._only_reads():
            self._shared.tell(Progress(job.id, self.line.attempt, note=f"waits for its turn in {where}"))
            await space.take_turn()
            if shared.finishing:
                raise asyncio.CancelledError
            self._began = time.monotonic()
        async with asyncio.timeout(self._timeout) as clock:
            if checked is not None:
                await shared.check_source(checked)
            await space.make()
            self.line.commit = space.commit
            place = space.task.command if isinstance(space, FarSpace) else space.cwd
            self._log.write(f"{space.kind}: {place}" + (f" at {space.commit}" if space.commit else ""))
            if job.task.setup is not None and (code := await self._shell("setup", job.task.setup)):
                raise WorkspaceError(f"setup ended with {code}, see {LOG}")
            await space.baseline(is_fresh=job.task.setup is None)
            await self._ask(space, clock)
            self._deadline = clock.when()

    async def _ask(self, space: AttemptFolder | FarSpace, clock: asyncio.Timeout) -> None:
        job, shared, line = self._job, self._shared, self.line
        watch = _AttemptWatch(
            shared, Progress(job.id, line.attempt), self._log, clock, keeps_stash=space.kind == "worktree"
        )
        agent = await self._agent(space)
        watch.agent = agent
        line.model = agent.model.full_name if agent.model is not None else None
        try:
            await agent.begin()
            check_tools(agent, [*(job.task.tools or shared.plan.agent.tools or ()), *shared.plan.agent.exclude_tools])
            limits = self._own_limits.over(RunLimits(max_cost=shared.plan.total_cost))
            options = RunOptions(hooks=watch, limits=limits, schema=job.schema)
            run = await agent.submit(job.prompt, self._images, source="sdk", options=options)
            await run.result()
            await agent.finished()
        finally:
            await agent.close()
            watch.close()
            self._take(agent, watch)
        if agent.session.write_error is not None:
            self._failed("error", f"The session cannot be kept: {agent.session.write_error}", again=False)

    async def _agent(self, space: AttemptFolder | FarSpace) -> AgentSession:
        job, shared = self._job, self._shared
        resources = shared.resources
        if space.kind not in ("none", "far"):  # a checkout is trusted if its source is
            place = await shared.place(job)
            resources = replace(resources, options=replace(resources.options, source=Path(place.source, place.inside)))
        resources = resources.at(space.cwd)
        for problem in resources.diagnostics:
            self._log.write(problem.message)
        options = replace(shared.plan.agent, mode="batch", warn=self._log.write, exec="")
        if isinstance(space, FarSpace):
            options = replace(options, exec=space.task.command, exec_cwd=space.task.cwd)
        if job.task.model is not None:
            options = replace(options, model=job.task.model, provider=None)
        if job.task.tools is not None:
            options = replace(options, tools=job.task.tools)
        options = replace(options, permissions=replace(options.permissions, sandbox=self._fencing.given))
        session = sessions.load(self._folder / SESSION, cwd=space.cwd, fsync=resources.settings.fsync)
        agent, _ = await make_agent(session, options, resources)
        agent.checkpoints.allowed = False  # the patch says what changed
        return agent

    @property
    def _own_limits(self) -> RunLimits:
        """The limits of this attempt, without the money of the whole batch."""
        return self._job.task.over(self._shared.plan)

    def _only_reads(self) -> bool:
        tools = self._shared.plan.agent.tools if self._job.task.tools is None else self._job.task.tools
        return tools is not None and all(isinstance(tool, str) and only_reads(tool) for tool in tools)

    def _take(self, agent: AgentSession, watch: "_AttemptWatch") -> None:
        """Copy the result of the run into the line."""
        line = self.line
        result = self._result = agent.last_result()
        line.session_id = agent.session.id
        if result is None:  # a command of an extension handled the prompt
            line.status, line.stop_reason = "ok", "handled"
            return
        line.stop_reason = result.stop_reason
        line.turns, line.tool_calls, line.tokens = result.turns, result.tool_calls, result.tokens
        line.cost, line.text, line.value = result.cost, result.text, result.value
        line.status = result.status if result.status in ("ok", "denied") else "failed"
        line.status = _STATUSES.get(result.stop_reason, line.status)
        if watch.stopped_by_total or (result.stop_reason == "maxCost" and self._own_limits.max_cost is None):
            line.status, line.stop_reason, line.error = "budget", TOTAL_COST, _SPENT
        elif line.status != "ok":
            line.error = why(result)
        self._again = line.stop_reason == "stalled" or is_retryable(line.error or "")

    async def _save_patch(self) -> None:
        if self._space is not None and self._space.is_ready:
            self.line.patch_bytes = await self._space.changes(self._folder / PATCH)

    async def _verify(self) -> None:
        command = self._job.task.verify or self._shared.plan.verify
        if command is None:
            return
        async with asyncio.timeout_at(self._deadline):
            line = self.line
            line.exit = await self._shell("verify", command)
            line.status = "failed" if line.exit else "ok"
            line.error = f"verify ended with {line.exit}, see {LOG}" if line.exit else None

    async def _shell(self, name: str, command: str) -> int:
        """Run a command of the user in the workspace, as its tools do. Returns its exit code."""
        assert self._space is not None
        self._space.check()  # the agent may have put a link there
        cwd, resources = self._space.workdir, self._shared.resources
        settings = resources.tool_settings(self, self._fencing.sandbox(resources, cwd))
        return await self._logged(name, command, cwd, replace(settings, far=self._space.pipe))

    async def _shell_here(self, name: str, command: str) -> int:
        """Run a command of the user on this machine, though the workspace is elsewhere."""
        return await self._logged(name, command, str(self._folder), self._shared.resources.tool_settings(self))

    async def _logged(self, name: str, command: str, cwd: str, settings: ToolSettings) -> int:
        """Run a command; the end of its output goes to the log.

        Processes that it leaves running may go on until the end of the attempt.
        """
        self._shared.tell(Progress(self._job.id, self.line.attempt, self.line.turns, name, self.line.cost or 0.0))
        hands = replace(settings, keep_background_processes=False).workspace
        extra = {"SPINDLE_TASK_ID": self._job.id, "SPINDLE_TASK_DIR": str(self._folder)}
        said = bytearray()

        def keep(data: bytes) -> None:
            said.extend(data)
            if len(said) > 2 * _SAID:
                del said[:-_SAID]

        try:
            running = await hands.shell(command, cwd, {**settings.variables, **extra}, keep)
            code = await running.wait()
        except ToolError as error:
            raise WorkspaceError(str(error)) from None
        self._log.write(f"{name} ended with {code}: {command}\n{said[-_SAID:].decode('utf-8', 'replace')}")
        return code

    async def _save_result(self) -> None:
        if (self._folder / SESSION).exists():
            self.line.session_file = f"{self._job.folder}/{SESSION}"
        whole = {**to_builtins(self.line), "run": self._result}
        put_side_file(self._folder / RESULT, encode(whole) + b"\n", sync=False)
