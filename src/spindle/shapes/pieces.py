"""The pieces of an answer, as a model sends them, and its beginning and end."""

from typing import ClassVar, Literal, TypeAlias

from spindle.shapes.codec import WireValue
from spindle.shapes.messages import AssistantMessage, Tagged, ToolCall, Wire


class _Piece(Tagged, gc=True):
    content_index: int
    """Position of the block in the message's content."""


class TextStart(_Piece, tag="text_start"):
    type: ClassVar[Literal["text_start"]]


class TextDelta(_Piece, gc=False, tag="text_delta"):
    type: ClassVar[Literal["text_delta"]]
    delta: str


class TextEnd(_Piece, tag="text_end"):
    type: ClassVar[Literal["text_end"]]
    content: str


class ThinkingStart(_Piece, tag="thinking_start"):
    type: ClassVar[Literal["thinking_start"]]


class ThinkingDelta(_Piece, gc=False, tag="thinking_delta"):
    type: ClassVar[Literal["thinking_delta"]]
    delta: str


class ThinkingEnd(_Piece, tag="thinking_end"):
    type: ClassVar[Literal["thinking_end"]]
    content: str


class ToolCallStart(_Piece, tag="toolcall_start"):
    type: ClassVar[Literal["toolcall_start"]]
    id: str
    tool_name: str


class ToolCallDelta(_Piece, gc=False, tag="toolcall_delta"):
    type: ClassVar[Literal["toolcall_delta"]]
    delta: str
    """A raw piece of the arguments' JSON."""


class ToolCallEnd(_Piece, tag="toolcall_end"):
    type: ClassVar[Literal["toolcall_end"]]
    tool_call: ToolCall


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta


DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)
"""The same types for `isinstance`; most pieces of an answer are deltas."""


STARTS = (TextStart, ThinkingStart, ToolCallStart)


class AnswerStart(Wire, tag_field="type", tag="start"):
    """An answer begins. On the wire it has the answer as `partial`."""


class AnswerDone(Wire, tag_field="type", tag="done"):
    """An answer is complete. On the wire it has the answer as `message`."""

    reason: str
    """`stop`, `length` or `toolUse`."""


class AnswerFailed(Wire, tag_field="type", tag="error"):
    """An answer was stopped or failed. On the wire it has the answer so far as `error`."""

    reason: str
    """`aborted` or `error`."""


AnswerEdge: TypeAlias = AnswerStart | AnswerDone | AnswerFailed


StreamEvent: TypeAlias = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
)


class LiveSource(WireValue):
    """An answer that is still being written. What it is so far costs its whole length; ask for it only if needed."""

    __slots__ = ()

    def so_far(self) -> AssistantMessage:
        """Return the message as it is now."""
        raise NotImplementedError

    def to_wire(self) -> AssistantMessage:
        return self.so_far()
