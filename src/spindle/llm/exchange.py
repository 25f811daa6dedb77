"""One request and its streamed answer, the same for every model API over HTTP.

An API says what to send and how to read events (`Call`, `Reader`); here is the conversation with the server, and
the one place where every failure becomes the end of an answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from spindle.llm import http
from spindle.llm.errors import BadEventError, ModelError, error_object_text, hide_secrets, secrets_of
from spindle.llm.live import LiveMessage
from spindle.llm.sse import SseParser
from spindle.llm.stream import Chunk, Finished, Started, StreamOptions
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.events import StreamEvent
from spindle.shapes.model import Model

__all__ = ["Call", "Reader", "event_decoder", "exchange"]

# A chunk of this size means that the server is ahead of us: let others run before taking the next.
_BURST_BYTES = 16 * 1024
T = TypeVar("T")


class Reader(Protocol):
    """Folds the events of one API into a message. No I/O."""

    done: bool
    """The answer is complete, whatever may still come."""

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        """Read one event and append the pieces it means to `out`. Raises `ModelError`."""

    def finish(self, out: list[StreamEvent]) -> str:
        """Close what is open and return the stop reason. Raises `ModelError` if the answer is not complete."""


@dataclass(frozen=True, slots=True)
class Call:
    url: str
    headers: dict[str, str]
    """What the API needs; names in lower case."""
    body: Any
    reader: Reader
    error_text: Callable[[int, str], str] = error_object_text
    """Turns status and body of a refusal into the error message."""


def event_decoder(shape: type[T], loosely: Callable[[object], T] | None = None) -> Callable[[bytes], T]:
    """Return a function that turns the JSON of one event into a value of a declared shape. It raises `BadEventError`.

    Every piece of an answer passes through here, so the common form is read by one typed decoder; an event that is not
    quite what it should be (a number as text, a broken escape) is read again, slowly and leniently. `loosely` makes
    the best of a value that does not fit the shape, raising `DecodeError` if it cannot.
    """
    strictly = msgspec.json.Decoder(shape).decode

    def convert(value: object) -> T:
        return msgspec.convert(value, shape, strict=False)

    mend = loosely or convert

    def read(data: bytes) -> T:
        try:
            return strictly(data)
        except (DecodeError, UnicodeError):
            try:
                return mend(decode(data))
            except DecodeError:
                raise BadEventError(data) from None

    return read


async def exchange(
    model: Model, options: StreamOptions, prepare: Callable[[LiveMessage], Call]
) -> AsyncGenerator[Chunk, None]:
    """Make the call that `prepare` describes and yield what comes of it. Never raises, except on cancellation."""
    live = LiveMessage(model)
    secrets = secrets_of(options.api_key, {})
    error_text: Callable[[int, str], str] = error_object_text
    try:
        call = prepare(live)
        error_text = call.error_text
        headers = _merged(call.headers, model.headers or {}, options.headers)
        body = call.body
        if options.on_headers is not None:
            await options.on_headers(headers)
        if options.on_payload is not None:
            body = await options.on_payload(body) or body
        secrets = secrets_of(options.api_key, headers)
        intake = _Intake(call.reader)
        async with http.Post(
            call.url, headers, encode(body), idle_timeout=options.idle_timeout, proxy=options.proxy
        ) as response:
            if options.on_response is not None:
                await options.on_response(response.status, response.headers)
            yield Started(live)
            while chunk := await response.read():
                for piece in intake.feed(chunk):
                    yield piece
                intake.check()
                if call.reader.done:
                    await response.drain()
                    break
                if len(chunk) > _BURST_BYTES:
                    await asyncio.sleep(0)
        for piece in intake.close():
            yield piece
        intake.check()
        answer = live.finish(intake.stop_reason)
    except Exception as error:  # a server, a hook or an adapter broke: the answer ends, the agent goes on
        answer = live.finish("error", hide_secrets(_describe(error, error_text), secrets))
    yield Finished(answer)


class _Intake:
    """Bytes in, pieces out. A failure waits until the pieces before it are delivered."""

    def __init__(self, reader: Reader) -> None:
        self.stop_reason = "stop"
        self._reader = reader
        self._parser = SseParser()
        self._failure: ModelError | None = None
        self._events = 0
        self._first_bytes = b""
        """Shown if no event ever comes: then this was not an event stream."""

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        try:
            for data in self._parser.feed(chunk):
                self._events += 1
                self._reader.take(data, out)
                if self._reader.done:
                    break
        except ModelError as error:
            self._failure = error
        self._first_bytes = self._first_bytes or chunk[:200]
        return out

    def close(self) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        try:
            for data in self._parser.close():
                try:
                    self._reader.take(data, out)
                    self._events += 1
                except BadEventError:
                    pass  # the connection broke inside this event
            if not self._events and self._first_bytes:
                begin = self._first_bytes.decode("utf-8", "replace").strip()
                raise ModelError(f"The server did not answer with an event stream: {begin}")
            self.stop_reason = self._reader.finish(out)
        except ModelError as error:
            self._failure = error
        return out

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _merged(*layers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for layer in layers for name, value in layer.items()}


def _describe(error: Exception, error_text: Callable[[int, str], str]) -> str:
    if isinstance(error, http.StatusError):
        return error_text(error.status, error.body)
    if isinstance(error, http.ConnectError):
        return f"Connection error. {error}"
    if isinstance(error, ModelError | http.IdleTimeoutError | http.UnreadableError):
        return str(error)
    return f"{type(error).__name__}: {error}"
