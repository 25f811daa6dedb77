"""Frames on the pipe between the agent and the helper at the far side: a length, the id of a call, a kind, the content.

To the helper: `D` a part of the bytes that go with a call, `C` a call, `S` start a program, `X` the call is not wanted
any more (a program is killed), `T` ask the program to end, `P` and `G` stop and go on reading its output, `?` say
something. From the helper: `H` about the far side, `D` a part of the bytes of a result, `R` a result, `F` a failure,
`B` a program has begun, `O` and `E` its output and errors, `N` news of its file, `!` the answer to `?`.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

_HEAD = struct.Struct(">IIc")
PART = 1 << 18
"""Bytes of one frame; longer contents go in several."""
LONGEST = 1 << 24
"""Bytes of a frame with JSON."""


class FrameError(Exception):
    """The bytes are no frames."""


def frame(id: int, kind: bytes, content: bytes = b"") -> bytes:
    return _HEAD.pack(len(content), id, kind) + content


class Decoder:
    """Takes bytes, gives frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield `(id, kind, content)`. Raises `FrameError`."""
        self._bytes += data
        start, end = 0, len(self._bytes)
        while end - start >= _HEAD.size:
            length, id, kind = _HEAD.unpack_from(self._bytes, start)
            if length > LONGEST:
                raise FrameError(f"a frame of {length} bytes")
            following = start + _HEAD.size + length
            if following > end:
                break
            yield id, kind, bytes(self._bytes[start + _HEAD.size : following])
            start = following
        del self._bytes[:start]


def pack(value: Any) -> tuple[bytes, list[bytes]]:
    """Return a value as JSON, and the bytes in it, which are numbers there."""
    found: list[bytes] = []

    def plain(one: Any) -> Any:
        if isinstance(one, (bytes, bytearray)):
            found.append(bytes(one))
            return {"$bytes": len(one)}
        if isinstance(one, dict):
            return {key: plain(inner) for key, inner in one.items()}
        if isinstance(one, (list, tuple)):
            return [plain(inner) for inner in one]
        return one

    return json.dumps(plain(value)).encode("ascii"), found


def unpack(content: bytes, data: bytes | bytearray) -> Any:
    """Undo `pack`. Raises `ValueError` or `TypeError` if it makes no sense."""
    view = memoryview(data)
    position = 0

    def whole(one: dict[str, Any]) -> Any:
        nonlocal position
        if list(one) != ["$bytes"]:
            return one
        start, position = position, position + int(one["$bytes"])
        return bytes(view[start:position])

    return json.loads(content, object_hook=whole)


def parts(id: int, kind: bytes, value: Any) -> Iterator[bytes]:
    """Yield the frames of a call or a result."""
    content, found = pack(value)
    for data in found:
        view = memoryview(data)
        for start in range(0, len(data), PART):
            yield frame(id, b"D", bytes(view[start : start + PART]))
    yield frame(id, kind, content)
