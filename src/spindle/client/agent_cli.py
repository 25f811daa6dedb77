"""`RemoteClient`: ask, listen, approve and interrupt over a WebSocket, in the remote protocol of `docs/remote.md`.

This is the small protocol that servers other than Spindle speak too; `RpcClient` can do more.
"""

import asyncio
import base64
import inspect
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, convert

from spindle.base.flow import Mailbox
from spindle.base.limits import CLOSE_FRAME, RECONNECT_DELAY, RECONNECT_LONGEST_DELAY
from spindle.client.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    RequestFailed,
    RequestTimeout,
    RpcError,
)
from spindle.client.transport import Json, Transport, WebSocket, websocket_url
from spindle.shapes import codec

Input: TypeAlias = str | Json
"""A text, or an input as the protocol writes it: `{"Text": "hi"}`; `image_input` and `file_input` make them."""

REGENERATE: Json = {"Regenerate": None}
TOOL_FAILURE = "tool_execution_error"
NOTHING_TO_INTERRUPT = "No active model output to interrupt"
TAKEN_OVER, NO_SUCH_SESSION, TOO_MANY_CONNECTIONS = 4001, 4004, 503

log = logging.getLogger(__name__)

# -- inputs ----------------------------------------------------------------------------------------


def image_input(source: str | Path | bytes, mime_type: str | None = None) -> Json:
    """Return a picture, from a file or its bytes. Without a type the server looks at the bytes."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    return {"Image": {"data": base64.b64encode(data).decode(), **({"mime_type": mime_type} if mime_type else {})}}


def file_input(path: str | Path, content_type: str | None = None) -> Json:
    """Return a file to show to the model; the type is guessed from the name."""
    import mimetypes

    kind = content_type or mimetypes.guess_type(path)[0] or "text/plain"
    data = base64.b64encode(Path(path).read_bytes()).decode()
    return {"File": {"filename": Path(path).name, "content_type": kind, "data": data}}


def _joined(inputs: tuple[Input, ...]) -> Json:
    items = [{"Text": item} if isinstance(item, str) else item for item in inputs]
    return items[0] if len(items) == 1 else {"Multi": items}


# -- pieces of an answer -----------------------------------------------------------------------------


class TokenUsage(Struct, frozen=True):
    """How many tokens a request took."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ToolFailure(Struct, frozen=True):
    """A tool call that failed during a request."""

    message: str
    details: Json


class TextPiece(Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ToolCallPiece(Struct, frozen=True):
    """The model calls a tool."""

    name: str
    arguments: Any = None


class ToolResultPiece(Struct, frozen=True):
    """A tool has ended."""

    name: str
    result: Any = None
    """As the server sent it."""

    @property
    def text(self) -> str:
        """The tool's output."""
        content = self.result.get("content") if isinstance(self.result, dict) else self.result
        return content if isinstance(content, str) else str(content)

    @property
    def is_error(self) -> bool:
        """Whether the tool failed."""
        return isinstance(self.result, dict) and self.result.get("is_error") is True


class ToolConfirmation(Struct, frozen=True):
    """The server asks whether a tool may run, and waits for the answer."""

    name: str
    arguments: Any
    description: str | None
    _send: Callable[[Json], None]

    async def answer(self, approved: bool, reason: str | None = None) -> None:
        """Let the tool run, or end the request."""
        answer = {"name": self.name, "arguments": self.arguments, "approved": approved, "reason": reason}
        self._send({"ToolConfirmationResponse": answer})


class TurnConfirmation(Struct, frozen=True):
    """The model was called so often that the user should agree to go on."""

    current_turns: int
    max_turns: int
    reason: str | None
    _send: Callable[[Json], None]

    async def answer(self, confirmed: bool, reason: str | None = None) -> None:
        """Go on, or end the request."""
        self._send({"TurnConfirmationResponse": {"confirmed": confirmed, "reason": reason}})


class Completion(Struct, frozen=True):
    """The end of an answer."""

    usage: TokenUsage | None
    interrupted: bool = False
    tool_failure: ToolFailure | None = None


class Answer(Struct, frozen=True):
    """A whole answer."""

    text: str
    usage: TokenUsage | None
    interrupted: bool = False
    tool_failure: ToolFailure | None = None
    """The first tool call that failed, if any; the model knows of it."""


class RemoteCommand(Struct, frozen=True):
    """A command for `RemoteClient.instruct`."""

    name: str
    description: str


Piece: TypeAlias = TextPiece | ToolCallPiece | ToolResultPiece | ToolConfirmation | TurnConfirmation | Completion
Question = TypeVar("Question", ToolConfirmation, TurnConfirmation)
Handler: TypeAlias = Callable[[Question], bool | Awaitable[bool]]
Config: TypeAlias = Mapping[str, Any]


class _Request(Mailbox[Json]):
    """The frames that answer one request; it ends with the error that ended the connection."""

    def __init__(self, id: str) -> None:
        super().__init__(high_items=1)
        self.id = id


# -- the client --------------------------------------------------------------------------------------


class RemoteClient:
    """Connect to `spindle serve`, ask, listen, and answer its questions.

        async with RemoteClient("ws://127.0.0.1:3838") as agent:
            print((await agent.ask("What is in this directory?")).text)
            async for piece in agent.stream("And what is it for?"):
                if isinstance(piece, TextPiece):
                    print(piece.text, end="")

    Several requests may be on their way; the server answers them one after the other. After a broken connection the
    next request connects again and finds the same session.
    """

    def __init__(
        self,
        url: str = "ws://127.0.0.1:3838",
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

        `session` is the id of a session to go on with. `config` goes with every request. `on_tool` and `on_turns`
        answer confirmations; without them `ask` answers no, and `stream` gives them as pieces to answer. A lost server
        is tried again for `reconnect` seconds. `options` are those of aiohttp's `ws_connect`.
        """
        self.url = url
        self.config = dict(config or {})
        self.on_tool = on_tool
        self.on_turns = on_turns
        self.session_id = session
        """The session on the server; None until it is known, or if the server does not tell."""
        self._spoken = session is not None
        """Whether the session may have messages: then it must be found again."""
        self._token = token
        self._reconnect = reconnect
        self._options = options
        self._transport: Transport | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._error: RpcError | None = ClientClosed()
        """Why the client will not connect; None: it connects when it needs to."""
        self._numbers = itertools.count(1)
        self._requests: dict[str, _Request] = {}
        self._chats: list[_Request] = []
        """Chat requests that have not ended, in the order they run."""

    # -- life ------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect, and learn the id of the session. Raises `ConnectionFailed`."""
        self._error = None
        async with self._connecting:
            if self._transport is None:
                await self._connect()

    async def close(self) -> None:
        """Say goodbye. The server keeps the session for a while."""
        self._error = ClientClosed()
        if self._transport is not None:
            await self._transport.close(CLOSE_FRAME)
        if self._reading is not None:
            await self._reading

    async def __aenter__(self) -> "RemoteClient":
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _connect(self) -> None:
        query = {} if self.session_id is None else {"session": self.session_id}
        transport = await WebSocket.connect(websocket_url(self.url, "/", **query), self._token, self._options)
        self._transport = transport
        self._reading = asyncio.create_task(self._read(transport), name="chat-client-read")
        try:
            asking = self._send({"Instruction": {"command": "config", "parameters": None}})
            self.session_id = codec.decode(await self._text(asking))["session"]
        except ConnectionLost as lost:  # the server let us in, but has no such session, or no agent
            raise ConnectionFailed(lost.reason or str(lost), lost.code) from None
        except (RequestFailed, codec.DecodeError, KeyError, TypeError):
            log.debug("the server does not tell its session")

    async def _connect_again(self) -> None:
        """Try to connect for a while. Raises `ConnectionFailed` if the server does not come back, or refuses."""
        loop = asyncio.get_running_loop()
        delay, deadline = RECONNECT_DELAY, loop.time() + self._reconnect
        while True:
            try:
                return await self._connect()
            except ConnectionFailed as failed:
                if failed.status == NO_SUCH_SESSION and not self._spoken:
                    self.session_id = None  # the server does not keep a session without messages
                elif failed.status not in (None, TOO_MANY_CONNECTIONS) or loop.time() + delay > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, RECONNECT_LONGEST_DELAY)

    async def _read(self, transport: Transport) -> None:
        async for frame in transport.frames():
            request = self._requests.get(str(frame.get("request_id")))
            if request is not None:  # an empty mailbox counts as false
                request.put(frame)
        self._transport = None
        lost = transport.error
        if self._error is None and isinstance(lost, ConnectionLost) and lost.code == TAKEN_OVER:
            self._error = lost  # if both clients reconnected, they would take the session from each other for ever
        for request in self._requests.values():
            request.close(self._error or lost)

    # -- requests --------------------------------------------------------------------------------

    async def _request(self, input: Any, **fields: Any) -> _Request:
        """Send a request, on a new connection if need be. The caller has to `_forget` it in the end."""
        async with self._connecting:
            if self._transport is None:
                if self._error is not None:
                    raise self._error
                await self._connect_again()
        return self._send(input, **fields)

    def _send(self, input: Any, **fields: Any) -> _Request:
        request = _Request(f"req_{next(self._numbers)}")
        if self._transport is not None:
            self._transport.send(codec.encode({"request_id": request.id, "input": input, **fields}))
            self._requests[request.id] = request
        else:
            request.close(self._error or ConnectionLost())
        return request

    def _post(self, input: Any) -> None:
        """Send a request whose answer is not needed. Does nothing without a connection."""
        self._forget(self._send(input))

    def _forget(self, request: _Request) -> None:
        self._requests.pop(request.id, None)
        if request in self._chats:
            self._chats.remove(request)

    async def _text(self, request: _Request) -> str:
        """Return the answer to a control input. Raises `RequestFailed`."""
        try:
            frame = await anext(request)
        finally:
            self._forget(request)
        _tool_failure(frame.get("error"))  # raises `RequestFailed`
        return str(frame["response"].get("Text", ""))

    # -- chatting --------------------------------------------------------------------------------

    async def ask(
        self, *inputs: Input, config: Config | None = None, use_tools: bool = True, timeout: float | None = None
    ) -> Answer:
        """Ask and return the whole answer. Several inputs become one message.

        Raises `RequestFailed`, `ConnectionLost` and `RequestTimeout`. A time-out does not stop the agent; `interrupt`
        does.
        """
        text, end = "", Completion(None)
        try:
            async with asyncio.timeout(timeout), aclosing(self._chat(inputs, False, config, use_tools)) as pieces:
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

    def stream(
        self, *inputs: Input, config: Config | None = None, use_tools: bool = True
    ) -> AsyncGenerator[Piece, None]:
        """Ask and give the answer piece by piece; the last one is a `Completion`. Raises as `ask` does.

        Leaving the loop early interrupts the request.
        """
        return self._chat(inputs, True, config, use_tools)

    async def regenerate(
        self, *, config: Config | None = None, use_tools: bool = True, timeout: float | None = None
    ) -> Answer:
        """Let the model answer the last message again."""
        return await self.ask(REGENERATE, config=config, use_tools=use_tools, timeout=timeout)

    def regenerate_stream(self, *, config: Config | None = None, use_tools: bool = True) -> AsyncGenerator[Piece, None]:
        """Let the model answer the last message again, piece by piece."""
        return self.stream(REGENERATE, config=config, use_tools=use_tools)

    async def _chat(
        self, inputs: tuple[Input, ...], stream: bool, config: Config | None, use_tools: bool
    ) -> AsyncGenerator[Piece, None]:
        wanted = {**self.config, **(config or {})}
        fields = {"stream": stream, "use_tools": use_tools, **({"config": wanted} if wanted else {})}
        request = await self._request(_joined(inputs), **fields)
        self._spoken = True
        self._chats.append(request)
        try:
            while request in self._chats:
                for piece in await self._pieces(await anext(request), stream):
                    if isinstance(piece, Completion):
                        self._forget(request)
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            if stream and request in self._chats[:1]:
                self._post("Interrupt")
            raise
        finally:
            self._forget(request)

    async def _pieces(self, frame: Json, stream: bool) -> list[Piece]:
        """Read one frame of a chat request. Raises `RequestFailed`."""
        failure = _tool_failure(frame.get("error"))
        pieces: list[Piece] = []
        end: list[Piece] = []
        for kind, payload in _contents(frame.get("response")):
            match kind:
                case "Stream" | "":
                    pieces.append(TextPiece("".join(payload) if isinstance(payload, list) else str(payload)))
                case "Text" if stream and failure is not None and self.session_id is not None:
                    pass  # such a server sends `Complete` behind it, agent-cli does not
                case "Text":
                    pieces += [TextPiece(payload)] if payload else []
                    end = [Completion(convert(frame.get("token_usage"), TokenUsage | None), False, failure)]
                case "Complete" | "StreamComplete":
                    usage = convert(payload.get("token_usage"), TokenUsage | None)
                    end = [Completion(usage, payload.get("interrupted") is True, failure)]
                case "ToolCall":
                    pieces.append(convert(payload, ToolCallPiece))
                case "ToolResult":
                    pieces.append(convert(payload, ToolResultPiece))
                case "ToolConfirmationRequest":
                    asked = (payload["name"], payload.get("arguments"), payload.get("description"))
                    pieces += await _unanswered(ToolConfirmation(*asked, self._post), self.on_tool)
                case "TurnConfirmationRequest":
                    counts = (payload["current_turns"], payload["max_turns"], payload.get("reason"))
                    pieces += await _unanswered(TurnConfirmation(*counts, self._post), self.on_turns)
                case _:
                    log.debug("unknown content %s", kind)
        return pieces + end

    # -- controls --------------------------------------------------------------------------------

    async def interrupt(self) -> bool:
        """Stop the running request; its answer ends as it is. Returns whether a request was running."""
        try:
            await self._control("Interrupt")
        except RequestFailed as error:
            if str(error) != NOTHING_TO_INTERRUPT:
                raise
            return False
        return True

    async def clear_context(self) -> None:
        """Begin a new conversation. Raises `RequestFailed` while the model is at work."""
        await self._control("ClearContext")

    async def get_commands(self) -> list[RemoteCommand]:
        """Return the commands that `instruct` takes."""
        return convert(codec.decode(await self._control("GetCommands"))["commands"], list[RemoteCommand])

    async def instruct(self, command: str, parameters: Any = None) -> str:
        """Run one of the commands of `get_commands` and return the server's text. Raises `RequestFailed`."""
        return await self._control({"Instruction": {"command": command, "parameters": parameters}})

    async def _control(self, input: Any) -> str:
        return await self._text(await self._request(input))


async def _unanswered(question: Question, handler: Handler[Question] | None) -> list[Question]:
    """Let the handler answer the question. Return the question if there is no handler."""
    if handler is None:
        return [question]
    try:
        agreed = handler(question)
        if inspect.isawaitable(agreed):
            agreed = await agreed
    except Exception:  # the agent waits for an answer
        log.exception("the handler of confirmations failed")
        agreed = False
    await question.answer(agreed is True)
    return []


def _contents(response: Any) -> Iterator[tuple[str, Any]]:
    """Give the contents of a response, those of a `Multi` one by one."""
    for kind, payload in (response if isinstance(response, dict) else {}).items():
        if kind == "Multi":
            for item in payload:
                yield from _contents(item)
        else:
            yield kind, payload


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
