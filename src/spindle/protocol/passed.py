"""A session of another node on the wire of a client: its frames go there, and come back with its name."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, json

from spindle.agent import AgentError
from spindle.protocol.registry import REPLIES
from spindle.protocol.render import Response, tag_for
from spindle.sessions.entries import SessionError
from spindle.shapes.codec import DecodeError, decode, encode
from spindle.shapes.events import SessionClosed

if TYPE_CHECKING:
    from spindle.protocol.router import Router
    from spindle.server.passage import Link, Passage

_MODE = "spindle-form-of-updates"
"""Id of the command by which the other node learns what form of updates the client wants."""
_READY, _CHANGED = b'{"type":"ready"', b'{"type":"session_changed"'
_MODE_ANSWER = b'{"id":"%b"' % _MODE.encode()
_RESPONSE = b'{"id":', b'{"type":"response"'
_LOST = "The node that has the session ended before it answered. What it accepted is kept: look before you repeat it"


class _Answered(Struct):
    """What tells which command a response is about."""

    id: Any = UNSET
    command: Any = UNSET


_answered = json.Decoder(_Answered)


class PassedSeat:
    ended = False

    def __init__(self, router: "Router", passage: "Passage", handle: str, link: "Link") -> None:
        """`handle`: what the node that has the session calls it."""
        self.handle = handle
        self.waiting: list[dict[str, Any]] = []
        """No frames wait here."""
        self._router = router
        self._passage = passage
        self._link = link
        self._lane = router.outbox.lane(handle)
        self._tag = tag_for(handle)
        self._asked: list[tuple[Any, Any]] = []
        """Commands that the other node has not answered: id and name."""
        if router.outbox.update_mode != router.seat.dialect.updates:
            link.send(encode({"type": "set_update_mode", "id": _MODE, "mode": router.outbox.update_mode}))
        router.tasks.spawn(self._run(), "spindle-session-passed")

    def receive(self, frame: dict[str, Any]) -> None:
        if frame.get("type") == "close_session":
            self._router.tasks.spawn(self._close(frame), "spindle-session-close")
        else:
            if frame.get("type") not in REPLIES:
                self._asked.append((frame.get("id", UNSET), frame.get("type", "parse")))
            self._link.send(encode({name: value for name, value in frame.items() if name != "sessionId"}))

    async def _run(self) -> None:
        reason = await self._link.run(self._hear)
        self.ended = True
        self._router.forget(self)
        for id, command in self._asked:
            self._lane.put(Response(id=id, command=command, success=False, error=_LOST))
        self._lane.put(SessionClosed(reason))

    async def _hear(self, line: bytes) -> None:
        if line.startswith((_READY, _MODE_ANSWER)):
            return
        if line.startswith(_RESPONSE):
            self._note(line)
        if line.startswith(_CHANGED):  # the event has a key of that name
            line = line.replace(b'"sessionId":', b'"currentId":', 1)
        self._router.outbox.put_line(self._tag + line[1:] + b"\n")
        await self._router.outbox.room()

    def _note(self, line: bytes) -> None:
        """Note that a command is answered. The data of the answer may be long, and are passed over."""
        try:
            found = _answered.decode(line)
        except DecodeError:  # a lone surrogate
            read = decode(line)
            found = _Answered(read.get("id", UNSET), read.get("command", UNSET))
        if (one := (found.id, found.command)) in self._asked:
            self._asked.remove(one)

    async def _close(self, frame: dict[str, Any]) -> None:
        answer = Response(id=frame.get("id", UNSET), command="close_session", success=True)
        try:
            await self._passage.end(self.handle)
        except (AgentError, SessionError) as error:
            answer.success, answer.error = False, str(error)
        self._lane.put(answer)

    def negotiated(self) -> None:
        """Do nothing: there is no version 2 on a WebSocket."""

    async def finish(self, timeout: float) -> None:
        """Do nothing: the other node answers."""

    async def leave(self) -> None:
        """Do nothing: the tasks of the router have ended, and the link with them."""
