"""A message to the agent with its images, the options for its run, and the chain that it starts."""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, field

from spindle.agent import AgentError
from spindle.agent.fences.waiting import KeptQuestion
from spindle.agent.hooks import HookChain, Hooks
from spindle.agent.run.handle import Run
from spindle.agent.run.meter import Meter
from spindle.agent.run.record import Recording, RunRecord, StoredOptions, new_record
from spindle.agent.run.result import WAITING, status_of
from spindle.base import trace
from spindle.llm.stream import Failure
from spindle.sessions.session import Session
from spindle.sessions.stand_ins import count_fallback
from spindle.shapes.approvals import Answer, PermissionRequest
from spindle.shapes.events import AgentEnd, Fallback, ToolResult
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    Image,
    Text,
    Usage,
    UserMessage,
    joint_source,
    text_of,
)
from spindle.shapes.model import Model
from spindle.shapes.run_limits import RunLimits
from spindle.shapes.run_result import RunResult

if TYPE_CHECKING:  # loaded with the first request for a result of a schema
    from spindle.agent.features.structured import StructuredAnswer

Ask = Callable[[PermissionRequest], Awaitable[Answer]]
"""Puts a question to the user. May raise `Blocked` to refuse in its own words."""


class RunOptions(Struct, frozen=True):
    """Options of one request. They hold only for its run."""

    max_tokens: int | None = None
    """Length of the longest answer; None: the model's own."""
    system_prompt: str | None = None
    """Takes the place of the built-in part of the system prompt."""
    tools: Sequence[str] | None = None
    """A list of tools that holds for the run; None: those of the session."""
    hooks: Hooks | None = None
    """Hooks for the run, which are called after those of the session."""
    ask: Ask | None = None
    """Puts questions of approval to the user; None: the session opens a dialog."""
    limits: RunLimits = RunLimits()
    inside: "Chain | None" = None
    """The chain that this run works for, if it is that of a subagent. All that holds there holds here."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the result that the model has to hand in."""
    ask_before_tools: bool = False
    """Ask before every tool call, even if the session does not."""
    fallback: Sequence[str | Model] | None = None
    """Models that answer when the model of the session cannot; None: as the session has it."""

    def record(self, id: str, session: Session, meter: Meter) -> RunRecord:
        """Return what the session is to keep of a run with these options."""
        tools = None if self.tools is None else list(self.tools)
        chain = None if self.fallback is None else [name for name in self.fallback if isinstance(name, str)]
        kept = StoredOptions(self.max_tokens, self.system_prompt, tools, self.schema, self.ask_before_tools, chain)
        return new_record(id, session, meter.limits, kept)


class Chain(Struct):
    """One chain, from the accepted prompt until the agent is settled."""

    options: RunOptions
    meter: Meter
    run: Run | None
    """Held by the sender of the prompt; None: an extension or a queued message began the chain."""
    hooks: HookChain
    """Hooks of the session, then those of the request."""
    system_prompt: str | None = None
    """The system prompt as hooks changed it for this chain; None: they did not."""
    recovered: bool = False
    """Whether an overflow was answered by a compaction since the last message of the user or good answer."""
    asked: bool = False
    """Whether the model was asked for an answer because its last one was empty."""
    corrected: bool = False
    """Whether the model was told that an answer is no end of its work."""
    gave_up: bool = False
    """Whether the run ends because its last answer is none either."""
    remarks: list[str] = []
    """What the model is to be told after the results of its calls."""
    structured: "StructuredAnswer | None" = None
    """Takes the result, if the request has a schema for it."""
    created: list[AgentMessage] | None = None
    """The messages of the run that is going on, of all its tries; None: between runs."""
    stop_reason: str = "end"
    error: str | None = None
    """Why the chain could not begin, or how it failed."""
    span: trace.Span = trace.NO_SPAN
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    recording: Recording | None = None
    """Notes the run in the session; None: there is no file, or it is the run of a subagent."""
    questions: dict[str, KeptQuestion] = field(default_factory=dict)
    """Questions about calls of this run that are kept in the session, by call, until they are used."""
    held: list[str] = field(default_factory=list)
    """Calls that have not run, because a question waits: the run ends and can be gone on with."""
    resumes: bool = False
    """Whether it goes on with a run that was cut off, whose open calls have no results yet."""

    fallbacks: list[Fallback] = field(default_factory=list)
    """Switches to other models."""

    def entered(self, message: AgentMessage) -> None:
        """Take note of a message that is now part of the conversation."""
        if isinstance(message, AssistantMessage):
            if self.fallbacks:
                count_fallback(self.fallbacks, message)
            self.meter.answered(message)
            self.hooks.spent(message.usage)
            if message.stop_reason not in ("error", "aborted", "length"):
                self.recovered = False
        elif isinstance(message, UserMessage):
            self.recovered = False

    def exhausted(self) -> bool:
        """Say whether the model may not be asked again: a limit forbids it, or the result is there."""
        if self.structured is not None:
            if self.structured.failed:
                self.meter.stopped = self.meter.stopped or "schema"
            elif self.structured.value is not UNSET:
                return True
        return self.meter.exhausted()

    def remark(self, name: str, arguments: Any, result: ToolResult, left_out: str) -> None:
        """Note what the model is told after the results, besides `left_out`: nothing of ours stands in a result."""
        words = self.meter.remarks(name, arguments, result.content)
        self.remarks += [left_out, *words] if left_out else words

    def take_remarks(self) -> list[str]:
        """Return what the model is to be told after the results of its calls, each thing once."""
        remarks, self.remarks = self.remarks, []
        return list(dict.fromkeys(remarks))

    def hold(self, calls: list[str]) -> None:
        """Leave calls open that have not run; with any, the run waits."""
        self.held += calls
        if self.held:
            self.meter.stopped = self.meter.stopped or WAITING

    def spent(self, usage: Usage, estimated: int) -> None:
        """Count a request that is not part of the conversation, such as a summary."""
        self.meter.spent(usage, estimated, estimated)
        self.hooks.spent(usage)

    def broke(self, error: Exception) -> str:
        """Let the chain end with an error. Returns the text for the user."""
        name = type(error).__name__
        self.stop_reason, self.error = "error", str(error) if isinstance(error, AgentError) else f"{name}: {error}"
        self.span.fail(name)
        return self.error

    def end_run(self) -> AgentEnd | None:
        """Return the end of the run to tell; None if there is no run."""
        created, self.created = self.created, None
        return None if created is None else AgentEnd(created, will_retry=False)

    def tell_prompt(self, messages: Sequence[AgentMessage]) -> None:
        """Tell the trace what the user has said, if it may know."""
        if trace.content:
            said = [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
            self.span.set(prompt="\n".join(said))

    def tell_end(self, result: RunResult, failure: Failure | None) -> None:
        """Tell the trace how the chain ended; `failure` is that of the last answer."""
        self.span.set(**result.figures())
        if trace.content:
            self.span.set(answer=result.text, error_text=result.error)
        if result.status == "limit":
            trace.tell("limit", limit=result.stop_reason)
        if result.status == "error":
            self.span.fail(failure.error if failure is not None else "ModelError")
        elif result.status == "aborted":
            self.span.fail("Aborted")

    def result(self, text: str, session: Session) -> RunResult:
        """Return the result of the chain; `text` is that of the last answer."""
        meter = self.meter
        cost_source = joint_source(meter.cost_sources)
        return RunResult(
            status=status_of(self.stop_reason, meter.denials),
            stop_reason=self.stop_reason,
            text=text,
            value=UNSET if self.structured is None else self.structured.value,
            error=self.error,
            denials=meter.denials,
            questions=[one.request for one in self.questions.values()] if self.stop_reason == WAITING else UNSET,
            turns=meter.turns,
            tool_calls=meter.tool_calls,
            tokens=meter.usage,
            cost=None if cost_source == "unknown" else meter.cost,
            cost_source=cost_source,
            session_id=session.id,
            session_file=str(session.path) if session.path else None,
            files_changed=list(meter.files_changed),
            fallbacks=self.fallbacks,
            duration_ms=int(meter.seconds * 1000),
        )


_last_time = 0


def _unique_time() -> int:
    """Return the time in milliseconds, later than any before: it identifies a message of the user."""
    global _last_time
    _last_time = max(int(time.time() * 1000), _last_time + 1)
    return _last_time


class Submission(Struct, frozen=True):
    text: str
    images: list[Image] = []
    behavior: str | None = None
    """`steer` or `followUp`: the queue that it may wait in."""
    source: str = "rpc"
    expand: bool = True
    """Whether commands, skills and templates in it count."""
    ordered: Sequence[Text | Image] | None = None
    """The same text and images in an order of their own, which holds unless a hook changes them."""
    options: RunOptions = RunOptions()
    is_prompt: bool = True
    """False: a steering or follow-up message, which starts nothing."""
    timestamp: int = field(default_factory=_unique_time)
    """Timestamp of its message, which identifies the message."""
    run: Run | None = None
    """Held by its sender, if it is a prompt."""

    def message(self, text: str, images: list[Image]) -> UserMessage:
        """Return the message of the user, with text and images as hooks and templates changed them."""
        content: list[Text | Image] = [Text(text), *images]
        if self.ordered is not None and (text, images) == (self.text, self.images):
            content = list(self.ordered)
        return UserMessage(content=content, timestamp=self.timestamp)
