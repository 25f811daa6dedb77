"""The `ls` tool: the contents of one folder."""

from typing import Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import (
    OTHER_FOLDER,
    OTHER_LIMIT,
    WORDS_ONLY,
    Tool,
    ToolContext,
    arguments,
    renamed,
    text_result,
)
from spindle.tools.files import resolve_path
from spindle.tools.truncate import MAX_BYTES, listing_result
from spindle.workspace.disk import list_folder

_DEFAULT_LIMIT = 500


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = resolve_path(args.get("path") or ".", ctx.cwd, ctx.workspace.home)
    ctx.require(path)
    limit = max(1, int(args.get("limit", _DEFAULT_LIMIT)))
    lines, more = await ctx.workspace.do(list_folder, path, limit)
    if more:
        notice = f"{limit} entries limit reached. Use limit={2 * limit} for more"
        return listing_result(lines, {"entryLimitReached": limit}, notice)
    return listing_result(lines, {}) if lines else text_result("(empty directory)")


TOOL = Tool(
    name="ls",
    description=(
        "List a folder: names in alphabetical order, folders with a slash at the end, hidden files included. "
        f"Ends after {_DEFAULT_LIMIT} entries or {MAX_BYTES // 1024}KB, whichever comes first."
    ),
    parameters=arguments(
        path="Folder to list; default: the working directory",
        limit=("number", f"Most entries to return; default: {_DEFAULT_LIMIT}"),
    ),
    execute=_execute,
    safe_to_retry=True,
    snippet="List the contents of folders",
    prepare=lambda args: renamed(args, OTHER_FOLDER | OTHER_LIMIT),
    also_takes=WORDS_ONLY,
)
