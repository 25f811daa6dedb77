"""Answers of a server as blocks for the model: text within bounds, pictures as pictures, the rest described."""

import binascii
from base64 import b64decode
from itertools import count
from typing import Any, Final

from spindle.plugins.mcp import Message
from spindle.shapes.codec import encode
from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Image, Text
from spindle.tools.base import ToolContext, ToolError, format_size
from spindle.tools.truncate import keep_whole
from spindle.workspace.threads import run_abandonable

MAX_TEXT: Final = 20 * 1024
"""Bytes of text in one result; of more, the middle is cut."""
_MAX_IMAGES: Final = 20
_MAX_ITEMS: Final = 1000
"""Pieces of content in one result."""


_ASKS_WITH_REQUESTS = (
    "via server-initiated requests is unavailable",
    'This server can ask the user if its entry in mcp.json has "protocol": "2025-11-25".',
)
"""How the SDK for Python says that a tool asks in the way of the earlier protocol, and what helps."""


async def tool_result(answer: Message, context: ToolContext) -> ToolResult:
    """Return the result of a call. Raises `ToolError` if the server says that it failed."""
    content = answer.get("content")
    blocks = await blocks_of(content if isinstance(content, list) else [], context)
    structured = answer.get("structuredContent")
    written = b"" if structured is None else encode(structured)
    if written and not blocks:
        blocks = [Text(written.decode())]
    blocks = cut(blocks)
    if answer.get("isError") is True:
        text = "\n".join(block.text for block in blocks if isinstance(block, Text)) or "The tool failed"
        raise ToolError(f"{text}\n{_ASKS_WITH_REQUESTS[1]}" if _ASKS_WITH_REQUESTS[0] in text else text)
    details = {"structuredContent": structured} if 0 < len(written) <= MAX_TEXT else None
    return ToolResult(blocks or [Text("(no content)")], details)


async def blocks_of(items: list[Any], context: ToolContext | None = None) -> list[Text | Image]:
    """Return content blocks in our form."""
    blocks: list[Text | Image] = []
    for item in items[:_MAX_ITEMS]:
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        if kind == "text" and isinstance(text := item.get("text"), str):
            blocks.append(Text(text))
        elif kind == "image":
            blocks += await _image(item, context)
        elif kind == "audio":
            blocks.append(Text(f"[Audio ({item.get('mimeType')}) cannot be shown to the model.]"))
        elif kind == "resource_link":
            name = item.get("title") or item.get("name") or ""
            blocks.append(Text(f"[Resource {item.get('uri')}: {name} {item.get('description') or ''}".rstrip() + "]"))
        elif kind == "resource":
            blocks += await resource(item.get("resource"), context)
        else:
            blocks.append(Text("[Content of an unknown type.]"))
    if len(items) > _MAX_ITEMS:
        blocks.append(Text(f"[{len(items) - _MAX_ITEMS} more pieces of content are left out.]"))
    return blocks


async def resource(item: Any, context: ToolContext | None = None) -> list[Text | Image]:
    """Return the contents of a resource."""
    if not isinstance(item, dict):
        return []
    if isinstance(text := item.get("text"), str):
        return [Text(text)]
    kind = str(item.get("mimeType") or "")
    if kind.startswith("image/"):
        return await _image({"data": item.get("blob"), "mimeType": kind}, context)
    blob = item.get("blob")
    size = format_size(len(blob) * 3 // 4) if isinstance(blob, str) else "nothing"
    return [Text(f"[Resource {item.get('uri')}: {size} of {kind or 'binary data'}, which cannot be shown.]")]


async def _image(item: Message, context: ToolContext | None) -> list[Text | Image]:
    from spindle.tools.images import SNIFF_BYTES, ImageBounds, prepare_image, sniff_image

    try:
        data = b64decode(item.get("data") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return [Text("[Image omitted: its data is not base64.]")]
    kind = sniff_image(data[:SNIFF_BYTES])
    if kind is None:
        return [Text(f"[Image omitted: {item.get('mimeType')} is not a kind of image that can be shown.]")]
    model = None if context is None else context.model
    resize = context is None or context.settings.auto_resize_images
    block, notes = await run_abandonable(
        lambda cancel: prepare_image(data, kind, ImageBounds.of_model(model), resize, cancel)
    )
    return [*([Text("\n".join(notes))] if notes else []), *([block] if block is not None else [])]


def cut(blocks: list[Text | Image]) -> list[Text | Image]:
    """Return the blocks with at most `MAX_TEXT` bytes of text; a longer text is kept in a file that is named."""
    images = [block for block in blocks if isinstance(block, Image)]
    if len(images) > _MAX_IMAGES:
        seen = count(1)
        blocks = [block for block in blocks if isinstance(block, Text) or next(seen) <= _MAX_IMAGES]
        blocks.append(Text(f"[{len(images) - _MAX_IMAGES} more images are left out.]"))
    data = "\n".join(block.text for block in blocks if isinstance(block, Text)).encode("utf-8", "replace")
    if len(data) <= MAX_TEXT:
        return blocks
    half = MAX_TEXT // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    path = keep_whole(data, "spindle-mcp-")
    left = format_size(len(data) - 2 * half)
    note = f"\n\n[… {left} of {format_size(len(data))} cut here. The whole text: {path} …]\n\n"
    return [Text(head + note + tail), *images[:_MAX_IMAGES]]
