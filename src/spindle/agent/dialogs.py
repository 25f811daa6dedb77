"""Questions and notices of extensions and of `Approval`, for the user of any client."""

import asyncio
import sys
import uuid
from collections.abc import Callable, Collection
from typing import Any, Protocol

from spindle.agent.host_tools import Replies
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.events import Event


class Dialogs(Protocol):
    """Where dialogs are shown: a client behind a wire, a terminal, or nowhere."""

    has_ui: bool

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        """Return the fields of the reply, or None if there is none: cancelled, too late, no client."""

    def tell(self, request: ExtensionUIRequest) -> None:
        """Show a notice, which needs no reply."""

    def withdraw(self) -> None:
        """Close every open dialog without a reply."""

    def open_requests(self) -> list[ExtensionUIRequest]:
        """Return the dialogs that wait for a reply, for a client that has just connected."""


class NoDialogs:
    """Stands for a user who cannot be asked. `say` takes notices: to a program's log, to stderr, or nowhere."""

    has_ui = False

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self._say = say

    async def ask(self, request: ExtensionUIRequest) -> None:
        return None

    def tell(self, request: ExtensionUIRequest) -> None:
        if request.method == "notify":
            self._say(notice_line(request))

    def withdraw(self) -> None: ...

    def open_requests(self) -> list[ExtensionUIRequest]:
        return []


def notice_line(request: ExtensionUIRequest) -> str:
    return f"{(request.notify_type or 'info').capitalize()}: {request.message}"


class WireDialogs:
    """Asks clients: requests go out as events, replies come back as frames."""

    has_ui = True

    def __init__(self, publish: Callable[[Event], None], *, shared: bool = False) -> None:
        """`shared`: several clients are asked; when one has replied, the others are told that the dialog is over."""
        self._publish = publish
        self.shared = shared
        self._open: dict[str, tuple[ExtensionUIRequest, asyncio.Future[dict[str, Any] | None]]] = {}

    def open_requests(self) -> list[ExtensionUIRequest]:
        return [request for request, _ in self._open.values()]

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request, answer
        self._publish(request)
        withdrawn = True
        try:
            async with asyncio.timeout(None if request.timeout is None else request.timeout / 1000):
                given = await answer
            withdrawn = given is None
            return given
        except TimeoutError:
            withdrawn = False  # the client knows the time limit, too
            return None
        finally:
            del self._open[request.id]
            if withdrawn or self.shared:
                self._publish(ExtensionUIRequest(id=str(uuid.uuid4()), method="cancel", target_id=request.id))

    def tell(self, request: ExtensionUIRequest) -> None:
        self._publish(request)

    def receive(self, frame: dict[str, Any]) -> bool:
        """Take an `extension_ui_response`; unknown and late ids are ignored. Returns true: it is never a command."""
        id = frame.get("id")
        _, answer = self._open.get(id, (None, None)) if isinstance(id, str) else (None, None)
        if answer is not None and not answer.done():
            answer.set_result(frame)
        return True

    def withdraw(self, but: Collection[str] = ()) -> None:
        for id, (_, answer) in self._open.items():
            if id not in but and not answer.done():
                answer.set_result(None)


def dialogs_of(mode: str, publish: Callable[[Event], None], replies: Replies) -> Dialogs:
    """Return the dialogs of a session in this mode."""
    if mode in ("print", "json"):
        return NoDialogs(lambda line: print(line, file=sys.stderr, flush=True))
    if mode not in ("rpc", "remote", "acp", "chat"):
        return NoDialogs()
    dialogs = WireDialogs(publish, shared=mode == "remote")
    replies.register("extension_ui_response", dialogs.receive)
    return dialogs
