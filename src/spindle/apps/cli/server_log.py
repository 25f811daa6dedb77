"""The log of a server on stderr: lines of text, or JSON objects for programs that collect them.

A line tells the end of a run or a connection, an error of a model, a limit, a denial, a refusal. What was said is
in no line, unless the operator asks for it.
"""

import io
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from spindle.apps.cli.args import Options
from spindle.base import trace
from spindle.shapes.codec import encode

_KINDS = ("Warning", "Error", "Note")
"""How lines of `cli.tell` begin."""
MAX_VALUE = 200
"""Characters of a value in a line."""
MAX_CONTENT = 4000
"""Characters of a text that was said."""
_CONTENT = frozenset({"prompt", "answer", "arguments", "result", "error_text", "rule"})
"""Attributes that spans have only with `--log-content`."""
_OWN_WORDS = {"connection": "connection", "denial": "denied", "limit": "limit reached", "refusal": "refused"}
"""How lines about these kinds begin; the others say whether the work ended or failed."""

_server = logging.getLogger("spindle")
"""All lines of a server go through loggers below this one."""
_trace = logging.getLogger("spindle.trace")


def begin_log(options: Options) -> None:
    """Log on stderr, in the format of `--log-format`, from the level of `--log-level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    if options.log_format == "json":
        handler.setFormatter(_JsonFormatter())
        sys.stderr = _JsonLines(sys.stderr)
    _server.addHandler(handler)
    _server.propagate = False
    _server.setLevel((options.log_level or ("debug" if options.verbose else "info")).upper())
    trace.content = options.log_content
    trace.listen(log_span)


def log_span(moment: trace.Moment, span: trace.Span) -> None:
    """Write a line when a span has ended, or was only told."""
    level = _level(moment, span)
    if moment == "started" or not _trace.isEnabledFor(level):
        return
    fields = {name: span.find(name) for name in ("session", "user", "wire")} | span.attributes | {"error": span.error}
    known = {name: _harmless(name, value) for name, value in fields.items() if value is not None}
    text = " ".join(f"{name}={value}" for name, value in known.items())
    seconds = round(span.seconds, 3)
    ids = {"kind": span.kind, "span": span.id, "parent": span.parent.id if span.parent else None}
    extra = {"fields": {**ids, "seconds": seconds, **known}}
    if moment == "told":
        _trace.log(level, "%s: %s", _OWN_WORDS[span.kind], text, extra=extra)
    else:
        _trace.log(level, "%s %s after %.3f s: %s", span.kind, moment, seconds, text, extra=extra)


def _level(moment: trace.Moment, span: trace.Span) -> int:
    """Return the level: a warning is something that an operator may want to act on."""
    stopped = span.error in ("CancelledError", "Aborted")
    if span.kind in ("run", "chat", "compaction") and moment == "failed" and not stopped:
        return logging.WARNING
    if span.kind in ("limit", "refusal"):
        return logging.WARNING
    return logging.INFO if span.kind in ("run", "connection", "denial") else logging.DEBUG


def _harmless(name: str, value: Any) -> Any:
    """Return a value that cannot look like another line, nor fill the log: some come from clients and models."""
    if name in _CONTENT and not isinstance(value, str):
        value = encode(value).decode()
    if isinstance(value, float):
        return round(value, 6)
    if not isinstance(value, str):
        return value
    value = value[: MAX_CONTENT if name in _CONTENT else MAX_VALUE]
    return value if value.isprintable() else ascii(value)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        where = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return _line(record.levelname.lower(), record.getMessage(), **getattr(record, "fields", {}), **where)


class _JsonLines(io.TextIOBase):
    """A stderr that makes a JSON object of every line that anything prints."""

    def __init__(self, below: TextIO) -> None:
        self._below = below
        self._waiting = ""

    def write(self, text: str) -> int:
        *lines, self._waiting = (self._waiting + text).split("\n")
        for line in filter(None, lines):
            kind, _, rest = line.partition(": ")
            level, message = (kind.lower(), rest) if kind in _KINDS else ("info", line)
            self._below.write(_line(level, message) + "\n")
        return len(text)

    def flush(self) -> None:
        self._below.flush()

    def fileno(self) -> int:
        return self._below.fileno()


def _line(level: str, message: str, **more: Any) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return encode({"time": now, "level": level, "message": message, **more}).decode()
