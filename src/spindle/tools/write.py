"""The `write` tool: a file made or replaced as a whole."""

import os
from contextlib import suppress
from typing import Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import (
    OTHER_PATH,
    Tool,
    ToolContext,
    ToolError,
    arguments,
    doing,
    os_error_text,
    renamed,
    text_result,
    well_formed,
)
from spindle.tools.files import (
    Cancel,
    elsewhere,
    file_lock,
    replace_file,
    require_regular,
    require_text_place,
    resolve_path,
    run_to_end,
)


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = resolve_path(args["path"], ctx.cwd)
    text = well_formed(args["content"])
    ctx.require(path, write=True)
    async with file_lock(path):
        if ctx.files is not None:
            require_text_place(path)
            if await ctx.files.write(path, text):
                return text_result(f"Successfully wrote to {args['path']}{elsewhere(path, text, ctx.files)}")
        await run_to_end(lambda cancel: _write(path, text.encode(), cancel), ctx.settings)
    return text_result(f"Successfully wrote to {args['path']}")


def _write(path: str, data: bytes, cancel: Cancel) -> None:
    folder = os.path.dirname(path)
    with doing("mkdir", folder):
        os.makedirs(folder, exist_ok=True)
    with doing("open", path), suppress(FileNotFoundError):
        require_regular(path)
    cancel.check()
    with doing("write"):
        try:
            replace_file(path, data)
        except PermissionError as error:
            raise ToolError(os_error_text(error, "open", path)) from None


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
