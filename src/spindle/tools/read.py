"""The `read` tool: a stretch of a text file, or a picture."""

from typing import Any

from spindle.shapes.events import ToolResult
from spindle.shapes.messages import Text
from spindle.tools.base import (
    OTHER_PATH,
    WORDS_ONLY,
    Files,
    Tool,
    ToolContext,
    ToolError,
    arguments,
    format_size,
    renamed,
    text_result,
)
from spindle.tools.files import has_text, resolve_path
from spindle.tools.truncate import MAX_BYTES, MAX_LINES, truncate_head
from spindle.workspace.disk import (
    Cancel,
    Picture,
    Stretch,
    existing,
    read_stretch,
    require_regular,
    sniff_image,
    window_of,
)
from spindle.workspace.threads import run_abandonable


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from spindle.tools.images import MAX_SOURCE_BYTES

    offset, limit = args.get("offset"), args.get("limit")
    stretch = max(0, int(offset or 1) - 1), None if limit is None else max(0, int(limit))
    path = resolve_path(args["path"], ctx.cwd, ctx.workspace.home)
    if ctx.settings.sandbox.level != "off" or ctx.files is not None:
        path = existing(path)
        ctx.require(path)
    if (files := ctx.files) is not None and await ctx.workspace.do(_may_be_elsewhere, path):
        text = await files.read(path)
        if text is not None:
            return await run_abandonable(lambda cancel: _text_elsewhere(path, text, args, stretch, files), ctx.settings)
    found = await ctx.workspace.do(read_stretch, path, ctx.cwd, *stretch, MAX_SOURCE_BYTES)
    if (picture := found.picture) is not None:
        return await run_abandonable(lambda cancel: _picture(picture, ctx, cancel))
    return _text(found, args, stretch[0])


def _may_be_elsewhere(cancel: Cancel, path: str) -> bool:
    """Say whether another program may have a file open as text. Raises `ToolError` for files that no tool opens."""
    from spindle.tools.images import SNIFF_BYTES

    try:
        require_regular(path)
        with open(path, "rb") as file:
            return not sniff_image(file.read(SNIFF_BYTES))
    except FileNotFoundError:
        return True  # it may be new there
    except OSError:
        return False


def _text_elsewhere(
    path: str, text: str, args: dict[str, Any], stretch: tuple[int, int | None], files: Files
) -> ToolResult:
    result = _text(window_of(iter([text.encode("utf-8", "surrogatepass")]), *stretch), args, stretch[0])
    if not has_text(path, text):
        result.content.append(Text(f"[This is the text in {files.name}. The file on disk differs.]"))
    return result


def _text(found: Stretch, args: dict[str, Any], start: int) -> ToolResult:
    offset, limit, total = args.get("offset"), args.get("limit"), found.total_lines
    if start >= total:
        from spindle.tools.json_schema import format_number

        raise ToolError(f"Offset {format_number(offset or 0)} is beyond end of file ({total} lines total)")
    cut = truncate_head(found.text, whole=found.size)
    details = {"truncation": cut} if cut.truncated else None
    if cut.first_line_exceeds_limit:
        return text_result(
            f"[Line {start + 1} is {format_size(found.first_line_bytes)}, exceeds {format_size(MAX_BYTES)} limit. "
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


def _picture(found: Picture, ctx: ToolContext, cancel: Cancel) -> ToolResult:
    from spindle.tools.images import TOO_BIG, ImageBounds, prepare_image

    mime_type = found.mime_type
    if found.data is None:
        image, notes = None, [TOO_BIG]
    else:
        bounds = ImageBounds.of_model(ctx.model)
        image, notes = prepare_image(found.data, mime_type, bounds, ctx.settings.auto_resize_images, cancel)
    if ctx.model and "image" not in ctx.model.input:
        notes.append("[Current model does not support images. The image will be omitted from this request.]")
    text = Text("\n".join([f"Read image file [{image.mime_type if image else mime_type}]", *notes]))
    return ToolResult([text, image] if image else [text])


TOOL = Tool(
    name="read",
    description=(
        "Read a file: text, or a picture (jpg, png, gif, webp, bmp) as an attachment. "
        f"Text ends after {MAX_LINES} lines or {MAX_BYTES // 1024}KB; go on with offset until you have all you need."
    ),
    parameters=arguments(
        "path",
        path="File to read, relative or absolute",
        offset=("number", "First line to read, counted from 1"),
        limit=("number", "How many lines to read"),
    ),
    execute=_execute,
    safe_to_retry=True,
    snippet="Read the contents of files",
    guidelines=("Look at files with read, not with cat or sed.",),
    prepare=lambda args: renamed(args, OTHER_PATH),
    also_takes=WORDS_ONLY,
)
