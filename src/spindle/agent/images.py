"""Images that come with a prompt, in either of the notations clients use."""

from collections.abc import Sequence
from typing import Any

from spindle.agent.errors import AgentError
from spindle.shapes.content import Image

__all__ = ["read_images"]


def read_images(items: Sequence[Any]) -> list[Image]:
    """Accept `{data, mimeType}` and the older `{source: {type: "base64", mediaType, data}}`. Raises `AgentError`."""
    return [_read(index, item) for index, item in enumerate(items)]


def _read(index: int, item: Any) -> Image:
    if isinstance(item, Image):
        return item
    if not isinstance(item, dict):
        raise AgentError(f"images[{index}] must be an object with data and mimeType")
    source = item.get("source")
    if isinstance(source, dict):
        if source.get("type") not in (None, "base64"):
            raise AgentError(f"images[{index}]: only base64 images are supported, not {source.get('type')!r}")
        data, mime = source.get("data"), source.get("mediaType") or source.get("media_type")
    else:
        data, mime = item.get("data"), item.get("mimeType")
    if not isinstance(data, str) or not isinstance(mime, str):
        raise AgentError(f"images[{index}] must have data (base64) and mimeType")
    return Image(data, mime)
