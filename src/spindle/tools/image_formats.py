"""Picture formats as far as their first bytes tell: what it is, how large, and whether it is all there."""

import struct

__all__ = ["SNIFF_BYTES", "image_size", "sniff_image"]

SNIFF_BYTES = 4100

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BMP_HEADER_SIZES = (12, 40, 52, 56, 64, 108, 124)
_BMP_DEPTHS = (1, 4, 8, 16, 24, 32)
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE_MARKERS = frozenset(range(0xD0, 0xD9)) | {0x01}


def sniff_image(head: bytes) -> str | None:
    """Return the MIME type if these first bytes are a picture's. Names do not count."""
    if head.startswith(b"\xff\xd8\xff") and head[3:4] != b"\xf7":
        return "image/jpeg"
    if head.startswith(_PNG_SIGNATURE + b"\0\0\0\rIHDR"):
        return None if _is_animated_png(head) else "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return "image/bmp" if _is_bmp(head) else None


def image_size(data: bytes, mime_type: str) -> tuple[int, int] | None:
    """Return width and height; None if the file is cut short or makes no sense.

    A model's API refuses a broken picture, and would refuse it again with every later request.
    """
    try:
        match mime_type:
            case "image/png":
                size = struct.unpack_from(">II", data, 16) if b"IEND" in data[-1024:] else None
            case "image/gif":
                size = struct.unpack_from("<HH", data, 6)
            case "image/webp":
                size = _webp_size(data)
            case "image/jpeg":
                size = _jpeg_size(data)
            case _:
                size = None
    except struct.error:
        return None
    return (size[0], size[1]) if size and all(size) else None


def _is_animated_png(head: bytes) -> bool:
    position = len(_PNG_SIGNATURE)
    while position + 8 <= len(head):
        length, kind = struct.unpack_from(">I4s", head, position)
        if kind in (b"acTL", b"IDAT"):
            return bool(kind == b"acTL")
        position += 12 + length
    return False


def _is_bmp(head: bytes) -> bool:
    if not head.startswith(b"BM") or len(head) < 30:
        return False
    (header_size,) = struct.unpack_from("<I", head, 14)
    planes, depth = struct.unpack_from("<HH", head, 22 if header_size == 12 else 26)
    return header_size in _BMP_HEADER_SIZES and planes == 1 and depth in _BMP_DEPTHS


def _webp_size(data: bytes) -> tuple[int, int] | None:
    (riff_size,) = struct.unpack_from("<I", data, 4)
    if riff_size + 8 > len(data):
        return None
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    if b"\xff\xd9" not in data:
        return None
    position = 2
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker in _JPEG_BARE_MARKERS:
            position += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return None
