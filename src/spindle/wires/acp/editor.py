"""An editor that speaks the Agent Client Protocol, on whichever transport: its requests, its sessions, their ends."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from spindle.base.version import __version__
from spindle.protocol.commands import COMMANDS
from spindle.protocol.live_session import LiveSession
from spindle.protocol.pool import AgentSource, SessionPool, UnknownSession
from spindle.protocol.registry import REPLIES, WantedSession
from spindle.protocol.router import PASSES
from spindle.resources.loader import ClientPrompt
from spindle.sessions.entries import iso_time
from spindle.sessions.file import is_path
from spindle.sessions.open import branched
from spindle.sessions.pages import BadCursor
from spindle.sessions.store import SessionHeld
from spindle.wires.acp.json_rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    JsonRpcError,
    RpcConnection,
)
from spindle.wires.acp.options import modes, options
from spindle.wires.acp.seat import EditorChoices, EditorSeat
from spindle.wires.acp.view import EditorAbilities

if TYPE_CHECKING:
    from spindle.server.passage import Passage
    from spindle.wires.acp.passed import PassedSession

PAGE = 100
"""Sessions in one answer of `session/list`."""
OURS = "_spindle/"
SESSION_CAPABILITIES = ("list", "resume", "fork", "close", "delete", "status", "title", "additionalDirectories")
SYSTEM_PROMPT: dict[str, Any] = {"mode": {"override": {}}}
"""Every agent with the capability can append, so that is not named."""
OUTPUT_KEYS = ("terminal_output", "terminal_output_delta")
"""Fields of `_meta` in which editors take the output of commands; the protocol itself has none."""
KEYS = {
    "ANTHROPIC_API_KEY": "Anthropic",
    "OPENAI_API_KEY": "OpenAI",
    "GEMINI_API_KEY": "Google",
    "OPENROUTER_API_KEY": "OpenRouter",
}


class _SystemPrompt(msgspec.Struct):
    mode: str
    content: list[dict[str, Any]]


class _Params(msgspec.Struct, rename="camel"):
    """Fields of any request; each method reads those it knows."""

    session_id: str = ""
    cwd: str | None = None
    cursor: str | None = None
    prompt: list[dict[str, Any]] = []
    mode_id: str = ""
    config_id: str = ""
    model_id: str = ""
    value: Any = None
    method_id: str = ""
    title: str = ""
    mcp_servers: list[dict[str, Any]] | None = None
    additional_directories: list[str] | None = None
    system_prompt: _SystemPrompt | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Editor:
    def __init__(
        self, source: AgentSource, pool: SessionPool, *, signs_in: bool = True, passage: "Passage | None" = None
    ) -> None:
        """`signs_in`: the editor may be told how to get a key, as it has the agent's environment.

        `passage`: the way to sessions of other nodes.
        """
        self._source = source
        self._pool = pool
        self._signs_in = signs_in
        self.connection = RpcConnection(self._handle)
        self._can = EditorAbilities()
        self._hello: dict[str, Any] | None = None
        """What the editor began with."""
        self._passage = passage
        self._passed: dict[str, PassedSession] = {}
        """Sessions that other nodes have, by id."""
        self._seats: dict[str, EditorSeat] = {}
        self._kept: dict[str, EditorChoices] = {}
        """Wishes for sessions that are no longer in memory, by id."""
        self._prompts: set[tuple[str, Any]] = set()
        """Session and request id of prompts that are not answered yet."""
        self._methods: dict[str, Callable[[_Params, Any], Awaitable[Any]]] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/status": self._status,
            "session/set_title": self._set_title,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/set_model": self._set_model,
        }

    # -- the end ---------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave all sessions: questions that are open are answered with no, and runs go on."""
        seats, self._seats = list(self._seats.values()), {}
        for seat in seats:
            self._pool.leave(seat, seat.live)
        await asyncio.gather(*(seat.end() for seat in seats), *(passed.leave() for passed in self._passed.values()))
        await self.connection.close()

    async def end(self) -> None:
        """Leave all sessions and end them."""
        await asyncio.gather(*(seat.end() for seat in self._seats.values()))
        await self._pool.close()
        await self.connection.close()

    # -- requests --------------------------------------------------------------------------------

    async def _handle(self, method: str, params: dict[str, Any], id: Any) -> Any:
        if method == "initialize":
            return self._initialize(params)
        if method == "$/cancel_request":
            self.connection.cancel(params.get("requestId"))
            return None
        if self._hello is None:
            raise JsonRpcError(INVALID_REQUEST, "The first request must be initialize")
        session = params.get("sessionId")
        passed = self._passed.get(session) if isinstance(session, str) else None
        held: SessionHeld | None = None
        for _ in range(PASSES):
            if passed is not None:
                result = await passed.ask(method, params, id)
                if method == "session/fork":
                    self._passed[result["sessionId"]] = passed
                return result
            try:
                return await self._here(method, params, id)
            except SessionHeld as error:
                held = error
            passed = await self._pass_on(str(held.path), self._hello)  # None: its node has ended meanwhile
        assert held is not None
        raise held

    async def _pass_on(self, session: str, hello: dict[str, Any]) -> "PassedSession | None":
        """Begin at the node that has a session; None if there is none. Raises `JsonRpcError`, `SessionError`."""
        link = None if self._passage is None else await self._passage.link(session, "/acp")
        if link is None:
            return None
        from spindle.wires.acp.passed import PassedSession

        if (passed := self._passed.get(session)) is not None:  # another request was quicker
            await link.close()
            return passed
        passed = self._passed[session] = PassedSession(self.connection, link, self._not_there)
        await passed.begin(hello)
        return passed

    def _not_there(self, lost: "PassedSession") -> None:
        self._passed = {id: passed for id, passed in self._passed.items() if passed is not lost}

    async def _here(self, method: str, params: dict[str, Any], id: Any) -> Any:
        if method.startswith(OURS) and (name := method.removeprefix(OURS)) in _OUR_FRAMES:
            given = {key: value for key, value in params.items() if key not in ("sessionId", "_meta")}
            return await (await self._seat(str(params.get("sessionId", "")))).command(name, given)
        if method not in self._methods:
            raise JsonRpcError(METHOD_NOT_FOUND, f"There is no method {method}")
        return await self._methods[method](msgspec.convert(params, _Params), id)

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(params.get("protocolVersion"), int):
            raise JsonRpcError(INVALID_PARAMS, "protocolVersion must be a number")
        offered = _at(params, "clientCapabilities")
        self._can = EditorAbilities(
            forms=_at(offered, "elicitation").get("form") is not None,
            notices=_at(offered, "session").get("notices") is not None,
            compactions=_at(offered, "session").get("compaction") is not None,
            files=all(_at(offered, "fs").get(name) is True for name in ("readTextFile", "writeTextFile")),
            terminals=offered.get("terminal") is True,
            output_key=next((key for key in OUTPUT_KEYS if _at(offered, "_meta").get(key) is True), ""),
            events=_at(_at(params, "_meta"), "spindle").get("events") is True,
        )
        self._hello = params
        capabilities: dict[str, Any] = {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "sessionCapabilities": {name: {} for name in SESSION_CAPABILITIES} | {"systemPrompt": SYSTEM_PROMPT},
        }
        if "set_mcp_servers" in COMMANDS:
            capabilities["mcpCapabilities"] = {"http": True, "sse": True}
        return {
            "protocolVersion": 1,
            "agentInfo": {"name": "spindle", "title": "Spindle", "version": __version__},
            "agentCapabilities": capabilities,
            "authMethods": self._auth_methods(terminal=_at(offered, "auth").get("terminal") is True),
        }

    def _auth_methods(self, *, terminal: bool) -> list[dict[str, Any]]:
        return list(_auth_methods(terminal=terminal)) if self._signs_in else []

    async def _authenticate(self, params: _Params, _: Any) -> dict[str, Any]:
        name = params.method_id.removeprefix("env:")
        if name in KEYS and not os.environ.get(name):
            raise JsonRpcError(AUTH_REQUIRED, f"Set {name} in the environment of the editor, then start it again")
        if name not in KEYS and params.method_id != "login":
            raise JsonRpcError(INVALID_PARAMS, f"There is no way to sign in called {params.method_id}")
        return {}

    # -- sessions --------------------------------------------------------------------------------

    async def _new(self, params: _Params, _: Any) -> dict[str, Any]:
        wishes = _wishes(params)
        live = await self._pool.open(WantedSession(cwd=wishes.cwd))
        seat = await self._sit(live.handle, live, wishes)
        return {"sessionId": live.handle, **self._choices(seat)}

    async def _load(self, params: _Params, _: Any) -> dict[str, Any]:
        seat = await self._come_back(params)
        seat.tell_again()
        return self._choices(seat)

    async def _resume(self, params: _Params, _: Any) -> dict[str, Any]:
        return self._choices(await self._come_back(params))

    async def _fork(self, params: _Params, _: Any) -> dict[str, Any]:
        """Begin another session with the conversation so far; a run that goes on is not touched."""
        wishes = _wishes(params)
        source = await self._seat(params.session_id)
        session, wishes.prompt = source.agent.session, wishes.prompt or source.wishes().prompt
        path: str | None = None
        if session.leaf_id is not None:
            if session.path is None:
                raise JsonRpcError(INVALID_REQUEST, "This session is in memory only, so it cannot be forked")
            with branched(session, session.leaf_id) as copy:
                if copy.path is not None and copy.path.exists():  # else there is no message yet
                    path = str(copy.path)
        live = await self._pool.open(WantedSession(cwd=wishes.cwd, session=path))
        seat = await self._sit(live.handle, live, wishes)
        return {"sessionId": live.handle, **self._choices(seat)}

    async def _come_back(self, params: _Params) -> EditorSeat:
        wishes = _wishes(params)
        seat = await self._seat(params.session_id, wishes.cwd)
        await seat.use(wishes)
        seat.tell_place(wishes.cwd)
        return seat

    async def _seat(self, id: str, cwd: str | None = None) -> EditorSeat:
        """Return the seat in a session, which is loaded from disk if it is not live. Raises `JsonRpcError`."""
        if (seat := self._seats.get(id)) is not None:
            return seat
        if not id:
            raise JsonRpcError(INVALID_PARAMS, "sessionId is required")
        if is_path(id):
            raise JsonRpcError(NOT_FOUND, f"{id} is no id of a session")
        kept = self._kept.get(id)
        try:
            live = await self._pool.get(id, cwd=cwd or (kept.cwd if kept else None))
        except UnknownSession as error:
            raise JsonRpcError(NOT_FOUND, str(error)) from None
        return await self._sit(id, live)

    async def _sit(self, id: str, live: LiveSession, wishes: EditorChoices | None = None) -> EditorSeat:
        """Take a seat. `wishes` are for a new session: they are applied before the seat sends its first update."""
        if (seat := self._seats.get(id)) is not None:  # another request was quicker
            return seat
        seat = self._seats[id] = EditorSeat(id, live, self.connection, self._can, self._left)
        seat.account = self._pool.account
        await self._pool.get(live.handle, seat)
        if wishes is not None:
            await seat.use(wishes)
        seat.begin()
        if (kept := self._kept.pop(id, None)) is not None:
            await seat.use(kept)
        return seat

    def _left(self, seat: EditorSeat) -> None:
        """Forget the seat of a session that leaves memory, but not its wishes: the editor may still use the id."""
        if self._seats.get(seat.id) is seat:
            del self._seats[seat.id]
            self._kept[seat.id] = seat.wishes()

    def _choices(self, seat: EditorSeat) -> dict[str, Any]:
        return {"modes": modes(seat.agent), "configOptions": options(seat.agent)}

    async def _list(self, params: _Params, _: Any) -> dict[str, Any]:
        cwd = params.cwd and _directory(params.cwd)
        try:
            page = await asyncio.to_thread(self._source.stored, cwd, limit=PAGE, cursor=params.cursor)
        except BadCursor as error:
            raise JsonRpcError(INVALID_PARAMS, str(error)) from None
        sessions = [
            {
                "sessionId": info.id,
                "cwd": info.cwd,
                "title": " ".join((info.name or info.first_message).split())[:200],
                "updatedAt": iso_time(info.modified),
            }
            for info in page.sessions
        ]
        return {"sessions": sessions, "nextCursor": page.cursor}

    async def _close(self, params: _Params, _: Any) -> dict[str, Any]:
        if (seat := self._seats.get(params.session_id)) is not None:
            await self._cancel(params, None)
            await self._pool.close_session(seat.live)
        self._kept.pop(params.session_id, None)
        return {}

    async def _delete(self, params: _Params, _: Any) -> dict[str, Any]:
        await self._close(params, None)
        if not is_path(params.session_id):  # editors know sessions by their ids
            path = await asyncio.to_thread(self._source.find, params.session_id, None)
            if path is not None:
                await asyncio.to_thread(self._source.delete, path)
        return {}

    async def _status(self, params: _Params, _: Any) -> dict[str, Any]:
        """Say whether a session is in memory, without loading it."""
        id = params.session_id
        if id in self._seats:
            return {"status": "open"}
        if is_path(id) or await asyncio.to_thread(self._source.find, id, None) is None:
            raise JsonRpcError(NOT_FOUND, f"There is no session {id}", {"sessionId": id})
        return {"status": "saved"}

    async def _set_title(self, params: _Params, _: Any) -> dict[str, Any]:
        title = " ".join(params.title.split())
        if not title:
            raise JsonRpcError(INVALID_PARAMS, "title must not be empty")
        (await self._seat(params.session_id)).agent.set_name(title)
        return {"title": title}

    # -- prompts and choices ---------------------------------------------------------------------

    async def _prompt(self, params: _Params, id: Any) -> dict[str, Any]:
        behavior = _at(params.meta or {}, "spindle").get("behavior", "steer")
        if behavior not in ("steer", "followUp", "follow_up"):
            raise JsonRpcError(INVALID_PARAMS, "_meta.spindle.behavior must be steer or follow_up")
        this = params.session_id, id
        self._prompts.add(this)
        try:
            seat = await self._seat(params.session_id)
            return await seat.prompt(params.prompt, "steer" if behavior == "steer" else "followUp")
        except asyncio.CancelledError:
            if (found := self._seats.get(params.session_id)) is not None:
                # `session/cancel` stops the run itself, and only once: prompts that are sent after it must go on.
                await (found.cancel() if this in self._prompts else found.agent.wait_idle())
            return {"stopReason": "cancelled"}
        finally:
            self._prompts.discard(this)

    async def _cancel(self, params: _Params, _: Any) -> None:
        for this in tuple(self._prompts):
            session, id = this
            if session == params.session_id:
                self._prompts.discard(this)
                self.connection.cancel(id)
        if (seat := self._seats.get(params.session_id)) is not None:
            await seat.cancel()

    async def _set_mode(self, params: _Params, _: Any) -> dict[str, Any]:
        await (await self._seat(params.session_id)).choose("mode", params.mode_id)
        return {}

    async def _set_option(self, params: _Params, _: Any) -> dict[str, Any]:
        seat = await self._seat(params.session_id)
        return {"configOptions": await seat.choose(params.config_id, params.value)}

    async def _set_model(self, params: _Params, _: Any) -> dict[str, Any]:
        """Choose a model as clients of older drafts do."""
        await (await self._seat(params.session_id)).choose("model", params.model_id)
        return {}


_OUR_FRAMES = {*COMMANDS, *REPLIES}


def _at(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _directory(path: str | None, name: str = "cwd") -> str:
    if path is None or not os.path.isabs(path):
        raise JsonRpcError(INVALID_PARAMS, f"{name} must be an absolute path, not {path!r}")
    return path


def _auth_methods(*, terminal: bool) -> "list[dict[str, Any]]":
    methods: list[dict[str, Any]] = []
    if terminal:
        login = {"id": "login", "type": "terminal", "name": "Sign in", "args": ["login"]}
        methods.append(login | {"description": "Sign in to a provider in a terminal"})
    for name, provider in KEYS.items():
        if not os.environ.get(name):
            methods.append({"id": f"env:{name}", "name": f"{provider} key", "description": f"Set {name}"})
    return methods


def _wishes(params: _Params) -> EditorChoices:
    return EditorChoices(
        _directory(params.cwd),
        params.mcp_servers or [],
        [_directory(path, "an additional directory") for path in params.additional_directories or ()],
        prompt=_client_prompt(params),
    )


def _client_prompt(params: _Params) -> ClientPrompt | None:
    """Return the editor's instructions: `systemPrompt`, else what acpx and others put into `_meta` instead."""
    if (given := params.system_prompt) is None:
        meta = (params.meta or {}).get("systemPrompt")
        text = meta.get("append") if isinstance(meta, dict) else meta
        return ClientPrompt(text, replaces=text is meta) if isinstance(text, str) and text else None
    if given.mode not in ("append", "override"):
        raise JsonRpcError(INVALID_PARAMS, f"systemPrompt.mode must be append or override, not {given.mode!r}")
    texts = [block.get("text") if block.get("type") == "text" else None for block in given.content]
    known = [text for text in texts if isinstance(text, str)]
    if not texts or known != texts:
        raise JsonRpcError(INVALID_PARAMS, "systemPrompt.content must have one or more blocks, all of type text")
    return ClientPrompt("\n\n".join(known), replaces=given.mode == "override")
