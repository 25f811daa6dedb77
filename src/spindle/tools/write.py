"""The `write` tool: a file made or replaced as a whole."""

from typing import Any

from spindle.base.workspace.replacing import write_file
from spindle.shapes.events import ToolResult
from spindle.tools.base import OTHER_PATH, Tool, ToolContext, arguments, renamed, text_result, well_formed
from spindle.tools.files import elsewhere, file_lock, require_text_place, resolve_path


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


TOOL = Tool(
    name="write",
    description="Write a file: make it, with its folders, if it does not exist, else replace all of it.",
    parameters=arguments(
        "path", "content", path="File to write, relative or absolute", content="All of the new content"
    ),
    execute=_execute,
    snippet="Create or overwrite files",
    guidelines=("Use write for new files and for complete rewrites only.",),
    prepare=lambda args: renamed(args, OTHER_PATH),
    interruptible=False,
)
