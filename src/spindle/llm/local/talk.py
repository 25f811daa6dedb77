"""A conversation in the plain words of a model that knows only users and assistants."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from spindle.llm.local.grammar import ANSWER, call_head
from spindle.llm.stream import ModelMessage, Request, ToolSpec
from spindle.shapes.codec import encode
from spindle.shapes.content import Text, ToolCall, text_of
from spindle.shapes.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage

__all__ = [
    "as_talk",
    "brief",
    "call_text",
    "calls_in_a_row",
    "fit",
    "last_exchange",
    "signature",
    "spoken",
    "user",
]

_CHARS_PER_TOKEN = 3
"""On the careful side."""
_LINE_CHARS = 100


def user(text: str) -> UserMessage:
    return UserMessage(text, 0)


def spoken(text: str) -> AssistantMessage:
    return AssistantMessage([Text(text)], "", "", "", Usage(), "stop", 0)


def call_text(tool: str, arguments: Any) -> str:
    """Write a call as the grammar has it."""
    return call_head(tool) + encode(arguments).decode()


def as_talk(messages: Sequence[ModelMessage], limit: int | None = None) -> list[ModelMessage]:
    """Return the history with calls and results in words, each message cut to `limit` characters."""
    talk: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, UserMessage):
            talk.append(user(_cut(text_of(message.content, "\n"), limit)))
        elif isinstance(message, AssistantMessage):
            calls = [call_text(call.name, call.arguments) for call in _calls(message)]
            talk.append(spoken("\n".join(calls) or ANSWER + _cut(text_of(message.content), limit)))
        else:
            talk.append(user(_printed(message, limit)))
    return talk


def calls_in_a_row(messages: Sequence[ModelMessage]) -> list[str]:
    """Return what the model called since the user last spoke, one text for each answer."""
    rows: list[str] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage) and (calls := _calls(message)):
            rows.append("\n".join(call_text(call.name, call.arguments) for call in calls))
    return rows[::-1]


def last_exchange(messages: Sequence[ModelMessage], limit: int) -> str:
    """Return the last question and what the tools printed for it, as one text."""
    parts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            parts.append(_printed(message, limit))
        elif isinstance(message, UserMessage):
            parts.append(_cut(text_of(message.content, "\n"), limit))
            break
    return "\n\n".join(reversed(parts))


def fit(request: Request, tokens: int) -> Request:
    """Leave out the oldest exchanges of a request that would not fit; the last one always stays."""
    room = tokens * _CHARS_PER_TOKEN - len(request.system_prompt)
    room -= sum(len(tool.description) + len(encode(tool.parameters)) for tool in request.tools)
    starts = [index for index, message in enumerate(request.messages) if isinstance(message, UserMessage)]
    sizes = [len(encode(message.content)) for message in request.messages]
    keep = next((start for start in starts if sum(sizes[start:]) <= room), starts[-1] if starts else 0)
    return request if not keep else Request(request.system_prompt, request.messages[keep:], request.tools)


def brief(tool: ToolSpec) -> ToolSpec:
    """Describe a tool by the first sentence of its description."""
    line = tool.description.strip().split("\n", 1)[0].split(". ", 1)[0].rstrip(".")
    return replace(tool, description=_cut(line, _LINE_CHARS))


def signature(tool: ToolSpec) -> str:
    """Return the shape of a tool's arguments."""
    return "{" + ",".join(f'"{key}":…' for key in tool.parameters.get("properties") or ()) + "}"


def _calls(message: AssistantMessage) -> list[ToolCall]:
    return [block for block in message.content if isinstance(block, ToolCall)]


def _printed(message: ToolResultMessage, limit: int | None) -> str:
    return f"{message.tool_name} printed:\n{_cut(text_of(message.content).strip(), limit) or '(nothing)'}"


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else f"{text[:limit]}…"
