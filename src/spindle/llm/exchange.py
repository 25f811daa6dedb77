"""One request and its streamed answer, the same for every model API over HTTP.

An API says what to send and how to read events (`Call`, `Reader`); this module talks to the server, turns bytes into
events, and is the one place where a failure becomes the end of an answer.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Protocol, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import replace

from spindle.base.flow import turnstile
from spindle.llm import http
from spindle.llm.compat import COPILOT, copilot_headers
from spindle.llm.errors import BadEventError, ModelError, hide_secrets, refusal_text, secrets_of
from spindle.llm.history import transform_request
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Failure, Finished, Request, Started, StreamFunction, StreamOptions
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.model import Model
from spindle.shapes.pieces import DELTAS, StreamEvent

# A chunk of this size means that the server is ahead of us: let other tasks run before taking the next.
_BURST_BYTES = 16 * 1024
_MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
T = TypeVar("T")
ErrorText: TypeAlias = Callable[[int, str], str]


class Parser(Protocol):
    """Splits a byte stream into the data of its events."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return every event they complete. Raises `ModelError`."""

    def close(self) -> list[bytes]:
        """Return the events that the end completes. Raises `ModelError`."""


class Reader(Protocol):
    """Folds the events of one API into a message. No I/O."""

    done: bool
    """The answer is complete, even if the server sends more."""

    def take(self, data: bytes, out: list[StreamEvent]) -> None:
        """Read one event and append its pieces to `out`. Raises `ModelError`."""

    def finish(self, out: list[StreamEvent]) -> str:
        """Close open blocks and return the stop reason. Raises `ModelError` if the answer is not complete."""


class Call(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str]
    """Headers that the API needs; names in lower case."""
    body: Any
    reader: Reader
    error_text: ErrorText | None = None
    """Turns status and body of a refusal into the error message, for a server with a form of its own."""
    ends_with_body: bool = False
    """Whether the proper end of the body, too, says that the answer is complete: the server may have no word for it."""
    parser: "Callable[[], Parser]" = lambda: SseParser()
    """Makes the parser that splits the answer into events."""
    sign: "Sign | None" = None
    """Returns the headers that depend on the finished request. Raises `ModelError`."""


Sign: TypeAlias = Callable[[str, Mapping[str, str], bytes], Awaitable[Mapping[str, str]]]
Prepare: TypeAlias = Callable[[Model, Request, StreamOptions, LiveMessage], Call | Awaitable[Call]]


def over_http(prepare: Prepare) -> StreamFunction:
    """Make a model API of a function that says what to send; the function gets a request with a clean history.

    The stream never raises, except on cancellation.
    """

    def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
        return _exchange(prepare, model, request, options)

    return stream


async def _exchange(
    prepare: Prepare, model: Model, request: Request, options: StreamOptions
) -> AsyncGenerator[Chunk, None]:
    live = LiveMessage(model)
    live.thinking_level = options.reasoning if model.reasoning else None
    live.counted = False
    secrets = secrets_of(options.api_key, {})

    def refused(status: int, body: str) -> str:
        return refusal_text(status, body, model.provider, options.key_source())

    error_text: ErrorText = refused
    await turnstile().turn()
    try:
        clean = transform_request(request, model)
        prepared = prepare(model, clean, options, live)
        call = prepared if isinstance(prepared, Call) else await prepared
        error_text = call.error_text or refused
        headers, data = await _sealed(call, model, clean, options)
        secrets = secrets_of(options.api_key, headers)
        intake = _Intake(call.reader, call.parser())
        progress = _Progress(options)
        async with await http.post(
            call.url, headers, data, options.idle_timeout, options.proxy, connect_timeout=options.connect_timeout
        ) as response:
            if options.on_response is not None:
                await options.on_response(response.status, response.headers)
            yield Started(live)
            while chunk := await response.read():
                pieces = intake.feed(chunk)
                if pieces:
                    yield pieces
                intake.check()
                progress.check(pieces)
                if call.reader.done:
                    await response.drain()
                    break
                if len(chunk) > _BURST_BYTES:
                    await asyncio.sleep(0)
        if pieces := intake.close(call.ends_with_body and response.whole):
            yield pieces
        intake.check()
        finished = Finished(live.finish(intake.stop_reason))
    except Exception as error:  # a server, a hook or an adapter broke: the answer ends, the agent goes on
        if isinstance(error, http.StatusError) and options.on_response is not None:
            await options.on_response(error.status, error.headers)
        failure = _failure(error)
        if failure.status == 401 and options.renew is not None and (other := await options.renew()) is not None:
            again = replace(options, api_key=other.api_key, headers=other.headers, renew=None)
            async for chunk_again in _exchange(prepare, other.at_its_address(model), request, again):
                yield chunk_again
            return
        text = hide_secrets(_describe(error, error_text), secrets) + _advice(failure, options)
        finished = Finished(live.finish("error", text), failure)
    yield finished


async def _sealed(call: Call, model: Model, request: Request, options: StreamOptions) -> tuple[dict[str, str], bytes]:
    """Return headers and body as they are sent, after hooks have seen them. Raises `ModelError`."""
    layers = (call.headers, model.headers or {}, options.headers)
    headers = {name.lower(): value for layer in layers for name, value in layer.items()}
    if model.provider == COPILOT:
        headers = copilot_headers(request) | headers
    body = call.body
    if options.on_headers is not None:
        await options.on_headers(headers)
    if options.on_payload is not None:
        body = await options.on_payload(decode(encode(body))) or body  # parts of it are JSON already
    data = encode(body)
    if call.sign is not None:
        headers |= await call.sign(call.url, headers, data)
    return headers, data


def _advice(failure: Failure, options: StreamOptions) -> str:
    """Return the advice that follows an error text."""
    login = f"\n\n{options.if_refused}" if failure.status == 401 and options.if_refused else ""
    wait = "" if failure.retry_after is None else f" (the server asks to wait {failure.retry_after:g} s)"
    return login + wait


def _failure(error: Exception) -> Failure:
    """Return the facts of a failure."""
    name = type(error).__name__
    if isinstance(error, http.StatusError):
        return Failure(error.status, retry_after(error.headers), error=name)
    if isinstance(error, http.ConnectError):
        return Failure(is_final=error.is_final, error=name)
    return Failure(stop_reason=error.stop_reason if isinstance(error, RunawayError) else None, error=name)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After`: seconds, or a date."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, round(parsedate_to_datetime(value).timestamp() - time.time(), 1))
    except (ValueError, TypeError, IndexError):
        return None


class RunawayError(ModelError):
    """The server goes on and on; the run should end."""

    def __init__(self, text: str, stop_reason: str) -> None:
        super().__init__(text)
        self.stop_reason = stop_reason


class _Progress:
    """Guards against streams that do not end: bytes without an answer, and answers without end."""

    ENOUGH_CHARS = 64
    """Less text than this within the time limit is no progress."""

    def __init__(self, options: StreamOptions) -> None:
        self._timeout = options.stall_timeout
        self._max_chars = options.max_chars
        self._since = time.monotonic()
        """Time of the last progress."""
        self._chars = 0
        """Characters received since then."""
        self._total = 0

    def check(self, pieces: Sequence[StreamEvent]) -> None:
        """Check the pieces of one chunk. Raises `RunawayError`."""
        now = time.monotonic()
        size = sum([len(piece.delta) for piece in pieces if isinstance(piece, DELTAS)])
        self._chars += size
        self._total += size
        if self._chars >= self.ENOUGH_CHARS:
            self._since, self._chars = now, 0
        if self._timeout is not None and now - self._since > self._timeout:
            raise RunawayError(f"The model made no progress for {self._timeout:g} s", "stalled")
        if self._max_chars is not None and self._total > self._max_chars:
            raise RunawayError(f"The answer is longer than {self._max_chars} characters", "maxAnswer")


def _describe(error: Exception, error_text: ErrorText) -> str:
    if isinstance(error, http.StatusError):
        return error_text(error.status, error.body)
    if isinstance(error, http.ConnectError):
        return f"Connection error. {error}"
    if isinstance(error, ModelError | http.IdleTimeoutError | http.UnreadableError):
        return str(error)
    return f"{type(error).__name__}: {error}"


# -- events ----------------------------------------------------------------------------------------


def event_decoder(shape: type[T]) -> Callable[[bytes], T]:
    """Return a function that turns the JSON of one event into a value of a declared shape. It raises `BadEventError`.

    Every piece of an answer passes through here, so the common form is read by one typed decoder; an event that is not
    quite what it should be (a number as text, a broken escape, a key of another kind) is read again, slowly and
    leniently: keys and items that do not fit count as missing.
    """
    strictly = msgspec.json.Decoder(shape).decode

    def read(data: bytes) -> T:
        try:
            return strictly(data)
        except (DecodeError, UnicodeError):
            pass
        try:
            value = _loosely(decode(data), shape)
        except DecodeError:
            value = None
        if not isinstance(value, shape):
            raise BadEventError(data)
        return value

    return read


def _loosely(value: Any, shape: Any) -> object:
    """Convert a value that does not fit its shape, as well as possible; None if that fails."""
    try:
        return msgspec.convert(value, shape, strict=False)
    except msgspec.ValidationError:
        kind = get_args(shape)[0] if isinstance(shape, UnionType) else shape  # `X` of `X | None`
    if isinstance(value, list) and kind is str:  # text as a list of parts
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    if isinstance(value, list) and get_origin(kind) is list:
        items = (_loosely(item, get_args(kind)[0]) for item in value)
        return [item for item in items if item is not None]
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_loosely(value, kind)
    return None


def _struct_loosely(value: dict[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Read the keys that can be read."""
    fields = [field for field in msgspec.structs.fields(kind) if field.encode_name in value]
    read = {field.name: _loosely(value[field.encode_name], field.type) for field in fields}
    return kind(**{name: item for name, item in read.items() if item is not None})


class _Intake:
    """Bytes in, pieces out. A failure waits until the pieces before it are delivered."""

    def __init__(self, reader: Reader, parser: Parser) -> None:
        self.stop_reason = "stop"
        self._reader = reader
        self._parser = parser
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

    def close(self, is_complete: bool) -> list[StreamEvent]:
        """Take the end; `is_complete`: the transport has said that nothing is missing."""
        out: list[StreamEvent] = []
        try:
            for data in self._parser.close():
                try:
                    self._reader.take(data, out)
                    self._events += 1
                except BadEventError:
                    is_complete = False  # the connection broke inside this event
            if not self._events and self._first_bytes:
                begin = self._first_bytes.decode("utf-8", "replace").strip()
                raise ModelError(f"The server did not answer with an event stream: {begin}")
            self._reader.done = self._reader.done or is_complete
            self.stop_reason = self._reader.finish(out)
        except ModelError as error:
            self._failure = error
        return out

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure


# -- server-sent events ----------------------------------------------------------------------------


class EventTooLargeError(ModelError):
    """The server sent an event that is larger than any sane one."""


class SseParser:
    """Splits a byte stream into the data of its events.

    Every byte is looked at a fixed number of times, however the stream is cut into pieces.
    """

    __slots__ = ("_after_cr", "_first", "_limit", "_rest", "_size")

    def __init__(self, limit: int = _MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        """Pieces of an event whose end has not come yet."""
        self._size = 0
        """Bytes in those pieces."""
        self._after_cr = False
        """The last piece ended in CR, so an LF at the start of the next one belongs to it."""
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the data of every event they complete.

        Raises `EventTooLargeError` if an event passes the limit.
        """
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            self._after_cr = False
        if self._rest:
            if b"\n\n" not in data and not (data.startswith(b"\n") and self._rest[-1].endswith(b"\n")):
                self._keep(data)
                return []
            data = b"".join(self._rest) + data
        whole, _, rest = data.rpartition(b"\n\n")
        self._rest, self._size = [], 0
        self._keep(rest)
        return self._unwrap(whole)

    def close(self) -> list[bytes]:
        """Return the event at the very end that lacks its blank line, if there is one."""
        rest, self._rest = b"".join(self._rest), []
        return self._unwrap(rest)

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._rest.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                raise EventTooLargeError(f"The server sent an event of more than {self._limit} bytes")

    def _unwrap(self, blocks: bytes) -> list[bytes]:
        if self._first and blocks:
            self._first = False
            blocks = blocks.removeprefix(_BOM)
        if blocks.startswith(b"data: "):
            events = blocks[6:].split(b"\n\ndata: ")
            if blocks.count(b"\n") == 2 * len(events) - 2:  # every event is one line of data
                return events
        found = [_data_of(block) for block in blocks.split(b"\n\n")]
        return [data for data in found if data is not None]


_ERROR_NAME = re.compile(rb"event: ?error *")


def _data_of(block: bytes) -> bytes | None:
    """Return the data of an event; None if it has none (comments, a lone `event:`).

    Servers tell of an error by the name of an event or by a line `error:`, too: that becomes data with the key `error`.
    """
    name, _, rest = block.partition(b"\n")
    is_error = _ERROR_NAME.fullmatch(name) is not None
    if rest.startswith(b"data: ") and name.startswith(b"event:") and b"\n" not in rest and not is_error:
        return rest[6:]
    data, errors = [], []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"error":
            errors.append(value.strip())
    if errors:
        return _as_error(b"\n".join(errors))
    if not data:
        return None
    return _as_error(b"\n".join(data)) if is_error else b"\n".join(data)


def _as_error(data: bytes) -> bytes:
    """Return the data of an error in a form that every API reads as one."""
    try:
        value = decode(data)
    except DecodeError:
        value = data.decode("utf-8", "replace")
    if isinstance(value, dict):
        return data if "error" in value else encode({"error": value})
    return encode({"error": {"message": value if isinstance(value, str) else encode(value).decode()}})
