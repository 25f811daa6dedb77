"""The subagents that work for an agent now: who they are, what they do, where their words are kept, how to stop them.

Every client lists, reads and stops them through this. Who runs them is `plugins/subagents`.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal

from spindle.agent import AgentError
from spindle.agent.hooks import NeverFull
from spindle.shapes.events import (
    Event,
    MessageEnd,
    SubagentLifecycle,
    SubagentProgress,
    SubagentStep,
    ToolExecutionStart,
    WorkingStep,
    WorkingSubagent,
)
from spindle.shapes.messages import AssistantMessage, Wire

_REMEMBERED: Final = 256
"""Subagents that have ended and whose session can still be read."""


class SubagentInfo(Wire, kw_only=True):
    """A subagent that is at work."""

    id: str
    index: int
    agent: str
    """The name of its definition."""
    agent_source: Literal["bundled", "user", "project"]
    description: str
    """The first line of its task."""
    status: Literal["running"]
    task: str
    session_file: str | None = None
    last_update: int
    """Unix milliseconds."""
    progress: WorkingSubagent
    parent_tool_call_id: str


class SubagentList:
    def __init__(self) -> None:
        self._working: dict[str, Watched] = {}
        self._files: OrderedDict[str, str] = OrderedDict()
        """Session files by id, also of those that have ended."""
        self._begun = 0
        self.listeners: list[Callable[[Event], None]] = []
        """Are told of begin, progress and end."""

    def begin(
        self, id: str, agent: str, source: Literal["bundled", "user", "project"], call_id: str, task: str,
        session_file: str | None,
    ) -> "Watched":  # fmt: skip
        """List a subagent. Returns its listener, which is told of its end, too."""
        description = " ".join(task.split())[:80]
        progress = WorkingSubagent(id, self._begun, agent, source, "running", task, description)
        info = SubagentInfo(
            id=id,
            index=self._begun,
            agent=agent,
            agent_source=source,
            description=description,
            status="running",
            task=task,
            session_file=session_file,
            last_update=_now(),
            progress=progress,
            parent_tool_call_id=call_id,
        )
        self._begun += 1
        watched = self._working[id] = Watched(self, info)
        if session_file is not None:
            self._files[id] = session_file
            while len(self._files) > _REMEMBERED:
                self._files.popitem(last=False)
        watched.tell("started")
        return watched

    def forget(self, id: str) -> None:
        self._working.pop(id, None)

    def all(self) -> list[SubagentInfo]:
        return [watched.info for watched in self._working.values()]

    def stop(self, id: str) -> None:
        """Stop a subagent; its call ends with what it has said so far. Raises `AgentError`."""
        if (watched := self._working.get(id)) is None:
            raise AgentError(f"There is no subagent {id} at work: get_subagents lists them")
        watched.stop()

    def session_file(self, id: str | None, path: str | None) -> str:
        """Return the file of a subagent of this agent, by its id or path. Raises `AgentError`."""
        if id is None and path is None:
            raise AgentError("subagentId or sessionFile is required")
        found = self._files.get(id) if id is not None else path if path in self._files.values() else None
        if found is None:
            raise AgentError(f"Unknown subagent, or its session is kept in no file: {id or path}")
        return found


class Watched(NeverFull):
    """A listener of one subagent, for the list."""

    def __init__(self, listed: SubagentList, info: SubagentInfo) -> None:
        self.info = info
        self.stop: Callable[[], None] = lambda: None
        """Stops the subagent, once it runs."""
        self._list = listed
        self._began = time.monotonic()

    def put(self, event: Event) -> None:
        progress = self.info.progress
        if isinstance(event, ToolExecutionStart):
            progress.tool_count += 1
            progress.recent_tools = [event.tool_name, *progress.recent_tools[:4]]
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            usage = event.message.usage
            progress.requests += 1
            progress.tokens += usage.context
            progress.cost += usage.cost.total
        else:
            return
        progress.duration_ms = round((time.monotonic() - self._began) * 1000)
        self.info.last_update = _now()
        for listener in self._list.listeners:
            listener(SubagentProgress(self._working()))

    def ended(self, status: str) -> None:
        """Take the subagent off the list. `status` is that of its report."""
        self._list.forget(self.info.id)
        self.tell({"ok": "completed", "aborted": "aborted"}.get(status, "failed"))

    def tell(self, status: str) -> None:
        for listener in self._list.listeners:
            listener(SubagentLifecycle(self._step(status)))

    def _working(self) -> WorkingStep:
        info = self.info
        return WorkingStep(
            info.index, info.agent, info.agent_source, info.task, info.progress, info.session_file,
            info.parent_tool_call_id,
        )  # fmt: skip

    def _step(self, status: str) -> SubagentStep:
        info = self.info
        return SubagentStep(
            info.id, info.index, info.agent, info.agent_source, info.description, status, info.task, info.session_file,
            info.parent_tool_call_id,
        )  # fmt: skip


def _now() -> int:
    return int(time.time() * 1000)
