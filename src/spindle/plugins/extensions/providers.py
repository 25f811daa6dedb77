"""Model providers of extensions: their configuration, and stream functions that are easier to write than ours."""

import inspect
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from spindle.llm.cost import add_cost
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Finished, Request, Started, StreamFunction, StreamOptions
from spindle.models.models_file import ProviderSpec
from spindle.plugins.extensions.generation import Provider
from spindle.plugins.extensions.threads import HERE, Home, contained
from spindle.shapes.messages import Cost, Text, Thinking, ToolCall, Usage
from spindle.shapes.model import Model
from spindle.shapes.pieces import StreamEvent

_KEYS = dict(zip(ProviderSpec.__struct_fields__, ProviderSpec.__struct_encode_fields__, strict=True))
"""Keys in Python's spelling, and in that of `models.json`."""
_CALLBACKS = ("on_payload", "on_headers", "on_response", "renew")
"""Options that a stream function may call."""


def make_provider(name: str, config: dict[str, Any], stream: Callable[..., Any] | None, home: Home = HERE) -> Provider:
    """Read the description of a provider. Raises `ValueError`; its models are checked when it is registered."""
    unknown = sorted(set(config) - set(_KEYS))
    if unknown:
        raise ValueError(f"Provider {name}: unknown {', '.join(unknown)}. Known are: {', '.join(_KEYS)}, stream")
    if stream is not None and not config.get("api"):
        raise ValueError(f'Provider {name}: "api" is required when registering stream')
    if stream is not None and not inspect.isasyncgenfunction(stream):
        raise ValueError(f"Provider {name}: stream must be an async generator function (async def with yield)")
    wire = {_KEYS[key]: value for key, value in config.items() if value is not None}
    return Provider(wire, None if stream is None else adapt_stream(stream, home))


def adapt_stream(
    function: Callable[[Model, Request, StreamOptions], AsyncGenerator[Any, None]], home: Home = HERE
) -> StreamFunction:
    """Make a stream function of one that yields texts, `Thinking`, `ToolCall` and `Usage` as they come.

    For full control, yield `Started`, pieces of a `LiveMessage` and `Finished` instead.
    """

    async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
        writer = _Writer(LiveMessage(model))
        options = replace(options, **{name: home.back(getattr(options, name)) for name in _CALLBACKS})
        try:
            with contained():
                async with aclosing(home.iterate(lambda: function(model, request, options))) as values:
                    async for value in values:
                        if isinstance(value, str | Text | Thinking | ToolCall | Usage):
                            for chunk in writer.write(value):
                                yield chunk
                        elif all(map(_is_chunk, value if isinstance(value, list) else [value])):
                            writer.passed_on = True
                            yield value
                        else:
                            raise TypeError(
                                f"The stream function of {model.provider} yielded {type(value).__name__}; "
                                "it should yield str, Thinking, ToolCall or Usage"
                            )
        except Exception as error:
            yield Finished(writer.live.finish("error", str(error) or type(error).__name__))
            return
        if not writer.passed_on:
            for chunk in writer.end():
                yield chunk

    return stream


def _is_chunk(value: Any) -> bool:
    return isinstance(value, Started | StreamEvent | Finished) and isinstance(getattr(value, "delta", ""), str)


class _Writer:
    """Turns simple values into the pieces of an answer."""

    def __init__(self, live: LiveMessage) -> None:
        self.live = live
        self.passed_on = False
        """Whether the function yields our own chunks."""
        self._started = False
        self._open: tuple[str, int] | None = None
        self._called = False

    def write(self, value: Any) -> list[Chunk]:
        chunks: list[Chunk] = [] if self._started else [Started(self.live)]
        self._started = True
        if isinstance(value, Usage):
            self.live.usage = value
            if value.cost == Cost():
                add_cost(value, self.live.price)
                self.live.counted = True
        elif isinstance(value, ToolCall):
            self._called = True
            chunks += self._close()
            chunks.append(self.live.start_tool_call(value.id, value.name))
            index = len(self.live.blocks) - 1
            chunks += [self.live.append(index, json.dumps(value.arguments)), self.live.end(index)]
        elif isinstance(value, Thinking):
            chunks += self._append("thinking", value.thinking)
        else:
            chunks += self._append("text", value if isinstance(value, str) else value.text)
        return chunks

    def end(self) -> list[Chunk]:
        chunks: list[Chunk] = [] if self._started else [Started(self.live)]
        return [*chunks, *self._close(), Finished(self.live.finish("toolUse" if self._called else "stop"))]

    def _append(self, kind: str, piece: str) -> list[Chunk]:
        chunks: list[Chunk] = []
        if self._open is None or self._open[0] != kind:
            chunks += self._close()
            chunks.append(self.live.start_text() if kind == "text" else self.live.start_thinking())
            self._open = (kind, len(self.live.blocks) - 1)
        return [*chunks, self.live.append(self._open[1], piece)]

    def _close(self) -> list[Chunk]:
        if self._open is None:
            return []
        (_, index), self._open = self._open, None
        return [self.live.end(index)]
