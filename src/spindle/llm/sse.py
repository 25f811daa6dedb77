"""Server-sent events out of bytes. No I/O: feed what the socket gave, get the events that are complete."""

from spindle.llm.errors import ModelError

__all__ = ["MAX_EVENT_BYTES", "EventTooLargeError", "SseParser"]

MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ModelError):
    """The server sent one event that no sane answer contains."""


class SseParser:
    """Splits a byte stream into the data of its events.

    Every byte is looked at a fixed number of times, however the stream is cut into pieces.
    """

    __slots__ = ("_after_cr", "_first", "_limit", "_rest", "_size")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        """Pieces of an event whose end has not come yet."""
        self._size = 0
        """Bytes in those pieces."""
        self._after_cr = False
        """The last piece ended in CR, so an LF at the start of the next one belongs to it."""
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the data of every event they complete.

        Raises `EventTooLargeError` if an event passes the limit.
        """
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            self._after_cr = False
        if self._rest:
            if b"\n\n" not in data and not (data.startswith(b"\n") and self._rest[-1].endswith(b"\n")):
                self._keep(data)
                return []
            data = b"".join(self._rest) + data
        blocks = data.split(b"\n\n")
        self._rest, self._size = [], 0
        self._keep(blocks.pop())
        return self._unwrap(blocks)

    def close(self) -> list[bytes]:
        """Return the event at the very end that lacks its blank line, if there is one."""
        rest, self._rest = b"".join(self._rest), []
        return self._unwrap([rest])

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._rest.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                raise EventTooLargeError(f"The server sent an event of more than {self._limit} bytes")

    def _unwrap(self, blocks: list[bytes]) -> list[bytes]:
        if self._first and blocks:
            self._first = False
            blocks[0] = blocks[0].removeprefix(_BOM)
        events = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(block[6:])
            elif (data := _data_of(block)) is not None:
                events.append(data)
        return events


def _data_of(block: bytes) -> bytes | None:
    """Return the data of an event of several lines; None if it has none (comments, a lone `event:`)."""
    name, _, rest = block.partition(b"\n")
    if rest.startswith(b"data: ") and name.startswith(b"event:") and b"\n" not in rest:
        return rest[6:]
    lines = [
        line[6:] if line.startswith(b"data: ") else line[5:]
        for line in block.split(b"\n")
        if line.startswith(b"data:") or line == b"data"
    ]
    return b"\n".join(lines) if lines else None
