"""The frames of one chat request: events become frames, and one frame ends the request."""

from collections.abc import Sequence
from typing import Any

from spindle.base.flow import Mailbox
from spindle.shapes.events import MessageUpdate, ToolExecutionEnd, ToolExecutionStart
from spindle.shapes.messages import AssistantMessage, text_of
from spindle.shapes.pieces import TextDelta, ThinkingDelta
from spindle.wires.agent_cli.protocol import response, structured_error, usage_value
from spindle.wires.network.options import RemoteOptions

HIGH_FRAMES, HIGH_CHARS = 1000, 4 << 20
# By default, many WebSocket clients take no message above a megabyte.
MAX_CHUNK_CHARS = 64 << 10
UNREACHABLE = "Connection error."
"""The start of an error text that means: the model could not be reached."""


class _StreamedText:
    """Streamed text that has not been sent yet."""

    __slots__ = ("id", "pieces", "size")

    def __init__(self, id: str, text: str) -> None:
        self.id = id
        self.pieces = [text]
        self.size = len(text)


class FrameQueue(Mailbox[str | _StreamedText]):
    """Frames on their way to one client: in order, and pieces of a stream joined while they wait."""

    def __init__(self) -> None:
        super().__init__(HIGH_FRAMES, HIGH_CHARS)

    def send(self, id: str, content: dict[str, Any], *, error: str | None = None, usage: Any = None) -> None:
        """Add a frame. Never waits."""
        frame = response(id, content, error=error, usage=usage)
        self.put(frame, len(frame))

    def stream(self, id: str, text: str) -> None:
        """Add a piece of streamed text; it is joined to the piece before it if that still waits."""
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, _StreamedText) and last.id == id and last.size < MAX_CHUNK_CHARS:
            last.pieces.append(text)
            last.size += len(text)
            self.grow(len(text))
        else:
            self.put(_StreamedText(id, text), len(text))

    async def take(self) -> str | None:
        """Wait for the next frame and return it; None after the last."""
        if not await self.wait():
            return None
        entry = self.waiting[0]
        if isinstance(entry, str):
            self.pop(len(entry))
            return entry
        self.pop(entry.size)
        return response(entry.id, {"Stream": "".join(entry.pieces)})


class ChatReply:
    """The frames of a request: `Text` alone, or `Stream`, `ToolCall` and `ToolResult` with `Complete` at the end.

    A refusal or an error is a `Text` in both forms; in a stream it stands before `Complete`.
    """

    def __init__(
        self,
        id: str,
        stream: bool,
        frames: FrameQueue,
        options: RemoteOptions,
        told: Sequence[dict[str, Any]] = (),
    ) -> None:
        """`told`: answers that stand before that of the model, in a `Multi` unless it is a stream."""
        self.error: str | None = None
        """Why the request failed."""
        self.refusal: str | None = None
        """The text for the client if the user refused a tool or more turns."""
        self.interrupted = False
        self.continued = False
        """Whether the client agreed to more turns. What follows is a stream, even if the request is none."""
        self._id = id
        self._stream = stream
        self._frames = frames
        self._told = told
        if stream and told:
            frames.send(id, {"Multi": told})
        self._reasoning = options.reasoning
        self._text = ""
        """The model's last answer."""
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._beside: str | None = None
        """An error that leaves the answer as it is: a limit ended the run, or a tool failed (the first one counts)."""
        self._last_call = ""
        """Id of the call that started last. Calls are checked one by one, so this call is being checked."""
        self._arguments: dict[str, Any] = {}
        """Arguments of calls that have not ended, by id."""
        self._announced: set[str] = set()

    def ask(self, content: dict[str, Any]) -> None:
        self._frames.send(self._id, content)

    def fail(self, error: str) -> None:
        """Let the request end with an error; the first error counts."""
        self.error = self.error or error

    def update(self, event: MessageUpdate) -> None:
        piece = event.assistant_message_event
        if not self._stream:
            return
        if type(piece) is TextDelta:
            self._frames.stream(self._id, piece.delta)
        elif type(piece) is ThinkingDelta and self._reasoning:
            self._frames.stream(self._id, f"[Reasoning: {piece.delta}]")

    def answered(self, message: AssistantMessage) -> None:
        """Take a finished answer of the model."""
        usage = message.usage
        self._text = text_of(message.content)
        self._prompt_tokens += usage.input + usage.cache_read + usage.cache_write
        self._completion_tokens += usage.output
        if message.stop_reason == "error":
            text = message.error_message or "The model failed"
            kind = "connection_error" if text.startswith(UNREACHABLE) else "processing_error"
            self.error = structured_error(kind, text)
        elif message.stop_reason != "aborted":
            self.error = None  # an earlier attempt may have failed

    def limited(self, text: str) -> None:
        """Say that a limit ended the run or its last answer; the text received so far counts."""
        self._beside = structured_error("processing_error", text)

    # -- tools -----------------------------------------------------------------------------------

    @property
    def calls_running(self) -> bool:
        return bool(self._arguments)

    def tool_started(self, event: ToolExecutionStart) -> None:
        self._last_call = event.tool_call_id
        self._arguments[event.tool_call_id] = event.args

    def tool_allowed(self, name: str, arguments: Any) -> None:
        """Send the call that started last."""
        self._announce(self._last_call, name, arguments)

    def tool_ended(self, event: ToolExecutionEnd, *, silent: bool) -> None:
        """Send a result, unless it is `silent`: another frame tells that the run was stopped."""
        id, name = event.tool_call_id, event.tool_name
        arguments = self._arguments.pop(id, None)
        if silent or self.refusal is not None:
            return
        text = text_of(event.result.content)
        if event.is_error and self._beside is None:
            details = {"tool": name, "error": text, "arguments": arguments}
            self._beside = structured_error("tool_execution_error", f"Tool '{name}' execution failed", details)
        if id not in self._announced:  # the call failed before it was allowed
            self._announce(id, name, arguments)
        if self._stream:
            result = {"name": name, "result": {"content": text, "is_error": event.is_error}}
            self._frames.send(self._id, {"ToolResult": result})

    def _announce(self, id: str, name: str, arguments: Any) -> None:
        self._announced.add(id)
        if self._stream:
            self._frames.send(self._id, {"ToolCall": {"name": name, "arguments": arguments}})

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Send the last frames; nothing of the request comes after them."""
        failed = not self.interrupted and (self.refusal is not None or self.error is not None)
        error = self.error if failed else self._beside
        usage = usage_value(self._prompt_tokens, self._completion_tokens)
        instead = {"Text": self.refusal or "" if failed else ""}
        if self._stream or self.continued:
            if not self._stream and self._text:
                self._frames.stream(self._id, self._text)
            if failed or error is not None:
                self._frames.send(self._id, instead, error=error)
            complete = {"token_usage": None if self.interrupted else usage, "interrupted": self.interrupted}
            self._frames.send(self._id, {"Complete": complete}, error=error)
        elif failed:
            self._frames.send(self._id, instead, error=error)
        else:
            answer = {"Text": self._text}
            self._frames.send(
                self._id, {"Multi": [*self._told, answer]} if self._told else answer, error=error, usage=usage
            )
