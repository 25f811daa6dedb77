"""The read tool on pictures: told by their bytes, sent as they are or made smaller."""

import base64
import struct
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from spindle.base.installation import extra_command
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Image, Text
from spindle.shapes.model import Model, ModelCost
from spindle.tools.images import image_size, sniff_image
from spindle.workspace.settings import ToolSettings

from .helpers import Run, call, run, text_of

TOO_BIG = "[Image omitted: could not be resized below the inline image size limit.]"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *before: bytes, noise: bool = False) -> bytes:
    import random

    header = struct.pack(">IIBBBBB", width, height, 8, 0 if not noise else 2, 0, 0, 0)
    row = b"\0" + (random.Random(1).randbytes(3 * width) if noise else bytes(width))
    pixels = zlib.compress(
        row * height
        if not noise
        else b"".join(b"\0" + random.Random(line).randbytes(3 * width) for line in range(height))
    )
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(before) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


GIF = b"GIF89a" + struct.pack("<HH", 7, 5) + b"\0\0\0\x3b"
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 5, 7) + b"\x01\x01\x11\x00\xff\xd9"
WEBP_LOSSY = b"RIFF\x16\0\0\0WEBPVP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 7, 5)
WEBP_LOSSLESS = b"RIFF\x11\0\0\0WEBPVP8L\x05\0\0\0\x2f" + struct.pack("<I", 6 | 4 << 14)
WEBP_EXTENDED = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x06\0\0\x04\0\0"
BMP = (
    b"BM"
    + struct.pack("<IHHI", 58, 0, 0, 54)
    + struct.pack("<IiiHHIIiiII", 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0)
    + bytes(4)
)


@pytest.mark.parametrize(
    ("data", "mime", "size"),
    [
        (png(7, 5), "image/png", (7, 5)),
        (GIF, "image/gif", (7, 5)),
        (JPEG, "image/jpeg", (7, 5)),
        (WEBP_LOSSY, "image/webp", (7, 5)),
        (WEBP_LOSSLESS, "image/webp", (7, 5)),
        (WEBP_EXTENDED, "image/webp", (7, 5)),
    ],
)
def test_formats_are_told_by_their_bytes_and_sent_untouched(
    data: bytes, mime: str, size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "no-name.txt").write_bytes(data)
    result = call("read", tmp_path, path="no-name.txt")
    assert result.content == [Text(f"Read image file [{mime}]"), Image(base64.b64encode(data).decode(), mime)]
    assert result.details is None
    assert image_size(data, mime) == size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8\xff\xf7rest",
        b"\x89PNG\r\n\x1a\n\0\0\0\x0cIHDR",
        png(5, 5, chunk(b"acTL", bytes(8))),
        b"RIFF\0\0\0\0WAVE",
        b"BM not a picture at all, really not",
        b"GIF90a",
    ],
)
def test_what_is_no_picture(data: bytes) -> None:
    assert sniff_image(data[:4100]) is None


def test_an_animated_png_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(5, 5, chunk(b"acTL", bytes(8))))
    assert text_of(call("read", tmp_path, path="a.png")).startswith("\ufffdPNG\r\n")


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (png(7, 5)[:40], "image/png"),
        (JPEG[:-4], "image/jpeg"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "image/jpeg"),
        (WEBP_LOSSY[:-1], "image/webp"),
        (b"GIF89a", "image/gif"),
        (png(0, 5), "image/png"),
    ],
)
def test_a_broken_picture_is_not_sent(data: bytes, mime: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    assert text_of(call("read", tmp_path, path="f")) == f"Read image file [{mime}]\n{TOO_BIG}"


def test_a_gigantic_picture_is_not_even_read(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        file.write(JPEG)
        file.truncate(1 << 30)
    assert text_of(call("read", tmp_path, path="f")) == f"Read image file [image/jpeg]\n{TOO_BIG}"


def read_with(data: bytes, tmp_path: Path, **options: Any) -> ToolResult:
    (tmp_path / "f").write_bytes(data)

    async def body() -> ToolResult:
        return await Run("read", tmp_path, {"path": "f"}, **options).task

    return run(body)


def model(**fields: Any) -> Model:
    base: dict[str, Any] = {"id": "m", "name": "m", "api": "a", "provider": "p", "base_url": "", "reasoning": False}
    base |= {"input": ["text", "image"], "cost": ModelCost(0, 0, 0, 0), "context_window": 1, "max_tokens": 1}
    return Model(**(base | fields))


def test_a_model_that_cannot_see_is_told_so_and_the_picture_is_kept(tmp_path: Path) -> None:
    text, image = read_with(png(7, 5), tmp_path, model=model(input=["text"])).content
    note = "[Current model does not support images. The image will be omitted from this request.]"
    assert isinstance(text, Text)
    assert text.text == f"Read image file [image/png]\n{note}"
    assert isinstance(image, Image)


def test_resizing_can_be_switched_off(tmp_path: Path) -> None:
    data = png(3000, 3)
    result = read_with(data, tmp_path, settings=ToolSettings(auto_resize_images=False))
    assert result.content[1] == Image(base64.b64encode(data).decode(), "image/png")


def test_without_pillow_big_pictures_are_omitted_and_small_ones_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    (tmp_path / "big").write_bytes(png(3000, 3))
    (tmp_path / "bmp").write_bytes(BMP)
    (tmp_path / "small").write_bytes(png(7, 5))
    advice = f"[Resizing and converting images takes Pillow, which is not installed: {extra_command('images')}]"
    assert "'pillow>=" in advice
    assert text_of(call("read", tmp_path, path="big")) == f"Read image file [image/png]\n{TOO_BIG}\n{advice}"
    unsupported = "[Image omitted: could not be converted to a supported inline image format.]"
    assert text_of(call("read", tmp_path, path="bmp")) == f"Read image file [image/bmp]\n{unsupported}\n{advice}"
    assert len(call("read", tmp_path, path="small").content) == 2


# -- with Pillow ---------------------------------------------------------------------------------


def opened(result: ToolResult) -> Any:
    pil = pytest.importorskip("PIL.Image")
    image = result.content[1]
    assert isinstance(image, Image)
    return pil.open(BytesIO(base64.b64decode(image.data)))


@pytest.mark.parametrize(
    ("size", "shown", "factor"),
    [((3000, 1000), (2000, 667), "1.50"), ((2500, 2600), (1923, 2000), "1.30"), ((10, 2002), (10, 2000), "1.00")],
)
def test_a_picture_too_large_is_scaled_to_fit(
    size: tuple[int, int], shown: tuple[int, int], factor: str, tmp_path: Path
) -> None:
    pytest.importorskip("PIL")
    result = read_with(png(*size), tmp_path)
    text = result.content[0]
    assert isinstance(text, Text)
    assert text.text == (
        f"Read image file [image/png]\n[Image: original {size[0]}x{size[1]}, displayed at {shown[0]}x{shown[1]}. "
        f"Multiply coordinates by {factor} to map to original image.]"
    )
    assert opened(result).size == shown


def test_a_picture_too_heavy_becomes_a_jpeg(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    result = read_with(
        png(1300, 1000, noise=True), tmp_path, model=model(input_limits={"images": {"resize": {"maxBytes": 2_000_000}}})
    )
    text, image = result.content
    assert isinstance(text, Text)
    assert text.text.startswith("Read image file [image/jpeg]\n[Image: original 1300x1000, displayed at 1300x1000. ")
    assert isinstance(image, Image)
    assert len(image.data) < 2_000_000


def test_a_picture_shrinks_until_it_fits_or_is_given_up(tmp_path: Path) -> None:
    pytest.importorskip("PIL")

    def limited(count: int) -> ToolResult:
        limits = {"images": {"resize": {"maxBytes": count}}}
        return read_with(png(200, 100, noise=True), tmp_path, model=model(input_limits=limits))

    small = opened(limited(3000))
    assert small.size[0] < 200
    assert text_of(limited(50)) == f"Read image file [image/png]\n{TOO_BIG}"


def test_the_models_own_limits_hold(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    limits = {"images": {"resize": {"maxWidth": 50, "maxHeight": 20}}}
    assert opened(read_with(png(100, 100), tmp_path, model=model(input_limits=limits))).size == (20, 20)


def test_bmp_is_converted(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    result = read_with(BMP, tmp_path)
    text = result.content[0]
    assert isinstance(text, Text)
    assert text.text == "Read image file [image/png]\n[Image converted from image/bmp to image/png.]"
    assert opened(result).format == "PNG"


def test_a_photograph_is_turned_upright_when_it_is_resized(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    exif = pil.Exif()
    exif[0x0112] = 6
    out = BytesIO()
    pil.new("RGB", (3000, 1000)).save(out, "JPEG", exif=exif)
    assert opened(read_with(out.getvalue(), tmp_path)).size == (667, 2000)
