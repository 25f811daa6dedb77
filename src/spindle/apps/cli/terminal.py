"""Dialogs on the terminal, for one-shot runs that have one. Questions go to stderr, answers come from stdin."""

import asyncio
import os
import sys
import termios
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from spindle.agent.dialogs import notice_line
from spindle.agent.fences.previews import in_words
from spindle.agent.fences.questions import ONCE, SAVED
from spindle.apps.cli.progress import StatusLine
from spindle.apps.input_text import input_of_text, text_of_input
from spindle.apps.text_editor import edited
from spindle.base.terminal import plain, unguarded
from spindle.plugins.extensions.threads import run_in_thread
from spindle.shapes.approvals import Allow, Answer, Deny, DiffPreview, PermissionRequest, TextPreview
from spindle.shapes.client_requests import ExtensionUIRequest
from spindle.shapes.codec import DecodeError

T = TypeVar("T")

_EDIT: Final = "Edit the input"
_NO: Final = "Deny"
_STOP: Final = "Deny, and stop the run"
_PLAIN: Final = "\x1b[0m"


class TerminalDialogs:
    """Asks one question at a time."""

    has_ui = True

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._reading: asyncio.Task[str] | None = None
        """A read that has not ended; an unanswered question leaves it to the next question."""
        self._asking: dict[asyncio.Task[Any], ExtensionUIRequest] = {}

    async def ask(self, request: ExtensionUIRequest) -> dict[str, Any] | None:
        line = await self._answered(request, self._ask(request))
        return None if line is None else _answer(request, line)

    async def approve(self, request: PermissionRequest) -> Answer | None:
        """Ask about a tool call, with what it would do; other questions are yes-or-no ones."""
        if request.kind not in ("tool", "outside") and not request.keeps:
            given = await self.ask(
                ExtensionUIRequest(
                    id=request.id,
                    method="confirm",
                    title=request.summary,
                    message=in_words(request.preview),
                    timeout=request.timeout,
                )
            )
            return None if given is None else Allow() if given["confirmed"] else Deny()
        shown = ExtensionUIRequest(id=request.id, method="select", title=request.summary, timeout=request.timeout)
        return await self._answered(shown, self._approve(request))

    async def _answered(self, request: ExtensionUIRequest, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what the user answers; None: nothing in time, or the question was withdrawn."""
        asking = asyncio.create_task(work)
        self._asking[asking] = request
        try:
            done, _ = await asyncio.wait([asking], timeout=request.timeout and request.timeout / 1000)
            if not done:
                self._say("(no answer)")
            return None if not done or asking.cancelled() else asking.result()
        finally:
            asking.cancel()
            del self._asking[asking]

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

    async def _approve(self, request: PermissionRequest) -> Answer | None:
        choices = _choices(request)
        async with self._one_at_a_time:
            self._show(request)
            while True:
                self._forget_typed()
                lines = [f"  {number}. {text}" for number, text in enumerate(choices, 1)]
                letters = "y, n, e" if request.kind == "tool" else "y, n"
                self._say("\n".join([*lines, f"Number of your choice, or {letters}; empty to cancel:"]))
                if not (typed := (await self._line()).strip()):
                    return None
                text = _meant(typed, list(choices))
                if text == _EDIT:
                    if (answer := await self._edited(request)) is not None:
                        return answer
                elif text == _NO:
                    self._say("Why not? The model reads it (empty: no reason):")
                    return Deny((await self._line()).strip())
                elif text is not None:
                    return choices[text]

    def _show(self, request: PermissionRequest) -> None:
        """Show what a call would do, a change in colours, and below it, where it is seen, what is asked."""
        text = plain(in_words(request.preview))
        asked = f"{request.summary.removesuffix('?')}?" + (f" ({request.reason})" if request.reason else "")
        if isinstance(request.preview, TextPreview):
            self._say(f"\n{asked}\n{text}")
            return
        self._say("")
        if not isinstance(request.preview, DiffPreview) or os.environ.get("NO_COLOR"):
            self._say(text)
        else:
            stream = sys.stderr
            out = unguarded(stream.file if isinstance(stream, StatusLine) else stream)
            for line in text.split("\n"):
                colour = {"+": "\x1b[32m", "-": "\x1b[31m"}.get(line[:1], "")
                out.write(f"{colour}{line}{colour and _PLAIN}\n")
            out.flush()
        if request.subagent:
            self._say(f"The subagent {request.subagent} asks.")
        self._say(asked)

    async def _edited(self, request: PermissionRequest) -> Answer | None:
        """Let the user edit the input; None: it is as it was, or cannot be read."""
        after = await run_in_thread(partial(edited, *text_of_input(request.arguments)))
        try:
            changed = input_of_text(request.arguments, after)
        except DecodeError as error:
            self._say(f"This is no JSON: {error}")
            return None
        if changed is None:
            self._say("The input is as it was.")
            return None
        return Allow(changed)

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


def _choices(request: PermissionRequest) -> dict[str, Answer]:
    if request.kind == "trust":
        yes, no = Allow(keep="user"), Deny(keep="user")
        return {"Yes, for this session": Allow(), "Yes, from now on": yes, "No": Deny(), "No, and do not ask again": no}
    choices: dict[str, Answer] = {ONCE: Allow()}
    for one in request.suggestions:
        choices[one.text] = Allow(keep="session", rules=one.rules)
    for keep in (one for one in request.keeps if one != "session" and request.suggestions):
        first = request.suggestions[0]
        saved = SAVED if keep == "user" else "(in this project)"
        choices[f"{first.text} {saved}"] = Allow(keep=keep, rules=first.rules)
    if request.kind == "tool":
        choices[_EDIT] = Allow()
    return {**choices, _NO: Deny(), _STOP: Deny(stop=True)}


def _meant(typed: str, choices: list[str]) -> str | None:
    word = typed.lower()
    if word in ("y", "yes"):
        return choices[0]
    if word in ("n", "no"):
        return _NO if _NO in choices else "No"
    if word in ("e", "edit"):
        return _EDIT if _EDIT in choices else None
    if typed in choices:
        return typed
    index = int(typed) - 1 if typed.isdecimal() else -1
    return choices[index] if 0 <= index < len(choices) else None


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
