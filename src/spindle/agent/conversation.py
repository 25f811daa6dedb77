"""The conversation: the messages that the model will see, in step with the session file."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from spindle.agent.disk import DiskWait
from spindle.agent.run.result import SubagentReport
from spindle.base import limits
from spindle.llm.memory import Memory
from spindle.sessions.entries import Entry
from spindle.sessions.facts import fact_in
from spindle.sessions.session import Session
from spindle.sessions.stand_ins import ROUTE, StandIn, count_fallback
from spindle.sessions.tree import SessionContext
from spindle.shapes.builtin_tools import TASK_TOOL
from spindle.shapes.events import Fallback
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    Wire,
    text_of,
    with_empty_key,
)
from spindle.shapes.run_result import RunTokens

COUNT_AT_ONCE = 1000
"""Entries that are counted in a few milliseconds."""


class Conversation:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: list[AgentMessage] = []
        """The current context, oldest first."""
        self.memory = Memory()
        """Of requests with these messages."""
        self._loaded: dict[int, str] = {}
        """Ids of the entries of messages, by the identity of the message."""
        self._stored: list[Any] = []
        """The first of `messages`, which were read from the session file, as they stand there."""
        self._documented: list[Any] = []
        """The first of `messages` as `stored` shows them with `documented`: making them again would cost too much."""
        self._dropped: set[str] = set()
        """Entries of failed attempts: they stay in the file but not in the context."""
        self._held: list[BashExecutionMessage] = []
        """Results of the user's commands that wait for the run to end."""
        self._fresh_from = 0
        """Index of the first of `messages` that came after the last compaction; 0 if there was none."""
        self.compacted = False
        """Whether a summary stands for the older part of the branch."""
        self._measured = 0
        """How many of `messages` are counted in `_tokens`."""
        self._tokens = 0
        self._answered = False
        """Whether the model has answered since the last compaction."""
        self._stats = StatsCounter()
        self._counting = asyncio.Lock()
        self._syncs: list[DiskWait] = []
        """Those that were begun and, when the last one began, not over."""
        self._last_sync: DiskWait | None = None
        """`on_disk` waits for it."""
        self._sync_due: asyncio.TimerHandle | None = None
        """Timer of a sync that can wait for a moment."""
        self._last_id: str | None = None
        self._answer_id: str | None = None
        """Id of the entry for the next answer, once it was asked for."""
        self.reload()

    def use(self, session: Session, context: SessionContext | None = None) -> SessionContext:
        """Go on with another session, whose context may be known. The caller closes the previous session."""
        self.session = session
        self._dropped.clear()
        self._held.clear()
        self._answer_id = None
        self._stats = StatsCounter()
        return self.reload(context)

    def reload(self, context: SessionContext | None = None) -> SessionContext:
        """Build the context from the tree: after a switch, a jump or a compaction."""
        context = context or self.session.context()
        if self._dropped:
            ids = context.entry_ids
            context.pick([index for index, entry_id in enumerate(ids) if entry_id not in self._dropped])
        ids, self.messages, self._stored = context.entry_ids, context.messages, context.stored
        self._documented = []
        self.memory = Memory()
        self._loaded = dict(zip(map(id, self.messages), ids, strict=True))
        branch = self.session.branch()
        last = next((index for index in range(len(branch) - 1, -1, -1) if branch[index].type == "compaction"), None)
        self.compacted = last is not None
        self._measured = 0
        self._fresh_from = 0
        if last is not None:
            fresh = {entry.id for entry in branch[last + 1 :]}
            self._fresh_from = sum(entry_id not in fresh for entry_id in ids)
        return context

    def append(self, message: AgentMessage) -> None:
        """Store a message and make it part of the context."""
        self.store(message)
        self.messages.append(message)

    def store(self, message: AgentMessage) -> None:
        """Put a message into the file, before it is part of the context."""
        if isinstance(message, CustomMessage):
            self._last_id = self.session.append_custom_message(
                message.custom_type, message.content, message.display, message.details
            )
        elif isinstance(message, AssistantMessage):
            self._last_id = self.session.append_message(message, self._answer_id)
            self._answer_id = None
        else:
            self._last_id = self.session.append_message(message)
        self._loaded[id(message)] = self._last_id

    def name_answer(self) -> str:
        """Return the id of the entry for the answer that is being written."""
        self._answer_id = self._answer_id or self.session.new_id()
        return self._answer_id

    def entry_id(self, message: AgentMessage) -> str | None:
        return self._loaded.get(id(message))

    def drop_failed(self, message: AssistantMessage) -> None:
        """Take a failed answer out of the context; the file keeps it."""
        if self.messages and self.messages[-1] is message:
            self.messages.pop()
            del self._stored[len(self.messages) :], self._documented[len(self.messages) :]
            self._measured = 0
            if self._last_id is not None:
                self._dropped.add(self._last_id)

    def set_aside(self, message: AssistantMessage) -> None:
        """Leave a failed answer, and those that failed before it, on a side branch of the session."""
        self.drop_failed(message)
        for entry in reversed(self.session.branch()):
            answer = entry.message if entry.type == "message" else None
            if not isinstance(answer, AssistantMessage) or answer.stop_reason != "error":
                self.session.move(entry.id)
                return

    def hold(self, message: BashExecutionMessage) -> None:
        self._held.append(message)

    def release_held(self) -> None:
        """Append messages that were held back so that they do not stand between a tool call and its result."""
        held, self._held = self._held, []
        for message in held:
            self.append(message)

    def sync_soon(self) -> None:
        """Sync the session file to the disk, in a thread: nothing waits for a slow disk."""
        if self._sync_due is not None:
            self._sync_due.cancel()
            self._sync_due = None
        if (wait := self.session.begin_sync()) is not None:
            self._last_sync = DiskWait(wait, self.session.sync_failed)
            self._syncs = [*(sync for sync in self._syncs if not sync.over), self._last_sync]

    def sync_later(self) -> None:
        """Sync in a moment, or with the next message: each sync covers everything that was written before it."""
        if self._sync_due is None:
            self._sync_due = asyncio.get_running_loop().call_later(limits.SYNC_LATER, self.sync_soon)

    async def on_disk(self) -> None:
        """Wait for the last sync, once: a disk that hangs does not hold up every request."""
        sync, self._last_sync = self._last_sync, None
        if sync is not None and not sync.over:
            await sync.wait(limits.DISK_SYNC)

    async def safe(self) -> None:
        """Wait until another process could go on from here; with files it can at once.

        Raises `SessionError` if that will not be: then nothing more may be done.
        """
        session = self.session
        if session.store is None or session.unsafe() is None:
            return
        told = asyncio.get_running_loop().create_future()
        session.when_safe(lambda: None if told.done() else told.set_result(None))
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.DISK_SYNC):
                await told
        if (wait := session.unsafe()) is not None:  # it is doubtful: only now a thread is worth it
            await asyncio.to_thread(wait)

    async def synced(self) -> None:
        """Wait for all syncs that have begun."""
        if endings := [sync.ending() for sync in self._syncs if not sync.over]:
            await asyncio.wait(endings, timeout=limits.DISK_SYNC)

    def stored(self, *, documented: bool = False) -> list[Any]:
        """Return the messages as the session file has them: with keys of other programs that we do not know.

        With `documented`, they have the empty keys that the samples of pi's documents show, too.
        """
        stored = [*self._stored, *self.messages[len(self._stored) :]]
        if not documented:
            return stored
        new = slice(len(self._documented), None)
        self._documented += map(with_empty_key, self.messages[new], stored[new])
        return [*self._documented]

    # -- reading ---------------------------------------------------------------------------------

    def last_assistant(self) -> AssistantMessage | None:
        return next((m for m in reversed(self.messages) if isinstance(m, AssistantMessage)), None)

    def is_stale(self, answer: AssistantMessage) -> bool:
        """Say whether the context was compacted after this answer, so that its usage tells nothing."""
        return self.compacted and not any(m is answer for m in self.messages[self._fresh_from :])

    def usage_known(self) -> bool:
        """Say whether the model has reported, since the last compaction, how full its context is."""
        self._measure()
        return not self.compacted or self._answered

    def tokens(self) -> int:
        """Estimate how full the context is: the last reported usage plus the length of later messages."""
        self._measure()
        return self._tokens

    def _measure(self) -> None:
        """Count the tokens of messages that are not counted yet."""
        if self._measured == 0:
            self._tokens, self._answered = 0, False
        if self._measured == len(self.messages):
            return
        from spindle.llm.history import estimate_tokens

        for index in range(self._measured, len(self.messages)):
            message = self.messages[index]
            used = 0
            # Answers that were kept by a compaction still report the usage of the long context.
            if (
                index >= self._fresh_from
                and isinstance(message, AssistantMessage)
                and message.stop_reason not in ("error", "aborted")
            ):
                self._answered = True
                used = message.usage.context
            self._tokens = used or self._tokens + estimate_tokens(message)
        self._measured = len(self.messages)

    def last_assistant_text(self) -> str | None:
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                if message.stop_reason == "aborted" and not message.content:
                    continue
                return text_of(message.content).strip() or None
        return None

    def user_messages(self) -> list[tuple[str, str]]:
        return [
            (entry.id, text)
            for entry in self.session.entries
            if entry.type == "message" and isinstance(entry.message, UserMessage)
            if (text := text_of(entry.message.content))
        ]

    async def stats(self) -> "StatsCounter":
        """Count the entries of the session up to now; many of them are counted in a thread."""
        async with self._counting:
            counter, entries = self._stats, self.session.entries
            if len(entries) - counter.seen < COUNT_AT_ONCE:
                counter.catch_up(entries)
            else:
                await asyncio.to_thread(counter.catch_up, entries)
        return counter


# -- figures ----------------------------------------------------------------------------------------


class TokenTotals(RunTokens, omit_defaults=False):
    pass


class SubagentTotals(Wire, omit_defaults=False):
    """The share of subagents in the figures of a session."""

    runs: int = 0
    tokens: TokenTotals = msgspec.field(default_factory=TokenTotals)
    cost: int | float = 0


_BESIDE = ("compaction", "branch_summary", "session_info", "usage", "model_usage")
"""Entries with the usage of a model beside the conversation; the last two are of pi and oh-my-pi."""


class StatsCounter:
    """Counts each entry once; a second call looks only at new entries."""

    def __init__(self) -> None:
        self.seen = 0
        """How many entries are counted."""
        self.user = self.assistant = self.calls = self.results = self.messages = 0
        self.tokens = TokenTotals()
        self.cost: int | float = 0
        """US dollars, as far as known."""
        self.cost_sources: set[str] = set()
        self.subagents = SubagentTotals()
        self.fallbacks: list[Fallback] = []
        """Switches to other models, and what their answers have cost since."""

    def catch_up(self, entries: Sequence[Entry]) -> None:
        for index in range(self.seen, len(entries)):
            self._count(entries[index])
        self.seen = len(entries)

    def _count(self, entry: Entry) -> None:
        if (switch := fact_in(entry, StandIn)) is not None:
            if switch.cause != ROUTE:
                self.fallbacks.append(switch.as_fallback())
        elif entry.type in _BESIDE:
            self._count_usage(_usage_of(entry.value))
        elif entry.type == "custom_message":
            self.messages += 1
        if entry.type != "message":
            return
        message = entry.message
        self.messages += 1
        if isinstance(message, UserMessage):
            self.user += 1
        elif isinstance(message, ToolResultMessage):
            self.results += 1
            if message.tool_name == TASK_TOOL:
                self._count_subagent(message.details)
        elif isinstance(message, AssistantMessage):
            self.assistant += 1
            self.calls += sum(isinstance(block, ToolCall) for block in message.content)
            self._count_usage(message.usage)
            if self.fallbacks:
                count_fallback(self.fallbacks, message)

    def _count_subagent(self, details: Any) -> None:
        try:
            report = msgspec.convert(details, SubagentReport)
        except msgspec.ValidationError:
            return  # the call was refused, or the session was cut off
        self.tokens.add(report.tokens)
        self.cost += report.cost or 0
        self.cost_sources.add(report.cost_source)
        self.subagents.runs += 1
        self.subagents.tokens.add(report.tokens)
        self.subagents.cost += report.cost or 0

    def _count_usage(self, usage: Usage | None) -> None:
        if usage is not None:
            self.tokens.add(usage)
            self.cost += usage.cost.total
            self.cost_sources.add(usage.cost.source)


def _usage_of(value: dict[str, Any]) -> Usage | None:
    try:
        return msgspec.convert(value.get("usage"), Usage | None)
    except msgspec.ValidationError:
        return None
