"""What the model tests share: a model, a request, and reading a stream to its end."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from spindle.llm.stream import Chunk, Finished, ModelMessage, Request, Started, StreamOptions, ToolSpec, builtin_stream
from spindle.shapes.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from spindle.shapes.model import Model, ModelCost

__all__ = [
    "answer_by",
    "answer_of",
    "collect",
    "events_of",
    "make_model",
    "make_request",
    "one_by_one",
    "result",
    "shape",
]


def make_model(**fields: Any) -> Model:
    defaults: dict[str, Any] = {
        "id": "m1",
        "name": "Model One",
        "api": "openai-completions",
        "provider": "mock",
        "base_url": "http://127.0.0.1:1/v1",
        "reasoning": False,
        "input": ["text", "image"],
        "cost": ModelCost(1, 2, 0.1, 0),
        "context_window": 100_000,
        "max_tokens": 4096,
    }
    return Model(**{**defaults, **fields})


def make_request(*messages: ModelMessage | str, system: str = "Be brief.", tools: Sequence[ToolSpec] = ()) -> Request:
    history = [UserMessage(message, 1) if isinstance(message, str) else message for message in messages]
    return Request(system, history or [UserMessage("hi", 1)], list(tools))


def answer_by(
    api: str, *content: Text | Thinking | ToolCall, model: str = "m1", stop_reason: str = "stop"
) -> AssistantMessage:
    """Return an answer of the history, by a model with this API."""
    return AssistantMessage(list(content), api, "mock", model, Usage(), stop_reason, 0)


def result(*content: Text | Image, id: str = "c1", is_error: bool = False, tool: str = "bash") -> ToolResultMessage:
    """Return the result of a tool call."""
    return ToolResultMessage(tool_call_id=id, tool_name=tool, content=list(content), is_error=is_error, timestamp=0)


def collect(model: Model, request: Request | None = None, **options: Any) -> list[Chunk]:
    """Read a whole stream."""

    async def run() -> list[Chunk]:
        stream = builtin_stream(model.api)(model, request or make_request(), StreamOptions(**options))
        return [chunk async for chunk in one_by_one(stream)]

    return asyncio.run(run())


async def one_by_one(stream: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    """Give pieces that come together one after the other."""
    async with aclosing(stream):
        async for chunk in stream:
            for piece in chunk if isinstance(chunk, list) else [chunk]:
                yield piece


def answer_of(chunks: list[Chunk]) -> AssistantMessage:
    """Check the form of a stream and return its answer."""
    assert [type(chunk) for chunk in chunks].count(Finished) == 1
    assert isinstance(chunks[-1], Finished)
    starts = [index for index, chunk in enumerate(chunks) if isinstance(chunk, Started)]
    assert starts in ([], [0])
    if not starts:
        assert len(chunks) == 1
    return chunks[-1].message


def events_of(chunks: list[Chunk]) -> list[tuple[Any, ...]]:
    """Return the pieces between start and end as tuples: type, block, what it carries."""
    events: list[tuple[Any, ...]] = []
    for chunk in chunks:
        if isinstance(chunk, Started | Finished):
            continue
        name = chunk.__struct_config__.tag
        value = next(
            (getattr(chunk, key) for key in ("delta", "content", "tool_call", "id") if hasattr(chunk, key)), None
        )
        events.append((name, chunk.content_index) if value is None else (name, chunk.content_index, value))
    return events


def shape(message: AssistantMessage) -> list[tuple[Any, ...]]:
    """Return the blocks of an answer as tuples."""
    shapes: list[tuple[Any, ...]] = []
    for block in message.content:
        match block:
            case Text():
                shapes.append(("text", block.text))
            case Thinking():
                shapes.append(("thinking", block.thinking, block.thinking_signature))
            case ToolCall():
                shapes.append(("call", block.id, block.name, block.arguments))
    return shapes
