"""Images that come with a prompt, in the notations that clients use. Other data is refused before it is stored.

Models take PNG, JPEG, GIF and WebP. The type of an image is read from its bytes; the declared type is ignored.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from spindle.agent import AgentError
from spindle.base import limits
from spindle.shapes.messages import Image

MAX_BYTES = 20 << 20
_TAKEN = ("image/png", "image/jpeg", "image/gif", "image/webp")


async def read_images(items: Sequence[Any], proxy: str | None = None) -> list[Image]:
    """Accept `{data, mimeType}`, and `{source: {type: "base64", data} | {type: "url", url}}`. Raises `AgentError`.

    Waits only for images that are named by a URL.
    """
    return [await _read(f"images[{index}]", item, proxy) for index, item in enumerate(items)]


async def _read(name: str, item: Any, proxy: str | None) -> Image:
    if isinstance(item, Image):
        return _checked(name, item.data)
    if not isinstance(item, dict):
        raise AgentError(f"{name} must be an object with data and mimeType")
    source = item.get("source")
    if not isinstance(source, dict):
        return _checked(name, item.get("data"))
    if source.get("type") == "url":
        return _checked(name, await _fetch(name, source.get("url"), proxy))
    if source.get("type") not in (None, "base64"):
        raise AgentError(f"{name}: source.type must be base64 or url, not {source.get('type')!r}")
    return _checked(name, source.get("data"))


def _checked(name: str, data: Any) -> Image:
    """Return the image in base64 text or bytes, with the type that its content has."""
    from spindle.tools.images import sniff_image

    if isinstance(data, str):
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise AgentError(f"{name}: data is not valid base64") from None
    elif isinstance(data, bytes):
        content, data = data, base64.b64encode(data).decode()
    else:
        raise AgentError(f"{name} must have data (base64), or a source with a url")
    kind = sniff_image(content[:4096])
    if kind not in _TAKEN:
        what = "is empty" if not content else "is not an image that models take"
        raise AgentError(f"{name}: its content {what} (PNG, JPEG, GIF or WebP)")
    return Image(data, kind)


async def _fetch(name: str, url: Any, proxy: str | None) -> bytes:
    if not isinstance(url, str):
        raise AgentError(f"{name}: source.url must be a string")
    if url.startswith("data:"):
        head, comma, body = url.partition(",")
        if not comma:
            raise AgentError(f"{name}: this data: URL has no content")
        try:
            content = unquote_to_bytes(body)
            return base64.b64decode(content, validate=True) if head.endswith(";base64") else content
        except (binascii.Error, ValueError):
            raise AgentError(f"{name}: data is not valid base64") from None
    if not url.startswith(("http://", "https://")):
        raise AgentError(f"{name}: only http, https and data URLs can be fetched")
    from spindle.llm import http

    try:
        return await http.download(url, max_bytes=MAX_BYTES, timeout=limits.IMAGE_DOWNLOAD, proxy=proxy)
    except http.StatusError as error:
        raise AgentError(f"{name} cannot be fetched: the server answered {error.status}") from None
    except (http.ConnectError, http.UnreadableError) as error:
        raise AgentError(f"{name} cannot be fetched: {error}") from None
