"""A session of another node on the wire of a client: its frames go there, and come back with its name."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from spindle.agent import AgentError
from spindle.protocol.render import Response, tag_for
from spindle.sessions.entries import SessionError
from spindle.shapes.codec import encode
from spindle.shapes.events import SessionClosed

if TYPE_CHECKING:
    from spindle.protocol.router import Router
    from spindle.server.passage import Link, Passage

_MODE = "spindle-form-of-updates"
"""Id of the command by which the other node learns what form of updates the client wants."""
_READY, _CHANGED = b'{"type":"ready"', b'{"type":"session_changed"'
_MODE_ANSWER = b'{"id":"%b"' % _MODE.encode()


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
        if router.outbox.update_mode != router.seat.dialect.updates:
            link.send(encode({"type": "set_update_mode", "id": _MODE, "mode": router.outbox.update_mode}))
        router.tasks.spawn(self._run(), "spindle-session-passed")

    def receive(self, frame: dict[str, Any]) -> None:
        if frame.get("type") == "close_session":
            self._router.tasks.spawn(self._close(frame), "spindle-session-close")
        else:
            self._link.send(encode({name: value for name, value in frame.items() if name != "sessionId"}))

    async def _run(self) -> None:
        reason = await self._link.run(self._hear)
        self.ended = True
        self._router.forget(self)
        self._lane.put(SessionClosed(reason))

    async def _hear(self, line: bytes) -> None:
        if line.startswith((_READY, _MODE_ANSWER)):
            return
        if line.startswith(_CHANGED):  # the event has a key of that name
            line = line.replace(b'"sessionId":', b'"currentId":', 1)
        self._router.outbox.put_line(self._tag + line[1:] + b"\n")
        await self._router.outbox.room()

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
