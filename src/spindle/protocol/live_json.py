"""The JSON of an answer that is still growing.

`LiveJson` folds the pieces that a reader has been told of, and encodes each of them once. A `LiveMessage` is ahead of
them when a server sends many pieces together, or when the reader is slow.
"""

from collections.abc import Iterable

import msgspec

from spindle.llm.live import LiveMessage, LiveText, LiveThinking, LiveToolCall
from spindle.protocol.dialect import Shape, shaped
from spindle.shapes import codec
from spindle.shapes.messages import AssistantMessage, Text, Thinking, Usage
from spindle.shapes.pieces import STARTS, Delta, StreamEvent


class LiveJson:
    __slots__ = ("_blocks", "_head", "_rest", "_tail", "_usage", "_usage_seen", "_wanted", "live")

    def __init__(self, live: LiveMessage, wanted: Shape | None = None, *, from_start: bool = True) -> None:
        """`from_start`: the reader is told of every piece. Else blocks that have begun are shown as they are."""
        self.live = live
        self._wanted = wanted
        """The shape of the message for this client; None: as it is."""
        self._blocks: list[_TextJson | _CallJson] = []
        self._usage_seen: Usage | None = None
        """A copy: the usage may be changed in place."""
        self._usage = b""
        self._rest: tuple[bytes, str | None, str | None] | None = None
        """The values that `_head` and `_tail` were made from."""
        self._head = b""
        """The message up to its blocks."""
        self._tail = b""
        """The message after its blocks."""
        if not from_start:
            for _ in live.blocks:
                self._open().end()

    def take_delta(self, piece: Delta, quoted: bytes) -> None:
        """Add a delta; `quoted` is its text as JSON."""
        self._blocks[piece.content_index].add(piece.delta, quoted)

    def take(self, piece: StreamEvent) -> None:
        """Add the start or the end of a block."""
        if piece.content_index == len(self._blocks):
            self._open()
        elif not isinstance(piece, STARTS):
            self._blocks[piece.content_index].end()

    def _open(self) -> "_TextJson | _CallJson":
        block, comma = self.live.blocks[len(self._blocks)], b"," if self._blocks else b""
        kept = _CallJson(block, comma) if isinstance(block, LiveToolCall) else _TextJson(block, comma)
        self._blocks.append(kept)
        return kept

    def usage(self) -> bytes:
        """Return the JSON of the current usage."""
        usage = self.live.usage
        if usage != self._usage_seen:
            self._usage_seen = msgspec.structs.replace(usage, cost=msgspec.structs.replace(usage.cost))
            used = None if self._wanted is None else self._wanted.keys["usage"]
            self._usage = shaped(codec.encode(usage), used)
        return self._usage

    def pieces(self) -> list[bytes | bytearray]:
        """Return the JSON of the message so far, in pieces that are valid until the next call."""
        live = self.live
        rest = (self.usage(), live.response_id, live.response_model)
        if rest != self._rest:
            self._rest = rest
            self._frame()
        pieces: list[bytes | bytearray] = [self._head]
        for kept in self._blocks:
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
                thinking_level=live.thinking_level,
            )
        )
        message = shaped(message, self._wanted)
        cut = message.index(b"[]") + 1
        self._head, self._tail = message[:cut], message[cut:]


class _TextJson:
    """A block of text or thinking."""

    __slots__ = ("_before", "_behind", "_block", "_comma", "_ended", "_parts", "_seen", "_signature", "_text")

    def __init__(self, block: LiveText | LiveThinking, comma: bytes) -> None:
        self._block = block
        self._comma = comma
        self._ended = False
        """Whether the block is shown as it is, and not only the deltas that were added here."""
        self._signature: str | None = None
        """The signature that `_before` and `_behind` were made with."""
        self._before = self._behind = b""
        self._text = bytearray()
        """The escaped text so far."""
        self._parts: list[str] | None = None
        """The list that `_text` was made from once the block is shown as it is; an API may replace that list."""
        self._seen = 0
        """How many parts are in `_text`."""

    def add(self, delta: str, quoted: bytes) -> None:
        if not self._ended:
            self._text += quoted[1:-1]

    def end(self) -> None:
        self._ended = True

    def pieces(self) -> Iterable[bytes | bytearray]:
        block = self._block
        signature = block.signature if self._ended else block.first_signature
        if not self._before or signature != self._signature:
            self._signature = signature
            empty = Text("", signature) if isinstance(block, LiveText) else Thinking("", signature, block.redacted)
            data = codec.encode(empty)
            cut = data.index(b'""') + 1
            self._before, self._behind = self._comma + data[:cut], data[cut:]
        if self._ended:
            self._catch_up(block.parts)
        return self._before, self._text, self._behind

    def _catch_up(self, parts: list[str]) -> None:
        if parts is not self._parts:
            self._parts, self._seen, self._text = parts, 0, bytearray()
        if self._seen < len(parts):
            self._text += codec.encode_str("".join(parts[self._seen :]))[1:-1]
            self._seen = len(parts)


class _CallJson:
    """A tool call. Its arguments are parsed again when text was added, so they are encoded again too."""

    __slots__ = ("_call", "_comma", "_data", "_made_of", "_told")

    def __init__(self, call: LiveToolCall, comma: bytes) -> None:
        self._call = call
        self._told: LiveToolCall = LiveToolCall(call.id, call.name)
        """The call as far as the reader was told of it; at its end, the call itself."""
        self._comma = comma
        self._data = b""
        self._made_of: tuple[object, ...] | None = None

    def add(self, delta: str, quoted: bytes) -> None:
        if self._told is not self._call:
            self._told.arguments.feed(delta)

    def end(self) -> None:
        self._told = self._call

    def pieces(self) -> Iterable[bytes | bytearray]:
        call = self._told
        call.name = self._call.name  # some servers send it late
        arguments = call.arguments.value()
        made_of = (arguments, call.id, call.name, call.signature)
        # The parser hands out the same object until it is fed; comparing contents would cost as much as encoding.
        if self._made_of is None or self._made_of[0] is not arguments or self._made_of[1:] != made_of[1:]:
            self._made_of = made_of
            self._data = self._comma + codec.encode(call.block())
        return (self._data,)
