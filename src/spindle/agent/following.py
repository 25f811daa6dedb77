"""The table that decides what follows a try of a run.

`End` says how the try ended, `Found` which things may be found then. A row is read from left to right, and the first
thing that is found decides on the `Step`. Gaps are skipped: no hook is asked whether to go on after the user has
stopped the run. `COMPACT` does not end the reading, nor does `RECOVER` if no room could be made.

`RETRY`, `RECOVER` and `ASK` are part of the run: many clients take its end for the end of the work. Listeners are told
of the end before any other step.

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
from spindle.agent.lifecycle import Aborted, AbortSignal, Lifecycle, Phase
from spindle.agent.retry import Retry
from spindle.agent.run.options import Chain
from spindle.agent.run.result import NO_ANSWER
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


class Found(Enum):
    """Things that may be found after a try, in the order in which they are looked for."""

    LACKING = "the last answer has no words, or is a call that cannot be run, and the model was not told so yet"
    SILENT = "it has no words, although the model was asked for them"
    OVERFLOW = "the answer had too little room in the context"
    THRESHOLD = "the context is nearly full"
    RESULT = "the model has handed in the result that the request has a schema for"
    MISSING = "it has not, and was not told so yet"
    OVERDUE = "it has not, although it was told so"
    QUEUED = "messages in the queues that are to be delivered now"
    HOOK = "a hook wants the model to go on"
    MESSAGES = "an extension has messages for the model"
    NOTHING = "none of these"


class Step(Enum):
    """What the agent does next."""

    RETRY = "wait, then make the failed request again"
    RECOVER = "compact, then make the failed request again; read on if that is not possible"
    COMPACT = "compact if possible, and read on"
    ASK = "tell the model what its answer lacks"
    REMIND = "another run, which tells the model to hand in its result"
    GO_ON = "another run, with what was found"
    GIVE_UP = "the run has failed for want of an answer: settle"
    FAIL = "the run has failed for want of a result: settle"
    SETTLE = "the agent is idle again"


_RETRY, _RECOVER, _COMPACT, _REMIND = Step.RETRY, Step.RECOVER, Step.COMPACT, Step.REMIND
_GO_ON, _FAIL, _SETTLE, _ASK, _QUIT = Step.GO_ON, Step.FAIL, Step.SETTLE, Step.ASK, Step.GIVE_UP
_IN_RUN = (Step.RETRY, Step.RECOVER, Step.ASK, Step.GIVE_UP)
_______ = None
# fmt: off
_ROWS: dict[End, tuple[Step | None, ...]] = {
  #               lacking  silent   overflow  threshold result   missing  overdue  queued   hook     messages nothing
  End.STOPPED:   (_______, _______, _______,  _______,  _______, _______, _______, _______, _______, _______, _SETTLE),
  End.CUT:       (_______, _______, _______,  _______,  _______, _______, _______, _______, _GO_ON,  _______, _SETTLE),
  End.TRANSIENT: (_______, _______, _______,  _______,  _______, _______, _______, _______, _______, _______, _RETRY),
  End.FAILED:    (_______, _______, _RECOVER, _COMPACT, _SETTLE, _______, _______, _GO_ON,  _GO_ON,  _GO_ON,  _SETTLE),
  End.TRUNCATED: (_______, _______, _RECOVER, _COMPACT, _SETTLE, _FAIL,   _FAIL,   _GO_ON,  _GO_ON,  _GO_ON,  _SETTLE),
  End.BY_TOOLS:  (_______, _______, _COMPACT, _COMPACT, _SETTLE, _FAIL,   _FAIL,   _GO_ON,  _GO_ON,  _GO_ON,  _SETTLE),
  End.DONE:      (_ASK,    _QUIT,   _COMPACT, _COMPACT, _SETTLE, _REMIND, _FAIL,   _GO_ON,  _GO_ON,  _GO_ON,  _SETTLE),
}
# fmt: on
FOLLOWING: Final[dict[End, dict[Found, Step]]] = {
    end: {found: step for found, step in zip(Found, row, strict=True) if step is not None} for end, row in _ROWS.items()
}

REASONS: Final = {Found.OVERFLOW: "overflow", Found.THRESHOLD: "threshold"}
"""Reasons for a compaction, as its events name them."""
_BY_STOP_REASON = {"aborted": End.CUT, "error": End.FAILED, "length": End.TRUNCATED, "stop": End.DONE}

Look = Callable[[Found], Awaitable[Sequence[AgentMessage] | None]]
"""Looks for one thing. Returns None if it is not there, else the messages that the next run begins with."""
Compact = Callable[[Found, Step], Awaitable[bool]]
"""Compacts for the reason that was found. Returns whether the failed request can be made again."""
EndRun = Callable[[], Awaitable[None]]
"""Tells listeners that the run is over, if it is not over yet."""


def end_of(answer: AssistantMessage, *, stopped: bool, will_retry: bool) -> End:
    """Say how a try with this last answer ended."""
    if stopped:
        return End.STOPPED
    return End.TRANSIENT if will_retry else _BY_STOP_REASON.get(answer.stop_reason, End.BY_TOOLS)


async def decide(end: End, look: Look, compact: Compact, end_run: EndRun) -> tuple[Step, Sequence[AgentMessage]]:
    """Read the row of the table, compacting on the way. Returns the step, and the messages that were found for it."""
    *things, (_, otherwise) = FOLLOWING[end].items()
    for found, step in things:
        if step not in _IN_RUN:
            await end_run()
        messages = await look(found)
        if messages is not None and (step not in (Step.COMPACT, Step.RECOVER) or await compact(found, step)):
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

    @property
    def signal(self) -> AbortSignal: ...

    def will_retry(self, answer: AssistantMessage) -> bool:
        """Say whether a failed answer may be tried again."""

    def is_awaited(self, answer: AssistantMessage) -> bool:
        """Say whether queued messages are to be delivered after this answer."""

    async def refusal(self, answer: AssistantMessage) -> str | None:
        """Return what to tell a model whose answer is a call as text that cannot be run; None: it is not that."""

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
    stopped = port.signal.aborted or meter.stopped is not None
    end = end_of(answer, stopped=stopped, will_retry=port.will_retry(answer))
    if end is End.FAILED:
        await port.retry.failed(answer.error_message or "Unknown error")
    elif end is not End.TRANSIENT:
        await port.retry.gave_up()  # the attempt was stopped; one that succeeded has told so
    look, compact = partial(_look, chain, answer, port), partial(_compact, chain, answer, port)
    step, messages = await decide(end, look, compact, port.end_run)
    if step is Step.FAIL:
        meter.stopped = "schema"
    if step is Step.GIVE_UP:
        chain.stop_reason, chain.error = "error", NO_ANSWER
    if step in (Step.SETTLE, Step.GIVE_UP) or port.signal.aborted or meter.exhausted():
        await port.retry.gave_up()
        return None
    if step is Step.RETRY:
        port.lifecycle.move(Phase.RETRYING)
        port.conversation.drop_failed(answer)
        return [] if await port.retry.wait(answer, port.failure, port.signal) else None
    if step is Step.REMIND and chain.structured is not None:
        return [chain.structured.reminder()]
    return list(messages)


async def _look(
    chain: Chain, answer: AssistantMessage, port: FollowPort, found: Found
) -> Sequence[AgentMessage] | None:
    """See `Look`. After an abort nothing is found."""
    if port.signal.aborted:
        return None
    match found:
        case Found.LACKING:
            remark = await _lacks(chain, answer, port)
            return None if remark is None else [custom_message("answer-reminder", remark)]
        case Found.SILENT:
            there = chain.asked and _is_empty(chain, answer, port)
        case Found.OVERFLOW | Found.THRESHOLD:
            there = port.compactor.reason(answer) == REASONS[found]
        case Found.RESULT | Found.MISSING | Found.OVERDUE:
            there = chain.structured is not None and found is _standing(chain.structured)
        case Found.QUEUED:
            there = port.is_awaited(answer)
        case Found.HOOK:
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
    remark = await port.refusal(answer)
    chain.corrected = remark is not None
    return remark


def _is_empty(chain: Chain, answer: AssistantMessage, port: FollowPort) -> bool:
    return not text_of(answer.content).strip() and chain.structured is None and not port.is_awaited(answer)


def _standing(structured: StructuredAnswer) -> Found:
    if structured.value is not UNSET:
        return Found.RESULT
    return Found.OVERDUE if structured.told else Found.MISSING


async def _compact(chain: Chain, answer: AssistantMessage, port: FollowPort, found: Found, step: Step) -> bool:
    """See `Compact`."""
    again = step is Step.RECOVER
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
        await port.compactor.run(REASONS[found], port.signal, will_retry=again)
    except (AgentError, Aborted):
        return False
    finally:
        port.lifecycle.move(phase)
    return again
