"""Dialogs on the terminal, for one-shot runs that have one. Questions go to stderr, answers come from stdin."""

import asyncio
import sys
import termios
from typing import Any

from spindle.agent.dialogs import notice_line
from spindle.plugins.extensions.threads import run_in_thread
from spindle.shapes.events import ExtensionUIRequest


class TerminalDialogs:
    """Asks one question at a time."""

    has_ui = True

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._reading: asyncio.Task[str] | None = None
        """A read that has not ended; an unanswered question leaves it to the next question."""
        self._asking: dict[asyncio.Task[str | None], ExtensionUIRequest] = {}

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        asking = asyncio.create_task(self._ask(request))
        self._asking[asking] = request
        try:
            done, _ = await asyncio.wait([asking], timeout=request.timeout and request.timeout / 1000)
            if not done:
                self._say("(no answer)")
            line = None if not done or asking.cancelled() else asking.result()
        finally:
            asking.cancel()
            del self._asking[asking]
        return None if line is None else _answer(request, line)

    def tell(self, request: ExtensionUIRequest) -> None:
        if request.method == "notify":
            self._say(notice_line(request))

    def open_requests(self) -> list[ExtensionUIRequest]:
        return list(self._asking.values())

    def withdraw(self) -> None:
        for asking in self._asking:
            asking.cancel()

    async def _ask(self, request: ExtensionUIRequest) -> str | None:
        async with self._one_at_a_time:
            self._forget_typed()
            self._say(_question(request))
            if request.method != "editor":
                line = await self._line()
                return line.rstrip("\r\n") if line else None
            lines: list[str] = []
            while (line := await self._line()) and line.rstrip("\r\n") != ".":
                lines.append(line)
            return "".join(lines) if line else None

    def _forget_typed(self) -> None:
        """Drop text that was typed before the question was shown: it cannot be the answer."""
        if self._reading is not None and self._reading.done():
            self._reading = None
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def _line(self) -> str:
        if self._reading is None:
            self._reading = asyncio.create_task(run_in_thread(sys.stdin.readline))
        line = await asyncio.shield(self._reading)
        self._reading = None
        return line

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _question(request: ExtensionUIRequest) -> str:
    lines = [request.title or ""]
    if request.method == "confirm":
        lines += [request.message or "", "Type y for yes; anything else is no:"]
    elif request.method == "select":
        lines += [f"  {number}. {option}" for number, option in enumerate(request.options or (), 1)]
        lines.append("Number of your choice, empty to cancel:")
    elif request.method == "editor":
        lines += [request.prefill or "", "Type the new text; a line with only a dot ends it:"]
    elif request.placeholder:
        lines.append(f"({request.placeholder})")
    return "\n".join(line for line in lines if line)


def _answer(request: ExtensionUIRequest, line: str) -> dict[str, Any] | None:
    if request.method == "confirm":
        return {"confirmed": line.strip().lower() in ("y", "yes")}
    if request.method == "select":
        options = request.options or []
        chosen = line.strip()
        if chosen in options:
            return {"value": chosen}
        index = int(chosen) - 1 if chosen.isdecimal() else -1
        return {"value": options[index]} if 0 <= index < len(options) else None
    return {"value": line}
