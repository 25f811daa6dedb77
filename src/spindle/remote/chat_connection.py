"""One client of the remote protocol: which request runs, which wait, and what is answered at once.

Where it stands follows from two things. No run: idle. A run: running, or waiting for the confirmation of a tool or of
the turn limit while the run has an open question. Control inputs are served in every state; chat inputs wait for
their turn while the connection is running and are refused while it waits for the user.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any

from spindle.agent import AgentError
from spindle.remote.chat_protocol import (
    ChatRequest,
    Command,
    Control,
    Parts,
    ProtocolError,
    ToolAnswer,
    TurnAnswer,
    parse_request,
    structured_error,
)
from spindle.remote.chat_run import Answer, ChatRun, ChatState, Question
from spindle.remote.frames import FrameQueue
from spindle.remote.instructions import COMMANDS_TEXT, run_instruction
from spindle.remote.line import BYE, Line
from spindle.remote.live import LiveSession
from spindle.remote.options import RemoteOptions

__all__ = ["ChatConnection"]

STOP_S = 10.0
"""How long a run may take to end when its client is gone."""
NOT_WAITING_FOR_TOOL = "No pending tool confirmation found"
NOT_WAITING_FOR_TURN = "不在等待对话轮次确认状态"
NOTHING_TO_INTERRUPT = "No active model output to interrupt"
INTERRUPTED = "Model output interrupted successfully"
CLEARED = "上下文已清理，对话轮次已重置"
CANNOT_CLEAR = "Cannot clear context while model is running"
CANNOT_REGENERATE = "Cannot regenerate while model is running"

log = logging.getLogger("spindle.remote")


class ChatConnection:
    def __init__(self, line: Line, live: LiveSession, options: RemoteOptions) -> None:
        self.state = ChatState()
        self._line = line
        self._agent = live.agent
        self._options = options
        self._frames = FrameQueue()
        self._run: ChatRun | None = None
        self._queue: deque[ChatRequest] = deque()
        """Requests that wait for their turn."""
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what the line needs ---------------------------------------------------------------------

    def receive(self, message: str | bytes) -> None:
        try:
            request = parse_request(message)
        except ProtocolError as error:
            self._refuse(error.request_id, str(error))
            return
        match request.input:
            case Control():
                self._control(request, request.input.name)
            case ToolAnswer():
                self._tool_answer(request, request.input)
            case TurnAnswer():
                self._turn_answer(request, request.input)
            case Command():
                self._reply(request, self._instruct(request.input))
            case Parts():
                self._chat(request)

    async def room(self) -> None:
        await self._frames.room()

    async def next_frame(self) -> str | None:
        return await self._frames.take()

    async def end(self) -> None:
        """Stop what the client started; an open confirmation counts as denied."""
        self._queue.clear()
        if (run := self._run) is not None:
            run.interrupt()
            try:
                async with asyncio.timeout(STOP_S):
                    await run.ended.wait()
            except TimeoutError:
                log.warning("request %s does not end", run.request.id)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        self._frames.finish()

    def drop(self) -> None:
        self._frames.drop()

    # -- chat inputs -----------------------------------------------------------------------------

    def _chat(self, request: ChatRequest) -> None:
        question = self._question
        if question is not None:
            kind = "turn" if question.tool is None else "tool"
            self._refuse(request.id, f"Waiting for {kind} confirmation")
        elif self._knows(request.id):
            self._refuse(request.id, "A request with this id is running")
        elif self._run is not None and len(self._queue) >= self._options.max_queued:
            self._refuse(request.id, f"Too many requests are waiting (at most {self._options.max_queued})")
        else:
            self._queue.append(request)
            self._start_next()

    def _knows(self, id: str) -> bool:
        running = self._run is not None and self._run.request.id == id
        return running or any(waiting.id == id for waiting in self._queue)

    @property
    def _question(self) -> Question | None:
        return self._run.question if self._run is not None else None

    def _start_next(self) -> None:
        if self._queue and self._run is None:
            self._run = ChatRun(self._queue.popleft(), self._agent, self.state, self._frames, self._options)
            self._spawn(self._serve(self._run))

    async def _serve(self, run: ChatRun) -> None:
        try:
            await run.run()
        finally:
            self._run = None
            self._start_next()

    # -- answers to our questions ----------------------------------------------------------------

    def _tool_answer(self, request: ChatRequest, answer: ToolAnswer) -> None:
        run, question = self._run, self._question
        if run is None or question is None or question.tool is None:
            self._refuse(request.id, NOT_WAITING_FOR_TOOL)
        elif answer.name != question.tool:
            expected = f"expected '{question.tool}', got '{answer.name}'"
            self._refuse(request.id, f"Tool confirmation validation failed: Tool name mismatch: {expected}")
        elif answer.approved and answer.arguments and answer.arguments != question.arguments:
            # A yes sent twice must not allow the next call of the same tool.
            self._refuse(request.id, "Tool confirmation validation failed: these are not the arguments asked about")
        else:
            run.answer(Answer(answer.approved, answer.reason))

    def _turn_answer(self, request: ChatRequest, answer: TurnAnswer) -> None:
        run, question = self._run, self._question
        if run is None or question is None or question.tool is not None:
            self._refuse(request.id, NOT_WAITING_FOR_TURN)
        else:
            run.answer(Answer(answer.confirmed, answer.reason))

    # -- controls --------------------------------------------------------------------------------

    def _control(self, request: ChatRequest, name: str) -> None:
        run = self._run
        if name == "GetCommands":
            self._frames.put(request.id, {"Text": COMMANDS_TEXT})
        elif name == "ClearContext":
            self._reply(request, self.clear())
        elif name == "Interrupt" and run is None:
            self._refuse(request.id, NOTHING_TO_INTERRUPT)
        elif name == "Interrupt" and run is not None:
            run.interrupt()  # at once: an answer right behind it must not be taken for a yes
            self._reply(request, self._interrupted(run))
        elif run is not None or self._agent.busy:
            self._refuse(request.id, CANNOT_REGENERATE)
        else:
            self._chat(request)

    async def _interrupted(self, run: ChatRun) -> str:
        await run.ended.wait()
        return INTERRUPTED

    async def clear(self) -> str:
        """Begin the conversation anew; a run that only waits for the user ends. Raises `AgentError`."""
        run = self._run
        if run is not None and run.question is None:
            raise AgentError(CANNOT_CLEAR)
        if run is not None:
            run.interrupt()
            await run.ended.wait()  # and before the next one begins
        if self._agent.busy:  # for another client of the session
            raise AgentError(CANNOT_CLEAR)
        self._agent.clear_context()
        self.state.turns = 0
        return CLEARED

    async def _instruct(self, command: Command) -> str:
        text = await run_instruction(self, self._agent, command)
        if command.name == "exit":
            self._line.leave(BYE, "bye")
        return text

    # -- inside ----------------------------------------------------------------------------------

    def _refuse(self, id: str, error: str) -> None:
        self._frames.put(id, {"Text": ""}, error=error)

    def _reply(self, request: ChatRequest, work: Coroutine[Any, Any, str]) -> None:
        """Answer a request with the text that `work` comes to, or with why it failed."""

        async def reply() -> None:
            try:
                text = await work
            except AgentError as error:
                self._refuse(request.id, str(error))
            except Exception as error:  # a bug, or a full disk: the client must hear of it, and the connection go on
                log.exception("request %s failed", request.id)
                self._refuse(request.id, structured_error("processing_error", f"{type(error).__name__}: {error}"))
            else:
                self._frames.put(request.id, {"Text": text})

        self._spawn(reply())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
