"""JSON-RPC with one server, in either era of the protocol.

A server of the era of 2026 is stateless: `server/discover` lists its features, and every request names the client. A
server of the earlier era begins with a handshake. The newer way is tried first. Below is a transport, which carries
messages; above is `shared_server`, which decides what to ask. Everything a server sends is data: it is checked, never
obeyed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field

from spindle.base import limits, trace
from spindle.base.flow import Tasks
from spindle.base.strangers import MAX_BYTES, read_json
from spindle.base.version import __version__
from spindle.plugins.mcp import McpError, Message
from spindle.shapes.codec import encode
from spindle.workspace.texts import well_formed

MODERN: Final = "2026-07-28"
HANDSHAKE: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
CLIENT_INFO: Final = {"name": "spindle", "version": __version__}
CAPABILITIES: Final[dict[str, Any]] = {"roots": {}, "elicitation": {"form": {}, "url": {}}}
_META: Final = "io.modelcontextprotocol/"
_METHOD_NOT_FOUND: Final = -32601
_UNSUPPORTED_VERSION: Final = -32022
_MAX_ROUNDS: Final = 10
"""How often a server may ask for input before it answers."""
_MAX_PAGES: Final = 100
_MAX_ITEMS: Final = 10_000
"""Of one list, over all pages."""
_MAX_FAILURES: Final = 5
"""Failures in a row of the stream of changes."""
_MAX_AT_ONCE: Final = 1000
"""Requests under way, ours and the server's: further ones of the server are dropped."""
_MAX_QUESTIONS: Final = 5
"""Questions to the user that one call may have open; further ones are declined."""

Ask = Callable[[Message], Awaitable[Message]]
"""Takes the parameters of an `elicitation/create`, returns its result."""


class ServerTransport(Protocol):
    """Carries messages to a server; its messages go to `receive`, and the end of the connection to `closed`."""

    receive: Callable[[Message], bool]
    """Says whether somebody waited for the message."""
    closed: Callable[[str], None]
    """Called with a reason when no more messages can come."""
    paired: bool
    """Whether the answer to a request has come when the request is sent."""

    @property
    def pid(self) -> int | None:
        """Process id of the server, if we started it."""

    def last_words(self) -> str:
        """Return the end of the server's stderr."""

    async def open(self) -> None:
        """Connect to the server. Raises `McpError`."""

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a message. `headers` are for transports that have headers. Raises `McpError`.

        Over HTTP, where a request has its own response, this returns when the whole response was received.
        """

    def handshaken(self, version: str) -> None:
        """Note that the server is of the earlier era."""

    async def close(self) -> None: ...


class _PendingRequest(Struct):
    """A request that waits for its answer."""

    answer: asyncio.Future[Any]
    clock: asyncio.Timeout
    timeout: float | None
    progress: Callable[[Message], None] | None
    ask: Ask | None
    questions: set[asyncio.Task[None]] = field(default_factory=set)
    """Questions of the server to the user: the clock stops meanwhile, and no question outlives the request."""
    left: float | None = None
    """Seconds left when the clock goes on."""
    latest: float = field(default_factory=lambda: asyncio.get_running_loop().time() + limits.MCP_LONGEST)
    """The clock cannot be set to a later time, whatever progress is reported."""

    def set_clock(self, left: float | None) -> None:
        """Give the request `left` seconds from now on, or from the end of the last question."""
        self.left = left
        end = None if self.questions or left is None else min(asyncio.get_running_loop().time() + left, self.latest)
        with suppress(RuntimeError):  # the request has ended
            self.clock.reschedule(end)

    def remaining(self) -> float | None:
        end = self.clock.when()
        return self.left if end is None else end - asyncio.get_running_loop().time()


class ServerInfo(Struct):
    """What a server says about itself."""

    version: str = ""
    """Version of the protocol."""
    capabilities: Message = field(default_factory=dict)

    def has(self, name: str, feature: str | None = None) -> bool:
        found = self.capabilities.get(name)
        return isinstance(found, dict) and (feature is None or found.get(feature) is True)


class ServerConnection:
    def __init__(
        self,
        transport: ServerTransport,
        cwd: str,
        changed: Callable[[str], None] = lambda method: None,
        lost: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`changed` gets notifications `…/list_changed`, `lost` the reason why the connection has ended by itself."""
        self._transport = transport
        self._cwd = cwd
        self._changed = changed
        self._lost = lost
        self._ids = count(1)
        self._pending: dict[int, _PendingRequest] = {}
        self._tasks = Tasks()
        self._answers: dict[int | str, asyncio.Task[None]] = {}
        """Answers to requests of the server, by request id."""
        self.info = ServerInfo()
        self.ended: str | None = None
        """Why the connection has ended."""
        transport.receive = self._receive
        transport.closed = self._fail

    @property
    def modern(self) -> bool:
        return self.info.version == MODERN

    # -- beginning -------------------------------------------------------------------------------

    async def open(self, *, probe: bool = True, version: str | None = None) -> None:
        """Open the transport and agree on an era: that of `version`, if it is given. Raises `McpError`."""
        await self._transport.open()
        if version is not None and version != MODERN:
            await self._initialize(version, slow=False)
            return
        # Over HTTP every request is answered. A process may ignore an unknown request, or not be ready yet.
        patience = limits.MCP_PROBE if self._transport.pid is not None else limits.MCP_START
        silent = False
        try:
            found = probe and await self._discover(patience)
        except TimeoutError:
            found, silent = False, True
        if not found and version is not None:
            raise McpError(f"it does not speak version {version} of the protocol, which its entry asks for")
        if not found:
            await self._initialize(HANDSHAKE[0], slow=silent)
        if self.modern:
            self._listen()

    async def _discover(self, timeout: float, *, again: bool = False) -> bool:
        """Ask in the way of 2026. Return whether the server knows it. Raises `McpError`, `TimeoutError`."""
        self.info.version = MODERN
        try:
            found = await self._request("server/discover", {}, timeout)
        except McpError as error:
            if self.ended is not None or error.code == 0:
                raise
            supported = error.data.get("supported") if isinstance(error.data, dict) else None
            if error.code == _UNSUPPORTED_VERSION and isinstance(supported, list) and MODERN in supported and not again:
                return await self._discover(timeout, again=True)
            known = not isinstance(supported, list) or any(version in supported for version in HANDSHAKE)
            if error.code == _UNSUPPORTED_VERSION and not known:
                raise McpError(f"it speaks only versions of the protocol that are unknown here: {supported}") from None
            return False
        versions = found.get("supportedVersions") if isinstance(found, dict) else None
        if not isinstance(versions, list) or MODERN not in versions:
            return False
        self._learn(found)
        return True

    async def _initialize(self, wanted: str, *, slow: bool) -> None:
        """Begin with the earlier handshake. `slow`: the server may have accepted the newer request too late."""
        self.info.version = ""
        params = {"protocolVersion": wanted, "capabilities": CAPABILITIES, "clientInfo": CLIENT_INFO}
        try:
            result = await self._request("initialize", params, limits.MCP_START)
        except TimeoutError:
            raise McpError(f"it did not answer within {limits.MCP_START:g} s") from None
        except McpError as error:
            if error.code and (slow or error.code == _UNSUPPORTED_VERSION) and await self._discover(limits.MCP_START):
                return
            raise
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str) or version not in HANDSHAKE:
            raise McpError(f"it speaks version {version!r} of the protocol, which is unknown here")
        self._learn(result)
        self.info.version = version
        self._transport.handshaken(version)
        await self.notify("notifications/initialized")

    def _learn(self, result: Message) -> None:
        capabilities = result.get("capabilities")
        self.info.capabilities = capabilities if isinstance(capabilities, dict) else {}

    def _listen(self) -> None:
        wanted = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if self.info.has(kind, "listChanged")
        }
        if wanted:
            self._tasks.spawn(self._subscribe(wanted), "spindle-mcp-listen")

    async def _subscribe(self, wanted: Message) -> None:
        """Listen for changes; when the stream ends, open another and look for changes made meanwhile."""
        failures = 0
        while failures < _MAX_FAILURES:
            began = time.monotonic()
            with suppress(McpError):
                await self._request("subscriptions/listen", {"notifications": wanted}, None)
            if self.ended is not None:
                return
            # Proxies end every stream after a while; that is no failure.
            failures = 0 if time.monotonic() - began > limits.MCP_PROBE else failures + 1
            await asyncio.sleep(limits.MCP_RECONNECT * 2**failures)
            self._changed("notifications/list_changed")

    # -- requests --------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Message | None = None,
        *,
        timeout: float,
        progress: Callable[[Message], None] | None = None,
        ask: Ask | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Message:
        """Return the result. `progress` gets notifications of it, `ask` questions of the server to the user.

        Raises `McpError`. A cancellation is sent to the server.
        """
        given = dict(params or {})
        for _ in range(_MAX_ROUNDS):
            try:
                result = await self._request(method, given, timeout, progress, ask, headers)
            except TimeoutError:
                raise McpError(f"no answer to {method} within {timeout:g} s") from None
            if not isinstance(result, dict):
                raise McpError(f"its answer to {method} is not an object")
            if result.get("resultType", "complete") != "input_required":
                return result
            given = dict(params or {})
            if isinstance(state := result.get("requestState"), str):
                given["requestState"] = state
            wanted = result.get("inputRequests")
            if isinstance(wanted, dict) and wanted:
                given["inputResponses"] = {key: await self._input(asked, ask) for key, asked in wanted.items()}
            else:
                await asyncio.sleep(limits.MCP_RECONNECT / 10)
        raise McpError(f"it asked for input more than {_MAX_ROUNDS} times")

    async def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification. Raises `McpError`."""
        message: Message = {"jsonrpc": "2.0", "method": method}
        await self._transport.send(message | ({"params": params} if params else {}), {})

    async def _request(
        self,
        method: str,
        params: Message,
        timeout: float | None,
        progress: Callable[[Message], None] | None = None,
        ask: Ask | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the `result` of the answer. Raises `McpError`, `TimeoutError`."""
        if self.ended is not None:
            raise McpError(self.ended)
        id = next(self._ids)
        meta: Message = trace.outgoing() if progress is None else {**trace.outgoing(), "progressToken": id}
        routing: dict[str, str] = {}
        if self.modern:
            meta |= {
                _META + "protocolVersion": MODERN,
                _META + "clientInfo": CLIENT_INFO,
                _META + "clientCapabilities": CAPABILITIES,
            }
            routing = {"mcp-protocol-version": MODERN, "mcp-method": method, **(headers or {})}
        if meta:
            params = {**params, "_meta": meta}
        message: Message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        sending = self._tasks.spawn(self._transport.send(message, routing), "spindle-mcp-send", report=False)
        clock = asyncio.timeout(timeout)
        pending = self._pending[id] = _PendingRequest(answer, clock, timeout, progress, ask)
        try:
            async with clock:
                await asyncio.wait((answer, sending), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done() and sending.done():
                    sending.result()  # raises the error if the message was not sent
                    if self._transport.paired:
                        raise McpError(f"its answer to {method} belongs to another request")
                return await answer
        except (asyncio.CancelledError, TimeoutError):
            if not answer.done() or answer.cancelled():
                await self._cancel(id, method)
            raise
        finally:
            del self._pending[id]
            sending.cancel()
            for question in pending.questions:
                question.cancel()
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # looked at
            del answer, sending, clock, pending  # a failure that they hold would hold this frame

    async def _cancel(self, id: int, method: str) -> None:
        """Tell the server that an answer is not wanted any more. A modern server on HTTP sees its stream close."""
        if method in ("initialize", "server/discover") or self.ended is not None:
            return
        if self.modern and self._transport.paired:
            return
        with suppress(McpError, TimeoutError):
            async with asyncio.timeout(limits.HANDLER_END):
                await self.notify("notifications/cancelled", {"requestId": id, "reason": "the user stopped it"})

    # -- messages of the server ------------------------------------------------------------------

    def _receive(self, message: Message) -> bool:
        """Take a message. Say whether it is an answer that somebody waits for."""
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str):
            if id is None:
                self._notified(method, message.get("params"))
            elif isinstance(id, int | str) and len(self._tasks) < _MAX_AT_ONCE:
                self._answers[id] = self._tasks.spawn(
                    self._answer(id, method, message.get("params")), "spindle-mcp-answer"
                )
            return False
        pending = self._pending.get(id) if isinstance(id, int) else None
        if pending is None or pending.answer.done():
            return False
        if (error := message.get("error")) is not None:
            pending.answer.set_exception(rpc_error(error))
        else:
            pending.answer.set_result(message.get("result"))
        return True

    def _notified(self, method: str, params: Any) -> None:
        params = params if isinstance(params, dict) else {}
        if method == "notifications/progress":
            token = params.get("progressToken")
            pending = self._pending.get(token) if isinstance(token, int) else None
            if pending is not None and not pending.answer.done():
                pending.set_clock(pending.timeout)
                if pending.progress is not None:
                    pending.progress(params)
        elif method == "notifications/cancelled":
            asked = params.get("requestId")
            if isinstance(asked, int | str) and asked in self._answers:
                self._answers[asked].cancel()
        elif method.endswith("/list_changed"):
            self._changed(method)

    async def _answer(self, id: int | str, method: str, params: Any) -> None:
        """Answer a request of a server of the earlier era."""
        reply: Message = {"jsonrpc": "2.0", "id": id}
        asking = [pending for pending in self._pending.values() if pending.ask is not None]
        try:
            if method == "ping":
                reply["result"] = {}
            elif method == "elicitation/create" and asking:
                reply["result"] = await self._question(params, asking[-1])
            else:
                reply["result"] = await self._input({"method": method, "params": params}, None)
        except McpError as error:
            reply["error"] = {"code": error.code or -32603, "message": str(error)}
        finally:
            self._answers.pop(id, None)
        with suppress(McpError):
            await self._transport.send(reply, {})

    async def _question(self, params: Any, pending: _PendingRequest) -> Message:
        """Ask the user a question that belongs to a request of ours, while the request goes on."""
        task = asyncio.current_task()
        assert task is not None
        if len(pending.questions) >= _MAX_QUESTIONS:
            return {"action": "decline"}
        left = pending.remaining()
        pending.questions.add(task)
        pending.set_clock(left)
        try:
            return await self._input({"method": "elicitation/create", "params": params}, pending.ask)
        except asyncio.CancelledError:
            if self.ended is not None:
                raise
            return {"action": "cancel"}  # the server may still wait for an answer
        finally:
            pending.questions.discard(task)
            pending.set_clock(pending.left)

    async def _input(self, asked: Any, ask: Ask | None) -> Message:
        """Return the answer to a question of the server. Raises `McpError` for questions that are not supported."""
        method = asked.get("method") if isinstance(asked, dict) else None
        if method == "roots/list":
            return {"roots": [{"uri": Path(self._cwd).as_uri(), "name": Path(self._cwd).name}]}
        if method == "elicitation/create":
            params = asked.get("params")
            return {"action": "decline"} if ask is None or not isinstance(params, dict) else await ask(params)
        if method == "sampling/createMessage":
            raise McpError("Sampling is not offered: the server has no use of the user's model", _METHOD_NOT_FOUND)
        raise McpError(f"Method not found: {method}", _METHOD_NOT_FOUND)

    # -- the end ---------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        self._end(reason)
        self._lost(reason)

    def _end(self, reason: str) -> None:
        if self.ended is not None:
            return
        self.ended = reason
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(McpError(reason))

    async def retire(self) -> None:
        """Close the connection when no request waits for an answer any more."""
        try:
            while self._pending:
                await asyncio.wait([pending.answer for pending in self._pending.values()])
        finally:
            await self.close()

    async def close(self) -> None:
        self._end("the connection was closed")
        await self._tasks.end(limits.HANDLER_END)
        await self._transport.close()


async def pages(get: Callable[[str, Message], Awaitable[Message]], method: str, key: str) -> list[Any]:
    """Return the items of all pages of a list; `get` asks for one page. Raises `McpError`."""
    items: list[Any] = []
    cursor, size = None, 0
    for _ in range(_MAX_PAGES):
        page = await get(method, {} if cursor is None else {"cursor": cursor})
        found = page.get(key)
        items += found if isinstance(found, list) else []
        cursor = page.get("nextCursor")
        size += len(encode(found)) if cursor else 0
        if not isinstance(cursor, str) or not cursor or len(items) > _MAX_ITEMS or size > MAX_BYTES:
            break
    return items[:_MAX_ITEMS]


def read_message(data: bytes) -> Any:
    """Return a message of a server, without lone surrogates, which JSON can carry. Raises `StrangerError`."""
    message = read_json(data)
    return _whole(message) if b"\\ud" in data or b"\\uD" in data else message


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {well_formed(name): _whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(_whole, value))
    return well_formed(value) if isinstance(value, str) else value


def rpc_error(error: Any) -> McpError:
    """Return the exception for the `error` of a message."""
    if not isinstance(error, dict):
        return McpError(error if isinstance(error, str) else "no reason given", -32603)
    code, text = error.get("code"), error.get("message")
    text = text if isinstance(text, str) and text else "no reason given"
    return McpError(text, code if isinstance(code, int) and code else -32603, error.get("data"))
