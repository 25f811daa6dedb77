"""`RemoteClient`: talk to an agent behind a WebSocket, in the remote protocol."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from spindle.client.commands import Json
from spindle.client.errors import RequestFailed, RequestTimeout, RpcError
from spindle.client.remote_pieces import (
    Answer,
    Completion,
    Input,
    Piece,
    RemoteCommand,
    TextPiece,
    TokenUsage,
    ToolCallPiece,
    ToolConfirmation,
    ToolFailure,
    ToolResultPiece,
    TurnConfirmation,
    join_inputs,
)
from spindle.client.remote_wire import Exchange, RemoteWire
from spindle.shapes import codec

__all__ = ["RemoteClient"]

Question = TypeVar("Question", ToolConfirmation, TurnConfirmation)
Handler: TypeAlias = Callable[[Question], bool | Awaitable[bool]]
Config: TypeAlias = Mapping[str, Any]

TOOL_FAILURE = "tool_execution_error"
NOTHING_TO_INTERRUPT = "No active model output to interrupt"

log = logging.getLogger(__name__)


class RemoteClient:
    """Connect to `spindle --remote`, ask, listen, and answer its questions.

        async with RemoteClient("ws://127.0.0.1:8080") as agent:
            print((await agent.ask("What is in this directory?")).text)
            async for piece in agent.stream("And what is it for?"):
                if isinstance(piece, TextPiece):
                    print(piece.text, end="")

    Several requests may be on their way; the server answers them one after the other. A connection that broke is
    made anew by the next request, which finds the same session again.
    """

    def __init__(
        self,
        url: str = "ws://127.0.0.1:8080",
        *,
        token: str | None = None,
        session: str | None = None,
        config: Config | None = None,
        on_tool: Handler[ToolConfirmation] | None = None,
        on_turns: Handler[TurnConfirmation] | None = None,
        reconnect: float = 10.0,
        **options: Any,
    ) -> None:
        """Prepare a client; `connect` or `async with` connects it.

        `session` goes on with a kept or stored session. `config` goes with every request. `on_tool` and `on_turns`
        answer confirmations; without them `ask` answers no, and `stream` leaves it to whoever iterates.
        `reconnect` is how many seconds a lost server is looked for. `options` are those of `websockets.connect`.
        """
        self.config = dict(config or {})
        self.on_tool = on_tool
        self.on_turns = on_turns
        self._wire = RemoteWire(url, token, session, reconnect, options)
        self._chats: list[Exchange] = []
        """Chat requests that have not ended, in the order they run."""

    # -- life ------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, and learn the id of the session. Raises `ConnectionFailed`."""
        await self._wire.connect()

    async def close(self) -> None:
        """Say goodbye. The server keeps the session for a while."""
        await self._wire.close()

    async def __aenter__(self) -> "RemoteClient":
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def session_id(self) -> str | None:
        """The session on the server; None until it is known, or if the server knows of none."""
        return self._wire.session_id

    # -- chatting --------------------------------------------------------------------------------

    async def ask(
        self, *inputs: Input, config: Config | None = None, use_tools: bool = True, timeout: float | None = None
    ) -> Answer:
        """Ask and return the whole answer. Several inputs become one message.

        Raises `RequestFailed`, `ConnectionLost` and `RequestTimeout`. A time-out does not stop the agent; `interrupt`
        does.
        """
        return await self._collect(self._chat(join_inputs(inputs), False, config, use_tools), timeout)

    def stream(
        self, *inputs: Input, config: Config | None = None, use_tools: bool = True
    ) -> AsyncGenerator[Piece, None]:
        """Ask and give the answer piece by piece; the last one is a `Completion`. Raises as `ask` does.

        Leaving the loop early interrupts the request.
        """
        return self._chat(join_inputs(inputs), True, config, use_tools)

    async def regenerate(
        self, *, config: Config | None = None, use_tools: bool = True, timeout: float | None = None
    ) -> Answer:
        """Let the model answer the last message again."""
        return await self._collect(self._chat("Regenerate", False, config, use_tools), timeout)

    def regenerate_stream(self, *, config: Config | None = None, use_tools: bool = True) -> AsyncGenerator[Piece, None]:
        """Let the model answer the last message again, piece by piece."""
        return self._chat("Regenerate", True, config, use_tools)

    async def _collect(self, pieces: AsyncGenerator[Piece, None], timeout: float | None) -> Answer:
        text, end = "", Completion(None)
        try:
            async with asyncio.timeout(timeout), aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, TextPiece):
                        text += piece.text
                    elif isinstance(piece, ToolConfirmation | TurnConfirmation):
                        await piece.answer(False)
                    elif isinstance(piece, Completion):
                        end = piece
        except TimeoutError:
            raise RequestTimeout("ask", timeout or 0) from None
        return Answer(text, end.usage, end.interrupted, end.tool_failure)

    async def _chat(
        self, input: Any, stream: bool, config: Config | None, use_tools: bool
    ) -> AsyncGenerator[Piece, None]:
        fields: Json = {"stream": stream, "use_tools": use_tools}
        if wanted := {**self.config, **(config or {})}:
            fields["config"] = wanted
        exchange = await self._wire.request(input, fields)
        self._wire.has_history = True
        self._chats.append(exchange)
        try:
            while exchange in self._chats:
                for piece in await self._pieces(await exchange.frame()):
                    if isinstance(piece, Completion):
                        self._ended(exchange)
                    yield piece
        except RpcError:
            self._ended(exchange)
            raise
        finally:
            abandoned = exchange in self._chats[:1]
            self._ended(exchange)
            if abandoned and stream:
                await self._wire.post("Interrupt")

    def _ended(self, exchange: Exchange) -> None:
        if exchange in self._chats:
            self._chats.remove(exchange)
            self._wire.forget(exchange)

    async def _pieces(self, frame: Json) -> list[Piece]:
        """Read one frame of a chat request. Raises `RequestFailed`."""
        failure = _tool_failure(frame.get("error"))
        pieces: list[Piece] = []
        end: list[Piece] = []
        for kind, payload in _contents(frame.get("response")):
            match kind:
                case "Stream" | "":
                    pieces.append(TextPiece("".join(payload) if isinstance(payload, list) else str(payload)))
                case "Text":
                    pieces += [TextPiece(payload)] if payload else []
                    end = [Completion(TokenUsage.read(frame.get("token_usage")), False, failure)]
                case "Complete" | "StreamComplete":
                    usage = TokenUsage.read(payload.get("token_usage"))
                    end = [Completion(usage, payload.get("interrupted") is True, failure)]
                case "ToolCall":
                    pieces.append(ToolCallPiece(payload["name"], payload.get("arguments")))
                case "ToolResult":
                    pieces.append(ToolResultPiece(payload["name"], payload.get("result")))
                case "ToolConfirmationRequest":
                    pieces += await _unanswered(self._tool_confirmation(payload), self.on_tool)
                case "TurnConfirmationRequest":
                    pieces += await _unanswered(self._turn_confirmation(payload), self.on_turns)
                case _:
                    log.debug("unknown content %s", kind)
        return pieces + end

    def _tool_confirmation(self, payload: Json) -> ToolConfirmation:
        name, arguments = payload["name"], payload.get("arguments")

        async def reply(approved: bool, reason: str | None) -> None:
            answer = {"name": name, "arguments": arguments, "approved": approved, "reason": reason}
            await self._wire.post({"ToolConfirmationResponse": answer})

        return ToolConfirmation(name, arguments, payload.get("description"), reply)

    def _turn_confirmation(self, payload: Json) -> TurnConfirmation:
        async def reply(confirmed: bool, reason: str | None) -> None:
            await self._wire.post({"TurnConfirmationResponse": {"confirmed": confirmed, "reason": reason}})

        return TurnConfirmation(payload["current_turns"], payload["max_turns"], payload.get("reason"), reply)

    # -- controls --------------------------------------------------------------------------------

    async def interrupt(self) -> bool:
        """Stop the request that runs; its answer ends as it is. Returns whether there was one."""
        try:
            await self._control("Interrupt")
        except RequestFailed as error:
            if str(error) != NOTHING_TO_INTERRUPT:
                raise
            return False
        return True

    async def clear_context(self) -> None:
        """Begin the conversation anew. Raises `RequestFailed` while the model is at work."""
        await self._control("ClearContext")

    async def get_commands(self) -> list[RemoteCommand]:
        listed = codec.decode(await self._control("GetCommands"))["commands"]
        return [RemoteCommand(command["name"], command["description"]) for command in listed]

    async def instruct(self, command: str, parameters: Any = None) -> str:
        """Carry out one of `get_commands` and return what the server says. Raises `RequestFailed`."""
        return await self._control({"Instruction": {"command": command, "parameters": parameters}})

    async def _control(self, input: Any) -> str:
        exchange = await self._wire.request(input)
        try:
            frame = await exchange.frame()
        finally:
            self._wire.forget(exchange)
        _tool_failure(frame.get("error"))  # raises whatever failed
        return str(frame["response"].get("Text", ""))


async def _unanswered(question: Question, handler: Handler[Question] | None) -> list[Question]:
    """Let the handler answer; without one the question is returned."""
    if handler is None:
        return [question]
    try:
        agreed = handler(question)
        if inspect.isawaitable(agreed):
            agreed = await agreed
    except Exception:  # a bug in the handler must not leave the agent waiting
        log.exception("the handler of confirmations failed")
        agreed = False
    await question.answer(agreed is True)
    return []


def _contents(response: Any) -> list[tuple[str, Any]]:
    """Return the contents of a response, those of a `Multi` one by one."""
    found = []
    for kind, payload in (response if isinstance(response, dict) else {}).items():
        if kind == "Multi":
            for item in payload:
                found += _contents(item)
        else:
            found.append((kind, payload))
    return found


def _tool_failure(error: Any) -> ToolFailure | None:
    """Read the error of a frame: None, or a tool's failure. Raises `RequestFailed` for everything else."""
    if error is None:
        return None
    try:
        told = codec.decode(error)
        kind, message, details = told["type"], str(told["message"]), told.get("details")
    except (codec.DecodeError, KeyError, TypeError):
        raise RequestFailed(str(error)) from None
    if kind != TOOL_FAILURE:
        raise RequestFailed(message, kind, details)
    return ToolFailure(message, details if isinstance(details, dict) else {})
