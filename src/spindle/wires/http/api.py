"""Plain HTTP: sessions as resources, every command as a POST, events as a stream that can be resumed.

The paths and shapes are those of `openapi`; `docs/http.md` shows them with curl.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args
from urllib.parse import unquote

from aiohttp import web
from msgspec import UNSET, ValidationError, convert

from spindle.agent import AgentError
from spindle.agent.hooks import NeverFull
from spindle.agent.run.handle import Run
from spindle.agent.run.result import without_run
from spindle.base import limits
from spindle.base.flow import Tasks
from spindle.base.version import __version__
from spindle.protocol.dialect import UpdateMode
from spindle.protocol.dispatch import InvalidFields, UnknownCommand, carry_out, find_command, read_fields
from spindle.protocol.live_session import LiveSession
from spindle.protocol.pool import SessionPool, TooManySessions, UnknownSession
from spindle.protocol.registry import Call, LiveInfo, WantedSession
from spindle.protocol.seat import Seat
from spindle.server.account import Closing, NotAllowed, QuotaReached
from spindle.sessions.entries import SessionError
from spindle.sessions.file import is_path
from spindle.sessions.store import LeaseLost, SessionHeld, StoreGone
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.events import Event
from spindle.shapes.run_result import RunResult
from spindle.wires.http.openapi import HostToolReply, ReplyToQuestion, Version, openapi
from spindle.wires.http.stored import StoredName, StoredQuery, StoredSessions
from spindle.wires.network.answers import SAFETY, SHARED, bytes_answer, failed, json_answer
from spindle.wires.network.listener import HttpConnection
from spindle.wires.network.options import RemoteOptions

if TYPE_CHECKING:
    from spindle.server.passage import Passage

T = TypeVar("T")

API_PATHS = ("/v1/", "/openapi.json")
REPLIES = ("host_tool_result", "host_tool_update")
"""Frames of a client that are no commands: they get no answer of their own."""
BATCH_BYTES = 64 << 10
RETRY_AFTER = 5
"""Seconds after which another try makes sense if there are too many sessions."""

log = logging.getLogger("spindle.remote")


class BadRequest(Exception):
    """The request is not valid; the text says why."""


class NotFound(Exception):
    """There is no such session, question or path."""


class HttpApi:
    def __init__(
        self, pool: SessionPool, options: RemoteOptions, passage: Callable[[web.BaseRequest], "Passage | None"]
    ) -> None:
        """`passage` returns the way of a client to the sessions of other nodes, if there are any."""
        self._pool = pool
        self._passage = passage
        self._options = options
        self._stored = StoredSessions(pool)
        self._tasks = Tasks()
        self.viewers = 0
        """How many streams of events are open."""

    async def answer(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.StreamResponse:
        try:
            return await self._route(request, [unquote(part) for part in path.strip("/").split("/")], query)
        except (BadRequest, InvalidFields) as error:
            return _failed(400, error)
        except (NotFound, UnknownSession, UnknownCommand) as error:
            return _failed(404, error)
        except TooManySessions as error:
            answer = _failed(429, error)
            answer.headers["Retry-After"] = str(RETRY_AFTER)
            return answer
        except NotAllowed as error:
            return _failed(403, error)
        except QuotaReached as error:
            return _failed(429, error)
        except Closing as error:
            return _failed(503, error)
        except SessionHeld:
            raise  # the server knows other nodes
        except (LeaseLost, StoreGone) as error:
            return _failed(503, error)
        except (AgentError, SessionError) as error:
            return _failed(409, error)
        except web.HTTPRequestEntityTooLarge:
            answer = _failed(413, f"The body is longer than {self._options.max_message_bytes} bytes")
            answer.force_close()
            return answer
        except ConnectionError:
            raise
        except Exception as error:  # a bug, perhaps of an extension, or a disk error: the client must be told
            log.exception("a request failed")
            return _failed(500, f"{type(error).__name__}: {error}")

    async def session_of(self, request: web.BaseRequest, path: str) -> str | None:
        """Return the id of the session that a request needs to be live, or free; None if it needs none."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match request.method, parts:
            case (("PATCH" | "DELETE"), ["v1", "stored", id]):
                return id
            case _, ["v1", "sessions", id, *_]:
                return id
            case "POST", ["v1", "sessions"]:
                with suppress(BadRequest, web.HTTPRequestEntityTooLarge):  # it is told when it is answered
                    given = await _body(request)
                    named = given.get("id") or (None if given.get("copy") else given.get("session"))
                    return named if isinstance(named, str) else None
        return None

    async def _route(self, request: web.BaseRequest, parts: list[str], query: dict[str, str]) -> web.StreamResponse:
        if len(parts) > 2 and is_path(parts[2]):
            raise NotFound(f"{parts[2]} is no id of a session")
        match request.method, parts:
            case "GET" | "HEAD", ["openapi.json"]:
                return json_answer(_document(query.get("version", "3.1")))
            case "GET" | "HEAD", ["v1", "sessions"]:
                return json_answer(await self._all(self._passage(request)))
            case "POST", ["v1", "sessions"]:
                return json_answer(await self._open(await _body(request)), 201)
            case "GET" | "HEAD", ["v1", "sessions", id]:
                live = self._pool.find(id)
                return json_answer(await (self._stored.live_info(id) if live is None else live.info()))
            case "PUT", ["v1", "sessions", id]:
                return json_answer(await self._open({**await _body(request), "session": None, "id": id}))
            case "DELETE", ["v1", "sessions", id]:
                if (live := self._pool.find(id)) is None:
                    raise NotFound(f"Session {id} is not open")
                await self._pool.close_session(live)
                return bytes_answer(204, b"", "application/json")
            case "GET", ["v1", "sessions", id, "events"]:
                return await self._events(request, await self._session(id), query)
            case "GET" | "HEAD", ["v1", "sessions", id, "questions"]:
                return json_answer(_questions(await self._session(id)))
            case "POST", ["v1", "sessions", id, "answers", question]:
                return await self._reply(await self._session(id), question, await _body(request))
            case "POST", ["v1", "sessions", id, name] if name not in ("events", "questions"):
                return await self._command(request, id, name, query)
            case _, ["v1", "stored", *rest] if len(rest) < 2:
                return await self._of_stored(request, "".join(rest) or None, query)
        if methods := _methods_of(parts):
            return _not_allowed(methods)
        raise NotFound("No such path")

    async def _all(self, passage: "Passage | None") -> dict[str, Any]:
        """Return the live sessions of all nodes, and the nodes that do not answer. Raises `StoreError`."""
        here = await self._pool.infos()
        there, silent = ([], []) if passage is None else await passage.live()
        return {"sessions": [*here, *there], **({"silent": silent} if silent else {})}

    async def _of_stored(self, request: web.BaseRequest, id: str | None, query: dict[str, str]) -> web.Response:
        match request.method, id:
            case "GET" | "HEAD", None:
                return json_answer(await self._stored.page(_fields_of(query, StoredQuery)))
            case _, None:
                return _not_allowed("GET")
            case "GET" | "HEAD", id:
                return json_answer(await self._stored.read(id))
            case "PATCH", id:
                given = _fields_of(await _body(request), StoredName)
                return json_answer(await self._stored.rename(id, given.name))
            case "DELETE", id:
                await self._stored.delete(id)
                return bytes_answer(204, b"", "application/json")
        return _not_allowed("GET, PATCH, DELETE")

    async def _session(self, id: str) -> LiveSession:
        """Return the session with this id, which is loaded from disk if it is not live."""
        live = self._pool.find(id)
        if live is None:
            live = await self._pool.get(id)
            self._tasks.spawn(live.begin(), "spindle-begin")
        live.touch()
        return live

    async def _open(self, given: dict[str, Any]) -> LiveInfo:
        try:
            wanted = convert({name: value for name, value in given.items() if value is not None}, WantedSession)
        except ValidationError as error:
            raise BadRequest(str(error)) from None
        return await self.open(wanted)

    async def open(self, wanted: WantedSession) -> LiveInfo:
        live = await self._pool.open(wanted)
        self._tasks.spawn(live.begin(), "spindle-begin")
        return await live.info()

    # -- commands --------------------------------------------------------------------------------

    async def _command(self, request: web.BaseRequest, id: str, name: str, query: dict[str, str]) -> web.StreamResponse:
        body = await _body(request)
        if name in REPLIES:
            read_fields(body, HostToolReply)
            (await self._session(id)).agent.replies.receive({**body, "type": name})
            return bytes_answer(204, b"", "application/json")
        frame = {**body, "type": name}
        spec = find_command(frame)  # an unknown command must not open a session
        waits = query.get("wait", "false")
        if waits not in ("true", "false"):
            raise BadRequest("wait must be true or false")
        live = await self._session(id)
        seat = HttpSeat(self, self._pool, live, self._passage(request))
        live.in_hand += 1
        try:
            data = await carry_out(Call(live.agent, seat, UNSET), frame, spec)
            if seat.run is not None and waits == "true" and seat.run.disposition == "handled":
                return json_answer(without_run(live.agent.session))
            # Others wait for it, too.
            if seat.run is not None and (failure := await asyncio.shield(seat.run.kept)) is not None:
                raise StoreGone(failure)
            if seat.run is not None and waits == "true":
                connection = request.protocol
                assert isinstance(connection, HttpConnection)
                return json_answer(await _result_of(seat.run, connection.gone))
        finally:
            live.in_hand -= 1
            live.touch()
        return bytes_answer(204, b"", "application/json") if data is UNSET else json_answer(data)

    async def _reply(self, live: LiveSession, question: str, body: dict[str, Any]) -> web.Response:
        if question not in [request.id for request in live.agent.dialogs.open_requests()]:
            raise NotFound(f"No question {question} waits for an answer")
        read_fields(body, ReplyToQuestion)
        if not any(body.get(key) is not None for key in ("value", "confirmed", "cancelled")):
            raise BadRequest("An answer has a value, confirmed or cancelled")
        live.agent.replies.receive({**body, "type": "extension_ui_response", "id": question})
        return bytes_answer(204, b"", "application/json")

    # -- events ----------------------------------------------------------------------------------

    async def _events(self, request: web.BaseRequest, live: LiveSession, query: dict[str, str]) -> web.StreamResponse:
        """Stream the events of a session, each with its number, until the client or the session is gone."""
        if self.viewers >= self._options.max_connections:
            return failed(503, "Too many connections")
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        number = event_number(request.headers.get("Last-Event-ID", query.get("since", "")))
        replay = None if number is None else live.log.after(number)
        known = replay is not None
        stream = _Stream(self._options.viewer_stall_timeout, request[SHARED])
        await stream.response.prepare(request)
        viewer = _Viewer(connection.bell)
        self._pool.joined(live, viewer)
        live.agent.subscribe(viewer)
        self.viewers += 1
        try:
            sent = live.log.count - (0 if replay is None else len(replay))
            hello = {"type": "ready", "version": __version__, "sessionId": live.session_id, "cwd": live.agent.cwd}
            await stream.send(b"event: ready\nid: %d\ndata: %b\n\n" % (sent, encode({**hello, "replay": known})))
            if not known:  # there may be no other client to answer them
                for question in live.agent.open_questions():
                    await stream.send(b"data: %b\n\n" % encode(question))
            while not connection.gone.is_set():
                lines = live.log.after(sent)
                if lines is None:  # the client reads too slowly, and the log has dropped its next events
                    break
                sent = await stream.send_numbered(sent, lines)
                if sent < live.log.count:
                    continue
                if viewer.ended is not None:
                    closed = encode({"type": "session_closed", "reason": viewer.ended})
                    await stream.send(b"data: %b\n\n" % closed)
                    break
                if not await viewer.news(self._options.ping_seconds):
                    await stream.send(b": still here\n\n")
        except (TimeoutError, ConnectionError):
            pass  # the client does not read, or is gone; it may come back with the number of its last event
        finally:
            self.viewers -= 1
            live.agent.unsubscribe(viewer)
            self._pool.leave(viewer, live)
        return stream.response


class _Stream:
    """A stream of events to one client, which has to read within a time limit."""

    def __init__(self, stall_timeout: float, shared: Mapping[str, str]) -> None:
        self._stall_timeout = stall_timeout
        headers = {
            **SAFETY,
            **shared,
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        self.response = web.StreamResponse(headers=headers)
        self.response.force_close()

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(self._stall_timeout):
            await self.response.write(data)

    async def send_numbered(self, last: int, lines: list[bytes]) -> int:
        """Send events that follow the one with the number `last`; return the number of the last one sent."""
        batch: list[bytes] = []
        size = 0
        for line in lines:
            last += 1
            batch.append(b"id: %d\ndata: %b\n" % (last, line))
            size += len(line)
            if size >= BATCH_BYTES:
                break
        if batch:
            await self.send(b"".join(batch))
        return last


class _Viewer(Seat, NeverFull):
    """A client that reads a session's events. It reads them from the log, so the agent never waits for it."""

    holds = True

    def __init__(self, bell: asyncio.Event) -> None:
        self.ended: str | None = None
        """Why the session has left memory; None while it has not."""
        self._bell = bell

    def put(self, event: Event) -> None:
        self._bell.set()

    def session_ended(self, live: LiveSession, reason: str) -> None:
        self.ended = reason
        self._bell.set()

    async def news(self, timeout: float) -> bool:
        """Wait for an event; return false if none comes in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True


class HttpSeat(Seat):
    """A client for the time of one request."""

    def __init__(self, api: HttpApi, pool: SessionPool, live: LiveSession, passage: "Passage | None") -> None:
        self.run: Run | None = None
        """The run of the prompt that was taken."""
        self._api = api
        self._pool = pool
        self.account = pool.account
        self._live = live
        self._passage = passage

    def accepted(self, run: Run) -> None:
        self.run = run

    def set_update_mode(self, mode: UpdateMode) -> None:
        raise AgentError("Over HTTP events always carry only what is new")

    async def open_session(self, wanted: WantedSession) -> LiveInfo:
        try:
            return await self._api.open(wanted)
        except SessionHeld as error:
            found = None if self._passage is None else await self._passage.info(str(error.path))
            if found is None:
                raise
            return convert(found, LiveInfo)

    async def close_session(self) -> None:
        await self._pool.close_session(self._live)

    async def live_sessions(self) -> list[LiveInfo]:
        found, _ = ([], []) if self._passage is None else await self._passage.live()
        return [*await self._pool.infos(), *(convert(one, LiveInfo) for one in found)]


async def _result_of(run: Run, gone: asyncio.Event) -> RunResult:
    """Wait for the result of a run. If the client hangs up, the run goes on. Raises `AgentError`."""
    ends = asyncio.create_task(run.result()), asyncio.create_task(gone.wait())
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not ends[0].done():
            raise AgentError("The client has hung up")
        return ends[0].result()
    finally:
        for end in ends:
            end.cancel()


def _fields_of(given: dict[str, Any], shape: type[T]) -> T:
    """Read fields, of a body or of the path, as a shape. Raises `BadRequest`."""
    try:
        return convert(given, shape, strict=False)
    except ValidationError as error:
        raise BadRequest(str(error)) from None


def event_number(text: str) -> int | None:
    """Read the number of the last event that a client has seen; None if the text is no such number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


async def _body(request: web.BaseRequest) -> dict[str, Any]:
    """Return the JSON object of a request; an empty body counts as an empty object. Raises `BadRequest`."""
    if (request.content_length or 0) > request.client_max_size:  # refused before it is read
        raise web.HTTPRequestEntityTooLarge(request.client_max_size, request.content_length or 0)
    try:
        async with asyncio.timeout(limits.REQUEST_BODY):
            data = await request.read()
        value = decode(data) if data else {}
    except TimeoutError:
        raise BadRequest("The body did not come") from None
    except web.RequestPayloadError as error:
        raise BadRequest(f"The body cannot be read: {error}") from None
    except DecodeError as error:
        raise BadRequest(f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object")
    return value


def _document(version: str) -> dict[str, Any]:
    if version not in get_args(Version):
        raise BadRequest(f"version must be {' or '.join(get_args(Version))}")
    return openapi(cast("Version", version))


def _failed(status: int, error: object) -> web.Response:
    return json_answer({"error": str(error)}, status)


def _questions(live: LiveSession) -> dict[str, list[Any]]:
    """Return what waits for an answer: dialogs, and requests about tool calls."""
    open = live.agent.open_questions()
    dialogs = [one for one in open if isinstance(one, ExtensionUIRequest)]
    return {"questions": dialogs, "requests": [one for one in open if one not in dialogs]}


def _methods_of(parts: list[str]) -> str | None:
    """Return the methods that a path takes; None: there is no such path."""
    match parts:
        case ["openapi.json"] | ["v1", "sessions", _, "events" | "questions"]:
            return "GET"
        case ["v1", "sessions"]:
            return "GET, POST"
        case ["v1", "sessions", _]:
            return "GET, PUT, DELETE"
        case ["v1", "sessions", _, "answers", _] | ["v1", "sessions", _, _]:
            return "POST"
    return None


def _not_allowed(methods: str) -> web.Response:
    answer = _failed(405, f"Allowed here: {methods}")
    answer.headers["Allow"] = methods
    return answer
