"""What a session says about a run: when it began, with which limits and options, and how it ended.

A run that has begun and not ended, and that no process works on, was cut off. What it has used up and which calls are
open is in the messages behind its beginning, so that nothing needs to be written while it goes on. The lock of the
session file is the lease of the owner: it ends with its process.
"""

import os
import socket
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, convert, field
from msgspec.structs import replace

from spindle.agent.conversation import StatsCounter
from spindle.agent.run.meter import Meter
from spindle.agent.run.result import WAITING, SubagentReport
from spindle.sessions.entries import Entry, SessionError, parse_time
from spindle.sessions.facts import RUN_ENTRY, RUN_OPEN, Fact, fact_in, facts, keep
from spindle.sessions.open import subagents_of
from spindle.sessions.session import Session
from spindle.sessions.tree import entry_message
from spindle.shapes.approvals import PermissionRequest
from spindle.shapes.builtin_tools import TASK_TOOL
from spindle.shapes.messages import (
    AssistantMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    Wire,
    joint_source,
    text_of,
)
from spindle.shapes.run_limits import RUN_LIMITS, RunLimits
from spindle.shapes.run_result import RunResult, RunTokens

_SHOWN = 200


class Owner(Wire):
    """The process that works on a run."""

    pid: int
    host: str


class StoredOptions(Wire):
    """Options of the request that hold for the rest of its run."""

    max_tokens: int | None = None
    system_prompt: str | None = None
    tools: list[str] | None = None
    schema: dict[str, Any] | None = None
    ask_before_tools: bool = False
    fallback: list[str] | None = None
    """Names of models; those that are objects of a program are not kept."""


class RunUsed(Wire):
    """What a run has used up."""

    turns: int = 0
    tool_calls: int = 0
    tokens: RunTokens = field(default_factory=RunTokens)
    cost: float = 0
    cost_sources: list[str] = field(default_factory=list)
    seconds: float = 0

    def add(self, other: "RunUsed") -> None:
        self.turns += other.turns
        self.tool_calls += other.tool_calls
        for name in RunTokens.__struct_fields__:
            setattr(self.tokens, name, getattr(self.tokens, name) + getattr(other.tokens, name))
        self.cost += other.cost
        self.cost_sources = sorted({*self.cost_sources, *other.cost_sources})
        self.seconds += other.seconds


class WorksFor(Fact):
    """The first entry in the session of a subagent."""

    entry_type: ClassVar[str] = "spindle.subagent"
    parent_session_id: str
    parent_tool_call_id: str
    agent: str
    """The name of its definition."""


class RunRecord(Fact, kw_only=True):
    """The beginning of a run, that it goes on in another process, or its end."""

    entry_type: ClassVar[str] = RUN_ENTRY
    id: str
    state: Literal["begun", "resumed", "waiting", "ended", "abandoned"]
    session: str | None = None
    """The session it began in: in a copy of that it is not open."""
    prompt: str | None = None
    """The entry of its first message."""
    limits: dict[str, float] = field(default_factory=dict)
    options: StoredOptions | None = None
    owner: Owner | None = None
    used: RunUsed | None = None
    """What was used up before this entry."""
    stop_reason: str | None = None
    held: list[str] = field(default_factory=list)
    """Calls that have not run, because a question waits."""


_host = cache(socket.gethostname)


class Recording:
    """Writes the record of a run that is going on."""

    def __init__(self, session: Session, record: RunRecord) -> None:
        self._session = session
        self._record = record
        self.begun = False

    def begin(self, prompt: str | None) -> None:
        """Note the beginning, behind the entry of the first message."""
        self.begun = True
        if self._record.prompt is None:
            self._record.prompt = prompt
        self._record.owner = Owner(os.getpid(), _host())
        keep(self._session, self._record)

    def end(self, stop_reason: str, meter: Meter, held: list[str]) -> None:
        """Note the end; with `held` calls, that the run waits."""
        if self.begun:
            used = RunUsed(
                meter.turns, meter.tool_calls, meter.usage, meter.cost, sorted(meter.cost_sources), meter.seconds
            )
            record = RunRecord(id=self._record.id, state="ended", used=used, stop_reason=stop_reason)
            if stop_reason == WAITING:
                record = replace(self._record, state="waiting", used=used, stop_reason=stop_reason, held=held)
            try:
                keep(self._session, record)
            except SessionError:
                pass  # the file cannot be written to any more: clients were told


def new_record(id: str, session: Session, limits: RunLimits, options: StoredOptions) -> RunRecord:
    given = {one.wire_name: value for one in RUN_LIMITS if (value := getattr(limits, one.name)) is not None}
    kept = None if options == StoredOptions() else options
    return RunRecord(id=id, state="begun", session=session.id, limits=given, options=kept)


# -- a run that was cut off ------------------------------------------------------------------------


class Interruption(Struct):
    """A run that has begun and not ended."""

    record: RunRecord
    entry_id: str
    """The last entry of its record."""
    began: str
    last: str
    used: RunUsed
    prompt: str | None

    def limits(self, given: RunLimits) -> RunLimits:
        """Return the limits of the run, and those given now where they are smaller."""
        values: dict[str, Any] = {}
        for one in RUN_LIMITS:
            known = [limit for limit in (self.record.limits.get(one.wire_name), getattr(given, one.name)) if limit]
            values[one.name] = one.type(min(known)) if known else None
        return RunLimits(**values)

    def carry_over(self, meter: Meter) -> None:
        """Let a meter begin with what the run has used up."""
        used = self.used
        meter.turns, meter.tool_calls, meter.cost = used.turns, used.tool_calls, used.cost
        meter.tokens, meter.cost_sources = used.tokens.total, set(used.cost_sources)
        meter.usage = convert(used.tokens, RunTokens, from_attributes=True)
        meter.began -= used.seconds

    def again(self) -> RunRecord:
        """Return the record of the run as it goes on in this process."""
        record = self.record
        return RunRecord(
            id=record.id,
            state="resumed",
            session=record.session,
            prompt=record.prompt,
            limits=record.limits,
            options=record.options,
            used=self.used,
        )

    def result(self, session: Session, text: str, questions: list[PermissionRequest]) -> RunResult:
        """Return its result so far. It waits if its process ended because of these `questions`."""
        how = WAITING if self.record.state == WAITING else "interrupted"
        source = joint_source(self.used.cost_sources)
        return RunResult(
            status=how,
            stop_reason=how,
            text=text,
            value=UNSET,
            error=None if how == WAITING else "The process ended before the run",
            denials=[],
            questions=questions or UNSET,
            turns=self.used.turns,
            tool_calls=self.used.tool_calls,
            tokens=self.used.tokens,
            cost=None if source == "unknown" else self.used.cost,
            cost_source=source,
            session_id=session.id,
            session_file=str(session.path) if session.path else None,
            files_changed=[],
            duration_ms=int(self.used.seconds * 1000),
        )


def interruption(session: Session) -> Interruption | None:
    """Return the run of a session that was cut off; None if there is none."""
    entries = session.entries
    at = next((at for at in reversed(range(len(entries))) if RunRecord.is_in(entries[at])), None)
    record = None if at is None else fact_in(entries[at], RunRecord)
    if at is None or record is None or record.state not in RUN_OPEN or record.session != session.id:
        return None
    last = next((found for entry in reversed(session.branch()) if (found := entry_message(entry)) is not None), None)
    if isinstance(last, AssistantMessage) and _is_final(last) and not session.read_beside():
        return None  # only the note of its end is missing, or another program has gone on
    first = session.entry(record.prompt)
    message = None if first is None else entry_message(first)
    prompt = text_of(message.content)[:_SHOWN] if isinstance(message, UserMessage) else None
    began, ended = entries[at].timestamp, entries[-1].timestamp
    return Interruption(record, entries[at].id, began, ended, _used(record, session, at), prompt)


def _is_final(answer: AssistantMessage) -> bool:
    return answer.stop_reason == "stop" and not any(isinstance(block, ToolCall) for block in answer.content)


def _used(record: RunRecord, session: Session, at: int) -> RunUsed:
    """Return what a run has used up: before its record was written, and by the messages since."""
    entries = session.entries
    used = _spent(session, entries[at + 1 :])
    if record.used is not None:
        used.add(record.used)
    times = [parse_time(entries[at].timestamp), parse_time(entries[-1].timestamp)]
    used.seconds += max(0, (times[1] or 0) - (times[0] or 0)) / 1000
    return used


def _spent(session: Session, entries: Sequence[Entry]) -> RunUsed:
    """Return what these entries of a session tell, with the work of subagents that were cut off."""
    counter, tokens = StatsCounter(), RunTokens()
    counter.catch_up(entries)
    for name in RunTokens.__struct_fields__:
        setattr(tokens, name, getattr(counter.tokens, name))
    spent = RunUsed(counter.assistant, counter.results, tokens, counter.cost, sorted(counter.cost_sources))
    calls: set[str] = set()
    """Calls of `task` without a report."""
    for message in map(entry_message, entries):
        if isinstance(message, AssistantMessage):
            calls |= {one.id for one in message.content if isinstance(one, ToolCall) and one.name == TASK_TOOL}
        elif isinstance(message, ToolResultMessage) and (report := _report(message)) is not None:
            spent.turns += report.turns
            calls.discard(message.tool_call_id)
    for subagent in subagents_of(session) if calls else ():
        if any(one.parent_tool_call_id in calls for one in facts(subagent.entries[:1], WorksFor)):
            spent.add(_spent(subagent, subagent.entries))
    return spent


def _report(message: ToolResultMessage) -> SubagentReport | None:
    if message.tool_name != TASK_TOOL:
        return None
    try:
        return convert(message.details, SubagentReport)
    except ValueError:  # the call was refused, or cut off
        return None
