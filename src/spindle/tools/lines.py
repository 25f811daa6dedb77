"""Bytes in, whole lines out."""

__all__ = ["LineSplitter"]


class LineSplitter:
    """Cuts a stream into lines; a line in many pieces is joined once, not once per piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their newlines."""
        if b"\n" not in data:
            self._pieces.append(data)
            return []
        *lines, rest = b"".join([*self._pieces, data]).split(b"\n")
        self._pieces = [rest]
        return lines

    def flush(self) -> list[bytes]:
        """Return a last line that has no newline."""
        rest = b"".join(self._pieces)
        self._pieces = []
        return [rest] if rest else []
