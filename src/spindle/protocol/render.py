"""Turn events and responses into lines of JSON, in one dialect.

A renderer serves one session of one client. It encodes items as they are, except `message_update`, the hot path: it
keeps the JSON of the pieces so far and encodes only new ones, so a frame of a long answer costs a copy of it, not an
encoding. Updates are rendered in their order, each of them once: a frame shows the answer up to its own piece.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from spindle.llm.live import LiveMessage
from spindle.protocol.dialect import ANSWER_EDGES, SPINDLE, Dialect, Tries, UpdateMode, shape, shaped
from spindle.shapes import codec
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import (
    AgentEnd,
    Event,
    ExtensionError,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    SessionChanged,
    SubagentEvent,
)
from spindle.shapes.messages import with_empty_key
from spindle.shapes.pieces import DELTAS, STARTS, AnswerDone, AnswerEdge, AnswerFailed, AnswerStart, Delta, StreamEvent

if TYPE_CHECKING:  # loaded with the first answer
    from spindle.protocol.live_json import LiveJson

EDGES = (AnswerStart, AnswerDone, AnswerFailed)
_UPDATE = b'{"type":"message_update","assistantMessageEvent":'
_NEVER_LEFT_OUT = (
    "extension_error",
    "extension_ui_request",
    "host_tool_call",
    "host_tool_cancel",
    "host_uri_request",
    "host_uri_cancel",
    "prompt_result",
    "session_settled",
)
"""Events that a client gets whatever its filter: most of them need a reply."""
_MESSAGE_KEYS = {AnswerStart: "partial", AnswerDone: "message", AnswerFailed: "error"}


FRAME_BYTES = 1 << 20
"""The longest line, newline included, for a client that has negotiated version 2."""
REASSEMBLED_BYTES = 64 << 20
"""The longest line that such a client puts together from pieces."""


class Ready(Event, omit_defaults=False, tag="ready"):
    """The first line: the agent listens. A client that finds all these numbers right may send `negotiate_protocol`."""

    version: str
    protocol_version: int = 1
    supported_protocol_versions: tuple[int, ...] = (1, 2)
    max_frame_bytes: int = FRAME_BYTES
    max_reassembled_frame_bytes: int = REASSEMBLED_BYTES
    update_mode: UpdateMode = "full"
    """The form of updates of an answer: `full` repeats the whole answer in each, `delta` has only what is new."""
    update_modes: tuple[UpdateMode, ...] = ("full", "delta")
    """What `set_update_mode` may ask for."""


class Response(msgspec.Struct, kw_only=True):
    """The response to one command. Keys are sent in this order; unset ones are left out."""

    id: Any = UNSET
    """As the client sent it; any JSON value."""
    type: str = "response"
    command: Any = UNSET
    success: bool
    data: Any = UNSET
    error: str | msgspec.UnsetType = UNSET
    code: str | msgspec.UnsetType = UNSET
    """The kind of an error, for programs; few errors have one."""


class Misread(Response):
    """The response to a line that is no command: it cannot be read, or names none that there is."""


class Misused(Response):
    """The response to a command whose fields make no sense, or whose handler broke."""


Item: TypeAlias = Event | Response


MESSAGE_EVENTS = (MessageStart, MessageUpdate, MessageEnd)
MESSAGES_INSIDE = (MessageStart, MessageEnd, AgentEnd)
"""Events with messages that are shown as the documents show them."""


class Wishes(msgspec.Struct):
    """What a client has asked for, for all of its sessions."""

    only: Collection[str] | None = None
    """Types of the events that the client wants; None: all."""
    cut: Callable[[bytes], bytes] | None = None
    """Makes frames that hold a long line in pieces, if the client has negotiated version 2."""
    subagents: Literal["off", "progress", "events"] = "off"
    """What such a client is told of subagents."""


def tag_for(session_id: str) -> bytes:
    """Return what comes in place of the brace at the beginning of each line of a session that has a name."""
    return b'{"sessionId":' + codec.encode_str(session_id) + b","


class Renderer:
    def __init__(
        self,
        dialect: Dialect = SPINDLE,
        update_mode: UpdateMode | None = None,
        session_id: str | None = None,
        wishes: Wishes | None = None,
    ) -> None:
        """`session_id` goes into every line: it tells a client which of its sessions the line is about."""
        self._tag = b"" if session_id is None else tag_for(session_id)
        self.update_mode: UpdateMode = update_mode or dialect.updates
        self.wishes = wishes or Wishes()
        self._live: LiveJson | None = None
        """JSON of the answer that the last update was about."""
        self._messages = 0
        """Messages so far, and the numbers of those that have not ended, for version 2."""
        self._open_messages: list[int] = []
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._heads: dict[tuple[type, int], bytes] = {}
        """Delta frames up to the delta."""
        self._tries: Tries | None = None
        self.use_dialect(dialect)
        _keep_big_blocks()

    def use_dialect(self, dialect: Dialect) -> None:
        """Render in this dialect from now on."""
        self.dialect, self._live = dialect, None
        update = dialect.shape_of("message_update")
        self._piece = None if update is None else update.keys["assistantMessageEvent"]
        self._message = None if update is None else update.keys["message"]
        self._with_usage = update is None or "usage" in update.keys
        self._used = None if self._message is None else shape(usage=self._message.keys["usage"] or shape())
        self._with_edges = dialect.sends(ANSWER_EDGES)
        self._tries = Tries() if dialect.splits_runs else None

    def set_update_mode(self, mode: UpdateMode) -> None:
        """Write `message_update` from now on in this form."""
        if mode != self.update_mode:
            self._live = None  # in the other form, pieces were not added to it, or will not be
        self.update_mode = mode

    def render(self, item: Item) -> bytes:
        """Return `item` as a line, newline included; nothing if this client does not know such events."""
        line, only, cut = self._line(item), self.wishes.only, self.wishes.cut
        if only is not None and isinstance(item, Event) and item.type not in (*only, *_NEVER_LEFT_OUT):
            line = b""
        if cut is not None and isinstance(item, MESSAGE_EVENTS):
            line = self._stamped(self._number(item), line)
        if not line:
            return b""
        if self._tag:
            if isinstance(item, SessionChanged):  # the event has a key of that name
                line = line.replace(b'"sessionId":', b'"currentId":', 1)
            line = self._tag + line[1:]
        return line if cut is None or len(line) <= FRAME_BYTES else cut(line)

    def lines(self, item: Item) -> Iterator[bytes]:
        """Yield the lines for an item that is no update: a dialect that splits runs may have several, each an event."""
        return filter(None, map(self.render, (item,) if self._tries is None else self._tries.split(item)))

    def waits(self, update: MessageUpdate) -> None:
        """Note which message an update belongs to that is rendered later, when others may have begun, for version 2."""
        if update.message not in self._numbers:
            self._numbers[update.message] = self._open_messages[-1] if self._open_messages else 0

    def _number(self, item: MessageStart | MessageUpdate | MessageEnd) -> int:
        """Return the number of a message, which its events share."""
        if isinstance(item, MessageUpdate):
            return self._numbers.get(item.message, 0)
        if isinstance(item, MessageStart) or not self._open_messages:
            self._messages += 1
            self._open_messages.append(self._messages)
        return self._open_messages.pop() if isinstance(item, MessageEnd) else self._open_messages[-1]

    def _stamped(self, number: int, line: bytes) -> bytes:
        """Give the line of a message its `messageId`, for a client that has negotiated version 2."""
        return b'{"messageId":"msg-%d",' % number + line[1:] if line else line

    def _of_subagent(self, item: SubagentEvent) -> bytes:
        """Return an event of a subagent as a client that has negotiated version 2 gets it."""
        if self.wishes.subagents != "events":
            return b""
        payload = {"id": item.subagent_id, "event": item.event}
        return codec.encode({"type": "subagent_event", "payload": payload}) + b"\n"

    def _with_code(self, item: Item) -> Item:
        """Return a refusal with the kind of its error, for a client that has negotiated version 2."""
        if isinstance(item, Response) and not item.success and item.code is UNSET:
            code = "invalid_request" if isinstance(item, Misused) else "refused"
            if isinstance(item, Misread):
                code = "parse_error" if item.command == "parse" else "unknown_command"
            return replace(item, code=code)
        return item

    def _line(self, item: Item) -> bytes:
        try:
            if type(item) is MessageUpdate:
                piece = item.assistant_message_event
                if isinstance(piece, EDGES):
                    return self._edge(piece, item.message) if self._with_edges else b""
                return self._update(piece, item.message)
            return self._plain(item)
        except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
            # The item holds a value that JSON cannot hold. The client must still be told.
            return self._plain(_instead_of(item, error))

    def _plain(self, item: Item) -> bytes:
        if self.wishes.cut is not None:
            if isinstance(item, SubagentEvent):
                return self._of_subagent(item)
            item = self._with_code(item)
        if self.dialect.bare_faults and isinstance(item, Misread | Misused):
            item = _bare(item)
        name, rows = _name(item), self.dialect.rows
        if not isinstance(item, Response) and not self.dialect.sends(name):
            return b""
        if self.dialect.documented and isinstance(item, MESSAGES_INSIDE):
            item = _documented(item)
        line = codec.encode(item)
        return (line if rows is None else shaped(line, rows.get(name))) + b"\n"

    def render_deltas(self, first: Delta, deltas: Sequence[str], live: LiveMessage) -> bytes:
        """Return updates in delta form, a line for each of `deltas`; all are of the block and the kind of `first`."""
        head, tail = self._head(first), self._usage(self._kept(live, first)) + b"}\n"
        if self._tag:
            head = self._tag + head[1:]
        if self.wishes.cut is not None:
            head = self._stamped(self._numbers.get(live, 0), head)
        # No JSON string has a raw newline in it: each newline here stands between two updates.
        return head + codec.encode_strs(deltas)[:-1].replace(b"\n", tail + head) + tail

    def _kept(self, live: LiveMessage, piece: StreamEvent | AnswerStart) -> "LiveJson":
        """Return the JSON of the answer up to `piece`, which is not added yet."""
        if self._live is None or self._live.live is not live:
            from spindle.protocol.live_json import LiveJson

            begins = isinstance(piece, AnswerStart) or (piece.content_index == 0 and isinstance(piece, STARTS))
            self._live = LiveJson(live, self._message, from_start=begins)
        return self._live

    def _usage(self, kept: "LiveJson") -> bytes:
        """Return the end of `assistantMessageEvent`, and the usage after it."""
        return b'},"usage":' + kept.usage() if self._with_usage else b"}"

    def _update(self, piece: StreamEvent, live: LiveMessage) -> bytes:
        kept, full = self._kept(live, piece), self.update_mode == "full"
        if isinstance(piece, DELTAS):
            quoted = codec.encode_str(piece.delta)
            event = self._head(piece) + quoted
            if full:
                kept.take_delta(piece, quoted)
        else:  # up to the last key of the event, which is left open
            event = _UPDATE + shaped(codec.encode(piece), self._piece)[:-1]
            if full:
                kept.take(piece)
        usage = self._usage(kept)
        if not full:
            return b"".join((event, usage, b"}\n"))
        message = kept.pieces()
        return b"".join((event, b',"partial":', *message, usage, b',"message":', *message, b"}\n"))

    def _edge(self, edge: AnswerEdge, message: Any) -> bytes:
        """Return the update at the start or at the end of an answer."""
        if self.update_mode == "delta":
            usage = codec.encode({"usage": message.usage}) if self._with_usage else b"{}"
            usage = shaped(usage, self._used)[1:-1]
            return _UPDATE + codec.encode(edge) + (b"," + usage if usage else b"") + b"}\n"
        if isinstance(edge, AnswerStart) and isinstance(message, LiveMessage):
            value = codec.decode(b"".join(self._kept(message, edge).pieces()))
        else:
            value = codec.decode(shaped(codec.encode(message), self._message))
        event = codec.to_builtins(edge)
        event[_MESSAGE_KEYS[type(edge)]] = value
        update = {"type": "message_update", "assistantMessageEvent": event}
        if self._with_usage:
            update["usage"] = value.get("usage")
        return codec.encode(update | {"message": value}) + b"\n"

    def _head(self, piece: Delta) -> bytes:
        """Return the frame of a delta up to the delta."""
        key = type(piece), piece.content_index
        head = self._heads.get(key)
        if head is None:
            empty = type(piece)(piece.content_index, "")
            head = _UPDATE + codec.encode(empty).removesuffix(b'""}')
            self._heads[key] = head
        return head


def _keep_big_blocks() -> None:
    """Let glibc's malloc reuse blocks up to 4 MiB.

    For blocks above its threshold it asks the kernel for fresh pages every time, and filling those costs three times
    as much as making a frame. Freeing a bigger block once raises the threshold.
    """
    bytes(4 << 20)


def _name(item: Item) -> str:
    """Return the name that dialects use for `item`."""
    if isinstance(item, Response):
        return f"response {item.command}"
    if isinstance(item, ExtensionUIRequest):
        return f"extension_ui_request {item.method}"
    return str(type(item).__struct_config__.tag)


def _documented(item: MessageStart | MessageEnd | AgentEnd) -> Item:
    """Return the item with the empty keys of messages that the samples of pi's documents show."""
    if isinstance(item, AgentEnd):
        return replace(item, messages=[*map(with_empty_key, item.messages, item.messages)])
    shown = with_empty_key(item.message, item.message)
    return item if shown is item.message else replace(item, message=shown)


def _bare(fault: Misread | Misused) -> Response:
    """Return the response without its id; a command that was misused counts as one that could not be read."""
    if isinstance(fault, Misused):
        return Response(command="parse", success=False, error=f"Failed to parse command: {fault.error}")
    return Response(command=fault.command, success=False, error=fault.error)


def _instead_of(item: Item, error: Exception) -> Item:
    if isinstance(item, Response):
        text = f"The answer cannot be written as JSON: {error}"
        return Response(id=item.id, command=item.command, success=False, error=text)
    return ExtensionError("", _name(item), f"The event cannot be written as JSON: {error}")
