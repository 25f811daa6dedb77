"""Long texts, cut while they are read: a stretch of a file, and the output of a command in a file.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import codecs
import os
import time
from contextlib import suppress
from typing import NamedTuple

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_KEPT_BYTES = 256 << 20
"""The largest file with the whole output of a command."""
KEPT_SECONDS = 24 * 3600
MAX_FILE_BYTES = 64 << 20
"""The file of a background command begins again when it is longer. It may be longer for a moment."""
KEPT_BYTES = 1 << 20
"""How much of its end it then begins with."""


class TextSize(NamedTuple):
    lines: int
    bytes: int


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class LineWindow:
    """Takes a text piece by piece and holds the lines from `start` (counted from 0), at most `limit` of them.

    Of a stretch longer than both limits it holds only the beginning; the rest is counted.
    """

    def __init__(self, start: int, limit: int | None) -> None:
        self._start = start
        self._end = None if limit is None else start + limit
        self._newlines = 0
        """Newlines in the whole text."""
        self._kept: list[str] = []
        self._kept_size = TextSize(0, 0)
        self._bytes = 0
        self._inner_newlines = 0
        """Newlines within the stretch."""
        self._last = ""
        """Last character of the stretch."""
        self.first_line_bytes = 0

    @property
    def text(self) -> str:
        return "".join(self._kept)

    @property
    def size(self) -> TextSize:
        """Size of the whole stretch, held or not."""
        return TextSize(self._inner_newlines + (self._last not in ("", "\n")), self._bytes)

    @property
    def total_lines(self) -> int:
        """Lines of the whole text; a final newline opens one more."""
        return self._newlines + 1

    def feed(self, text: str) -> None:
        newlines = text.count("\n")
        first, last = self._newlines, self._newlines + newlines
        self._newlines = last
        if last < self._start or (self._end is not None and max(first, self._start) >= self._end):
            return
        if self._end is not None and last >= self._end:
            lines = self._end - first
            text = "\n".join(text.split("\n", lines)[:lines])
            newlines = lines - 1
        if first < self._start:
            text = text.split("\n", self._start - first)[-1]
            newlines -= self._start - first
        if text:
            self._add(text, newlines)

    def _add(self, text: str, newlines: int) -> None:
        if not self._inner_newlines:
            self.first_line_bytes += utf8_length(text.partition("\n")[0])
        size = utf8_length(text)
        if self._kept_size.lines <= MAX_LINES and self._kept_size.bytes <= MAX_BYTES:
            self._kept.append(text)
            self._kept_size = TextSize(self._kept_size.lines + newlines, self._kept_size.bytes + size)
        self._inner_newlines += newlines
        self._bytes += size
        self._last = text[-1]


# -- whole outputs in files ------------------------------------------------------------------------


KEPT_PREFIXES = ("spindle-bash-", "spindle-mcp-")


def kept_folder() -> str:
    return next(filter(None, map(os.environ.get, ("TMPDIR", "TMP", "TEMP"))), "/tmp")


def _remove_old(folder: str) -> None:
    """Delete outputs that were kept for longer than a day."""
    with suppress(OSError), os.scandir(folder) as found:
        for item in found:
            if item.name.startswith(KEPT_PREFIXES) and item.name.endswith(".log"):
                with suppress(OSError):
                    if time.time() - item.stat(follow_symlinks=False).st_mtime > KEPT_SECONDS:
                        os.unlink(item.path)


def open_kept(prefix: str, access: int = os.O_WRONLY) -> tuple[str, int]:
    """Make a file for a whole output, which only the user may read; return its path and descriptor.

    Raises `OSError`.
    """
    folder = kept_folder()
    _remove_old(folder)
    path = os.path.join(folder, f"{prefix}{os.urandom(8).hex()}.log")
    return path, os.open(path, access | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class Spool:
    """Keeps a whole output in a file, once it is too long to be shown."""

    def __init__(self) -> None:
        self.path: str | None = None
        """The file; it is made when the limits are passed, and deleted after a day."""
        self.error: str | None = None
        """Why there is no file, though there should be one."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unspooled: bytearray | None = bytearray()
        """The output so far, until there is a file for it."""
        self._shown = TextSize(0, 0)
        """Newlines and bytes of the output as text."""
        self._file: int | None = None
        self._kept = 0
        """Bytes in the file."""

    def write(self, data: bytes) -> None:
        # Writes of one pipe's worth into the page cache: too short to be worth a thread.
        if self._file is not None:
            self._spill(data)
        elif self._unspooled is not None:
            self._unspooled += data
            lines, size = self._shown
            text = self._decoder.decode(data)
            self._shown = TextSize(lines + text.count("\n"), size + utf8_length(text))
            more = not self._unspooled.endswith(b"\n")
            if max(len(self._unspooled), self._shown.bytes) > MAX_BYTES or self._shown.lines + more > MAX_LINES:
                self._open()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        data, self._unspooled = bytes(self._unspooled or b""), None
        try:
            self.path, self._file = open_kept("spindle-bash-")
        except OSError as error:
            self.error = error.strerror
            return
        self._spill(data)

    def _spill(self, data: bytes) -> None:
        assert self._file is not None and self.path is not None
        view = memoryview(data)[: max(0, MAX_KEPT_BYTES - self._kept)]  # the file is bounded, too
        self._kept += len(view)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:  # A full disk must not end the command.
            os.close(self._file)
            with suppress(OSError):  # Half an output is useless, but its room on disk is not.
                os.unlink(self.path)
            self._file = self.path = None
            self.error = error.strerror


class OutputFile:
    """The file that a background command writes its output to. Its methods raise `OSError`."""

    def __init__(self) -> None:
        self.path, self.file = open_kept("spindle-bash-", os.O_RDWR | os.O_APPEND)
        self.size = 0
        """Size of the file at the last look."""
        self.dropped = 0
        """Bytes that were in the file when it began again."""

    def look(self) -> bool:
        """Say whether the file has changed since the last look; keep it bounded."""
        size = os.fstat(self.file).st_size
        if size > MAX_FILE_BYTES:
            size = self._begin_again(size)
        changed, self.size = size != self.size, size
        return changed

    def _begin_again(self, size: int) -> int:
        """Drop the file's content except its end. Returns the new size.

        Lines that the command writes at this very moment come before it, or are lost: nothing can be done about that,
        since the command writes to the file itself.
        """
        end = os.pread(self.file, KEPT_BYTES, size - KEPT_BYTES)
        os.ftruncate(self.file, 0)
        with suppress(OSError):  # the disk is full
            os.write(self.file, end)
        self.dropped += size - len(end)
        return len(end)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def remove(self) -> None:
        self.close()
        os.unlink(self.path)


def read_output(path: str, begin: int, most: int, file: int = -1) -> tuple[int, bytes]:
    """Return where the part that was read begins: at `begin`, or so late that it has `most` bytes; and the part.

    A negative `begin` counts from the end of the file. `file`: the file, if it is open. Raises `OSError`.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) if file < 0 else file
    try:
        size = os.fstat(opened).st_size
        start = max(0, size + begin) if begin < 0 else max(begin, size - most)
        return start, os.pread(opened, min(most, max(0, size - start)), start)
    finally:
        if file < 0:
            os.close(opened)


def read_part(cancel: object, path: str, begin: int, most: int) -> tuple[int, bytes]:
    """Read a part of an output as `read_output` does. Raises `OSError`."""
    return read_output(path, begin, most)


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can carry but UTF-8 cannot, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
