"""What a server writes on stderr: lines of text, or JSON objects for programs that collect them."""

import io
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from spindle.apps.cli.args import Options
from spindle.shapes.codec import encode

_KINDS = ("Warning", "Error", "Note")
"""How lines of `cli.tell` begin."""


def begin_log(options: Options) -> None:
    """Let errors, and with `--verbose` connections, be written on stderr, in the form that is wanted."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    if options.log_format == "json":
        handler.setFormatter(_JsonFormatter())
        sys.stderr = _JsonLines(sys.stderr)
    logger = logging.getLogger("spindle.remote")
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO if options.verbose else logging.WARNING)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        trace = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return _line(record.levelname.lower(), record.getMessage(), **trace)


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


def _line(level: str, message: str, **more: str) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return encode({"time": now, "level": level, "message": message, **more}).decode()
