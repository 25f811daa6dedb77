"""The remote protocol as values: requests read from a frame, responses written to one. No sockets, no agent.

A request has exactly one input, a tagged union written as `{"Text": "hi"}` or, for inputs without data, as the bare
word `"Interrupt"`. A response always has its four keys, nulls included.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final, TypeAlias

from msgspec import Struct

from spindle.shapes.codec import DecodeError, decode_strict, encode
from spindle.shapes.messages import Image, Text
from spindle.tools.images import sniff_image

MAX_NESTING = 8
MAX_REQUEST_ID = 256
MAX_FILE_BYTES = 8 << 20
MAX_COUNT = (1 << 32) - 1
PARSE_ERROR_ID = "parse_error"
CONTROLS = ("GetCommands", "Interrupt", "Regenerate", "ClearContext")
ASIDES = frozenset({*CONTROLS, "Instruction", "ToolConfirmationResponse", "TurnConfirmationResponse"}) - {"Regenerate"}
"""Inputs that are not for the model."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The types that models take."""


class ProtocolError(Exception):
    """A frame that is no valid request; `request_id` is the frame's, if it could be read."""

    def __init__(self, reason: str, request_id: str = PARSE_ERROR_ID, stream: bool = False) -> None:
        super().__init__(reason)
        self.request_id = request_id
        self.stream = stream
        """Whether it asks for the answer as a stream."""


class Parts(Struct, frozen=True):
    """Content for the model: texts and images, in order."""

    content: list[Text | Image]

    @property
    def text(self) -> str:
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def images(self) -> list[Image]:
        return [block for block in self.content if isinstance(block, Image)]


class Control(Struct, frozen=True):
    """One of `CONTROLS`."""

    name: str


class Instruction(Struct, frozen=True):
    """An `Instruction`."""

    name: str
    parameters: Any


class ToolAnswer(Struct, frozen=True):
    name: str
    arguments: Any
    approved: bool
    reason: str | None


class TurnAnswer(Struct, frozen=True):
    confirmed: bool
    reason: str | None


class Several(Struct, frozen=True):
    """A `Multi` that holds more than content: what is carried out first, in order, and then what the model gets."""

    asides: list[Control | Instruction]
    parts: Parts | None


Input: TypeAlias = Parts | Control | Instruction | ToolAnswer | TurnAnswer | Several


class Config(Struct, frozen=True):
    """Changes that a request may make; None: no change."""

    max_turns: int | None = None
    """`max_context_num`: requests before the user is asked whether to go on."""
    max_tokens: int | None = None
    ask_before_tools: bool | None = None
    prompt: str | None = None


class ChatRequest(Struct, frozen=True):
    id: str
    input: Input
    config: Config
    stream: bool
    use_tools: bool
    told: Sequence[dict[str, Any]] = ()
    """Answers to the other inputs of a `Multi`; they stand before that of the model."""


# -- reading ---------------------------------------------------------------------------------------


def parse_request(frame: str | bytes) -> ChatRequest:
    """Read one frame. Raises `ProtocolError` with the text to answer."""
    try:
        text = frame if isinstance(frame, str) else frame.decode()
    except UnicodeDecodeError:
        raise ProtocolError("Binary message must be valid UTF-8 JSON") from None
    id, streams = PARSE_ERROR_ID, False
    try:
        value = decode_strict(text)
        if not isinstance(value, dict):
            raise ProtocolError("expected an object")
        id = _request_id(value)
        stream = _flag(value.get("stream") if value.get("stream") is not None else value.get(""), "stream", False)
        streams = stream and not _is_aside(value.get("input"))
        if "input" not in value:
            raise ProtocolError("missing input")
        return ChatRequest(
            id,
            _input(value["input"]),
            parse_config(value.get("config")),
            stream,
            _flag(value.get("use_tools"), "use_tools", True),
        )
    except (DecodeError, ProtocolError) as error:
        raise ProtocolError(f"Failed to parse request: {error}", id, streams) from None


def _is_aside(input: Any) -> bool:
    """Say whether an input, which may have faults, is answered with one frame even if it asks for a stream."""
    kinds = {input} if isinstance(input, str) else set(input) if isinstance(input, dict) else set()
    return bool(kinds) and kinds <= ASIDES


def _request_id(value: dict[str, Any]) -> str:
    id = value.get("request_id")
    if not isinstance(id, str):
        raise ProtocolError("request_id must be a string" if "request_id" in value else "missing request_id")
    if len(id) > MAX_REQUEST_ID:
        raise ProtocolError(f"request_id is longer than {MAX_REQUEST_ID} characters")
    return id


def _flag(value: Any, name: str, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ProtocolError(f"{name} must be true or false")
    return value


def parse_config(value: Any) -> Config:
    """Read the changes that a request makes. Raises `ProtocolError`."""
    if value is None:
        return Config()
    if not isinstance(value, dict):
        raise ProtocolError("config must be an object")
    prompt = value.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise ProtocolError("config.prompt must be a string")
    ask = value.get("ask_before_tool_execution")
    return Config(
        max_turns=_count(value, "max_context_num", least=1),
        max_tokens=_count(value, "max_tokens", least=1),
        ask_before_tools=None if ask is None else _flag(ask, "config.ask_before_tool_execution", False),
        prompt=prompt,
    )


def _count(config: dict[str, Any], key: str, least: int) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_COUNT:
        raise ProtocolError(f"config.{key} must be a whole number, at least {least}")
    return value


def _input(value: Any) -> Input:
    if isinstance(value, str):
        if value in CONTROLS:
            return Control(value)
        raise ProtocolError(f"unknown input type {value}")
    if not isinstance(value, dict) or len(value) != 1:
        raise ProtocolError("input must be an object with exactly one key")
    ((kind, payload),) = value.items()
    if kind in CONTROLS:
        if payload is not None:
            raise ProtocolError(f"{kind} takes no data")
        return Control(kind)
    reader = INPUTS.get(kind)
    if reader is None:
        raise ProtocolError(f"unknown input type {kind}")
    return reader(payload)


def _text(payload: Any) -> Input:
    if not isinstance(payload, str):
        raise ProtocolError("Text must be a string")
    return Parts([Text(payload)])


def _image(payload: Any) -> Input:
    data = _bytes(_fields(payload, "Image"), "Image")
    mime = payload.get("mime_type")
    if mime is not None and not (isinstance(mime, str) and mime.startswith("image/")):
        raise ProtocolError("Image.mime_type must be the type of an image")
    if (kind := sniff_image(data)) not in _IMAGES:
        raise ProtocolError("Image.data is not a PNG, JPEG, GIF or WebP image")
    return Parts([Image(payload["data"], kind)])


def _file(payload: Any) -> Input:
    """Read a file: an image or a text, by its content; names and types are often wrong."""
    fields = _fields(payload, "File")
    name, mime = fields.get("filename"), fields.get("content_type")
    if not isinstance(name, str) or not isinstance(mime, str):
        raise ProtocolError("File needs filename, content_type and data")
    data = _bytes(fields, "File")
    if (kind := sniff_image(data)) in _IMAGES:
        return Parts([Text(f'<file name="{escape(name)}"></file>\n'), Image(fields["data"], kind)])
    text = _as_text(data)
    if text is None:
        raise ProtocolError(f"File {name}: only UTF-8 text and PNG, JPEG, GIF and WebP images are accepted")
    return Parts([Text(f'<file name="{escape(name)}">\n{text}\n</file>\n')])


def _as_text(data: bytes) -> str | None:
    """Return the text of a file; None if it is no text. A PDF may look like text."""
    if data.startswith(b"%PDF-") or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _multi(payload: Any) -> Input:
    content: list[Text | Image] = []
    asides: list[Control | Instruction] = []
    for item in _items(payload):
        last = content[-1] if content else None
        if isinstance(item, Control | Instruction):
            asides.append(item)
        elif isinstance(item, Text) and isinstance(last, Text):
            content[-1] = Text(f"{last.text}\n{item.text}")
        else:
            content.append(item)
    parts = Parts(content)
    return Several(asides, parts if content else None) if asides else parts


def _items(payload: Any, depth: int = 1) -> Iterator[Text | Image | Control | Instruction]:
    if not isinstance(payload, list) or not payload:
        raise ProtocolError("Multi must be a non-empty list")
    if depth > MAX_NESTING:
        raise ProtocolError(f"Multi is nested more than {MAX_NESTING} deep")
    for item in payload:
        if isinstance(item, dict) and item.keys() == {"Multi"}:
            yield from _items(item["Multi"], depth + 1)
            continue
        part = _input(item)
        if isinstance(part, Parts):
            yield from part.content
        elif isinstance(part, Instruction) or (isinstance(part, Control) and part.name != "Regenerate"):
            yield part
        else:
            raise ProtocolError("Regenerate and answers to confirmations cannot stand in a Multi: send them alone")


def _instruction(payload: Any) -> Input:
    fields = _fields(payload, "Instruction")
    name = fields.get("command")
    if not isinstance(name, str) or not name.strip():
        raise ProtocolError("Instruction.command must be a string")
    return Instruction(name.strip().removeprefix("/"), fields.get("parameters"))


def _tool_answer(payload: Any) -> Input:
    fields = _fields(payload, "ToolConfirmationResponse")
    name = fields.get("name")
    if not isinstance(name, str) or not isinstance(fields.get("approved"), bool):
        raise ProtocolError("ToolConfirmationResponse needs name and approved")
    return ToolAnswer(name, fields.get("arguments"), fields["approved"], _reason(fields))


def _turn_answer(payload: Any) -> Input:
    fields = _fields(payload, "TurnConfirmationResponse")
    if not isinstance(fields.get("confirmed"), bool):
        raise ProtocolError("TurnConfirmationResponse needs confirmed")
    return TurnAnswer(fields["confirmed"], _reason(fields))


def _fields(payload: Any, kind: str) -> dict[str, Any]:
    if not isinstance(payload, dict):
        raise ProtocolError(f"{kind} must be an object")
    return payload


def _reason(fields: dict[str, Any]) -> str | None:
    reason = fields.get("reason")
    return reason if isinstance(reason, str) else None


def _bytes(fields: dict[str, Any], kind: str) -> bytes:
    data = fields.get("data")
    if not isinstance(data, str):
        raise ProtocolError(f"{kind}.data must be a base64 string")
    if len(data) > MAX_FILE_BYTES * 4 // 3 + 4:
        raise ProtocolError(f"{kind}.data is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        decoded = base64.b64decode(data, validate=True)
    except ValueError:  # also raised for characters beyond ASCII
        raise ProtocolError(f"{kind}.data is not valid base64") from None
    if not decoded and kind == "Image":
        raise ProtocolError("Image.data is empty")
    return decoded


INPUTS: Final[dict[str, Callable[[Any], Input]]] = {
    "Text": _text,
    "Image": _image,
    "File": _file,
    "Multi": _multi,
    "Instruction": _instruction,
    "ToolConfirmationResponse": _tool_answer,
    "TurnConfirmationResponse": _turn_answer,
}


# -- writing ---------------------------------------------------------------------------------------


def response(id: str, content: dict[str, Any], *, error: str | None = None, usage: Any = None) -> str:
    return encode({"request_id": id, "response": content, "error": error, "token_usage": usage}).decode()


def usage_value(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def structured_error(kind: str, message: str, details: Any = None) -> str:
    """Return an error that programs can read: JSON instead of plain text."""
    value = {"type": kind, "message": message}
    return encode(value if details is None else {**value, "details": details}).decode()
