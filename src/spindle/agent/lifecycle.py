"""The phases of an agent, and what becomes of a request in each of them.

A prompt is `PREPARING` while hooks look at it, and `MAKING_ROOM` if the context has to be compacted first. The run
then goes back and forth between `STREAMING` (the model writes) and `TOOLS`. It may wait for another try (`RETRYING`),
or make room for one by a summary (`COMPACTING`). Once `agent_end` is out it is `ENDING` until the next step is clear:
a summary, more messages, or nothing; then the agent is `IDLE`. Outside of any run, `SUMMARIZING` is a summary that a
person asked for, and `SWITCHING` the change to another session.

An abort is asyncio cancellation, turned into one exception at one place: `AbortSignal`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from types import TracebackType
from typing import Final

from spindle.agent import AgentError

SESSION_ENDED = "The session has ended"


class Aborted(Exception):
    """The user stopped the work in hand."""


class AbortSignal:
    """Says whether work was aborted, and stops the region that is running right now.

    A region is entered with `with signal:`; regions do not nest. An abort from outside cancels the task inside it;
    the region then raises `Aborted`, never a stray `CancelledError`. Other cancellations of the task pass through,
    even if they come together with an abort.
    """

    def __init__(self) -> None:
        self.aborted = False
        self._told = asyncio.Event()
        self._inside: asyncio.Task[object] | None = None
        """The task in the region, while there is one."""
        self._cancelled = False
        """Whether this signal cancelled that task."""
        self._cancelled_before = 0
        """Pending cancellations of the task when it entered the region."""

    def abort(self) -> None:
        if self.aborted:
            return
        self.aborted = True
        self._told.set()
        # Work that aborts itself is not cancelled in mid-step: it leaves at its next check.
        if self._inside is not None and self._inside is not asyncio.current_task():
            self._cancelled = self._inside.cancel()

    def check(self) -> None:
        """Raise `Aborted` if the work was aborted."""
        if self.aborted:
            raise Aborted

    async def wait(self) -> None:
        """Return when the work is aborted."""
        await self._told.wait()

    def __enter__(self) -> None:
        self.check()
        self._inside = asyncio.current_task()
        self._cancelled_before = self._inside.cancelling() if self._inside else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._inside = self._inside, None
        if task is None or not self._cancelled:
            return
        self._cancelled = False
        only_ours = task.uncancel() <= self._cancelled_before
        if kind is asyncio.CancelledError and only_ours:
            raise Aborted from None


class Phase(Enum):
    IDLE = "idle"
    PREPARING = "preparing"
    MAKING_ROOM = "making room"
    STREAMING = "streaming"
    TOOLS = "tools"
    ENDING = "ending"
    RETRYING = "retrying"
    COMPACTING = "compacting"
    SUMMARIZING = "summarizing"
    SWITCHING = "switching"


_P = Phase
MOVES: Final[dict[Phase, frozenset[Phase]]] = {
    _P.IDLE: frozenset({_P.PREPARING, _P.SUMMARIZING, _P.SWITCHING}),
    # A prompt may be dealt with by a hook (back to idle), or need room first.
    _P.PREPARING: frozenset({_P.STREAMING, _P.MAKING_ROOM, _P.IDLE}),
    _P.MAKING_ROOM: frozenset({_P.PREPARING, _P.IDLE}),
    _P.STREAMING: frozenset({_P.TOOLS, _P.RETRYING, _P.COMPACTING, _P.ENDING, _P.IDLE}),
    _P.TOOLS: frozenset({_P.STREAMING, _P.ENDING, _P.IDLE}),
    _P.ENDING: frozenset({_P.STREAMING, _P.COMPACTING, _P.IDLE}),
    _P.RETRYING: frozenset({_P.STREAMING, _P.ENDING, _P.IDLE}),
    _P.COMPACTING: frozenset({_P.STREAMING, _P.ENDING, _P.IDLE}),
    _P.SUMMARIZING: frozenset({_P.IDLE}),
    _P.SWITCHING: frozenset({_P.IDLE}),
}
_NO_RUN = (_P.IDLE, _P.SUMMARIZING, _P.SWITCHING)
_SUMMARIES = (_P.MAKING_ROOM, _P.COMPACTING, _P.SUMMARIZING)


class RequestKind(Enum):
    """Kinds of requests to the agent."""

    PROMPT = "a prompt"
    PROMPT_OR_QUEUE = "a prompt with streamingBehavior"
    OWN = "a prompt that gets a run of its own: of a program, or of the remote protocol"
    QUEUE = "a steering or follow-up message"
    INSIDE = "a prompt of an extension, which may be what the agent waits for"
    INSIDE_OR_QUEUE = "a prompt of an extension with deliver_as"
    REGENERATE = "another answer to the last prompt, or an empty context"
    SUMMARY = "a compaction, or a jump in the tree"
    CHANGE = "another session"
    RESTORE = "files as they were at a checkpoint"


class Verdict(Enum):
    START = "the agent is idle: begin"
    QUEUE = "the message waits in its queue for the run that is going on"
    WAIT = "kept until the other session is there, or the run that ends is over; then looked at again"
    ABORT_FIRST = "what runs is aborted, then this begins"


_START, _QUEUE, _WAIT, _ABORT = Verdict.START, Verdict.QUEUE, Verdict.WAIT, Verdict.ABORT_FIRST
_BUSY = "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
_SUMMARY = "Cannot submit a prompt while compaction is in progress. Wait for compaction to finish and retry."
_WRITING = "Cannot restore files while the agent is at work. Wait for its end, or abort it."
_CHANGE = "Cannot submit a prompt while the session is being replaced."

_COLUMNS = (
    _P.IDLE, _P.PREPARING, _P.MAKING_ROOM, _P.STREAMING, _P.TOOLS,
    _P.ENDING, _P.RETRYING, _P.COMPACTING, _P.SUMMARIZING, _P.SWITCHING,
)  # fmt: skip
# A text is a refusal. Clients older than `agent_settled` prompt again at `agent_end`: hence the queue in ENDING.
# A prompt in preparation may wait for the very extension that sends another prompt: hence the queue for INSIDE.
# fmt: off
_ROWS: dict[RequestKind, tuple[Verdict | str, ...]] = {
    #                         idle    prepar. room    stream. tools   ending  retry.  compact. summar.   switching
    RequestKind.PROMPT:          (_START, _BUSY,  _BUSY,  _BUSY,  _BUSY,  _QUEUE, _BUSY,  _QUEUE,  _SUMMARY, _WAIT),
    RequestKind.PROMPT_OR_QUEUE: (_START, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE,  _SUMMARY, _WAIT),
    RequestKind.OWN:             (_START, _BUSY,  _BUSY,  _BUSY,  _BUSY,  _WAIT,  _BUSY,  _WAIT,   _SUMMARY, _WAIT),
    RequestKind.QUEUE:           (_QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE,  _QUEUE,   _WAIT),
    RequestKind.INSIDE:          (_START, _QUEUE, _BUSY,  _BUSY,  _BUSY,  _BUSY,  _BUSY,  _BUSY,   _SUMMARY, _CHANGE),
    RequestKind.INSIDE_OR_QUEUE: (_START, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE, _QUEUE,  _SUMMARY, _CHANGE),
    RequestKind.REGENERATE:      (_START, _BUSY,  _BUSY,  _BUSY,  _BUSY,  _BUSY,  _BUSY,  _BUSY,   _SUMMARY, _CHANGE),
    RequestKind.SUMMARY:         (_START, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT,  _ABORT,   _WAIT),
    RequestKind.CHANGE:          (_START, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT,  _ABORT,   _WAIT),
    RequestKind.RESTORE:         (_START, *[_WRITING] * 9),
}
# fmt: on
_PROMPTS = (RequestKind.PROMPT, RequestKind.PROMPT_OR_QUEUE, RequestKind.OWN)
ADMISSION: Final[dict[RequestKind, dict[Phase, Verdict | str]]] = {
    request: dict(zip(_COLUMNS, row, strict=True)) for request, row in _ROWS.items()
}


class Lifecycle:
    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.signal = AbortSignal()
        """Aborts the work in hand."""
        self.changes = 0
        """Changes of session that were requested and are not done yet."""
        self.closed = False
        """Whether the agent is going away: nothing begins any more."""
        self.on_free: Callable[[], None] = lambda: None
        """Called when messages that were held back may go on: the agent is idle, and no earlier request waits."""
        self._claims = 0
        """Requests for other work than a run that wait until the agent is idle."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._unchanging = asyncio.Event()
        self._unchanging.set()
        self.change_told = asyncio.Event()
        """Set unless a change of session is under way, or its client has yet to be answered."""
        self.change_told.set()

    @property
    def running(self) -> bool:
        """Whether a prompt is being worked on, including the pauses between runs."""
        return self.phase not in _NO_RUN

    @property
    def aborting(self) -> bool:
        """Whether a run or a summary was aborted and is coming to its end."""
        return self.signal.aborted and self.phase not in (Phase.IDLE, Phase.SWITCHING)

    @property
    def compacting(self) -> bool:
        return self.phase in _SUMMARIES

    def admit(self, request: RequestKind) -> Verdict:
        """Say what becomes of a request now. Raises `AgentError` if it is refused.

        A message that is sent after a change of session was requested is meant for the new session. A prompt that is
        sent after an abort is not aborted by it, but waits for its end.
        """
        self.check_open()
        kept = self.changes and request not in (RequestKind.INSIDE, RequestKind.INSIDE_OR_QUEUE)
        kept = kept or (self.aborting and request in _PROMPTS)
        verdict = ADMISSION[request][Phase.SWITCHING if kept else self.phase]
        if isinstance(verdict, str):
            raise AgentError(verdict)
        return verdict

    def check_open(self) -> None:
        if self.closed:
            raise AgentError(SESSION_ENDED)

    def begin(self, phase: Phase) -> None:
        """Leave `IDLE`; `end` comes back to it. Raises `AgentError` if the agent is going away."""
        self.check_open()
        self.move(phase)
        self.signal = AbortSignal()
        self._idle.clear()

    def move(self, to: Phase) -> None:
        """Go on to another phase. Staying is always allowed; a move that is not in the table is a bug."""
        if to is not self.phase and to not in MOVES[self.phase]:
            raise RuntimeError(f"An agent that is {self.phase.value} cannot become {to.value}")
        self.phase = to

    def end(self) -> None:
        self.move(Phase.IDLE)
        self._idle.set()

    def free(self) -> None:
        """Let messages that were held back go on, unless other work comes first."""
        if self.phase is Phase.IDLE and not (self.changes or self._claims or self.closed):
            self.on_free()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def begin_change(self) -> None:
        """Note that a change of session was requested: from now on prompts are meant for the new session.

        Raises `AgentError` if the agent is going away.
        """
        self.check_open()
        self.changes += 1
        self._unchanging.clear()
        self.change_told.clear()

    def end_change(self) -> None:
        self.changes -= 1
        if not self.changes:
            self._unchanging.set()

    def tell_change(self) -> None:
        """Note that the client that requested a change was answered."""
        if not self.changes:
            self.change_told.set()

    async def wait_free(self) -> None:
        """Return when a prompt would start at once: there is neither a run nor a change of session."""
        while self.phase is not Phase.IDLE or self.changes:
            await self._idle.wait()
            await self._unchanging.wait()

    async def admissible(self, request: RequestKind) -> None:
        """Wait until a request would not be refused, and would not have to wait for an abort or a change of session.

        Raises `AgentError` if the agent is going away.
        """
        while self.aborting or self.changes or ADMISSION[request][self.phase] not in (Verdict.START, Verdict.QUEUE):
            self.check_open()
            await self.wait_free()

    @asynccontextmanager
    async def alone(self, request: RequestKind, phase: Phase, stop: Callable[[], None]) -> AsyncIterator[AbortSignal]:
        """Do other work than a run, in that phase. `stop` is called to end the current work if the table says so."""
        self._claims += 1
        try:
            while (verdict := ADMISSION[request][self.phase]) is not Verdict.START:
                if verdict is Verdict.ABORT_FIRST:
                    stop()
                await self._idle.wait()  # then look again: another request may have been quicker
            self.begin(phase)
        finally:
            self._claims -= 1
            self.free()
        try:
            yield self.signal
        finally:
            self.end()
            self.free()
