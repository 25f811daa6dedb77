"""`RpcClient`: drive any agent that speaks the RPC protocol, in a child process or behind a WebSocket."""

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from spindle.base.limits import CHILD_GRACE
from spindle.client.callbacks import Event, UiHandler
from spindle.client.errors import (
    ClientClosed,
    CommandFailed,
    ConnectionFailed,
    ConnectionLost,
    RequestTimeout,
    RpcError,
)
from spindle.client.handle import AgentHandle, EventStream, is_handled
from spindle.client.methods import Timeout
from spindle.client.transport import AgentProcess, Json, Transport, WebSocket, websocket_url
from spindle.shapes import codec


class RpcClient(AgentHandle):
    """Start an agent or connect to one, send it commands, listen to its events.

        async with RpcClient(["spindle", "--mode", "rpc", "--no-session"]) as agent:
            run = await agent.prompt_and_wait("What is in this directory?")
            print(run.text)

    `RpcClient("ws://127.0.0.1:3838/rpc", token=…)` does the same with an agent of `spindle serve`. Every command of
    the protocol is a method; `request` sends those that have none yet.
    """

    def __init__(
        self,
        /,
        command: Sequence[str] | str | Transport = ("spindle", "--mode", "rpc"),
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        token: str | None = None,
        request_timeout: float | None = 30.0,
        updates: Literal["full", "delta"] | None = None,
        on_ui_request: UiHandler | None = None,
        exit_grace: float = CHILD_GRACE,
        **options: Any,
    ) -> None:
        """Prepare a client; `start` or `async with` starts the agent.

        `command` is a command line to run, in `cwd` and with `env`; or the URL of a server, with its `token` and with
        `options` of aiohttp's `ws_connect`; or a transport that is connected. `updates="delta"` asks for updates that
        carry only the new piece: much cheaper for long answers. An agent that does not know this sends full updates.

        Raises `ValueError` for a text that is not a URL, `TypeError` for options that a command line does not have.
        """
        super().__init__(on_ui_request)
        if not isinstance(command, str) and (options or token is not None):
            raise TypeError(f"A command line does not take {', '.join(options) or 'token'}")
        if isinstance(command, Sequence) and not command:
            raise ValueError("The command line is empty")
        if updates not in (None, "full", "delta"):
            raise ValueError(f'updates must be "full" or "delta", not {updates!r}')
        if on_ui_request is not None and not callable(on_ui_request):
            raise TypeError(f"on_ui_request must be a function, not {on_ui_request!r}")
        self.command: str | list[str] | Transport
        if isinstance(command, str):
            self.command = websocket_url(command, "/rpc")
        else:
            self.command = list(command) if isinstance(command, Sequence) else command
        self.cwd = cwd
        self.env = env
        self.request_timeout = request_timeout
        self.exit_grace = exit_grace
        """Seconds the agent gets to end by itself, and again after SIGTERM."""
        self._token = token
        self._options = options
        self._updates = updates
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Transport | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._error: RpcError = ClientClosed()
        """The error that commands raise once the agent is gone."""
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[Json]]] = {}
        """Id → command and the answer it waits for."""
        self._prompts: weakref.WeakValueDictionary[str, EventStream] = weakref.WeakValueDictionary()
        """Id of a prompt → the run that follows it; some agents refuse a prompt after they accepted it."""
        self._sessions: dict[str, RpcSession] = {}
        """The sessions beside the first, by id."""

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the agent, unless it is started; after a crash the client has to be closed first.

        Raises `OSError` if the program cannot be started, `ConnectionFailed` if the server cannot be reached or does
        not let us in, `RpcError` if the agent refuses our tools.
        """
        async with self._starting:
            if self._transport is None:
                await self._start()

    async def _start(self) -> None:
        if self._reading is not None and not self._reading.done():
            await asyncio.wait([self._reading])  # a `close` was cancelled, or is not done yet
        self._loop = asyncio.get_running_loop()
        if isinstance(self.command, str):
            self._transport = await WebSocket.connect(self.command, self._token, self._options)
        elif isinstance(self.command, list):
            self._transport = await AgentProcess.start(self.command, self.cwd, self.env)
        else:
            self._transport = self.command
        self._reading = asyncio.create_task(self._read(self._transport), name="client-read")
        self._declared_tools = []
        try:
            if isinstance(self.command, str):
                await self._let_in()
            if self._updates is not None:
                with contextlib.suppress(CommandFailed):
                    await self.set_update_mode(self._updates)
            await self._declare_tools()
        except BaseException:
            await self.close()
            raise

    async def _let_in(self) -> None:
        """Wait for the server's first frame. Without such a session, or an agent, it closes the connection instead."""
        try:
            async with asyncio.timeout(self.request_timeout):
                await anext(self.events())
        except TimeoutError:
            raise RequestTimeout("ready", self.request_timeout or 0) from None
        except ConnectionLost as lost:
            raise ConnectionFailed(lost.reason or str(lost), lost.code) from None

    async def close(self) -> None:
        """Close the agent's stdin and wait for its end; force it if need be. For a server, close the connection."""
        transport, self._transport = self._transport, None
        if transport is None or self._reading is None:
            return
        grace = 0.0  # if we are cancelled
        try:
            await self._callbacks.close()
            grace = self.exit_grace
        finally:
            await transport.close(grace)
        await asyncio.wait([self._reading])  # even if we are cancelled, it ends pending commands and streams

    async def __aenter__(self) -> "RpcClient":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def stderr(self) -> str:
        """The end of the agent's stderr, if it is a child process."""
        return self._transport.stderr if isinstance(self._transport, AgentProcess) else ""

    # -- commands --------------------------------------------------------------------------------

    async def _exchange(self, command: str, timeout: Timeout, fields: Json) -> Any:
        if self._transport is None or self._reading is None or self._reading.done():
            raise self._error
        seconds = self.request_timeout if timeout is UNSET else timeout
        id = fields.pop("id", None) or self._new_id()
        present = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in fields.items()
            if value is not None
        }
        self._transport.send(codec.encode({"id": id, "type": command, **present}))
        answer: asyncio.Future[Json] = self._reading.get_loop().create_future()
        self._pending[id] = command, answer
        try:
            async with asyncio.timeout(seconds):
                await self._transport.room()
                response = await answer
        except TimeoutError:
            raise RequestTimeout(command, seconds or 0) from None
        finally:
            self._pending.pop(id, None)
        if response.get("success") is not True:
            raise CommandFailed(command, str(response.get("error", "unknown error")))
        return response.get("data")

    def _new_id(self) -> str:
        return f"req_{next(self._numbers)}"

    def _begin_run(self, events: EventStream) -> str:
        id = self._new_id()
        self._prompts[id] = events
        return id

    @property
    def _gone(self) -> RpcError | None:
        return self._error if self._reading is not None and self._reading.done() else None

    def _post(self, frame: Json) -> None:
        """Send a frame that gets no answer; this works from any thread."""
        transport = self._transport
        if transport is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(transport.send, codec.encode(frame))

    # -- other sessions --------------------------------------------------------------------------

    async def open_session(
        self,
        *,
        cwd: str | Path | None = None,
        session: str | Path | None = None,
        model: str | None = None,
        name: str | None = None,
        exec: str | None = None,
        exec_cwd: str | None = None,
        on_ui_request: UiHandler | None = None,
        timeout: Timeout = UNSET,
    ) -> "RpcSession":
        """Open another session of the same agent: a new one in `cwd`, or the stored one with an id or path.

        With `exec`, a command such as `docker exec -i NAME`, its tools work elsewhere, in `exec_cwd`.

        The session has every method of the client, and its own tools and listeners. Raises `CommandFailed`.
        """
        wanted = {"cwd": cwd, "session": session, "model": model, "name": name, "exec": exec, "execCwd": exec_cwd}
        info = await self.request("open_session", **wanted, timeout=timeout)
        opened = self._session(info["id"])
        opened.info = info
        opened.on_ui_request = on_ui_request or opened.on_ui_request
        return opened

    def _session(self, id: str) -> "RpcSession":
        if id not in self._sessions:
            self._sessions[id] = RpcSession(self, id)
        return self._sessions[id]

    # -- reading ---------------------------------------------------------------------------------

    async def _read(self, transport: Transport) -> None:
        """Take the frames of the agent. When they end, end pending commands and streams."""
        async for frame in transport.frames():
            self._receive(frame)
        crash = transport.error if self._transport is not None else None
        self._error = crash or ClientClosed()
        for _, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._error)
        for handle in (self, *self._sessions.values()):
            handle._end_streams(crash)

    def _receive(self, frame: Json) -> None:
        if frame.get("type") == "response":
            self._answered(frame)
            return
        event = Event(frame)
        id = event.get("sessionId")
        if event.type == "session_changed" and "currentId" not in event:
            id = None  # the event is about the first session, and `sessionId` is its new id
        if not isinstance(id, str) or event.type == "ready":
            self._take(event)
        else:
            self._session(id)._take(event)

    def _answered(self, response: Json) -> None:
        id = response["id"] if "id" in response else self._guess_id(response)
        if not isinstance(id, str):
            return
        run = self._prompts.get(id)
        if id in self._pending and not self._pending[id][1].done():
            self._pending[id][1].set_result(response)
            if run is not None and not is_handled(response.get("data")):
                run.drop_through(lambda event: event.type in ("agent_end", "agent_settled"))  # events of an earlier run
        elif response.get("success") is False and run is not None:
            run.close(CommandFailed("prompt", str(response.get("error"))))

    def _guess_id(self, response: Json) -> str | None:
        """Find the request of an answer without id: older agents leave it out when they refuse a command."""
        command = response.get("command")
        candidates = [id for id, (name, _) in self._pending.items() if command in (name, "parse", None)]
        return candidates[0] if len(candidates) == 1 else None


class RpcSession(AgentHandle):
    """A session beside the first one of an `RpcClient`: `async with await client.open_session(cwd=…) as session`."""

    def __init__(self, client: RpcClient, id: str) -> None:
        super().__init__(client.on_ui_request)
        self.on_permission_request = client.on_permission_request
        self.id = id
        """Names the session in frames; stays the same when the conversation goes on in another file."""
        self.info: Json = {}
        """The agent's answer to `open_session`."""
        self._client = client
        self._closed: RpcError | None = None

    async def _exchange(self, command: str, timeout: Timeout, fields: Json) -> Any:
        return await self._client._exchange(command, timeout, {**fields, "sessionId": self.id})

    async def close(self) -> None:
        """End the session. Its file stays, and its id opens it again."""
        await self._callbacks.close()
        if self._closed is None and self._client._gone is None:
            self._closed = ClientClosed()
            await self.close_session()
        self._end_streams(None)
        self._client._sessions.pop(self.id, None)

    async def __aenter__(self) -> "RpcSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _post(self, frame: Json) -> None:
        self._client._post({**frame, "sessionId": self.id})

    def _begin_run(self, events: EventStream) -> str:
        return self._client._begin_run(events)

    @property
    def _gone(self) -> RpcError | None:
        return self._closed or self._client._gone

    def _take(self, event: Event) -> None:
        super()._take(event)
        if event.type == "session_closed":
            self._declared_tools = []
            if event.get("reason") != "idle" and self._closed is None:  # idle: the next command opens it again
                self._closed = ConnectionLost(None, str(event.get("reason")))
                self._end_streams(self._closed)
