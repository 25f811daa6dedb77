"""Event-stream frames of Amazon's services, as a server would write them."""

import json
import struct
import zlib
from typing import Any

CONTENT_TYPE = "application/vnd.amazon.eventstream"


def frame(payload: bytes, **headers: str) -> bytes:
    """Return one frame; `event_type="x"` becomes the header `:event-type`."""
    head = b""
    for key, value in headers.items():
        name = f":{key.replace('_', '-')}".encode()
        head += bytes([len(name)]) + name + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    size = 16 + len(head) + len(payload)
    prelude = struct.pack(">II", size, len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def event(kind: str, **payload: Any) -> bytes:
    data = json.dumps(payload).encode()
    return frame(data, event_type=kind, content_type="application/json", message_type="event")


def exception(kind: str, message: str) -> bytes:
    return frame(json.dumps({"message": message}).encode(), exception_type=kind, message_type="exception")
