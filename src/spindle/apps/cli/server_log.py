"""The log of a server on stderr: lines of text, or JSON objects for programs that collect them."""

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

_connections = logging.getLogger("spindle.remote")
_trace = logging.getLogger("spindle.trace")


def begin_log(options: Options) -> None:
    """Log runs and errors on stderr, with `--verbose` all spans, in the format of `--log-format`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    if options.log_format == "json":
        handler.setFormatter(_JsonFormatter())
        sys.stderr = _JsonLines(sys.stderr)
    for logger in (_connections, _trace):
        logger.addHandler(handler)
        logger.propagate = False
    _connections.setLevel(logging.INFO if options.verbose else logging.WARNING)
    _trace.setLevel(logging.DEBUG if options.verbose else logging.INFO)
    trace.listen(log_span)


def log_span(moment: trace.Moment, span: trace.Span) -> None:
    """Write a line when a span has ended: runs and errors of models always, others with `--verbose`."""
    if span.kind == "connection":
        _log_connection(moment, span)
        return
    level = _level(moment, span)
    if moment == "started" or not _trace.isEnabledFor(level):
        return
    fields = {"session": span.find("session"), "wire": span.find("wire"), **span.attributes, "error": span.error}
    known = {name: _harmless(value) for name, value in fields.items() if value is not None}
    text = " ".join(f"{name}={value}" for name, value in known.items())
    seconds = round(span.seconds, 3)
    ids = {"kind": span.kind, "span": span.id, "parent": span.parent.id if span.parent else None}
    _trace.log(
        level,
        "%s %s after %.3f s: %s", span.kind, moment, seconds, text,
        extra={"fields": {**ids, "seconds": seconds, **known}},
    )  # fmt: skip


def _level(moment: trace.Moment, span: trace.Span) -> int:
    if span.kind == "chat" and moment == "failed" and span.error != "CancelledError":
        return logging.WARNING
    return logging.INFO if span.kind == "run" else logging.DEBUG


def _harmless(value: Any) -> Any:
    """Return a value that cannot look like another line, nor fill the log: some come from clients and models."""
    if not isinstance(value, str):
        return value
    return value[:MAX_VALUE] if value.isprintable() else ascii(value[:MAX_VALUE])


def _log_connection(moment: trace.Moment, span: trace.Span) -> None:
    known = span.attributes
    if moment == "started":
        _connections.info("connection %d: %s from %s", known["number"], known["path"], known["client"])
    else:
        _connections.info(
            "connection %d: ended with %s after %.1f s, %d frames in, %d out",
            known["number"], known["code"], span.seconds, known["frames_in"], known["frames_out"],
        )  # fmt: skip


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
