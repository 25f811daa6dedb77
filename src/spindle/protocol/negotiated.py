"""Version 2 of oh-my-pi's protocol, for a client that has negotiated it with `negotiate_protocol`.

Such a client is told how each of its prompts ended, and gets long lines in pieces. `get_messages_page` is for it too.
"""

from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.hooks import NeverFull
from spindle.agent.run.handle import Run
from spindle.agent.session import AgentSession
from spindle.base.flow import Tasks
from spindle.base.limits import TASKS_END
from spindle.protocol.commands.setup import AvailableCommand, available_commands
from spindle.protocol.dialect import Dialect
from spindle.protocol.registry import Call
from spindle.protocol.render import REASSEMBLED_BYTES, Wishes
from spindle.shapes import codec
from spindle.shapes.events import (
    AgentSettled,
    AgentStart,
    AvailableCommandsUpdate,
    Event,
    PromptError,
    PromptResult,
    SessionChanged,
    SessionSettled,
    StateChanged,
)
from spindle.shapes.run_result import RunResult

_CHUNK_BYTES = 256 << 10
_PAGE_BYTES = 768 << 10
_TRANSCRIPT_BYTES = 8 << 20
# Clients know these texts and codes: they read all messages at once then.
_BUSY = "Cannot page messages while the session is changing"
_STALE = "RPC message cursor is stale"


class Outcomes(NeverFull):
    """Tells a client how each of its prompts ended, and then that nothing follows by itself any more."""

    def __init__(self, agent: AgentSession, tell: Callable[[Event], None], wishes: Wishes) -> None:
        self._agent = agent
        self._tell = tell
        self._wishes = wishes
        self._commands: list[AvailableCommand] = []
        """As the client was told them."""
        self._tasks = Tasks()
        self._open = 0
        """Number of prompts whose end the client was not told yet."""
        self._settled = False
        """Whether the agent has settled and the client was not told yet."""
        agent.subscribe(self)
        agent.subagents.listeners.append(self._tell_of_subagent)
        self._tell_commands()

    def _tell_of_subagent(self, event: Event) -> None:
        if self._wishes.subagents != "off":
            self._tell(event)

    def _tell_commands(self) -> None:
        """Tell the client of the slash commands, if they are not those that it knows."""
        if (commands := available_commands(self._agent)) != self._commands:
            self._commands = commands
            self._tell(AvailableCommandsUpdate(commands))

    def put(self, event: Event) -> None:
        if isinstance(event, StateChanged | SessionChanged):
            self._tell_commands()
        if isinstance(event, AgentStart):
            self._settled = False
        elif isinstance(event, AgentSettled):
            self._settled = True
            self._tell_settled()

    def follow(self, run: Run, id: Any) -> None:
        """Tell the client of the end of a prompt, once it has come. `id` is that of the command."""
        self._open += 1
        self._tasks.spawn(self._tell_end(run, id), "spindle-prompt-result")

    async def _tell_end(self, run: Run, id: Any) -> None:
        error = None
        try:
            result = await run.result()
        except AgentError as refusal:
            status, error = "error", PromptError(message=str(refusal), retryable=False)
        else:
            status = {"error": "error", "aborted": "aborted"}.get(result.status, "completed")
            if status == "error":
                error = self._error(result)
        invoked = run.disposition != "handled"
        settled = self._agent.state().is_settled
        self._tell(PromptResult(id=id, agent_invoked=invoked, status=status, error=error, session_settled=settled))
        self._open -= 1
        self._tell_settled()

    def _error(self, result: RunResult) -> PromptError:
        from spindle.llm.errors import is_retryable, status_in

        text, model = result.error or "The request failed", self._agent.model
        provider, name = (model.provider, model.id) if model else (None, None)
        return PromptError(
            message=text,
            provider=provider,
            model=name,
            http_status=status_in(text),
            retryable=is_retryable(text),
        )

    def _tell_settled(self) -> None:
        if self._settled and not self._open:
            self._settled = False
            self._tell(SessionSettled())

    async def close(self) -> None:
        self._agent.unsubscribe(self)
        self._agent.subagents.listeners.remove(self._tell_of_subagent)
        await self._tasks.end(TASKS_END)


def spoken(dialect: Dialect) -> Dialect:
    """Return the dialect for a client that has negotiated version 2, unless it has chosen one."""
    from spindle.protocol.neighbours import OMP

    return dialect if dialect.rows is not None else replace(OMP, silent=dialect.silent)


# -- transcripts of subagents ----------------------------------------------------------------------


def read_transcript(path: str, start: int) -> dict[str, Any]:
    """Return the whole lines of a session file from a byte on. Raises `AgentError`."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            reset = start > size
            file.seek(start := 0 if reset else start)
            data = file.read(_TRANSCRIPT_BYTES)
            if b"\n" not in data and len(data) == _TRANSCRIPT_BYTES:  # one long line
                data += file.readline()
    except FileNotFoundError:  # nothing is said yet
        data, reset = b"", False
    except OSError as error:
        raise AgentError(f"Cannot read {path}: {error.strerror}") from None
    data = data[: data.rfind(b"\n") + 1]
    entries = []
    for line in data.splitlines():
        with suppress(codec.DecodeError):  # a line that is damaged
            entries.append(codec.decode(line))
    messages = [entry["message"] for entry in entries if isinstance(entry, dict) and entry.get("type") == "message"]
    return {
        "sessionFile": path,
        "fromByte": start,
        "nextByte": start + len(data),
        "reset": reset,
        "entries": entries,
        "messages": messages,
    }


# -- long lines ------------------------------------------------------------------------------------


def chunker() -> Callable[[bytes], bytes]:
    """Return a function that turns a line that is too long for one frame into frames that hold it in pieces."""
    numbers = count(1)

    def cut(line: bytes) -> bytes:
        data = line.removesuffix(b"\n")
        if len(data) > REASSEMBLED_BYTES:  # no client would put it together; as a whole, some can read it
            return line
        pieces = [data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES)]
        head = {"type": "rpc_chunk", "chunkId": f"rpc-{next(numbers)}", "count": len(pieces), "byteLength": len(data)}
        frames = [head | {"index": index, "data": b64encode(piece).decode()} for index, piece in enumerate(pieces)]
        return b"".join(codec.encode(frame) + b"\n" for frame in frames)

    return cut


# -- pages -----------------------------------------------------------------------------------------


class PageRefused(AgentError):
    """A page cannot be sent now; `code` tells programs why."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class _Cursor(msgspec.Struct, array_like=True):
    """Where a page begins, and the state of the session that this holds for."""

    session: str
    leaf: str | None
    total: int
    at: int


def page(call: Call, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return some messages of the context, at most 768 KiB unless one is longer. Raises `AgentError`."""
    agent = call.agent
    state = agent.state()
    if state.is_streaming or state.is_compacting:
        raise PageRefused(_BUSY, "session_busy")
    messages = agent.conversation.stored(documented=call.client.dialect.documented)
    here = _Cursor(agent.session.id, agent.session.leaf_id, len(messages), 0)
    if cursor is not None:
        given = _read_cursor(cursor)
        if (given.session, given.leaf, given.total) != (here.session, here.leaf, here.total):
            raise PageRefused(_STALE, "stale_cursor")
        here = given
    found: list[Any] = []
    size = 0
    for message in messages[here.at : here.at + limit]:
        size += len(codec.encode(message))
        if found and size > _PAGE_BYTES:
            break
        found.append(message)
    end = here.at + len(found)
    answer = {"messages": found, "totalMessages": len(messages)}
    return answer | {"nextCursor": _cursor(here, end)} if end < len(messages) else answer


def _cursor(here: _Cursor, at: int) -> str:
    return urlsafe_b64encode(codec.encode(replace(here, at=at))).decode()


def _read_cursor(text: str) -> _Cursor:
    try:
        cursor = msgspec.json.decode(urlsafe_b64decode(text), type=_Cursor)
    except (ValueError, msgspec.DecodeError):
        cursor = None
    if cursor is None or not 0 <= cursor.at <= cursor.total:
        raise AgentError("Invalid cursor: expected the nextCursor of a page")
    return cursor
