"""The `find` tool: files and folders by name, found by fd or by our own walk."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import Tool, ToolContext, ToolError, text_result
from spindle.tools.binaries import find_program
from spindle.tools.files import require_folder
from spindle.tools.listing import listing_result
from spindle.tools.paths import resolve_path
from spindle.tools.program import argument, run_program
from spindle.tools.threads import Cancel, run_abandonable
from spindle.tools.truncate import MAX_BYTES

__all__ = ["TOOL"]

_DEFAULT_LIMIT = 1000


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    root = resolve_path(args.get("path") or ".", ctx.cwd)
    pattern = argument(args["pattern"])
    limit = max(1, int(args.get("limit", _DEFAULT_LIMIT)))
    in_repository = await run_abandonable(lambda _: _check_root(root))
    fd = find_program(("fd", "fdfind"), ctx.settings)
    found = await _run_fd(fd, pattern, root, limit, in_repository) if fd else None
    if found is None:
        found = await run_abandonable(lambda cancel: _walk(pattern, root, limit, in_repository, cancel))
    if not found:
        return text_result("No files found matching pattern")
    return _format(found, limit)


def _check_root(root: str) -> bool:
    """Return whether the folder lies in a git repository."""
    from spindle.tools.walk import in_git_repository

    require_folder(root)
    return in_git_repository(root)


async def _run_fd(fd: str, pattern: str, root: str, limit: int, in_repository: bool) -> list[str] | None:
    """Return paths below `root`, folders with a slash at the end; None if this fd is too old to be asked."""
    # From version 9 on fd leaves out `.git` by itself.
    command = [fd, "--glob", "--color=never", "--hidden", "--exclude", ".git", "--max-results", str(limit)]
    if not in_repository:
        command.append("--no-require-git")
    if "/" in pattern:
        command.append("--full-path")
        pattern = _anywhere(pattern)
    found: list[bytes] = []

    def take(line: bytes) -> bool:
        found.append(line)
        return True

    code, complaint = await run_program("fd", [*command, "--", pattern, root], root, take)
    if code and not found:
        if "--no-require-git" in complaint:
            return None
        raise ToolError(complaint)
    prefix = root.rstrip("/") + "/"
    return [os.fsdecode(line).removeprefix(prefix) for line in found]


def _walk(pattern: str, root: str, limit: int, in_repository: bool, cancel: Cancel) -> list[str]:
    from spindle.tools.globs import GlobError, PathGlob, expand_braces
    from spindle.tools.walk import walk

    ignore_case = pattern == pattern.lower()
    by_path = "/" in pattern
    if by_path:
        pattern = _anywhere(pattern)
    try:
        globs = [PathGlob(choice.removeprefix("/"), ignore_case) for choice in expand_braces(pattern)]
    except GlobError as error:
        raise ToolError(str(error)) from None

    def matches() -> Iterator[str]:
        for entry in walk(root, ".fdignore", require_git=in_repository, skip_git=True):
            cancel.check()
            parts = entry.path.split("/")[1:] if by_path else [os.path.basename(entry.path)]
            if any(glob.match(parts) for glob in globs):
                yield os.path.relpath(entry.path, root) + ("/" if entry.is_folder else "")

    return list(islice(matches(), limit))


def _anywhere(pattern: str) -> str:
    return pattern if pattern == "**" or pattern.startswith(("/", "**/")) else f"**/{pattern}"


def _format(found: list[str], limit: int) -> ToolResult:
    names = sorted(os.fsencode(path).decode("utf-8", "replace") for path in found)
    if len(found) < limit:
        return listing_result(names, {})
    notice = f"{limit} results limit reached. Use limit={2 * limit} for more, or refine pattern"
    return listing_result(names, {"resultLimitReached": limit}, notice)


TOOL = Tool(
    name="find",
    label="find",
    description=(
        "Find files and folders by a glob pattern; returns paths relative to the folder searched. Leaves out what "
        f".gitignore names, includes hidden files. Ends after {_DEFAULT_LIMIT} results or {MAX_BYTES // 1024}KB, "
        "whichever comes first."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Glob such as '*.ts', '**/*.json' or 'src/**/*_test.py'"},
            "path": {"type": "string", "description": "Folder to search; default: the working directory"},
            "limit": {"type": "number", "description": f"Most results to return; default: {_DEFAULT_LIMIT}"},
        },
        "required": ["pattern"],
    },
    execute=_execute,
    snippet="Find files by glob pattern (respects .gitignore)",
)
