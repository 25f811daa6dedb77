"""The JSON of an answer that is still growing.

`LiveJson` follows one `LiveMessage` and encodes every piece of text once. Its pieces, joined, equal the encoding of a
snapshot.
"""

from collections.abc import Iterable

import msgspec

from spindle.llm.live import LiveMessage, LiveText, LiveThinking, LiveToolCall
from spindle.protocol.dialect import Path, without
from spindle.shapes import codec
from spindle.shapes.messages import AssistantMessage, Text, Thinking, Usage


class LiveJson:
    __slots__ = ("_blocks", "_head", "_left_out", "_rest", "_tail", "_usage", "_usage_seen", "live")

    def __init__(self, live: LiveMessage, left_out: tuple[Path, ...] = ()) -> None:
        self.live = live
        self._left_out = left_out
        """Keys of the message that this client does not know."""
        self._blocks: list[_TextJson | _CallJson] = []
        self._usage_seen: Usage | None = None
        """A copy: the usage may be changed in place."""
        self._usage = b""
        self._rest: tuple[bytes, str | None, str | None, str | None] | None = None
        """The values that `_head` and `_tail` were made from."""
        self._head = b""
        """The message up to its blocks."""
        self._tail = b""
        """The message after its blocks."""

    def usage(self) -> bytes:
        """Return the JSON of the current usage."""
        usage = self.live.usage
        if usage != self._usage_seen:
            self._usage_seen = msgspec.structs.replace(usage, cost=msgspec.structs.replace(usage.cost))
            self._usage = codec.encode(usage)
        return self._usage

    def pieces(self) -> list[bytes | bytearray]:
        """Return the JSON of the message so far, in pieces that are valid until the next call."""
        live = self.live
        rest = (self.usage(), live.response_id, live.response_model, live.raw_stop_reason)
        if rest != self._rest:
            self._rest = rest
            self._frame()
        blocks = self._blocks
        for block in live.blocks[len(blocks) :]:
            comma = b"," if blocks else b""
            blocks.append(_CallJson(block, comma) if isinstance(block, LiveToolCall) else _TextJson(block, comma))
        pieces: list[bytes | bytearray] = [self._head]
        for kept in blocks:
            pieces += kept.pieces()
        pieces.append(self._tail)
        return pieces

    def _frame(self) -> None:
        live = self.live
        message = codec.encode(
            AssistantMessage(
                content=[],
                api=live.api,
                provider=live.provider,
                model=live.model,
                usage=live.usage,
                stop_reason="stop",
                timestamp=live.timestamp,
                response_id=live.response_id,
                response_model=live.response_model,
                raw_stop_reason=live.raw_stop_reason,
            )
        )
        message = without(message, self._left_out)
        cut = message.index(b"[]") + 1
        self._head, self._tail = message[:cut], message[cut:]


class _TextJson:
    """A block of text or thinking."""

    __slots__ = ("_before", "_behind", "_block", "_comma", "_parts", "_seen", "_signature", "_text")

    def __init__(self, block: LiveText | LiveThinking, comma: bytes) -> None:
        self._block = block
        self._comma = comma
        self._signature: str | None = None
        """The signature that `_before` and `_behind` were made with."""
        self._before = self._behind = b""
        self._text = bytearray()
        """The escaped text so far."""
        self._parts: list[str] | None = None
        """The list that `_text` was made from; an API may replace it by a corrected text."""
        self._seen = 0
        """How many parts are in `_text`."""

    def pieces(self) -> Iterable[bytes | bytearray]:
        block = self._block
        if not self._before or block.signature != self._signature:
            self._signature = block.signature
            empty = (
                Text("", block.signature)
                if isinstance(block, LiveText)
                else Thinking("", block.signature, block.redacted)
            )
            data = codec.encode(empty)
            cut = data.index(b'""') + 1
            self._before, self._behind = self._comma + data[:cut], data[cut:]
        parts = block.parts
        if parts is not self._parts:
            self._parts, self._seen, self._text = parts, 0, bytearray()
        if self._seen < len(parts):
            self._text += codec.encode_str("".join(parts[self._seen :]))[1:-1]
            self._seen = len(parts)
        return self._before, self._text, self._behind


class _CallJson:
    """A tool call. Its arguments are parsed again when text was added, so they are encoded again too."""

    __slots__ = ("_call", "_comma", "_data", "_made_of")

    def __init__(self, call: LiveToolCall, comma: bytes) -> None:
        self._call = call
        self._comma = comma
        self._data = b""
        self._made_of: tuple[object, ...] | None = None

    def pieces(self) -> Iterable[bytes | bytearray]:
        call = self._call
        arguments = call.arguments.value()
        made_of = (arguments, call.id, call.name, call.signature)
        # The parser hands out the same object until it is fed; comparing contents would cost as much as encoding.
        if self._made_of is None or self._made_of[0] is not arguments or self._made_of[1:] != made_of[1:]:
            self._made_of = made_of
            self._data = self._comma + codec.encode(call.block())
        return (self._data,)
