"""What goes in and out of a `RemoteClient`: inputs as the protocol writes them, and the pieces of an answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from spindle.client.commands import Json

__all__ = [
    "Answer",
    "Completion",
    "Input",
    "Piece",
    "RemoteCommand",
    "TextPiece",
    "TokenUsage",
    "ToolCallPiece",
    "ToolConfirmation",
    "ToolFailure",
    "ToolResultPiece",
    "TurnConfirmation",
    "file_input",
    "image_input",
    "join_inputs",
]

Input: TypeAlias = str | Json
"""A text, or an input as the protocol writes it: `{"Text": "hi"}`; `image_input` and `file_input` make such."""

Reply: TypeAlias = Callable[[bool, str | None], Awaitable[None]]


def image_input(source: str | Path | bytes, mime_type: str | None = None) -> Json:
    """Return a picture, from a file or its bytes. Without a type the server looks at the bytes."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    return {"Image": {"data": _base64(data), **({"mime_type": mime_type} if mime_type else {})}}


def file_input(path: str | Path, content_type: str | None = None) -> Json:
    """Return a file to show to the model; the type is guessed from the name."""
    import mimetypes

    kind = content_type or mimetypes.guess_type(path)[0] or "text/plain"
    return {"File": {"filename": Path(path).name, "content_type": kind, "data": _base64(Path(path).read_bytes())}}


def join_inputs(inputs: tuple[Input, ...]) -> Any:
    """Return one input for several."""
    items = [{"Text": item} if isinstance(item, str) else item for item in inputs]
    return items[0] if len(items) == 1 else {"Multi": items}


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


# -- pieces ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenUsage:
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def read(cls, value: Any) -> "TokenUsage | None":
        if not isinstance(value, dict):
            return None
        return cls(*(int(value.get(name, 0)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")))


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A tool that failed on the way to an answer."""

    message: str
    details: Json


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ToolResultPiece:
    name: str
    result: Any
    """As the server sent it."""

    @property
    def text(self) -> str:
        """What the tool said."""
        content = self.result.get("content") if isinstance(self.result, dict) else self.result
        return content if isinstance(content, str) else str(content)

    @property
    def is_error(self) -> bool:
        return isinstance(self.result, dict) and self.result.get("is_error") is True


@dataclass(frozen=True, slots=True)
class ToolConfirmation:
    """May this tool run? Nothing goes on until it is answered."""

    name: str
    arguments: Any
    description: str | None
    _reply: Reply = field(repr=False, compare=False)

    async def answer(self, approved: bool, reason: str | None = None) -> None:
        await self._reply(approved, reason)


@dataclass(frozen=True, slots=True)
class TurnConfirmation:
    """The model was called so often that the user should agree to go on."""

    current_turns: int
    max_turns: int
    reason: str | None
    _reply: Reply = field(repr=False, compare=False)

    async def answer(self, confirmed: bool, reason: str | None = None) -> None:
        await self._reply(confirmed, reason)


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of an answer."""

    usage: TokenUsage | None
    interrupted: bool = False
    tool_failure: ToolFailure | None = None


Piece: TypeAlias = TextPiece | ToolCallPiece | ToolResultPiece | ToolConfirmation | TurnConfirmation | Completion


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    usage: TokenUsage | None
    interrupted: bool = False
    tool_failure: ToolFailure | None = None
    """The first tool that failed, if one did; the model knows of it."""


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """A command for `RemoteClient.instruct`."""

    name: str
    description: str
