"""The `ls` tool: the contents of one folder."""

import os
import stat
from typing import Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import Tool, ToolContext, ToolError, arguments, os_error_text, text_result
from spindle.tools.files import Cancel, require_folder, resolve_path, run_abandonable
from spindle.tools.truncate import MAX_BYTES, listing_result

_DEFAULT_LIMIT = 500
_ALPHABET = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_RANKS = {character: rank for rank, character in enumerate(_ALPHABET)}


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = resolve_path(args.get("path") or ".", ctx.cwd)
    ctx.require(path)
    limit = max(1, int(args.get("limit", _DEFAULT_LIMIT)))
    return await run_abandonable(lambda cancel: _list(path, limit, cancel))


def _list(path: str, limit: int, cancel: Cancel) -> ToolResult:
    require_folder(path)
    try:
        names = sorted(os.listdir(path), key=_collation_key)
    except OSError as error:
        raise ToolError(f"Cannot read directory: {os_error_text(error, 'scandir', path)}") from None
    lines: list[str] = []
    for name in names:
        cancel.check()
        if len(lines) == limit:
            notice = f"{limit} entries limit reached. Use limit={2 * limit} for more"
            return listing_result(lines, {"entryLimitReached": limit}, notice)
        try:
            mode = os.stat(os.path.join(path, name)).st_mode
        except OSError:
            continue  # A link to nowhere.
        lines.append(os.fsencode(name).decode("utf-8", "replace") + ("/" if stat.S_ISDIR(mode) else ""))
    return listing_result(lines, {}) if lines else text_result("(empty directory)")


def _collation_key(name: str) -> tuple[list[int], str, str]:
    """Sort as dictionaries do: case does not count, accents only between names that are otherwise equal."""
    from unicodedata import combining, normalize

    decomposed = normalize("NFD", name.casefold())
    letters = [
        _RANKS.get(character, len(_RANKS) + ord(character)) for character in decomposed if not combining(character)
    ]
    return letters, decomposed, name


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
    snippet="List the contents of folders",
)
