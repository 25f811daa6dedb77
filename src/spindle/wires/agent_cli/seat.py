"""One client of the remote protocol: which request runs, which wait, and which are answered at once.

A connection without a run is idle. With a run it is running, or, while the run has an open question, waiting for the
confirmation of a tool or of more turns. Control inputs are served in every state; chat inputs wait for their turn while
the connection is running and are refused while it waits for the user.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from spindle.agent import AgentError
from spindle.base.flow import Tasks
from spindle.base.limits import CHAT_STOP
from spindle.protocol.live_session import LiveSession
from spindle.protocol.seat import NoAccount, Seat
from spindle.server.account import Account
from spindle.shapes.codec import encode
from spindle.shapes.messages import AssistantMessage, UserMessage, text_of
from spindle.wires.agent_cli.protocol import (
    ChatRequest,
    Control,
    Instruction,
    Parts,
    ProtocolError,
    Several,
    ToolAnswer,
    TurnAnswer,
    parse_config,
    parse_request,
    structured_error,
)
from spindle.wires.agent_cli.reply import ChatReply, FrameQueue
from spindle.wires.agent_cli.request import ChatRun, ChatState, Confirmation, Consent
from spindle.wires.network.options import RemoteOptions
from spindle.wires.network.peer import BYE, REPLACED, Peer

NOT_WAITING_FOR_TOOL = "No pending tool confirmation found"
NOT_WAITING_FOR_TURN = "不在等待对话轮次确认状态"
NOTHING_TO_INTERRUPT = "No active model output to interrupt"
INTERRUPTED = "Model output interrupted successfully"
CLEARED = "上下文已清理，对话轮次已重置"
CANNOT_CLEAR = "Cannot clear context while model is running"
CANNOT_REGENERATE = "Cannot regenerate while model is running"
INSTRUCTIONS = {
    "help": "显示帮助信息",
    "clear": "清除聊天记录",
    "exit": "退出程序",
    "reset": "重置对话上下文",
    "history": "显示历史记录",
    "tools": "显示可用工具列表",
    "config": "显示或修改配置",
}
"""The names that an `Instruction` may have, as `GetCommands` lists them."""

log = logging.getLogger("spindle.remote")


class OneAtATime:
    """Lets a session have one client of the remote protocol: the newest."""

    def __init__(self) -> None:
        self._taken_by: Peer | None = None
        self._in_use = asyncio.Lock()

    @asynccontextmanager
    async def take(self, peer: Peer) -> AsyncIterator[None]:
        """Let the client in, after the work of the client before it has stopped."""
        older, self._taken_by = self._taken_by, peer
        if older is not None:
            older.leave(REPLACED, "this session was opened elsewhere")
        try:
            async with self._in_use:
                yield
        finally:
            if self._taken_by is peer:
                self._taken_by = None


class ChatSeat(Seat):
    holds = True
    busy = True
    answers = False

    def __init__(self, peer: Peer, options: RemoteOptions, account: Account | NoAccount) -> None:
        self.account = account
        self._state = ChatState(max_turns=options.max_turns or None)
        self._peer = peer
        self._options = options
        self._frames = FrameQueue()
        self._run: ChatRun | None = None
        self._queue: deque[ChatRequest] = deque()
        """Requests that wait for their turn."""
        self._tasks = Tasks()

    def begin(self, live: LiveSession) -> None:
        self._agent = live.agent

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self._peer.session_ended(reason)

    # -- for the peer ----------------------------------------------------------------------------

    def receive(self, message: str | bytes) -> None:
        try:
            request = parse_request(message)
        except ProtocolError as error:
            self._refuse_chat(error.request_id, error.stream, str(error))
            return
        match request.input:
            case Control():
                self._control(request, request.input.name)
            case ToolAnswer():
                self._tool_answer(request, request.input)
            case TurnAnswer():
                self._turn_answer(request, request.input)
            case Instruction():
                self._reply(request, self._instruct(request.input))
            case Several():
                self._several(request, request.input)
            case Parts():
                self._chat(request)

    async def room(self) -> None:
        await self._frames.room()

    async def next_frame(self) -> bytes | None:
        frame = await self._frames.take()
        return None if frame is None else frame.encode()

    async def end(self) -> None:
        """Stop the client's requests; an open confirmation counts as denied."""
        self._queue.clear()
        if (run := self._run) is not None:
            run.stop()
            try:
                async with asyncio.timeout(CHAT_STOP):
                    await run.ended.wait()
            except TimeoutError:
                log.warning("request %s does not end", run.request.id)
        await self._tasks.end(CHAT_STOP)
        self._frames.close()

    def drop(self) -> None:
        self._frames.drop()

    # -- chat inputs -----------------------------------------------------------------------------

    def _chat(self, request: ChatRequest) -> None:
        question = self._question
        if self._knows(request.id):
            self._refuse_chat(request.id, request.stream, "A request with this id is running")
        elif question is not None:
            kind = "turn" if question.tool is None else "tool"
            self._refuse_chat(request.id, request.stream, f"Waiting for {kind} confirmation")
        elif self._run is not None and len(self._queue) >= self._options.max_queued:
            self._refuse_chat(
                request.id, request.stream, f"Too many requests are waiting (at most {self._options.max_queued})"
            )
        else:
            self._queue.append(request)
            self._start_next()

    def _knows(self, id: str) -> bool:
        running = self._run is not None and self._run.request.id == id
        return running or any(waiting.id == id for waiting in self._queue)

    @property
    def _question(self) -> Confirmation | None:
        return self._run.question if self._run is not None else None

    def _start_next(self) -> None:
        if self._queue and self._run is None:
            self._run = ChatRun(
                self._queue.popleft(), self._agent, self._state, self._frames, self._options, self.account
            )
            self._tasks.spawn(self._serve(self._run), "spindle-chat-request")

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
            run.answer(Consent(answer.approved, answer.reason))

    def _turn_answer(self, request: ChatRequest, answer: TurnAnswer) -> None:
        run, question = self._run, self._question
        if run is None or question is None or question.tool is not None:
            self._refuse(request.id, NOT_WAITING_FOR_TURN)
        else:
            run.answer(Consent(answer.confirmed, answer.reason))

    # -- controls --------------------------------------------------------------------------------

    def _several(self, request: ChatRequest, several: Several) -> None:
        """Carry out what is not for the model, then ask the model. Nothing follows what has failed."""

        async def carry_out() -> None:
            told = []
            try:
                for aside in several.asides:
                    told.append({"Text": await self._aside(aside)})
            except AgentError as error:
                self._refuse_chat(request.id, request.stream and several.parts is not None, str(error))
                return
            if several.parts is None:
                self._frames.send(request.id, {"Multi": told})
            else:
                self._chat(msgspec.structs.replace(request, input=several.parts, told=told))

        self._tasks.spawn(carry_out(), "spindle-chat-several")

    async def _aside(self, aside: Control | Instruction) -> str:
        """Carry out one input that is not for the model, and return the text of the answer. Raises `AgentError`."""
        if isinstance(aside, Instruction):
            return await self._instruct(aside)
        if aside.name == "GetCommands":
            return _listed()
        if aside.name == "ClearContext":
            return await self._clear()
        if (run := self._run) is None:
            raise AgentError(NOTHING_TO_INTERRUPT)
        run.stop()
        return await self._interrupted(run)

    def _control(self, request: ChatRequest, name: str) -> None:
        run = self._run
        if name == "GetCommands":
            self._frames.send(request.id, {"Text": _listed()})
        elif name == "ClearContext":
            self._reply(request, self._clear())
        elif name == "Interrupt" and run is None:
            self._refuse(request.id, NOTHING_TO_INTERRUPT)
        elif name == "Interrupt" and run is not None:
            run.stop()  # at once: a confirmation sent right after it must not count
            self._reply(request, self._interrupted(run))
        elif run is not None or self._agent.busy:
            self._refuse_chat(request.id, request.stream, CANNOT_REGENERATE)
        else:
            self._chat(request)

    async def _interrupted(self, run: ChatRun) -> str:
        await run.ended.wait()
        return INTERRUPTED

    async def _clear(self) -> str:
        """Clear the context and the count of turns, and end a run that waits for the user. Raises `AgentError`."""
        run = self._run
        if run is not None and run.question is None:
            raise AgentError(CANNOT_CLEAR)
        if run is not None:
            run.stop()
            await run.ended.wait()  # the next run has not begun then
        if self._agent.busy:  # with a prompt of another client
            raise AgentError(CANNOT_CLEAR)
        self._agent.clear_context()
        self._state.turns = 0
        return CLEARED

    # -- instructions ----------------------------------------------------------------------------

    async def _instruct(self, command: Instruction) -> str:
        """Carry out an instruction and return the text of the answer. Raises `AgentError`."""
        try:
            match command.name:
                case "help":
                    return "\n".join(f"{name} - {text}" for name, text in INSTRUCTIONS.items())
                case "clear" | "reset":
                    return await self._clear()
                case "history":
                    return self._history()
                case "tools":
                    return "\n".join(f"{tool.name} - {tool.description}" for tool in self._agent.toolbox.active_tools())
                case "config":
                    return self._config(command.parameters)
                case "exit":
                    self._peer.leave(BYE, "bye")
                    return "再见"
        except (AgentError, ProtocolError) as error:
            raise AgentError(f"Command execution failed: {error}") from None
        raise AgentError(f"Unknown command: {command.name}")

    def _history(self) -> str:
        said = [message for message in self._agent.messages if isinstance(message, UserMessage | AssistantMessage)]
        return "\n".join(f"[{message.role}] {text}" for message in said if (text := text_of(message.content)))

    def _config(self, parameters: Any) -> str:
        """Change the configuration of this connection, and return all of it."""
        state, model = self._state, self._agent.model
        if parameters:
            config = parse_config(parameters)
            state.apply(config)
            state.max_tokens = config.max_tokens or state.max_tokens
        return encode(
            {
                "session": self._agent.session.id,
                "model": model.full_name if model else None,
                "max_context_num": state.max_turns,
                "max_tokens": state.max_tokens,
                "ask_before_tool_execution": state.ask_before_tools,
                "prompt": state.prompt,
            }
        ).decode()

    # -- internals -------------------------------------------------------------------------------

    def _refuse(self, id: str, error: str) -> None:
        self._frames.send(id, {"Text": ""}, error=error)

    def _refuse_chat(self, id: str, stream: bool, error: str) -> None:
        """Refuse a request in the form that it asked for: a stream has an end, even if it never began."""
        stream = stream and not self._knows(id)  # the end would be taken for that of the other request
        reply = ChatReply(id, stream, self._frames, self._options)
        reply.fail(error)
        reply.finish()

    def _reply(self, request: ChatRequest, work: Coroutine[Any, Any, str]) -> None:
        """Answer a request with the text that `work` returns, or with its error."""

        async def reply() -> None:
            try:
                text = await work
            except AgentError as error:
                self._refuse(request.id, str(error))
            except Exception as error:  # a bug, or a full disk: the client must be told, and the connection goes on
                log.exception("request %s failed", request.id)
                self._refuse(request.id, structured_error("processing_error", f"{type(error).__name__}: {error}"))
            else:
                self._frames.send(request.id, {"Text": text})

        self._tasks.spawn(reply(), "spindle-chat-reply")


def _listed() -> str:
    """Return the answer to `GetCommands`."""
    listed = [{"name": name, "description": text} for name, text in INSTRUCTIONS.items()]
    return encode({"commands": listed, "count": len(listed)}).decode()
