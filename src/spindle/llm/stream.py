"""The contract between a model API and the rest, and the APIs that come with Spindle.

`stream(model, request, options)` gives an async iterator of `Started`, pieces of the answer, and exactly one
`Finished` at the end. Once handed out it never raises: failures are a `Finished` whose message has stop reason
`error`. Abort is asyncio cancellation (or `aclose`), which closes the socket at once; the loop then asks
`LiveMessage.finish("aborted")` for what came so far.
"""

import importlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from spindle.llm.live import LiveMessage
from spindle.shapes.events import StreamEvent
from spindle.shapes.messages import AssistantMessage, ToolResultMessage, UserMessage
from spindle.shapes.model import Model

__all__ = [
    "BUILTIN_APIS",
    "Chunk",
    "Finished",
    "ModelMessage",
    "Request",
    "Started",
    "StreamFunction",
    "StreamOptions",
    "ToolSpec",
    "builtin_stream",
]

ModelMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
"""The three roles a model API knows; `to_model_messages` makes them of everything else."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    system_prompt: str
    messages: list[ModelMessage]
    """The history as it is; each API cleans it for its model (`transform_request`)."""
    tools: list[ToolSpec] = msgspec.field(default_factory=list)


def _cache_retention() -> str:
    return "long" if os.environ.get("PI_CACHE_RETENTION") == "long" else "short"


class StreamOptions(msgspec.Struct, frozen=True):
    api_key: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Already resolved; sent on top of what the API needs."""
    reasoning: str = "off"
    """Thinking level."""
    thinking_budgets: Mapping[str, int] = msgspec.field(default_factory=dict)
    max_tokens: int | None = None
    """None: the model's own limit."""
    temperature: float | None = None
    cache_retention: str = msgspec.field(default_factory=_cache_retention)
    """How long the provider is asked to remember the prompt: `none`, `short` or `long`."""
    session_id: str | None = None
    tool_choice: Any = None
    idle_timeout: float | None = 300.0
    """Seconds without a byte; None waits for ever."""
    proxy: str | None = None
    on_payload: Callable[[Any], Awaitable[Any]] | None = None
    """May replace the request body just before it is sent."""
    on_headers: Callable[[dict[str, str]], Awaitable[None]] | None = None
    """May change the request headers in place."""
    on_response: Callable[[int, Mapping[str, str]], Awaitable[None]] | None = None


class Started(msgspec.Struct, frozen=True):
    """The server accepted the request and began to answer."""

    live: LiveMessage


class Finished(msgspec.Struct, frozen=True):
    """The last event of every stream."""

    message: AssistantMessage


Chunk: TypeAlias = Started | StreamEvent | Finished


class StreamFunction(Protocol):
    def __call__(self, model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]: ...


BUILTIN_APIS = {
    "openai-completions": "openai_chat",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai_responses",
    "azure-openai-responses": "openai_responses",
    "google-generative-ai": "google",
    "local": "local.adapter",
    "scripted": "scripted",
}
"""Where the function of each API lives. It is imported when a model first needs it."""


def builtin_stream(api: str) -> StreamFunction:
    """Return the function that speaks `api`. Raises `LookupError` naming the known ones."""
    if api not in BUILTIN_APIS:
        raise LookupError(f"Unknown model API {api!r}. Known are: {', '.join(sorted(BUILTIN_APIS))}")
    stream: StreamFunction = importlib.import_module(f"{__package__}.{BUILTIN_APIS[api]}").stream
    return stream
