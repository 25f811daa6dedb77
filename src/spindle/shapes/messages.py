"""Messages of a conversation, by role, and the blocks they are made of.

Messages are values: they do not know their entry ids, the session does. `message_from_value` never fails on an unknown
role, an unknown block or a missing key: a message that cannot be read is passed on as it came.
"""

import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from spindle.shapes.codec import WireValue, encode


class Wire(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of all shapes: camelCase keys; a field equal to its default is left out.

    A key that must always be written therefore has no default. `gc=False` below: a long context has hundreds of
    thousands of these values, and none refers back to another, so the garbage collector need not walk them.
    """


def shown_as(name: str) -> msgspec.Meta:
    """Annotate a value that is read by other code with the name of its shape in the published schema."""
    return msgspec.Meta(extra_json_schema={"$ref": name})


class Tagged(Wire, gc=False, tag_field="type"):
    """Base of shapes that have a `type` on the wire: blocks and events."""

    @property
    def type(self) -> str:
        return str(type(self).__struct_config__.tag)


class Text(Tagged, tag="text"):
    text: str
    text_signature: str | None = None
    """Opaque provider data that must come back with the block."""


class Image(Tagged, tag="image"):
    data: str
    """Base64."""
    mime_type: str


class Thinking(Tagged, tag="thinking"):
    thinking: str
    thinking_signature: str | None = None
    """Anthropic: the signature. OpenAI-style servers: the name of the field that had the thinking."""
    redacted: bool = False


class ToolCall(Tagged, gc=True, tag="toolCall"):
    id: str
    name: str
    arguments: Any
    """The JSON value that the model wrote, usually an object."""
    thought_signature: str | None = None
    as_text: bool = False
    """Whether the model wrote the call into its text."""


def text_of(content: str | list[Any], separator: str = "") -> str:
    """Return the text blocks of a message's content, joined."""
    if isinstance(content, str):
        return content
    return separator.join([block.text for block in content if isinstance(block, Text)])


def blocks_of(content: "str | list[Text | Image]") -> "list[Text | Image]":
    """Return the content of a message as blocks, also if it is a string."""
    return [Text(content)] if isinstance(content, str) else content


class Cost(Wire, gc=False, omit_defaults=False):
    """US dollars; every key is always written."""

    input: int | float = 0
    output: int | float = 0
    cache_read: int | float = 0
    cache_write: int | float = 0
    total: int | float = 0
    total_from_provider: bool | UnsetType = UNSET
    """True: `total` is the price that the provider bills, whatever the parts add up to."""
    unknown: bool | UnsetType = UNSET
    """True: the price or the number of tokens is not known; `total` is only the known part, often 0."""

    @property
    def source(self) -> str:
        """How `total` is known: `billed` by the provider, `computed` from a price list, or `unknown`."""
        if self.unknown is True:
            return "unknown"
        return "billed" if self.total_from_provider is True else "computed"


def joint_source(sources: Iterable[str]) -> str:
    """Return the source of a sum: the least certain source of its parts."""
    known = set(sources)
    return next((source for source in ("unknown", "computed", "billed") if source in known), "computed")


class Usage(Wire, gc=False, omit_defaults=False):
    """Tokens of one answer. `input` excludes cached tokens, `output` includes reasoning."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = msgspec.field(default_factory=Cost)
    reasoning: int | UnsetType = UNSET
    cache_write_1h: int | UnsetType = msgspec.field(default=UNSET, name="cacheWrite1h")

    @property
    def context(self) -> int:
        """Tokens in the context when this was reported."""
        return self.total_tokens or self.input + self.output + self.cache_read + self.cache_write


class Message(Wire, gc=False, tag_field="role"):
    """Base of all messages we can read."""

    @property
    def role(self) -> str:
        return str(type(self).__struct_config__.tag)


class UserMessage(Message, tag="user"):
    content: str | list[Text | Image]
    timestamp: int | float
    """Unix milliseconds, here and in every message."""
    attachments: list[Any] | None = None
    """Files that other programs have added to the message; the text they extracted is for the model."""


class AssistantMessage(Message, tag="assistant"):
    content: list[Text | Thinking | ToolCall]
    api: str
    provider: str
    model: str
    usage: Usage
    stop_reason: str
    """`stop`, `length`, `toolUse`, `error` or `aborted` when written by us; newer programs have more."""
    timestamp: int | float
    error_message: str | None = None
    response_id: str | None = None
    response_model: str | None = None
    """Set only if the server answered with another model than the one asked for."""
    raw_stop_reason: str | None = None
    thinking_level: str | None = None
    """How much the model was asked to think, if it can."""


class ToolResultMessage(Message, kw_only=True, tag="toolResult"):
    tool_call_id: str
    tool_name: str
    content: list[Text | Image]
    details: Any = None
    is_error: bool
    timestamp: int | float
    changed_input: Any = None
    """The arguments that the tool ran with, if whoever allowed the call has changed those of the model."""


class BashExecutionMessage(Message, gc=True, kw_only=True, tag="bashExecution"):
    """A shell command that the user ran, not the model."""

    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool
    truncated: bool
    full_output_path: str | None = None
    timestamp: int | float
    exclude_from_context: bool = False


class CustomMessage(Message, gc=True, kw_only=True, tag="custom"):
    """A message of an extension; the model sees its content as a user message."""

    custom_type: str
    content: str | list[Text | Image]
    display: bool
    details: Any = None
    timestamp: int | float


def custom_message(
    custom_type: str, content: str | list[Text | Image], *, display: bool = False, details: Any = None
) -> CustomMessage:
    """Make a message of an extension, or of a part of the agent, with the present time; people see it if `display`."""
    now = int(time.time() * 1000)
    return CustomMessage(custom_type=custom_type, content=content, display=display, details=details, timestamp=now)


class BranchSummaryMessage(Message, gc=True, tag="branchSummary"):
    summary: str
    from_id: str
    timestamp: int | float | None


class CompactionSummaryMessage(Message, gc=True, tag="compactionSummary"):
    summary: str
    tokens_before: int | float
    timestamp: int | float | None


class OpaqueMessage(WireValue):
    """A message of an unknown role or a shape we cannot read: listed, stored, never sent to a model."""

    __slots__ = ("role", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.role = value.get("role") if isinstance(value, dict) else None

    def to_wire(self) -> Any:
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueMessage) and other.value == self.value

    def __repr__(self) -> str:
        return f"OpaqueMessage({self.value!r})"


KnownMessage: TypeAlias = (
    UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CustomMessage
    | BranchSummaryMessage
    | CompactionSummaryMessage
)
AgentMessage: TypeAlias = KnownMessage | OpaqueMessage
MessageOnWire: TypeAlias = Annotated[Any, shown_as("Message")]
"""An `AgentMessage`, or its JSON."""


class GivenImage(Wire):
    """An image as clients send it: `data` and `mimeType`, or a `source` of `base64` or `url`, the older form."""

    type: Literal["image"]
    data: str | None = None
    mime_type: str | None = None
    source: dict[str, Any] | None = None


ImageOnWire: TypeAlias = Annotated[Any, shown_as("GivenImage")]


def with_empty_key(message: Any, stored: Any) -> Any:
    """Return a message with the empty key that the samples of pi's documents show, or `stored` if it needs none.

    `stored` is the message or its JSON, as a file has it: with keys that we do not know.
    """
    if type(message) is UserMessage and message.attachments is None:
        if stored is message:
            return UserMessage(message.content, message.timestamp, [])
        key, value = b'"attachments"', b"[]"
    elif type(message) is BashExecutionMessage and message.full_output_path is None:
        key, value = b'"fullOutputPath"', b"null"
    else:
        return stored
    data = bytes(stored) if type(stored) is msgspec.Raw else encode(stored)
    return stored if key in data else msgspec.Raw(b"%b,%b:%b}" % (data[:-1], key, value))


_BLOCKS: dict[str | None, tuple[str, ...]] = {"assistant": ("text", "thinking", "toolCall")}
# Values for keys that hand-made and very old files leave out.
_MISSING: dict[str, dict[str, Any]] = {
    "user": {"content": [], "timestamp": 0},
    "assistant": {
        "content": [],
        "api": "unknown",
        "provider": "unknown",
        "model": "unknown",
        "usage": {},
        "stopReason": "stop",
        "timestamp": 0,
    },
    "toolResult": {"toolCallId": "", "toolName": "", "content": [], "isError": False, "timestamp": 0},
    "bashExecution": {"command": "", "output": "", "cancelled": False, "truncated": False, "timestamp": 0},
    "custom": {"customType": "", "content": "", "display": True, "timestamp": 0},
    "branchSummary": {"summary": "", "fromId": "root", "timestamp": None},
    "compactionSummary": {"summary": "", "tokensBefore": 0, "timestamp": None},
}


def message_from_value(value: Any) -> AgentMessage:
    """Turn a parsed JSON value into a message, filling in keys that are missing."""
    role = value.get("role") if isinstance(value, dict) else None
    defaults = _MISSING.get(role) if isinstance(role, str) else None
    if defaults is None:
        return OpaqueMessage(value)
    filled = {**defaults, **{key: item for key, item in value.items() if item is not None or key not in defaults}}
    if isinstance(filled.get("content"), list):
        # Blocks of newer programs are left out, so that the model still gets the rest of the message.
        known_blocks = _BLOCKS.get(role, ("text", "image"))
        filled["content"] = [b for b in filled["content"] if isinstance(b, dict) and b.get("type") in known_blocks]
    try:
        known: KnownMessage = msgspec.convert(filled, KnownMessage)
        return known
    except (msgspec.ValidationError, UnicodeEncodeError):  # half a surrogate pair where a number belongs
        return OpaqueMessage(value)
