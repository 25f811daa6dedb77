"""Pictures for models: sent as they are if small enough, else made smaller.

Pillow is loaded only when a picture must be resized or converted, and is not needed otherwise.
"""

import math
import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from spindle.shapes.messages import Image
from spindle.shapes.model import Model
from spindle.workspace.disk import SNIFF_BYTES as SNIFF_BYTES
from spindle.workspace.disk import Cancel
from spindle.workspace.disk import sniff_image as sniff_image

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE_MARKERS = frozenset(range(0xD0, 0xD9)) | {0x01}

MAX_SOURCE_BYTES = 64 * 1024 * 1024
"""A bigger file is not worth reading."""
TOO_BIG = "[Image omitted: could not be resized below the inline image size limit.]"
_UNSUPPORTED = "[Image omitted: could not be converted to a supported inline image format.]"
_FALLBACK_QUALITIES = (85, 70, 55, 40)
_LANCZOS = 1
"""`PIL.Image.Resampling.LANCZOS`."""

_Picture: TypeAlias = Any
"""`PIL.Image.Image`; unnamed, so that type checks do not need Pillow either."""


class ImageBounds(Struct, frozen=True, rename="camel"):
    max_width: int = 2000
    max_height: int = 2000
    max_bytes: int = 4718592
    """The base64 text must stay below this."""
    jpeg_quality: int = 80

    @classmethod
    def of_model(cls, model: Model | None) -> "ImageBounds":
        """Return the bounds of `model`, which may name its own."""
        given: Any = (model and model.input_limits) or {}
        resize = (given.get("images") or {}).get("resize") or {}
        names = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
        return cls(**{name: resize[key] for name, key in names if key in resize})

    def admit(self, byte_count: int, width: int = 0, height: int = 0) -> bool:
        small_enough = 4 * math.ceil(byte_count / 3) < self.max_bytes
        return small_enough and width <= self.max_width and height <= self.max_height


def prepare_image(
    data: bytes, mime_type: str, bounds: ImageBounds, auto_resize: bool, cancel: Cancel
) -> tuple[Image | None, list[str]]:
    """Return the block to send, or None, and notes on what was done to the picture."""
    notes = []
    if mime_type == "image/bmp":
        picture = _open(data)
        if picture is None:
            return None, _cannot(_UNSUPPORTED)
        notes.append("[Image converted from image/bmp to image/png.]")
        data, mime_type = _encode(picture, "PNG"), "image/png"
    size = image_size(data, mime_type)
    if auto_resize and size is None:
        return None, [TOO_BIG]
    if not auto_resize or (size and bounds.admit(len(data), *size)):
        return _block(data, mime_type), notes
    picture = _open(data)
    smaller = picture and _shrink(picture, bounds, cancel)
    if not picture or not smaller:
        return None, _cannot(TOO_BIG)
    data, mime_type, (width, height) = smaller
    notes.append(
        f"[Image: original {picture.width}x{picture.height}, displayed at {width}x{height}. "
        f"Multiply coordinates by {picture.width / width:.2f} to map to original image.]"
    )
    return _block(data, mime_type), notes


def _cannot(note: str) -> list[str]:
    """Return the note, with a hint if Pillow is missing."""
    from importlib.util import find_spec

    if find_spec("PIL"):
        return [note]
    from spindle.base.installation import extra_command

    hint = f"[Resizing and converting images takes Pillow, which is not installed: {extra_command('images')}]"
    return [note, hint]


def _block(data: bytes, mime_type: str) -> Image:
    from base64 import b64encode

    return Image(b64encode(data).decode("ascii"), mime_type)


def _open(data: bytes) -> _Picture | None:
    """Decode a picture and turn it upright. None if it is broken, absurdly large, or Pillow is not installed."""
    from importlib import import_module
    from io import BytesIO

    try:
        pil, ops = import_module("PIL.Image"), import_module("PIL.ImageOps")
    except ImportError:
        return None
    try:
        with pil.open(BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP", "BMP")) as source:
            upright = ops.exif_transpose(source)
            see_through = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
            return upright.convert("RGBA" if see_through else "RGB")
    except (OSError, ValueError, SyntaxError, EOFError, pil.DecompressionBombError):
        return None  # Pillow raises these for broken files.


def _shrink(picture: _Picture, bounds: ImageBounds, cancel: Cancel) -> tuple[bytes, str, tuple[int, int]] | None:
    width, height = picture.size
    if width > bounds.max_width:
        width, height = bounds.max_width, _round(height * bounds.max_width / width)
    if height > bounds.max_height:
        width, height = _round(width * bounds.max_height / height), bounds.max_height
    while True:
        for data, mime_type in _encodings(picture, (width, height), bounds.jpeg_quality):
            cancel.check()
            if bounds.admit(len(data)):
                return data, mime_type, (width, height)
        if (width, height) == (1, 1):
            return None
        width, height = max(1, width * 3 // 4), max(1, height * 3 // 4)


def _encodings(picture: _Picture, size: tuple[int, int], jpeg_quality: int) -> Iterator[tuple[bytes, str]]:
    scaled = picture if picture.size == size else picture.resize(size, _LANCZOS)
    yield _encode(scaled, "PNG"), "image/png"
    opaque = scaled.convert("RGB")
    for quality in dict.fromkeys((jpeg_quality, *_FALLBACK_QUALITIES)):
        yield _encode(opaque, "JPEG", quality=quality), "image/jpeg"


def _encode(picture: _Picture, format: str, **options: Any) -> bytes:
    from io import BytesIO

    out = BytesIO()
    picture.save(out, format, **options)
    return out.getvalue()


def _round(value: float) -> int:
    return max(1, math.floor(value + 0.5))


# -- formats, as the bytes show them -------------------------------------------------------------


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
