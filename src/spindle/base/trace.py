"""Spans around everything that takes time: connections, runs, model calls, tool calls, changes of session.

The code that does something opens a span around it, and listeners (a log, metrics) are told of its start and end:

    with trace.span("tool", tool=name) as span:
        ...
        span.set(size=size)

`tell` reports something that takes no time. Without a listener, both make nothing. Spans hold ids, names and numbers,
and text of a user, a model or a tool only if `content` is set. `docs/architecture.md` has the table of kinds and
attributes.
"""

import itertools
import logging
import re
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Literal, TypeAlias

Kind = Literal[
    "connection", "request", "run", "chat", "tool", "compaction", "change", "denial", "limit", "refusal", "fallback"
]
Moment = Literal["started", "ended", "failed", "told"]
Listener: TypeAlias = "Callable[[Moment, Span], None]"
"""Called in the middle of the work, so it must not wait."""

listeners: tuple[Listener, ...] = ()
content = False
"""Whether spans also hold what was said: prompts, answers, arguments, results, texts of errors. Set once, at start."""

outgoing: Callable[[], dict[str, str]] = dict
"""Returns the headers (W3C) that tell other programs which span they work for; set by a listener that traces."""
incoming: ContextVar[str | None] = ContextVar("spindle_traceparent", default=None)
"""The span of the client's program that a run is for, as a W3C `traceparent`."""

_current: "ContextVar[Span | None]" = ContextVar("spindle_span", default=None)
"""The innermost open span. A task inherits it from the code that creates the task."""
_ids = itertools.count()


class Span:
    """Something that takes time. Enter it to begin; an exception that leaves it makes it fail."""

    __slots__ = ("_began", "_listeners", "_token", "attributes", "error", "id", "kind", "parent", "seconds")

    def __init__(self, kind: Kind, parent: "Span | None", attributes: dict[str, Any]) -> None:
        self.kind = kind
        self.id = next(_ids)
        """Unique in this process."""
        self.parent = parent
        self.attributes = attributes
        self.error: str | None = None
        """Class of the error, if it failed."""
        self.seconds = 0.0
        """How long it took, once it has ended."""
        self._listeners = listeners
        """The same listeners are told of the start and of the end."""

    def set(self, **attributes: Any) -> None:
        """Add attributes."""
        self.attributes |= attributes

    def fail(self, error: str) -> None:
        """Mark the span as failed without an exception; `error` is a class, not a text. The first error counts."""
        self.error = self.error or error

    def find(self, name: str) -> Any:
        """Return an attribute of this span, else of the nearest one around it; None if none has it."""
        span: Span | None = self
        while span is not None:
            if name in span.attributes:
                return span.attributes[name]
            span = span.parent
        return None

    def __enter__(self) -> "Span":
        self._token: Token[Span | None] = _current.set(self)
        self._tell("started")
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        _current.reset(self._token)
        if kind is not None:
            self.fail("CancelledError" if kind is GeneratorExit else kind.__name__)
        self._tell("ended" if self.error is None else "failed")

    def _tell(self, moment: Moment) -> None:
        for listener in self._listeners:
            try:
                listener(moment, self)
            except Exception as error:  # a listener that breaks must not break the work
                bug(error)


class _NoSpan(Span):
    """Stands for every span while there is no listener."""

    __slots__ = ()

    def set(self, **attributes: Any) -> None:
        pass

    def fail(self, error: str) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        pass


NO_SPAN: Span = _NoSpan("run", None, {})


def span(kind: Kind, **attributes: Any) -> Span:
    """Return a span to be entered. Its parent is the span that is open around it."""
    if not listeners:
        return NO_SPAN
    parent = _current.get()
    if kind in ("run", "connection", "request") and (given := incoming.get()) is not None:
        attributes["traceparent"] = given
    if kind == "run":  # a run that follows another of the same session stands beside it, not in it
        session = attributes["session"]
        while parent is not None and parent.attributes.get("session") == session:
            parent = parent.parent
    return Span(kind, parent, attributes)


def current() -> Span | None:
    """Return the innermost open span."""
    return _current.get()


def follow(traceparent: str | None) -> None:
    """Let the work of this task and its children be part of a client's trace; text of another form is ignored."""
    if traceparent is not None and listeners and re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", traceparent):
        incoming.set(traceparent)


def tell(kind: Kind, **attributes: Any) -> None:
    """Report something that takes no time; its parent is the span that is open around it."""
    if listeners:
        Span(kind, _current.get(), attributes)._tell("told")


def listen(listener: Listener) -> Callable[[], None]:
    """Call `listener` at the start and the end of every span from now on. Returns a function that stops it."""
    global listeners
    listeners += (listener,)

    def stop() -> None:
        global listeners
        listeners = tuple(other for other in listeners if other is not listener)

    return stop


def bug(error: BaseException) -> None:
    """Log an error that should not have happened, with its traceback. Without a log it goes to stderr."""
    logging.getLogger("spindle.bug").error("This should not have happened", exc_info=error)
