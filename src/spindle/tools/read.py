"""The `read` tool: a stretch of a text file, or a picture."""

import codecs
import os
from collections.abc import Iterator
from typing import Any

from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import (
    OTHER_PATH,
    Files,
    Tool,
    ToolContext,
    ToolError,
    arguments,
    doing,
    format_size,
    os_error_text,
    renamed,
    text_result,
)
from spindle.tools.files import Cancel, has_text, holds_secrets, require_regular, resolve_existing, run_abandonable
from spindle.tools.json_schema import format_number
from spindle.tools.truncate import MAX_BYTES, MAX_LINES, LineWindow, truncate_head

_CHUNK = 64 * 1024


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    ctx.require(resolve_existing(args["path"], ctx.cwd))
    if (files := ctx.files) is not None:
        path = resolve_existing(args["path"], ctx.cwd)
        if await run_abandonable(lambda cancel: _may_be_elsewhere(path), ctx.settings):
            text = await files.read(path)
            if text is not None:
                return await run_abandonable(lambda cancel: _text_elsewhere(path, text, args, files), ctx.settings)
    return await run_abandonable(lambda cancel: _read(args, ctx, cancel), ctx.settings)


def _may_be_elsewhere(path: str) -> bool:
    """Say whether another program may have a file open as text. Raises `ToolError` for files that no tool opens."""
    from spindle.tools.images import SNIFF_BYTES, sniff_image

    try:
        require_regular(path)
        with open(path, "rb") as file:
            return not sniff_image(file.read(SNIFF_BYTES))
    except FileNotFoundError:
        return True  # it may be new there
    except OSError:
        return False


def _text_elsewhere(path: str, text: str, args: dict[str, Any], files: Files) -> ToolResult:
    result = _text(iter([text.encode("utf-8", "surrogatepass")]), args)
    if not has_text(path, text):
        result.content.append(Text(f"[This is the text in {files.name}. The file on disk differs.]"))
    return result


def _read(args: dict[str, Any], ctx: ToolContext, cancel: Cancel) -> ToolResult:
    from spindle.tools.images import SNIFF_BYTES, sniff_image
    from spindle.tools.nearest import near_files

    path = resolve_existing(args["path"], ctx.cwd)
    try:
        size = require_regular(path).st_size
        # Not blocking, in case the file has become a pipe meanwhile.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except IsADirectoryError as error:
        raise ToolError(os_error_text(error, "read")) from None
    except OSError as error:
        near = near_files(path, ctx.cwd) if isinstance(error, FileNotFoundError) else ""
        raise ToolError(os_error_text(error, "access", path) + near) from None
    try:
        if holds_secrets(f"/dev/fd/{file}"):  # a link has changed meanwhile
            raise ToolError(f"{path} shows secrets of a process and is not opened")
        with doing("read"):
            head = os.read(file, SNIFF_BYTES)
            if mime_type := sniff_image(head):
                return _picture(file, head, size, mime_type, ctx, cancel)
            return _text(_chunks(file, head, cancel), args)
    finally:
        os.close(file)


def _chunks(file: int, head: bytes, cancel: Cancel) -> Iterator[bytes]:
    chunk = head
    while chunk:
        yield chunk
        cancel.check()
        chunk = os.read(file, _CHUNK)


def _text(chunks: Iterator[bytes], args: dict[str, Any]) -> ToolResult:
    offset, limit = args.get("offset"), args.get("limit")
    start = max(0, int(offset or 1) - 1)
    window = LineWindow(start, None if limit is None else max(0, int(limit)))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        window.feed(decoder.decode(chunk))
    window.feed(decoder.decode(b"", True))

    total = window.total_lines
    if start >= total:
        raise ToolError(f"Offset {format_number(offset or 0)} is beyond end of file ({total} lines total)")
    cut = truncate_head(window.text, whole=window.size)
    details = {"truncation": cut} if cut.truncated else None
    if cut.first_line_exceeds_limit:
        return text_result(
            f"[Line {start + 1} is {format_size(window.first_line_bytes)}, exceeds {format_size(MAX_BYTES)} limit. "
            f"Use bash: sed -n '{start + 1}p' {args['path']} | head -c {MAX_BYTES}]",
            details,
        )
    if cut.truncated:
        end = start + cut.output_lines
        reason = f" ({format_size(MAX_BYTES)} limit)" if cut.truncated_by == "bytes" else ""
        notice = f"[Showing lines {start + 1}-{end} of {total}{reason}. Use offset={end + 1} to continue.]"
        return text_result(f"{cut.content}\n\n{notice}", details)
    end = total if limit is None else min(total, start + max(0, int(limit)))
    if end < total:
        notice = f"[{total - end} more lines in file. Use offset={end + 1} to continue.]"
        return text_result(f"{cut.content}\n\n{notice}")
    return text_result(cut.content)


def _picture(file: int, head: bytes, size: int, mime_type: str, ctx: ToolContext, cancel: Cancel) -> ToolResult:
    from spindle.tools.images import MAX_SOURCE_BYTES, TOO_BIG, ImageBounds, prepare_image

    if size > MAX_SOURCE_BYTES:
        image, notes = None, [TOO_BIG]
    else:
        data = b"".join(_chunks(file, head, cancel))
        bounds = ImageBounds.of_model(ctx.model)
        image, notes = prepare_image(data, mime_type, bounds, ctx.settings.auto_resize_images, cancel)
    if ctx.model and "image" not in ctx.model.input:
        notes.append("[Current model does not support images. The image will be omitted from this request.]")
    text = Text("\n".join([f"Read image file [{image.mime_type if image else mime_type}]", *notes]))
    return ToolResult([text, image] if image else [text])


TOOL = Tool(
    name="read",
    description=(
        "Read a file. Pictures (jpg, png, gif, webp, bmp) come back as attachments, everything else as text. "
        f"Text ends after {MAX_LINES} lines or {MAX_BYTES // 1024}KB, whichever comes first; use offset and limit for "
        "large files, and go on with offset until you have all you need."
    ),
    parameters=arguments(
        "path",
        path="File to read, relative or absolute",
        offset=("number", "First line to read, counted from 1"),
        limit=("number", "How many lines to read"),
    ),
    execute=_execute,
    snippet="Read the contents of files",
    guidelines=("Look at files with read, not with cat or sed.",),
    prepare=lambda args: renamed(args, OTHER_PATH),
)
