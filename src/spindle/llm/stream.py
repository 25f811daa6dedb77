"""The contract between a model API and the rest, and the APIs that come with Spindle.

`stream(model, request, options)` gives an async iterator of `Started`, pieces of the answer (one by one, or a list of
those that came together), and exactly one `Finished` at the end. The iterator never raises: failures are a
`Finished` whose message has stop reason `error`. Abort is asyncio cancellation (or `aclose`), which closes the socket
at once; the loop then asks `LiveMessage.finish("aborted")` for the message so far.
"""

import asyncio
import importlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from spindle.base import trace
from spindle.llm.live import LiveMessage
from spindle.llm.memory import Memory
from spindle.shapes.messages import AssistantMessage, ToolResultMessage, UserMessage
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

ModelMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
"""The three roles a model API knows; `to_model_messages` makes them of everything else."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    system_prompt: str
    messages: list[ModelMessage]
    """The history as it is; each API cleans it for its model (`transform_request`)."""
    tools: list[ToolSpec] = msgspec.field(default_factory=list)
    memory: Memory = msgspec.field(default_factory=Memory)
    """That of the conversation."""


class Credentials(Protocol):
    @property
    def api_key(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def at_its_address(self, model: Model) -> Model: ...


class StreamOptions(msgspec.Struct, frozen=True):
    api_key: str | None = None
    key_source: Callable[[], str | None] = lambda: None
    """Tells where the key comes from, for the error text when the server refuses it."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Already resolved; sent besides the headers of the API."""
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Settings of this provider that come before those of the environment."""
    if_refused: str = ""
    """What to tell the user when the server does not accept the credentials."""
    renew: "Callable[[], Awaitable[Credentials | None]] | None" = None
    """Gets other credentials when the server does not accept these; returns None if there are no others."""
    reasoning: str = "off"
    """Thinking level."""
    thinking_budgets: Mapping[str, int] = msgspec.field(default_factory=dict)
    max_tokens: int | None = None
    """None: the model's own limit."""
    cache_retention: str = msgspec.field(default_factory=lambda: os.environ.get("PI_CACHE_RETENTION", "short"))
    """How long the provider is asked to remember the prompt: `long`, anything else is short."""
    session_id: str | None = None
    idle_timeout: float | None = 300.0
    """Seconds without a byte; None waits for ever."""
    connect_timeout: float | None = None
    """Seconds until the server accepts the connection; None: the usual time."""
    stall_timeout: float | None = None
    """Seconds without progress: bytes may come, but no answer."""
    max_chars: int | None = None
    """The longest answer."""
    proxy: str | None = None
    on_payload: Callable[[Any], Awaitable[Any]] | None = None
    """May replace the request body just before it is sent."""
    on_headers: Callable[[dict[str, str]], Awaitable[None]] | None = None
    """May change the request headers in place."""
    on_response: Callable[[int, Mapping[str, str]], Awaitable[None]] | None = None

    def variable(self, *names: str) -> str:
        """Return the first of these variables that is set; empty if none is."""
        return next((value for name in names if (value := self.env.get(name) or os.environ.get(name))), "")


class Started(msgspec.Struct, frozen=True):
    """The server accepted the request and began to answer."""

    live: LiveMessage


class Failure(msgspec.Struct, frozen=True):
    """Facts about a failure besides its text."""

    status: int | None = None
    """Status of the HTTP response."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    is_final: bool = False
    """The same request would fail again: a bad address, a certificate that is not accepted."""
    stop_reason: str | None = None
    """A reason to end the whole run: `stalled`, `maxAnswer`."""
    error: str = "ModelError"
    """Class of the error."""


class Finished(msgspec.Struct, frozen=True):
    """The last event of every stream."""

    message: AssistantMessage
    failure: Failure | None = None


Chunk: TypeAlias = Started | StreamEvent | list[StreamEvent] | Finished


class StreamFunction(Protocol):
    def __call__(self, model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]: ...


BUILTIN_APIS = {
    "openai-completions": "openai_chat",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai_responses",
    "azure-openai-responses": "openai_responses",
    "openai-codex-responses": "openai_codex",
    "google-generative-ai": "google",
    "google-vertex": "vertex",
    "mistral-conversations": "mistral",
    "bedrock-converse-stream": "bedrock",
    "local": "local.adapter",
    "scripted": "scripted",
}
"""Where the function of each API lives. It is imported when a model first needs it."""


most_calls = 0
"""Calls of one provider's models at a time, in the whole process; set once, before the first call. 0: no bound."""
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
"""Gates by provider, for each event loop."""


async def in_turn(provider: str, stream: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a stream; its request waits for the provider's gate."""
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    gate = gates.setdefault(provider, asyncio.Semaphore(most_calls))
    async with gate, aclosing(stream):
        async for chunk in stream:
            yield chunk


async def told_after(
    ready: Callable[[], Awaitable[None]], stream: AsyncGenerator[Chunk, None]
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a stream, whose request goes out at once; the first one waits until `ready` returns."""
    is_first = True
    async with aclosing(stream):
        async for chunk in stream:
            if is_first:
                is_first = False
                await ready()
            yield chunk


async def in_span(opening: Awaitable[AsyncGenerator[Chunk, None]], **ids: Any) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a stream, and tell the trace about this model call."""
    finished: Finished | None = None
    first, began = True, time.monotonic()
    with trace.span("chat", **ids) as span:
        async with aclosing(await opening) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Finished):
                    finished = chunk  # the reader may stop at it, so the span must end first
                    continue
                if first and not isinstance(chunk, Started):
                    first = False
                    span.set(first_piece=time.monotonic() - began)
                yield chunk
        if finished is not None:
            _tell_end(span, finished)
    if finished is not None:
        yield finished


def _tell_end(span: trace.Span, finished: Finished) -> None:
    usage, reason, failure = finished.message.usage, finished.message.stop_reason, finished.failure or Failure()
    span.set(
        stop_reason=reason,
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        cost=None if usage.cost.source == "unknown" else usage.cost.total,
    )
    if reason in ("error", "aborted"):
        span.set(status=failure.status)
        span.fail(failure.error)
        if trace.content:
            span.set(error_text=finished.message.error_message)


def builtin_stream(api: str) -> StreamFunction:
    """Return the function that speaks `api`. Raises `LookupError` naming the known ones."""
    if api not in BUILTIN_APIS:
        raise LookupError(f"Unknown model API {api!r}. Known are: {', '.join(sorted(BUILTIN_APIS))}")
    stream: StreamFunction = importlib.import_module(f"{__package__}.{BUILTIN_APIS[api]}").stream
    return stream
