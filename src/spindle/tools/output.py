"""Output of a command while it comes: its end in memory, and all of it in a file once it is long."""

import codecs
import os
from contextlib import suppress

from spindle.tools.truncate import MAX_BYTES, MAX_LINES, TextSize, TruncationResult, truncate_tail

__all__ = ["OutputBuffer"]

_KEEP_BYTES = 2 * MAX_BYTES
"""More than can be shown, so that a line cut at the front is never among those shown."""
_TRIM_BYTES = 2 * _KEEP_BYTES


class OutputBuffer:
    """Takes raw bytes, gives the tail of the text. Memory stays bounded whatever comes."""

    def __init__(self) -> None:
        self.path: str | None = None
        """File with everything, byte for byte; made when the limits are passed, never deleted here."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unspooled: bytearray | None = bytearray()
        """Raw bytes so far, until there is a file for them."""
        self._spool: int | None = None
        self._spool_error: str | None = None
        self._tail = bytearray()
        """End of the decoded text, as UTF-8."""
        self._bytes = 0
        self._newlines = 0
        self._line_bytes = 0
        """Length of the line that is being written."""
        self._ended_line_bytes = 0
        """Length of the line before it."""

    def write(self, data: bytes) -> None:
        self._append(self._decoder.decode(data).encode())
        self._keep(data)

    def close(self) -> None:
        """Take no more; what was a half character becomes U+FFFD."""
        self._append(self._decoder.decode(b"", True).encode())
        if self._spool is not None:
            os.close(self._spool)
            self._spool = None

    @property
    def size(self) -> TextSize:
        return TextSize(self._newlines + (self._line_bytes > 0), self._bytes)

    @property
    def last_line_bytes(self) -> int:
        return self._line_bytes or self._ended_line_bytes

    @property
    def location(self) -> str:
        """Say where the full output is."""
        return self.path or f"not kept ({self._spool_error})"

    def snapshot(self) -> TruncationResult:
        """Return the text so far, cut to the limits."""
        return truncate_tail(self._tail.decode("utf-8", "replace"), whole=self.size)

    def _append(self, text: bytes) -> None:
        self._bytes += len(text)
        self._newlines += text.count(b"\n")
        last = text.rfind(b"\n")
        if last < 0:
            self._line_bytes += len(text)
        else:
            before = text.rfind(b"\n", 0, last)
            self._ended_line_bytes = last - before - 1 + (self._line_bytes if before < 0 else 0)
            self._line_bytes = len(text) - last - 1
        self._tail += text
        if len(self._tail) > _TRIM_BYTES:
            del self._tail[:-_KEEP_BYTES]

    def _keep(self, data: bytes) -> None:
        # Writes of one pipe's worth into the page cache: too short to be worth a thread.
        if self._spool is not None:
            self._spill(data)
        elif self._unspooled is not None:
            self._unspooled += data
            if max(len(self._unspooled), self._bytes) > MAX_BYTES or self.size.lines > MAX_LINES:
                self._open_spool()

    def _open_spool(self) -> None:
        data, self._unspooled = bytes(self._unspooled or b""), None
        try:
            path = os.path.join(_temp_folder(), f"spindle-bash-{os.urandom(8).hex()}.log")
            self._spool = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._spool_error = error.strerror
            return
        self.path = path
        self._spill(data)

    def _spill(self, data: bytes) -> None:
        assert self._spool is not None and self.path is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._spool, view) :]
        except OSError as error:  # A full disk must not end the command.
            os.close(self._spool)
            with suppress(OSError):  # Half an output is of no use, and the room is.
                os.unlink(self.path)
            self._spool = self.path = None
            self._spool_error = error.strerror


def _temp_folder() -> str:
    return next((folder for name in ("TMPDIR", "TMP", "TEMP") if (folder := os.environ.get(name))), "/tmp")
