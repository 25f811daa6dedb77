"""The `write` tool: a file made or replaced as a whole."""

from typing import TYPE_CHECKING, Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import OTHER_PATH, WORDS_ONLY, Tool, ToolContext, ToolError, arguments, renamed, text_result
from spindle.tools.diff_preview import whole_preview
from spindle.tools.files import elsewhere, file_lock, require_text_place, resolve_path
from spindle.workspace.disk import read_old
from spindle.workspace.replacing import write_file
from spindle.workspace.texts import well_formed
from spindle.workspace.threads import run_abandonable

if TYPE_CHECKING:
    from spindle.shapes.approvals import Preview

_MAX_SHOWN = 16 * 1024 * 1024
"""Bytes; a larger old file is not compared."""


def _prepare(args: Any) -> Any:
    """Take what models of other programs send. Raises `ToolError` for what would lose the old content."""
    args = renamed(args, OTHER_PATH | {"file_text": "content", "contents": "content"})
    if isinstance(args, dict) and (args.get("append") in (True, "true") or args.get("mode") in ("a", "append")):
        raise ToolError("write replaces all of the file, so nothing was written. Add to a file with edit, or bash: >>")
    return args


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = resolve_path(args["path"], ctx.cwd, ctx.workspace.home)
    text = well_formed(args["content"])
    ctx.require(path, write=True)
    async with file_lock(path):
        if ctx.files is not None:
            await ctx.workspace.do(require_text_place, path)
            if await ctx.files.write(path, text):
                return text_result(f"Successfully wrote to {args['path']}{elsewhere(path, text, ctx.files)}")
        await ctx.workspace.change(write_file, path, text.encode())
    return text_result(f"Successfully wrote to {args['path']}")


async def _preview(args: dict[str, Any], ctx: ToolContext) -> "Preview":
    path, place = resolve_path(args["path"], ctx.cwd, ctx.workspace.home), None
    text = well_formed(args["content"])
    ctx.require(path, write=True)
    old = None if ctx.files is None else await ctx.files.read(path)
    if old is not None and ctx.files is not None:
        place = ctx.files.name
    elif (data := await ctx.workspace.do(read_old, path, _MAX_SHOWN)) is not None:
        old = data.decode("utf-8", "replace")
    return await run_abandonable(lambda cancel: whole_preview(path, args["path"], old, text, place))


TOOL = Tool(
    name="write",
    description="Write a file: make it, with its folders, if it does not exist, else replace all of it.",
    parameters=arguments(
        "path", "content", path="File to write, relative or absolute", content="All of the new content"
    ),
    execute=_execute,
    snippet="Create or overwrite files",
    guidelines=("Use write for new files and for complete rewrites only.",),
    prepare=_prepare,
    also_takes=WORDS_ONLY,
    preview=_preview,
    interruptible=False,
)
