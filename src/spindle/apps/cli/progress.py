"""Signs of life of a one-shot run, on stderr: what the model and its tools do, retries, and how long it has taken.

On a terminal the last line shows the current activity, and goes away when other text is written. Tool calls and retries
stay as lines. Nothing here is for programs: those read events.
"""

import asyncio
import shutil
import sys
import time
from typing import Any, TextIO

from spindle.agent.hooks import NeverFull
from spindle.agent.session import AgentSession
from spindle.base.limits import PROGRESS_TICK
from spindle.base.terminal import plain, unguarded
from spindle.shapes import events
from spindle.shapes.codec import encode
from spindle.shapes.messages import text_of
from spindle.shapes.pieces import TextDelta, ThinkingDelta

_ARGUMENTS = ("command", "path", "pattern", "url", "query")
"""The arguments that say most about a call, best first."""


class RunProgress(NeverFull):
    """A listener of the agent. `live`: stderr is a terminal; `verbose`: more lines."""

    def __init__(self, agent: AgentSession, *, live: bool, verbose: bool) -> None:
        self._agent = agent
        self._verbose = verbose
        self._began = time.monotonic()
        self._doing = ""
        """The current activity; empty: none."""
        self._line = StatusLine(unguarded(sys.stderr)) if live else None
        self._streams = sys.stdout, sys.stderr
        """The streams whose place the status line takes."""
        self._running: dict[str, str] = {}
        """Names of the tools that run, by call."""
        self._ticking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._agent.subscribe(self)
        if self._verbose and (model := self._agent.model) is not None:
            self._say(f"model {model.provider}/{model.id}, thinking {self._agent.thinking_level}")
            self._say(f"session {self._agent.session.path or 'in memory'}")
        if self._line is not None:
            sys.stderr = sys.stdout = self._line  # printed text takes the place of the status
            self._ticking = asyncio.create_task(self._tick())

    def end(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._line is not None:
            self._line.show("")
            sys.stdout, sys.stderr = self._streams

    def put(self, event: events.Event) -> None:
        match event:
            case events.AgentStart() | events.TurnStart():
                model = self._agent.model
                self._doing = f"waiting for {model.provider}/{model.id}" if model else ""
            case events.MessageUpdate(assistant_message_event=TextDelta()):
                self._doing = "answering"
            case events.MessageUpdate(assistant_message_event=ThinkingDelta()):
                self._doing = "thinking"
            case events.ToolExecutionStart(tool_call_id=id, tool_name=name, args=args):
                self._running[id] = name
                self._doing = f"running {', '.join(self._running.values())}"
                self._say(f"{name} {_main_argument(args)}".rstrip(), cut=True)
            case events.ToolExecutionEnd():
                self._tool_ended(event)
            case events.AutoRetryStart(attempt=attempt, max_attempts=of, delay_ms=delay, error_message=error):
                self._doing = f"waiting to try again ({attempt} of {of})"
                self._say(f"{error}; trying again in {delay / 1000:g} s ({attempt} of {of})")
            case events.CompactionStart():
                self._doing = "summarizing what came before"
                self._say("The context is full: summarizing what came before")
            case events.CompactionEnd(error_message=str(error)):
                self._say(error)
            case events.TurnEnd(message=message) if self._verbose:
                usage = message.usage
                self._say(f"turn: {usage.input + usage.cache_read} tokens in, {usage.output} out")
            case events.AgentSettled():
                self._doing = ""
                if self._verbose:
                    self._say(f"done in {self._elapsed()}")

    def _tool_ended(self, event: events.ToolExecutionEnd) -> None:
        name = self._running.pop(event.tool_call_id, event.tool_name)
        self._doing = f"running {', '.join(self._running.values())}" if self._running else ""
        if event.is_error:
            text = text_of(event.result.content, "\n").strip()
            self._say(f"{name} failed: {text.splitlines()[-1] if text else 'no reason given'}", cut=True)
        elif self._verbose and event.duration_ms is not None:
            self._say(f"{name} took {event.duration_ms / 1000:.1f} s")

    def _say(self, text: str, *, cut: bool = False) -> None:
        text = " ".join(plain(text).split())
        print(text[: _columns()] if cut and self._line is not None else text, file=sys.stderr, flush=True)

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"

    async def _tick(self) -> None:
        assert self._line is not None
        while True:
            # The user answers a question on the same line.
            quiet = not self._doing or self._agent.dialogs.open_requests()
            self._line.show("" if quiet else plain(f"{self._doing} … {self._elapsed()}")[: _columns()])
            await asyncio.sleep(PROGRESS_TICK)


class StatusLine:
    """A terminal whose last line may hold a status; other text written to it takes the status away first."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._shown = False

    def show(self, text: str) -> None:
        """Show a status that fits the line."""
        if text or self._shown:
            self.file.write("\r\x1b[K" + text)
            self.file.flush()
            self._shown = bool(text)

    def write(self, text: str) -> int:
        self.show("")
        return self.file.write(plain(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def _columns() -> int:
    return shutil.get_terminal_size().columns - 1


def _main_argument(args: Any) -> str:
    if not isinstance(args, dict):
        return ""
    named = next((args[name] for name in _ARGUMENTS if isinstance(args.get(name), str)), None)
    return named if named is not None else encode(args).decode() if args else ""
