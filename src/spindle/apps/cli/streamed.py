"""A one-shot run on a terminal: the answer as it comes, as the chat shows it; the last line tells what goes on."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from spindle.agent.session import AgentSession
from spindle.apps.cli.progress import StatusLine
from spindle.base.limits import PROGRESS_TICK
from spindle.base.terminal import unguarded
from spindle.protocol.dialect import SPINDLE
from spindle.protocol.outbox import Outbox
from spindle.protocol.render import Renderer
from spindle.shapes.codec import decode

_READ = 64 << 10


class Streamed:
    """Shows the events of an agent with the `View` of the chat."""

    def __init__(self, agent: AgentSession, out: TextIO) -> None:
        from spindle.apps.console.look import Look
        from spindle.apps.console.view import View

        self._look = look = Look(out.fileno())
        self._agent = agent
        self._line = StatusLine(unguarded(out))
        self._view = View(look, self._write)
        self._outbox = Outbox(Renderer(SPINDLE, "delta"))
        self._was = sys.stderr
        self._ticking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._outbox.on_waiting = partial(_soon, loop, self._take)
        self._agent.subscribe(self._outbox)
        if self._was.isatty():
            sys.stderr = sys.stdout = self._line  # printed text takes the place of the status
        if not self._look.plain:
            self._ticking = asyncio.create_task(self._tick())

    def end(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._take()
        self._view.flush()
        self._line.show("")
        self._line.file.flush()
        sys.stderr = sys.stdout = self._was

    def _write(self, text: str) -> None:
        self._line.show("")
        self._line.file.write(text)  # the view has made foreign text plain
        self._line.file.flush()

    def _take(self) -> None:
        while lines := self._outbox.take(_READ, merge=True):
            for line in lines.splitlines():
                self._show(decode(line))

    def _show(self, event: dict[str, Any]) -> None:
        message = event.get("message")
        role = message.get("role") if isinstance(message, dict) else None
        match event["type"]:
            case "message_start" if role != "assistant":
                pass  # the user has typed it
            case "message_end" if role == "assistant":
                self._view.flush()  # how it ended is told on stderr
            case "agent_settled":
                self._view.since = None
            case "extension_error" | "notice":
                pass  # are told on stderr
            case _:
                self._view.show(event)

    async def _tick(self) -> None:
        while True:
            # The user answers a question on the same line.
            quiet = self._view.since is None or self._agent.dialogs.open_requests()
            self._line.show("" if quiet else self._look.signs(self._view.live(timed=True)[-1]))
            await asyncio.sleep(PROGRESS_TICK)


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    loop.call_soon(work)
