"""One client of the remote protocol: its requests, its confirmations, its place in the state machine.

A request runs until its terminal frame: the whole answer (`Text`), the end of the stream (`Complete`), a question to
the user, or an error. Control inputs are served at once; chat inputs that come meanwhile wait their turn.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from spindle.agent.abort import Aborted
from spindle.agent.errors import AgentError
from spindle.extensions.hooks import Blocked
from spindle.tools.base import Tool
from spindle.types.codec import encode
from spindle.types.content import text_of
from spindle.types.events import (
    AgentSettled,
    Event,
    MessageEnd,
    MessageUpdate,
    TextDelta,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from spindle.types.messages import AssistantMessage

from .chat_protocol import (
    PARSE_ERROR_ID,
    ChatRequest,
    Command,
    Config,
    Control,
    Parts,
    ProtocolError,
    ToolAnswer,
    TurnAnswer,
    parse_request,
    usage_value,
)
from .frames import FrameQueue
from .instructions import COMMANDS_TEXT, run_instruction
from .live import LiveSession

__all__ = ["ChatConnection"]

MAX_QUEUED = 8
STALLED_S = 30.0
TRY_AGAIN_LATER = 1013
DEFAULT_TURNS = 30
CLEARED = "上下文已清理，对话轮次已重置"
TURNS_REFUSED = "对话已结束，未重置轮次。"
NOT_WAITING_FOR_TURN = "不在等待对话轮次确认状态"


@dataclass(slots=True)
class _Run:
    """The chat request in hand."""

    request: ChatRequest
    text: list[str] = field(default_factory=list)
    """The last answer, piece by piece."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failure: str | None = None
    """The first tool failure, as the structured error."""
    error: str | None = None
    """Why the model failed."""
    calls: dict[str, Any] = field(default_factory=dict)
    """Arguments of running calls, by id."""
    interrupted: bool = False
    ended: bool = False
    """The terminal frame went out; what follows is not this request's business."""


@dataclass(slots=True)
class _Question:
    """A confirmation the client owes us."""

    answer: asyncio.Future[bool]
    tool: str | None = None
    """None: it is about the turn limit."""


class ChatConnection:
    def __init__(
        self, socket: ServerConnection, live: LiveSession, *, confirm_timeout: float | None, stream_complete: bool
    ) -> None:
        self._socket = socket
        self._agent = live.agent
        self._frames = FrameQueue()
        self._confirm_timeout = confirm_timeout
        self._completion = "StreamComplete" if stream_complete else "Complete"
        self._run: _Run | None = None
        self._queued: deque[ChatRequest] = deque()
        self._question: _Question | None = None
        self._turns = 0
        """Model calls since the last confirmation."""
        self.max_turns = DEFAULT_TURNS
        self.ask_before_tools = False
        self._denied: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client until it leaves; then stop what it started."""
        self._agent.subscribe(self)
        self._agent.engine.guard = self
        writing = asyncio.create_task(self._write())
        try:
            async for message in self._socket:
                self._receive(message)
        except ConnectionClosed:
            pass
        finally:
            self._queued.clear()
            self._answer_question(False)
            await self._agent.abort()
            self._agent.unsubscribe(self)
            self._agent.engine.guard = None
            for task in self._tasks:
                task.cancel()
            self._frames.close()
            writing.cancel()
            await asyncio.wait([writing])

    async def _write(self) -> None:
        try:
            while (frame := await self._frames.take()) is not None:
                async with asyncio.timeout(STALLED_S):
                    await self._socket.send(frame)
            await self._socket.close(1000, "bye")
        except TimeoutError:
            await self._socket.close(TRY_AGAIN_LATER, "reading too slowly")
        except ConnectionClosed:
            pass

    # -- the listener's side ---------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self._frames.full

    async def room(self) -> None:
        await self._frames.room()

    def put(self, event: Event) -> None:
        run = self._run
        if run is None:
            return
        streaming = run.request.stream and not run.ended
        if type(event) is MessageUpdate:
            piece = event.assistant_message_event
            if type(piece) is TextDelta:
                run.text.append(piece.delta)
                if streaming:
                    self._frames.put_chunk(run.request.id, piece.delta)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._answered(run, event.message)
        elif isinstance(event, ToolExecutionStart):
            run.calls[event.tool_call_id] = event.args
            run.text.clear()
        elif isinstance(event, ToolExecutionEnd):
            self._tool_ended(run, event, streaming)
        elif isinstance(event, AgentSettled):
            self._settled(run)

    def _answered(self, run: _Run, message: AssistantMessage) -> None:
        usage = message.usage
        run.prompt_tokens += usage.input + usage.cache_read + usage.cache_write
        run.completion_tokens += usage.output
        run.error = message.error_message if message.stop_reason == "error" else None

    def _tool_ended(self, run: _Run, event: ToolExecutionEnd, streaming: bool) -> None:
        arguments = run.calls.pop(event.tool_call_id, None)
        text = text_of(event.result.content)
        if event.is_error and run.failure is None and self._denied is None:
            details = {"tool": event.tool_name, "error": text, "arguments": arguments}
            run.failure = _structured("tool_execution_error", f"Tool '{event.tool_name}' execution failed", details)
        if streaming and self._denied is None and not run.interrupted:
            result = {"name": event.tool_name, "result": {"content": text, "is_error": event.is_error}}
            self._frames.put(run.request.id, {"ToolResult": result})

    def _settled(self, run: _Run) -> None:
        self._run = None
        if not run.ended:
            self._finish(run)
        self._agent.toolbox.activate(self._usual_tools)
        if self._queued:
            self._start(self._queued.popleft())

    def _finish(self, run: _Run) -> None:
        """Send the terminal frame of a request."""
        id, text = run.request.id, "".join(run.text)
        run.ended = True
        if self._denied is not None:
            denied, self._denied = self._denied, None
            self._frames.put(id, {"Text": denied})
        elif run.error is not None:
            self._frames.put(id, {"Text": ""}, error=_structured("processing_error", run.error))
        elif run.request.stream:
            usage = None if run.interrupted else self._usage(run)
            complete = {"token_usage": usage, "interrupted": run.interrupted}
            self._frames.put(id, {self._completion: complete}, error=run.failure)
        else:
            self._frames.put(id, {"Text": text}, error=run.failure, usage=self._usage(run))

    def _usage(self, run: _Run) -> dict[str, int]:
        return usage_value(run.prompt_tokens, run.completion_tokens)

    # -- the guard's side ------------------------------------------------------------------------

    async def before_turn(self) -> None:
        run = self._run
        if run is not None and self._turns >= self.max_turns:
            reason = f"已达到最大对话轮次限制 ({self.max_turns} 轮)。是否重置对话轮次以继续对话？"
            asked = {"current_turns": self._turns, "max_turns": self.max_turns, "reason": reason}
            if not await self._ask(run, {"TurnConfirmationRequest": asked}, None):
                self._denied = None if run.interrupted else TURNS_REFUSED
                raise Aborted
            self._turns = 0
        self._turns += 1
        if run is not None:
            run.text.clear()

    async def before_tool(self, tool: Tool, arguments: Any) -> None:
        run = self._run
        if run is None:
            return
        if self.ask_before_tools:
            asked = {"name": tool.name, "arguments": arguments, "description": tool.description or None}
            if self._denied is not None or not await self._ask(run, {"ToolConfirmationRequest": asked}, tool.name):
                text = f"Tool '{tool.name}' execution was not approved by user"
                self._denied = self._denied or text
                raise Blocked(text, terminate=True)
        if run.request.stream:
            self._frames.put(run.request.id, {"ToolCall": {"name": tool.name, "arguments": arguments}})

    async def _ask(self, run: _Run, content: dict[str, Any], tool: str | None) -> bool:
        self._question = _Question(asyncio.get_running_loop().create_future(), tool)
        self._frames.put(run.request.id, content)
        try:
            async with asyncio.timeout(self._confirm_timeout):
                return await self._question.answer
        except TimeoutError:
            return False
        finally:
            self._question = None

    def _answer_question(self, answer: bool) -> None:
        if self._question is not None and not self._question.answer.done():
            self._question.answer.set_result(answer)

    # -- requests --------------------------------------------------------------------------------

    def _receive(self, message: str | bytes) -> None:
        try:
            if isinstance(message, bytes):
                try:
                    message.decode()
                except UnicodeDecodeError:
                    self._refuse(PARSE_ERROR_ID, "Binary message must be valid UTF-8 JSON")
                    return
            request = parse_request(message.encode() if isinstance(message, str) else message)
        except ProtocolError as error:
            self._refuse(error.request_id, f"Failed to parse request: {error}")
            return
        match request.input:
            case Control():
                self._control(request, request.input.name)
            case ToolAnswer():
                self._tool_answer(request, request.input)
            case TurnAnswer():
                self._turn_answer(request, request.input)
            case Command():
                self._spawn(self._instruct(request, request.input))
            case Parts():
                self._chat(request)

    def _refuse(self, id: str, error: str) -> None:
        self._frames.put(id, {"Text": ""}, error=error)

    def _control(self, request: ChatRequest, name: str) -> None:
        if name == "GetCommands":
            self._frames.put(request.id, {"Text": COMMANDS_TEXT})
        elif name == "Interrupt":
            self._spawn(self._interrupt(request))
        elif name == "Regenerate":
            if self._run is not None:
                self._refuse(request.id, "Cannot regenerate while model is running")
            else:
                self._start(request)
        elif self._run is not None and self._question is None:
            self._refuse(request.id, "Cannot clear context while model is running")
        else:
            self._spawn(self._clear(request))

    def _chat(self, request: ChatRequest) -> None:
        if self._question is not None:
            kind = "turn" if self._question.tool is None else "tool"
            self._refuse(request.id, f"Waiting for {kind} confirmation")
        elif self._run is None:
            self._start(request)
        elif request.id == self._run.request.id:
            self._refuse(request.id, "A request with this id is running")
        elif len(self._queued) >= MAX_QUEUED:
            self._refuse(request.id, f"Too many requests are waiting (at most {MAX_QUEUED})")
        else:
            self._queued.append(request)

    def _tool_answer(self, request: ChatRequest, answer: ToolAnswer) -> None:
        question = self._question
        if question is None or question.tool is None:
            self._refuse(request.id, "No pending tool confirmation found")
        elif answer.name != question.tool:
            expected = f"expected '{question.tool}', got '{answer.name}'"
            self._refuse(request.id, f"Tool confirmation validation failed: Tool name mismatch: {expected}")
        else:
            self._answer_question(answer.approved)

    def _turn_answer(self, request: ChatRequest, answer: TurnAnswer) -> None:
        if self._question is None or self._question.tool is not None:
            self._refuse(request.id, NOT_WAITING_FOR_TURN)
        else:
            self._answer_question(answer.confirmed)

    def _start(self, request: ChatRequest) -> None:
        """Begin a chat request; from here on `_run` is set until the agent is settled."""
        self._usual_tools = list(self._agent.toolbox.active)
        self.apply(request.config)
        if not request.use_tools:
            self._agent.toolbox.activate([])
        self._run = _Run(request)
        self._denied = None
        self._spawn(self._submit(self._run))

    async def _submit(self, run: _Run) -> None:
        try:
            if isinstance(run.request.input, Parts):
                parts = run.request.input
                await self._agent.submit(parts.text, parts.images, source="remote")
            else:
                await self._agent.regenerate()
        except AgentError as error:
            run.ended = True
            text = str(error)
            self._refuse(
                run.request.id, text if text == "Nothing to regenerate" else _structured("processing_error", text)
            )
            self._settled(run)

    def apply(self, config: Config) -> None:
        """Take over what a request changes; it holds until it is changed again."""
        if config.max_turns is not None:
            self.max_turns = config.max_turns
        if config.ask_before_tools is not None:
            self.ask_before_tools = config.ask_before_tools
        if config.max_tokens is not None:
            self._agent.engine.max_tokens = config.max_tokens
        if config.prompt is not None:
            self._agent.use_system_prompt(config.prompt)

    # -- controls --------------------------------------------------------------------------------

    async def _interrupt(self, request: ChatRequest) -> None:
        run = self._run
        if run is None:
            self._refuse(request.id, "No active model output to interrupt")
            return
        run.interrupted = True
        self._answer_question(False)
        self._denied = None
        await self._agent.abort()
        self._frames.put(request.id, {"Text": "Model output interrupted successfully"})

    async def _clear(self, request: ChatRequest) -> None:
        await self._agent.abort()
        self._agent.clear_context()
        self._turns = 0
        self._frames.put(request.id, {"Text": CLEARED})

    async def _instruct(self, request: ChatRequest, command: Command) -> None:
        try:
            text = await run_instruction(self, self._agent, command)
        except AgentError as error:
            self._refuse(request.id, str(error))
            return
        self._frames.put(request.id, {"Text": text})
        if command.name == "exit":
            self._frames.close()

    async def clear(self) -> None:
        if self._run is not None:
            raise AgentError("Cannot clear context while model is running")
        self._agent.clear_context()
        self._turns = 0

    def reset_turns(self) -> None:
        self._turns = 0

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _structured(kind: str, message: str, details: Any = None) -> str:
    value = {"type": kind, "message": message}
    return encode(value if details is None else {**value, "details": details}).decode()
