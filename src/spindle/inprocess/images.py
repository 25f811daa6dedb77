"""Images of a program's message: files and bytes become what a model is sent."""

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from spindle.agent import AgentError
from spindle.shapes.messages import Image

AnyImage: TypeAlias = Image | str | Path | bytes
"""An `Image`, the path of a file, or the bytes of one: PNG, JPEG, GIF or WebP."""


async def read_images(images: Sequence[AnyImage]) -> list[Any]:
    """Return images as the agent takes them. Raises `TypeError` for what cannot be one, `AgentError` for a file that
    cannot be read."""
    if isinstance(images, str | bytes | Path | dict | Image):
        raise TypeError(f"images must be a list of Images, paths or bytes. Did you mean images=[{_shown(images)}]?")
    return [await _read(index, item) for index, item in enumerate(images)]


async def _read(index: int, item: AnyImage) -> Any:
    match item:
        case Image() | dict():  # the latter as clients send it
            return item
        case bytes():
            return Image(base64.b64encode(item).decode(), "")
        case str() | Path():
            try:
                data = await asyncio.to_thread(Path(item).read_bytes)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise AgentError(f"images[{index}]: cannot read {str(item)[:200]!r}: {why}") from None
            return Image(base64.b64encode(data).decode(), "")
    raise TypeError(f"images[{index}] must be an Image, a path or bytes, not {_shown(item)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
