"""The table that decides what follows a try of a run.

`End` says how the try ended, `Finding` which things may be found then. A row is read from left to right, and the first
thing that is found decides on the `NextStep`. Gaps are skipped: no hook is asked whether to go on after the user has
stopped the run. `COMPACT` does not end the reading, nor does `RECOVER` if no room could be made.

`RETRY`, `RECOVER`, `FALL_BACK` and `ASK` are part of the run: many clients take its end for the end of the work.
Listeners are told of the end before any other step.

A step that calls the model is taken only if no limit of the run forbids the call; otherwise the agent settles.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, Protocol

from msgspec import UNSET

from spindle.agent import AgentError
from spindle.agent.compaction import Compactor
from spindle.agent.conversation import Conversation
from spindle.agent.features.structured import StructuredAnswer
from spindle.agent.lifecycle import Aborted, Lifecycle, Phase
from spindle.agent.retry import Retry
from spindle.agent.run.options import Chain
from spindle.agent.run.result import CUT_ANSWER, NO_ANSWER, UNFINISHED
from spindle.llm.stream import Failure
from spindle.shapes.messages import AgentMessage, AssistantMessage, custom_message, text_of


class End(Enum):
    """How a try ended."""

    STOPPED = "the user or a limit stopped it"
    CUT = "a hook stopped the answer, perhaps to have another"
    TRANSIENT = "the answer failed, and another try may succeed"
    FAILED = "the answer failed, and will not be tried again"
    TRUNCATED = "the answer was cut off at its greatest length"
    BY_TOOLS = "the tools asked to end it"
    DONE = "the model had nothing more to ask for"


class Finding(Enum):
    """Things that may be found after a try, in the order in which they are looked for."""

    LACKING = "the last answer has no words, or is no end of the work, and the model was not told so yet"
    AGAIN = "it is so, although the model was told"
    OVERFLOW = "the answer had too little room in the context"
    SPARE = "another model may give the answer that this one could not give"
    THRESHOLD = "the context is nearly full"
    RESULT = "the model has handed in the result that the request has a schema for"
    MISSING = "it has not, and was not told so yet"
    OVERDUE = "it has not, although it was told so"
    QUEUED = "messages in the queues that are to be delivered now"
    HOOK = "a hook wants the model to go on"
    MESSAGES = "an extension has messages for the model"
    NOTHING = "none of these"


class NextStep(Enum):
    """What the agent does next."""

    RETRY = "wait, then make the failed request again"
    RECOVER = "compact, then make the failed request again; read on if that is not possible"
    FALL_BACK = "make the failed request again, to another model"
    COMPACT = "compact if possible, and read on"
    ASK = "tell the model what its answer lacks"
    REMIND = "another run, which tells the model to hand in its result"
    GO_ON = "another run, with what was found"
    GIVE_UP = "the run has failed for want of an answer, or of an end: settle"
    FAIL = "the run has failed for want of a result: settle"
    SETTLE = "the agent is idle again"


_RETRY, _RECOVER, _COMPACT, _REMIND = NextStep.RETRY, NextStep.RECOVER, NextStep.COMPACT, NextStep.REMIND
_GO_ON, _FAIL, _SETTLE, _ASK, _QUIT = NextStep.GO_ON, NextStep.FAIL, NextStep.SETTLE, NextStep.ASK, NextStep.GIVE_UP
_OTHER = NextStep.FALL_BACK
_IN_RUN = (NextStep.RETRY, NextStep.RECOVER, NextStep.FALL_BACK, NextStep.ASK, NextStep.GIVE_UP)
_____ = None
# fmt: off
_ROWS: dict[End, tuple[NextStep | None, ...]] = {
  #             lacking again  overflow  spare   threshold result missing overdue queued  hook    message nothing
  End.STOPPED:   (_____, _____, _____,    _____,  _____,    _____,   _____,   _____, _____,  _____,  _____,  _SETTLE),
  End.CUT:       (_____, _____, _____,    _____,  _____,    _____,   _____,   _____, _____,  _GO_ON, _____,  _SETTLE),
  End.TRANSIENT: (_____, _____, _____,    _____,  _____,    _____,   _____,   _____, _____,  _____,  _____,  _RETRY),
  End.FAILED:    (_____, _____, _RECOVER, _OTHER, _COMPACT, _SETTLE, _____,   _____, _GO_ON, _GO_ON, _GO_ON, _SETTLE),
  End.TRUNCATED: (_____, _____, _RECOVER, _____,  _COMPACT, _SETTLE, _FAIL,   _FAIL, _GO_ON, _GO_ON, _GO_ON, _SETTLE),
  End.BY_TOOLS:  (_____, _____, _COMPACT, _____,  _COMPACT, _SETTLE, _FAIL,   _FAIL, _GO_ON, _GO_ON, _GO_ON, _SETTLE),
  End.DONE:      (_ASK,  _QUIT, _COMPACT, _____,  _COMPACT, _SETTLE, _REMIND, _FAIL, _GO_ON, _GO_ON, _GO_ON, _SETTLE),
}
# fmt: on
FOLLOWING: Final[dict[End, dict[Finding, NextStep]]] = {
    end: {found: step for found, step in zip(Finding, row, strict=True) if step is not None}
    for end, row in _ROWS.items()
}

REASONS: Final = {Finding.OVERFLOW: "overflow", Finding.THRESHOLD: "threshold"}
"""Reasons for a compaction, as its events name them."""
_BY_STOP_REASON = {"aborted": End.CUT, "error": End.FAILED, "length": End.TRUNCATED, "stop": End.DONE}

Look = Callable[[Finding], Awaitable[Sequence[AgentMessage] | None]]
"""Looks for one thing. Returns None if it is not there, else the messages that the next run begins with."""
Compact = Callable[[Finding, NextStep], Awaitable[bool]]
"""Compacts for the reason that was found. Returns whether the failed request can be made again."""
EndRun = Callable[[], Awaitable[None]]
"""Tells listeners that the run is over, if it is not over yet."""


def end_of(answer: AssistantMessage, *, stopped: bool, will_retry: bool) -> End:
    """Say how a try with this last answer ended."""
    if stopped:
        return End.STOPPED
    return End.TRANSIENT if will_retry else _BY_STOP_REASON.get(answer.stop_reason, End.BY_TOOLS)


async def decide(end: End, look: Look, compact: Compact, end_run: EndRun) -> tuple[NextStep, Sequence[AgentMessage]]:
    """Read the row of the table, compacting on the way. Returns the step, and the messages that were found for it."""
    *things, (_, otherwise) = FOLLOWING[end].items()
    over = False
    for found, step in things:
        if step not in _IN_RUN and not over:
            over = True
            await end_run()
        messages = await look(found)
        if messages is not None and (step not in (NextStep.COMPACT, NextStep.RECOVER) or await compact(found, step)):
            return step, messages
    if otherwise not in _IN_RUN:
        await end_run()
    return otherwise, []


# -- the steps -----------------------------------------------------------------------------------

_ASKED = "Your last answer was empty. Go on with the work, or say in words what you did and what came of it."
_RECOVERY_FAILED = (
    "Context overflow recovery failed after one compact-and-retry attempt. "
    "Try reducing context or switching to a larger-context model."
)
_TRUNCATED_AGAIN = "Truncated response recovery failed after one compact-and-retry attempt."


class FollowPort(Protocol):
    """What the steps need of the engine."""

    conversation: Conversation
    compactor: Compactor
    lifecycle: Lifecycle
    retry: Retry
    failure: Failure | None
    """How the last answer failed, as far as known."""

    async def will_retry(self, answer: AssistantMessage) -> bool:
        """Say whether a failed answer may be tried again."""

    def is_awaited(self, answer: AssistantMessage) -> bool:
        """Say whether queued messages are to be delivered after this answer."""

    async def what_is_missing(self, answer: AssistantMessage) -> str | None:
        """Return what to tell a model whose answer is no end of its work; None: it may be, or a person decides."""

    async def has_spare(self, answer: AssistantMessage) -> bool:
        """Say whether another model may give the answer that has failed."""

    async def fall_back(self, answer: AssistantMessage) -> None:
        """Let the other model answer from here on."""

    async def end_run(self) -> None: ...


async def after(chain: Chain, answer: AssistantMessage, port: FollowPort) -> list[AgentMessage] | None:
    """Take the step that follows a try with this last answer. Returns the messages that the next try, or the next
    run, begins with; None: nothing follows, and the run is over.
    """
    following = await _follow(chain, answer, port)
    if following is None:
        await port.end_run()
    return following


async def _follow(chain: Chain, answer: AssistantMessage, port: FollowPort) -> list[AgentMessage] | None:
    meter = chain.meter
    failed = answer.stop_reason == "error"
    chain.stop_reason, chain.error = ("error", answer.error_message) if failed else ("end", None)
    if port.failure is not None and port.failure.stop_reason:
        meter.stopped = port.failure.stop_reason
    stopped = port.lifecycle.signal.aborted or meter.stopped is not None
    end = end_of(answer, stopped=stopped, will_retry=await port.will_retry(answer))
    if end is End.FAILED:
        await port.retry.failed(answer.error_message or "Unknown error")
    elif end is not End.TRANSIENT:
        await port.retry.gave_up()  # the attempt was stopped; one that succeeded has told so
    look, compact = partial(_look, chain, answer, port), partial(_compact, chain, answer, port)
    step, messages = await decide(end, look, compact, port.end_run)
    _note_end(chain, step, end)
    if step in (NextStep.SETTLE, NextStep.GIVE_UP) or port.lifecycle.signal.aborted or meter.exhausted():
        await port.retry.gave_up()
        return None
    if step is NextStep.RETRY:
        port.lifecycle.move(Phase.RETRYING)
        port.conversation.drop_failed(answer)
        return [] if await port.retry.wait(answer, port.failure, port.lifecycle.signal) else None
    if step is NextStep.FALL_BACK:
        port.conversation.set_aside(answer)
        await port.fall_back(answer)
        return []
    if step is NextStep.REMIND and chain.structured is not None:
        return [chain.structured.reminder()]
    return list(messages)


def _note_end(chain: Chain, step: NextStep, end: End) -> None:
    """Note why the chain ends, where the answer itself does not say it."""
    has_result = chain.structured is not None and chain.structured.value is not UNSET
    if step is NextStep.SETTLE and end is End.TRUNCATED and not has_result:
        chain.stop_reason, chain.error = "length", CUT_ANSWER
    elif step is NextStep.GIVE_UP and chain.gave_up:
        chain.stop_reason, chain.error = "unfinished", UNFINISHED
    elif step is NextStep.GIVE_UP:
        chain.stop_reason, chain.error = "error", NO_ANSWER
    elif step is NextStep.FAIL:
        chain.meter.stopped = "schema"


async def _look(
    chain: Chain, answer: AssistantMessage, port: FollowPort, found: Finding
) -> Sequence[AgentMessage] | None:
    """See `Look`. After an abort nothing is found."""
    if port.lifecycle.signal.aborted:
        return None
    match found:
        case Finding.LACKING:
            remark = await _lacks(chain, answer, port)
            return None if remark is None else [custom_message("answer-reminder", remark)]
        case Finding.AGAIN:
            there = (chain.asked and _is_empty(chain, answer, port)) or await _is_unfinished(chain, answer, port)
        case Finding.OVERFLOW | Finding.THRESHOLD:
            there = port.compactor.reason(answer) == REASONS[found]
        case Finding.SPARE:
            there = await port.has_spare(answer)
        case Finding.RESULT | Finding.MISSING | Finding.OVERDUE:
            there = chain.structured is not None and found is _standing(chain.structured)
        case Finding.QUEUED:
            there = port.is_awaited(answer)
        case Finding.HOOK:
            there = await chain.hooks.go_on(answer)
        case _:
            return await chain.hooks.before_settle(answer, port.conversation.messages)
    return [] if there else None


async def _lacks(chain: Chain, answer: AssistantMessage, port: FollowPort) -> str | None:
    """Return what to tell the model about its last answer, each thing once in a chain; None: nothing."""
    if not chain.asked and _is_empty(chain, answer, port):
        chain.asked = True
        return _ASKED
    if chain.corrected or chain.structured is not None or port.is_awaited(answer):
        return None
    remark = await port.what_is_missing(answer)
    chain.corrected = remark is not None
    return remark


async def _is_unfinished(chain: Chain, answer: AssistantMessage, port: FollowPort) -> bool:
    """Say whether the answer is no end of the work, again; the run then ends as a failure."""
    if not chain.corrected or chain.structured is not None or port.is_awaited(answer):
        return False
    chain.gave_up = await port.what_is_missing(answer) is not None
    return chain.gave_up


def _is_empty(chain: Chain, answer: AssistantMessage, port: FollowPort) -> bool:
    return not text_of(answer.content).strip() and chain.structured is None and not port.is_awaited(answer)


def _standing(structured: StructuredAnswer) -> Finding:
    if structured.value is not UNSET:
        return Finding.RESULT
    return Finding.OVERDUE if structured.told else Finding.MISSING


async def _compact(chain: Chain, answer: AssistantMessage, port: FollowPort, found: Finding, step: NextStep) -> bool:
    """See `Compact`."""
    again = step is NextStep.RECOVER
    if chain.meter.exhausted() if again else chain.meter.reached():
        return False
    if again and chain.recovered:
        port.compactor.refuse(_RECOVERY_FAILED if answer.stop_reason == "error" else _TRUNCATED_AGAIN)
        return False
    if not port.compactor.possible():
        return False
    if again:
        chain.recovered = True
        port.conversation.drop_failed(answer)
    phase = port.lifecycle.phase
    port.lifecycle.move(Phase.COMPACTING)
    try:
        await port.compactor.run(REASONS[found], port.lifecycle.signal, will_retry=again)
    except (AgentError, Aborted):
        return False
    finally:
        port.lifecycle.move(phase)
    return again
