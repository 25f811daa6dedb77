"""Goes on with a run that the end of its process cut off, or gives it up.

A call that was open may have taken effect. It is made again only if its tool says that this does no harm; otherwise the
model is told the truth, and decides.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.fences.questions import NoSuchQuestion
from spindle.agent.fences.waiting import KeptQuestion, kept_questions
from spindle.agent.lifecycle import Phase, RequestKind
from spindle.agent.run.handle import Run
from spindle.agent.run.meter import Meter
from spindle.agent.run.options import Chain, RunOptions
from spindle.agent.run.record import Interruption, RunRecord, StoredOptions
from spindle.sessions.facts import keep
from spindle.shapes.approvals import Allow, Answer, InterruptedRun, OpenCall, PermissionRequest
from spindle.shapes.events import MessageStart
from spindle.shapes.messages import AgentMessage, AssistantMessage, Text, ToolCall, ToolResultMessage

if TYPE_CHECKING:
    from spindle.agent.engine import Engine

Check = Callable[[PermissionRequest, Allow], Awaitable[object]]
"""Checks a yes. Raises `AgentError`."""
TRUTH = "The process ended while this ran; it may have taken effect: look before you repeat it."

NOT_RUN = "This call did not run: its question was not answered."


def open_calls(messages: list[AgentMessage]) -> tuple[AssistantMessage | None, list[ToolCall]]:
    """Return the last answer, and its calls that have no result."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            calls = [block for block in message.content if isinstance(block, ToolCall) and block.id not in answered]
            return message, calls if message.stop_reason not in ("error", "aborted") else []
        else:
            break
    return None, []


def shown(engine: "Engine") -> InterruptedRun | None:
    """Return the run that was cut off as clients see it."""
    if (left := engine.left) is None:
        return None
    _, calls = open_calls(engine.conversation.messages)
    questions, held = _not_run(engine, left)
    return InterruptedRun(
        id=left.record.id,
        prompt=left.prompt,
        prompt_id=left.record.prompt,
        began=left.began,
        last=left.last,
        turns=left.used.turns,
        cost=left.used.cost,
        limits=left.record.limits,
        open_calls=[OpenCall(call.id, call.name, call.id in held or _is_safe(engine, call)) for call in calls],
        questions=[one.request for one in questions.values() if one.state == "asked"],
    )


def _is_safe(engine: "Engine", call: ToolCall) -> bool:
    return any(tool.safe_to_retry for tool in engine.toolbox.all() if tool.name == call.name)


def resume(engine: "Engine", run: Run) -> None:
    """Go on with the run that was cut off, within its limits. Raises `AgentError`."""
    left = _resumable(engine)
    stored = left.record.options or StoredOptions()
    options = RunOptions(
        max_tokens=stored.max_tokens,
        system_prompt=stored.system_prompt,
        tools=stored.tools,
        schema=stored.schema,
        ask_before_tools=stored.ask_before_tools,
        fallback=stored.fallback,
        limits=left.limits(engine.limits),
    )
    meter = Meter(options.limits, engine.settings.runaway)
    left.carry_over(meter)

    async def prepare(chain: Chain) -> list[AgentMessage] | None:
        chain.questions, chain.held = _not_run(engine, left)
        messages = engine.conversation.messages
        while messages and isinstance(last := messages[-1], AssistantMessage) and last.stop_reason in _FAILED:
            engine.conversation.drop_failed(last)  # it is asked for again
        return []

    run.keep()
    engine.start(prepare, options, run, meter, goes_on=left)


_FAILED = ("error", "aborted")


async def answer_kept(engine: "Engine", id: str, answer: Answer, check: Check) -> bool:
    """Take the answer to a question that waits in the session. Returns whether no other one waits.

    `check` is given the question and a yes. Raises `AgentError`: the question still waits.
    """
    left = _resumable(engine)
    question = _kept(engine, left, id)
    if isinstance(answer, Allow):
        await check(question.request, answer)
        if engine.left is not left or _kept(engine, left, id) != question:
            raise NoSuchQuestion(f"Another client has answered the question {id}")
    question.answered(engine.conversation.session, answer)
    return all(one.state != "asked" for one in _not_run(engine, left)[0].values())


def _kept(engine: "Engine", left: Interruption, id: str) -> KeptQuestion:
    for question in _not_run(engine, left)[0].values():
        if question.request.id == id and question.state == "asked":
            return question
    raise NoSuchQuestion(f"No question {id} waits for an answer: it was answered, or withdrawn")


async def abandon(engine: "Engine") -> None:
    """Give up the run that was cut off; the next prompt tells the model of open calls. Raises `AgentError`."""
    left = _left(engine)
    engine.lifecycle.admit(RequestKind.REGENERATE)
    await give_up(engine, left)


async def give_up(engine: "Engine", left: Interruption) -> None:
    _, held = _not_run(engine, left)
    for call in open_calls(engine.conversation.messages)[1]:
        await _tell_truth(engine, call, NOT_RUN if call.id in held else TRUTH)
    keep(engine.conversation.session, RunRecord(id=left.record.id, state="abandoned"))
    engine.left = None


async def catch_up(engine: "Engine", chain: Chain) -> bool:
    """Give every open call its result: made now, or the truth. Returns whether the model is to be asked.

    It is not if a question waits again, or a limit was reached.
    """
    chain.resumes = False
    answer, calls = open_calls(engine.conversation.messages)
    if answer is None or not calls:
        if chain.meter.exhausted():
            engine.record_begin()  # or the session would not say that the run has ended now
            return False
        return True
    engine.lifecycle.move(Phase.STREAMING)
    created = await engine.begin_try()
    engine.record_begin()  # before calls that were held: from now on they may have run
    made = [call for call in calls if call.id in chain.held or _is_safe(engine, call)]
    created += [await _tell_truth(engine, call) for call in calls if call not in made]
    chain.held = []
    if made:
        created += (await engine.run_tools(replace(answer, content=[*made]), (), engine.lifecycle.signal))[0]
    if not chain.meter.exhausted():
        return True
    await engine.end_run()
    return False


def _not_run(engine: "Engine", left: Interruption) -> tuple[dict[str, KeptQuestion], list[str]]:
    """Return the kept questions about open calls, and the calls that have not run for certain."""
    calls = [call.id for call in open_calls(engine.conversation.messages)[1]]
    questions = kept_questions(engine.conversation.session.branch(), calls)
    asked = [call for call, question in questions.items() if not question.has_run]
    held = [call for call in left.record.held if call not in questions]
    return {call: questions[call] for call in asked}, [call for call in calls if call in asked or call in held]


async def _tell_truth(engine: "Engine", call: ToolCall, truth: str = TRUTH) -> AgentMessage:
    result = ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=[Text(truth)],
        details={},
        is_error=True,
        timestamp=int(time.time() * 1000),
    )
    await engine.hub.emit(MessageStart(result))
    return await engine.commit(result)


def _resumable(engine: "Engine") -> Interruption:
    """Raises `AgentError`."""
    left = _left(engine)
    engine.lifecycle.admit(RequestKind.REGENERATE)
    if all(entry.id != left.entry_id for entry in engine.conversation.session.branch()):
        raise AgentError("The interrupted run is on another branch: go back to its prompt first, or abandon it")
    return left


def _left(engine: "Engine") -> Interruption:
    if engine.left is None:
        raise AgentError("There is no interrupted run in this session")
    return engine.left
