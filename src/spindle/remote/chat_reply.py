"""What the client gets to see of one chat request: events become frames, and one frame ends it all."""

from typing import Any

from spindle.remote.chat_protocol import ChatRequest, structured_error, usage_value
from spindle.remote.frames import FrameQueue
from spindle.shapes.events import MessageUpdate, TextDelta, ThinkingDelta, ToolExecutionEnd, ToolExecutionStart
from spindle.shapes.messages import AssistantMessage, text_of

__all__ = ["ChatReply"]


class ChatReply:
    """The frames of a request: `Text` alone, or `Stream`, `ToolCall` and `ToolResult` with `Complete` at the end."""

    def __init__(self, request: ChatRequest, frames: FrameQueue, *, completion: str, reasoning: bool) -> None:
        """`completion` is what the end of a stream is called; `reasoning`: what the model thinks is shown too."""
        self.error: str | None = None
        """Why the request failed."""
        self.refusal: str | None = None
        """What the user did not agree to."""
        self.interrupted = False
        self._id = request.id
        self._stream = request.stream
        self._frames = frames
        self._completion = completion
        self._reasoning = reasoning
        self._text = ""
        """The model's last answer."""
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._tool_error: str | None = None
        """The first tool that failed; the model goes on all the same."""
        self._last_call = ""
        """Id of the call that started last: calls are checked one by one, so it is the one being checked."""
        self._arguments: dict[str, Any] = {}
        """Arguments of calls that have not ended, by id."""
        self._announced: set[str] = set()

    def ask(self, content: dict[str, Any]) -> None:
        """Show a question."""
        self._frames.put(self._id, content)

    def fail(self, error: str) -> None:
        """Let the request end with an error, unless it has one."""
        self.error = self.error or error

    def update(self, event: MessageUpdate) -> None:
        piece = event.assistant_message_event
        if not self._stream:
            return
        if type(piece) is TextDelta:
            self._frames.put_chunk(self._id, piece.delta)
        elif type(piece) is ThinkingDelta and self._reasoning:
            self._frames.put_chunk(self._id, f"[Reasoning: {piece.delta}]")

    def answered(self, message: AssistantMessage) -> None:
        """Take a finished answer of the model."""
        usage = message.usage
        self._text = text_of(message.content)
        self._prompt_tokens += usage.input + usage.cache_read + usage.cache_write
        self._completion_tokens += usage.output
        if message.stop_reason == "error":
            self.error = structured_error("processing_error", message.error_message or "The model failed")
        elif message.stop_reason != "aborted":
            self.error = None  # an attempt before this one may have failed

    # -- tools -----------------------------------------------------------------------------------

    @property
    def calls_running(self) -> bool:
        return bool(self._arguments)

    def tool_started(self, event: ToolExecutionStart) -> None:
        self._last_call = event.tool_call_id
        self._arguments[event.tool_call_id] = event.args

    def tool_allowed(self, name: str, arguments: Any) -> None:
        """Show the call that started last."""
        self._announce(self._last_call, name, arguments)

    def tool_ended(self, event: ToolExecutionEnd, *, silent: bool) -> None:
        """Show a result; a silent one is of a call that was stopped or refused, which is told otherwise."""
        id, name = event.tool_call_id, event.tool_name
        arguments = self._arguments.pop(id, None)
        if silent or self.refusal is not None:
            return
        text = text_of(event.result.content)
        if event.is_error and self._tool_error is None:
            details = {"tool": name, "error": text, "arguments": arguments}
            self._tool_error = structured_error("tool_execution_error", f"Tool '{name}' execution failed", details)
        if id not in self._announced:  # it never came so far as to be allowed
            self._announce(id, name, arguments)
        if self._stream:
            result = {"name": name, "result": {"content": text, "is_error": event.is_error}}
            self._frames.put(self._id, {"ToolResult": result})

    def _announce(self, id: str, name: str, arguments: Any) -> None:
        self._announced.add(id)
        if self._stream:
            self._frames.put(self._id, {"ToolCall": {"name": name, "arguments": arguments}})

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Send the frame that ends the request."""
        usage = usage_value(self._prompt_tokens, self._completion_tokens)
        if self.refusal is not None and not self.interrupted:
            self._frames.put(self._id, {"Text": self.refusal}, error=self.error)
        elif self.error is not None and not self.interrupted:
            self._frames.put(self._id, {"Text": ""}, error=self.error)
        elif self._stream:
            complete = {"token_usage": None if self.interrupted else usage, "interrupted": self.interrupted}
            self._frames.put(self._id, {self._completion: complete}, error=self._tool_error)
        else:
            self._frames.put(self._id, {"Text": self._text}, error=self._tool_error, usage=usage)
