"""Carries out a compaction: events, hooks, the summary calls, the entry in the session."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET

from spindle.agent import AgentError
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import HookChain
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.agent.retry import Retry
from spindle.base import trace
from spindle.base.settings import Compaction, Role, Settings
from spindle.llm.stream import Chunk, Failure, Request
from spindle.sessions.entries import Entry
from spindle.shapes import events
from spindle.shapes.messages import AssistantMessage, Cost, Usage, joint_source
from spindle.shapes.model import Model

if TYPE_CHECKING:  # loaded with the first compaction
    from spindle.agent.compaction.plan import CompactionPreparation
    from spindle.agent.compaction.summary import Summary
    from spindle.agent.failover import Failover, ModelLine

ROLES: dict[str, Role] = {"sessionName": "titles", "extension": "questions"}
"""Jobs by what a request is for; the others are summaries."""
CANCELLED = "Compaction cancelled"
TOO_SMALL = "Nothing to compact (session too small)"
ALREADY = "Already compacted"
# How the error text of a failed compaction begins, by reason.
_FAILURE = {
    "manual": "Compaction failed",
    "threshold": "Auto-compaction failed",
    "overflow": "Context overflow recovery failed",
}


class CompactionBounds(msgspec.Struct, frozen=True):
    """The user's settings as they apply to one model."""

    automatic: bool
    reserve_tokens: int
    keep_recent_tokens: int
    threshold: float
    """The context is compacted when it has more tokens than this."""


def bounds_for(settings: Compaction, model: Model | None) -> CompactionBounds:
    """Return the limits for a model: its overrides count, but never more than fits into its context window.

    If a compaction kept more than the threshold allows, the next one would follow at once.
    """
    if model is None:
        return CompactionBounds(settings.enabled, settings.reserve_tokens, settings.keep_recent_tokens, math.inf)
    chosen = settings.for_model(model.full_name)
    window = model.context_window
    if window <= 0:
        return CompactionBounds(chosen.enabled, chosen.reserve_tokens, chosen.keep_recent_tokens, math.inf)
    reserve = chosen.reserve_tokens if chosen.reserve_tokens < window else window // 2
    keep = min(chosen.keep_recent_tokens, (window - reserve) // 2)
    return CompactionBounds(chosen.enabled, reserve, keep, window - reserve)


class CompactionPort(Protocol):
    """What a compaction needs of the engine."""

    conversation: Conversation
    hooks: HookChain
    hub: Hub
    retry: Retry

    @property
    def failover(self) -> "Failover": ...

    @property
    def settings(self) -> Settings: ...

    @property
    def model(self) -> Model | None: ...

    @property
    def max_tokens(self) -> int | None:
        """The longest answer that the run allows; None: as long as the model allows."""

    @property
    def counts_spending(self) -> bool:
        """Whether money or tokens of the run are limited."""

    def limit_reached(self) -> str | None:
        """Return the limit of the run that forbids another model call, if one does."""

    def spent(self, usage: Usage, estimated: int = 0) -> None:
        """Count tokens and cost of a summary; `estimated`: our own estimate of the tokens."""

    async def open_stream(
        self, request: Request, max_tokens: int | None = None, line: "ModelLine | None" = None
    ) -> AsyncGenerator[Chunk, None]: ...


class Compactor:
    def __init__(self, port: CompactionPort, *, automatic: bool) -> None:
        self._port = port
        self.automatic = automatic
        """Whether compactions start by themselves."""

    @property
    def limits(self) -> CompactionBounds:
        """How full the context of the current model may get."""
        return bounds_for(self._port.settings.compaction, self._port.model)

    def possible(self) -> bool:
        return self.refusal() is None

    def refusal(self) -> str | None:
        from spindle.agent.compaction.plan import prepare_compaction

        branch = self._port.conversation.session.branch()
        if branch and branch[-1].type == "compaction":
            return ALREADY
        return TOO_SMALL if prepare_compaction(branch, self.limits.keep_recent_tokens) is None else None

    def reason(self, answer: AssistantMessage) -> str | None:
        """Return why the context should be compacted after this answer; None if it should not."""
        model, conversation = self._port.model, self._port.conversation
        limits = bounds_for(self._port.settings.compaction, model)
        if model is None or not (self.automatic and limits.automatic) or conversation.is_stale(answer):
            return None
        from spindle.llm.errors import is_overflow

        own = (answer.provider, answer.model) == (model.provider, model.id)
        if own and is_overflow(answer, model.context_window):
            return "overflow"
        used = 0 if answer.stop_reason == "error" else answer.usage.context
        if (used or conversation.tokens()) <= limits.threshold:
            return None
        # An answer that was cut before the longest length had no room left in the context.
        most = self._port.max_tokens or model.max_tokens
        cut = own and answer.stop_reason == "length" and answer.usage.output < most
        return "overflow" if cut else "threshold"

    async def run(
        self, reason: str, signal: AbortSignal, *, instructions: str | None = None, will_retry: bool = False
    ) -> events.CompactionResult:
        """Compact, and tell of it. Raises `AgentError` if it fails, `Aborted` if it is aborted or a hook cancels it."""
        if reason != "manual":
            await self._port.hub.emit(events.AutoCompactionStart(reason))
        await self._port.hub.emit(events.CompactionStart(reason))
        made: _Made | None = None
        error: str | None = None
        aborted = False
        try:
            session = self._port.conversation.session.id
            with signal, trace.span("compaction", session=session, reason=reason):
                made = await self._compact(reason, instructions, will_retry)
        except (Aborted, _Cancelled):
            aborted = True
        except asyncio.CancelledError:  # the client that asked for it has left; the others are told
            for event in _endings(reason, aborted=True):
                self._port.hub.publish(event)
            raise
        except Exception as failure:  # the model failed, a hook or an adapter broke; the run must be able to go on
            error = str(failure) or type(failure).__name__
        if made is not None:
            await self._port.hooks.notify(
                "session_compact",
                compaction_entry=made.entry,
                from_extension=made.from_extension,
                reason=reason,
                will_retry=will_retry,
            )
            for event in _endings(reason, made.result, will_retry=will_retry):
                await self._port.hub.emit(event)
            return made.result
        told = f"{_FAILURE[reason]}: {error}" if error is not None else None
        for event in _endings(reason, aborted=aborted, error=told):
            await self._port.hub.emit(event)
        await self._port.hooks.notify(
            "session_compact_failed",
            reason=reason,
            error_message=told,
            aborted=aborted,
            will_retry=will_retry,
            from_extension=False,
        )
        raise Aborted if aborted else AgentError(error or CANCELLED)

    def refuse(self, text: str, reason: str = "overflow") -> None:
        """Tell of the end of a compaction that is refused; a manual one gets a start, too."""
        if reason == "manual":
            self._port.hub.publish(events.CompactionStart(reason))
            text = f"{_FAILURE[reason]}: {text}"
        for event in _endings(reason, error=text):
            self._port.hub.publish(event)

    async def _compact(self, reason: str, instructions: str | None, will_retry: bool) -> "_Made":
        from spindle.agent.compaction.plan import prepare_compaction
        from spindle.llm.history import estimate_tokens

        conversation = self._port.conversation
        branch = conversation.session.branch()
        if branch and branch[-1].type == "compaction":
            raise AgentError(ALREADY)
        plan = prepare_compaction(branch, self.limits.keep_recent_tokens)
        if plan is None:
            raise AgentError(TOO_SMALL)
        replacement = await self._ask_hooks(
            plan, branch, reason=reason, custom_instructions=instructions, will_retry=will_retry
        )
        result = replacement or await self._summarize(plan, reason, instructions)
        # From here on there is no await: an abort comes before the change or after it.
        entry_id = conversation.session.append_compaction(
            result.summary,
            result.first_kept_entry_id,
            result.tokens_before,
            result.details,
            bool(replacement),
            result.usage,
        )
        if replacement and replacement.usage is not None:
            self._port.spent(replacement.usage)
        conversation.reload()
        # The kept answers still report the usage of the long context, so only lengths count here.
        result.estimated_tokens_after = sum(estimate_tokens(message) for message in conversation.messages)
        self._port.hooks.compacted()
        entry = conversation.session.entry(entry_id)
        return _Made(result, entry.value if entry else {}, bool(replacement))

    async def _ask_hooks(
        self, plan: "CompactionPreparation", branch: Sequence[Entry], **facts: Any
    ) -> events.CompactionResult | None:
        """Let hooks cancel the compaction or do it themselves. Raises `_Cancelled` if they cancel it."""
        settings = msgspec.to_builtins(self._port.settings.compaction)
        answer = await self._port.hooks.ask(
            "session_before_compact",
            lambda: {
                "preparation": msgspec.structs.replace(plan, settings=settings),
                "branch_entries": [entry.value for entry in branch],
                **facts,
            },
        )
        if answer.get("cancel"):
            raise _Cancelled
        given = answer.get("compaction")
        return None if given is None else _supplied_result(given, plan)

    async def _summarize(
        self, plan: "CompactionPreparation", reason: str, instructions: str | None
    ) -> events.CompactionResult:
        from spindle.agent.compaction.plan import NO_HISTORY, append_file_lists
        from spindle.agent.compaction.summary import FIRST, PREFIX, UPDATE, summary_request

        reserve = self.limits.reserve_tokens
        before, whole_turns = plan.previous_summary, plan.messages_to_summarize
        task = FIRST if before is None else UPDATE
        history = summary_request(whole_turns, task, previous=before, instructions=instructions)
        summaries: list[Summary] = []
        if plan.is_split_turn:
            prefix = summary_request(plan.turn_prefix_messages, PREFIX)
            jobs = [self.ask(prefix, int(0.5 * reserve), "Turn prefix summarization failed", "compaction", reason)]
            if whole_turns:
                jobs.insert(0, self.ask(history, int(0.8 * reserve), "Summarization failed", "compaction", reason))
            summaries = await (_one_by_one(jobs) if self._port.counts_spending else _both(jobs))
            first = summaries[0].text if whole_turns else NO_HISTORY
            text = f"{first}\n\n---\n\n**Turn Context (split turn):**\n\n{summaries[-1].text}"
        else:
            summaries = [await self.ask(history, int(0.8 * reserve), "Summarization failed", "compaction", reason)]
            text = summaries[0].text
        return events.CompactionResult(
            append_file_lists(text, plan.file_ops),
            plan.first_kept_entry_id,
            plan.tokens_before,
            plan.file_ops,
            usage=reduce(add_usage, (summary.answer.usage for summary in summaries)),
        )

    async def ask(self, request: Request, max_tokens: int, failure: str, source: str, reason: str | None) -> "Summary":
        """Ask the model for one summary, and again if that may help. Raises `AgentError` that begins with `failure`."""
        from spindle.agent.compaction.summary import SummaryFailed, summarize
        from spindle.llm.history import estimate_tokens

        if (reached := self._port.limit_reached()) is not None:
            raise AgentError(f"{failure}: {reached} is reached")
        line = await self._port.failover.line_for(ROLES.get(source, "summaries"))
        announced, before = False, 0

        def asked() -> Model | None:
            return self._port.model if line is None else line.now.model

        async def retry(answer: AssistantMessage, failure: Failure | None, attempt: int) -> bool:
            nonlocal announced, before
            model, attempt = asked(), attempt - before
            again = self._port.retry.worthwhile(answer, failure, model, attempt - 1)
            if not again or (line is not None and await self._port.failover.is_in_vain(line, answer, failure)):
                before += attempt  # each model has a budget of its own
                return line is not None and await self._port.failover.stand_in(line, answer, failure)
            announced = True
            delay = self._port.retry.delay_ms(attempt, failure)
            most, error = self._port.retry.max_retries, answer.error_message or ""
            await self._port.hub.emit(events.SummarizationRetryScheduled(attempt, most, delay, error))
            await asyncio.sleep(delay / 1000)
            await self._port.hub.emit(events.SummarizationRetryAttemptStart(source, reason))
            return True

        def stream(request: Request) -> Awaitable[AsyncGenerator[Chunk, None]]:
            model = asked()
            return self._port.open_stream(request, min(max_tokens, model.max_tokens) if model else max_tokens, line)

        try:
            summary = await summarize(request, stream, retry)
            if line is not None:
                await self._port.failover.succeeded(line)
            estimated = sum(map(estimate_tokens, [*request.messages, summary.answer]))
            self._port.spent(summary.answer.usage, estimated)
            return summary
        except SummaryFailed as error:
            raise AgentError(f"{failure}: {error}") from None
        finally:
            if announced:
                await self._port.hub.emit(events.SummarizationRetryFinished())


class _Cancelled(Exception):
    """A hook does not want this compaction."""


class _Made(msgspec.Struct, frozen=True):
    """A compaction that is part of the session now."""

    result: events.CompactionResult
    entry: dict[str, Any]
    from_extension: bool


def _endings(
    reason: str,
    result: events.CompactionResult | None = None,
    *,
    aborted: bool = False,
    will_retry: bool = False,
    error: str | None = None,
) -> list[events.Event]:
    """Return the events of the end: an older one, only for automatic compactions, and the one for all."""
    end = (reason, result, aborted, will_retry, error)
    automatic = [] if reason == "manual" else [events.AutoCompactionEnd(*end)]
    return [*automatic, events.CompactionEnd(*end)]


async def _one_by_one(jobs: "Sequence[Coroutine[Any, Any, Summary]]") -> "list[Summary]":
    """Run one summary call after the other: the first may reach a limit of the run."""
    try:
        return [await job for job in jobs]
    finally:
        for job in jobs:
            job.close()


async def _both(jobs: "Sequence[Awaitable[Summary]]") -> "list[Summary]":
    """Run the summary calls side by side; the first failure stops the other."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        del task, tasks  # they hold their failures, which hold this frame


def _supplied_result(value: dict[str, Any], plan: "CompactionPreparation") -> events.CompactionResult:
    if not isinstance(value.get("summary"), str):
        raise AgentError("An extension supplied a compaction without a summary")
    return events.CompactionResult(
        value["summary"],
        value.get("firstKeptEntryId") or plan.first_kept_entry_id,
        value.get("tokensBefore", plan.tokens_before),
        value.get("details"),
    )


def add_usage(a: Usage, b: Usage) -> Usage:
    source = joint_source([a.cost.source, b.cost.source])
    return Usage(
        a.input + b.input,
        a.output + b.output,
        a.cache_read + b.cache_read,
        a.cache_write + b.cache_write,
        a.total_tokens + b.total_tokens,
        Cost(
            a.cost.input + b.cost.input,
            a.cost.output + b.cost.output,
            a.cost.cache_read + b.cost.cache_read,
            a.cost.cache_write + b.cost.cache_write,
            a.cost.total + b.cost.total,
            total_from_provider=True if source == "billed" else UNSET,
            unknown=True if source == "unknown" else UNSET,
        ),
    )
