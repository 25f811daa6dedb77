"""The loop: model, tools, model, tools … until the model has nothing more to ask for.

It knows no files, sockets or settings. Everything it needs comes through a `LoopPort`; a scripted model and a list
that collects events are enough to test it.
"""

import asyncio
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import aclosing
from typing import Protocol

from spindle.agent.hooks import AnswerStopped
from spindle.agent.hub import Hub
from spindle.agent.lifecycle import Aborted, AbortSignal
from spindle.agent.queues import Queued, Queues
from spindle.agent.run.options import Chain
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Failure, Finished, Started
from spindle.shapes.events import MessageStart, MessageUpdate, TurnEnd, TurnStart
from spindle.shapes.messages import AgentMessage, AssistantMessage, ToolResultMessage, custom_message
from spindle.shapes.pieces import AnswerDone, AnswerFailed, AnswerStart, StreamEvent, TextDelta, ThinkingDelta


class LoopPort(Protocol):
    """What the loop needs of the agent."""

    hub: Hub
    queues: Queues
    failure: Failure | None
    """How the last answer failed, as far as known."""

    @property
    def unanswered(self) -> bool:
        """Whether the model has yet to answer the last message of the conversation."""

    async def commit(self, message: AgentMessage) -> AgentMessage:
        """Make a finished message part of the conversation and tell of its end; hooks may replace it."""

    async def stream(self) -> AsyncGenerator[Chunk, None]:
        """Ask the current model to answer the current conversation."""

    def empty_answer(self, stop_reason: str, error: str) -> AssistantMessage:
        """Return an answer without content, for a model that never began to write."""

    async def with_text_calls(self, answer: AssistantMessage) -> AssistantMessage:
        """Return the answer with tool calls that the model wrote into its text as calls."""

    async def run_tools(
        self, message: AssistantMessage, cut: Container[str], signal: AbortSignal
    ) -> tuple[list[ToolResultMessage], bool]:
        """Run the calls of an answer, but not those in `cut`. Returns results, and whether all ask to end the run."""

    async def begin_try(self) -> list[AgentMessage]:
        """Tell that a run begins, unless it is only tried again. Returns the messages it has made; more are added."""

    async def end_run(self) -> None:
        """Tell that the run is over, if that was not told yet."""

    def broke(self, error: Exception) -> AssistantMessage:
        """Add an answer that tells of a bug, even if the session file cannot be written. Returns it."""


async def run(prompt: Sequence[AgentMessage], chain: Chain, port: LoopPort, signal: AbortSignal) -> AssistantMessage:
    """Make one try of a run: until the model is done, fails, or is aborted. Returns its last answer.

    The caller ends the run, unless it tries again. After a bug the end is told here, and the exception raised.
    """
    # Taken before the first await: the messages that a run was started for cannot be cleared any more.
    waiting = [] if prompt else port.queues.steering.batch()
    if not prompt and not waiting and not port.unanswered:
        waiting = port.queues.follow_up.batch()
    created = await port.begin_try()
    await port.hub.emit(TurnStart())
    try:
        return await _turns(prompt, waiting, chain, port, signal, created)
    except Exception as error:
        answer = port.broke(error)
        created.append(answer)
        await port.hub.emit(TurnEnd(answer, []))
        await port.end_run()
        raise


async def _turns(
    prompt: Sequence[AgentMessage],
    waiting: list[Queued],
    chain: Chain,
    port: LoopPort,
    signal: AbortSignal,
    created: list[AgentMessage],
) -> AssistantMessage:
    """Let model and tools take turns. Every message goes into `created`; returns the last answer."""
    queues = port.queues

    async def enter(message: AgentMessage) -> None:
        await port.hub.emit(MessageStart(message))
        created.append(await port.commit(message))

    for message in prompt:
        await enter(message)
    if prompt and not signal.aborted:
        waiting = queues.steering.batch()
    while True:
        for queued in waiting:
            if signal.aborted:
                break  # the message waits for the next run
            queues.deliver(queued)
            await enter(queued)
        answer, cut = await _answer(port, signal)
        created.append(answer)
        if answer.stop_reason in ("error", "aborted"):
            await port.hub.emit(TurnEnd(answer, []))
            return answer
        results, ended = await port.run_tools(answer, cut, signal)
        created.extend(results)
        await port.hub.emit(TurnEnd(answer, results))
        go_on = bool(results) and not ended
        if (go_on or queues.deliverable) and chain.exhausted():
            return answer
        waiting = []
        if not signal.aborted:
            waiting = queues.steering.batch() or ([] if go_on else queues.follow_up.batch())
        if not go_on and not waiting:
            return answer
        await port.hub.emit(TurnStart())
        if go_on and not signal.aborted and (remarks := chain.take_remarks()):
            # Not in the results: small models take words there for their own, and repeat them as an answer.
            await enter(custom_message("remark", f"<remark>{' '.join(remarks)}</remark>"))


async def _answer(port: LoopPort, signal: AbortSignal) -> tuple[AssistantMessage, Container[str]]:
    """Let the model write one answer, and tell of every piece. An abort keeps the text received so far.

    Returns the answer, and the ids of calls whose arguments are not complete.
    """
    live: LiveMessage | None = None
    answer: AssistantMessage | None = None
    first = False
    port.failure = None
    try:
        with signal:
            async with aclosing(await port.stream()) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Started):
                        live, first = chunk.live, True
                        await port.hub.emit(MessageStart(live))
                        await port.hub.emit(MessageUpdate(AnswerStart(), live))
                    elif isinstance(chunk, Finished):
                        answer, port.failure = chunk.message, chunk.failure
                    else:
                        pieces = chunk if isinstance(chunk, list) else [chunk]
                        if first and (end := _end_of_first(pieces)):
                            first = False
                            await port.hub.emit_pieces(pieces[:end], live)
                            await asyncio.sleep(0)  # the first text is sent now, without the pieces behind it
                            pieces = pieces[end:]
                        await port.hub.emit_pieces(pieces, live)
    except (Aborted, AnswerStopped) as stop:
        why = str(stop) or "Request was aborted"
        if live is None:
            answer = port.empty_answer("aborted", f"{why}.")
        else:
            await port.hub.emit_pieces(live.end_all(), live)
            answer = live.finish("aborted", why)
    except Exception as error:  # a hook or an adapter broke: the conversation must survive it
        text = str(error) or type(error).__name__
        port.failure = Failure(error=type(error).__name__)
        answer = live.finish("error", text) if live else port.empty_answer("error", text)
    if answer is None:
        answer = port.empty_answer("error", "The model's stream ended without an answer")
    answer = await port.with_text_calls(answer)
    if live is None:
        await port.hub.emit(MessageStart(answer))
        await port.hub.emit(MessageUpdate(AnswerStart(), answer))
    reason = answer.stop_reason
    await port.hub.emit(MessageUpdate((AnswerFailed if reason in ("error", "aborted") else AnswerDone)(reason), answer))
    committed = await port.commit(answer)
    cut = live.cut_calls() if live is not None else ()
    return committed if isinstance(committed, AssistantMessage) else answer, cut


def _end_of_first(pieces: Sequence[StreamEvent]) -> int:
    """Return where in `pieces` the first text ends; 0 if there is none."""
    return next((at for at, piece in enumerate(pieces, 1) if isinstance(piece, TextDelta | ThinkingDelta)), 0)
