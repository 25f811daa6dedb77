"""The `find` tool: files, and the folders they lie in, by name. ripgrep lists the files; the pattern is matched here.

ripgrep's own `--glob` would also find files that ignore files exclude.
"""

import os
from typing import Any

from spindle.shapes.events import ToolResult
from spindle.tools.base import (
    OTHER_FOLDER,
    OTHER_LIMIT,
    WORDS_ONLY,
    Tool,
    ToolContext,
    ToolError,
    arguments,
    renamed,
    text_result,
)
from spindle.tools.files import resolve_path
from spindle.tools.grep import argument, run_ripgrep
from spindle.tools.truncate import MAX_BYTES, listing_result
from spindle.workspace.disk import in_repository, shown_name

_DEFAULT_LIMIT = 1000


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    root = resolve_path(args.get("path") or ".", ctx.cwd, ctx.workspace.home)
    ctx.require(root)
    limit = max(1, int(args.get("limit", _DEFAULT_LIMIT)))
    search = _Search(argument(args["pattern"]), root, limit)
    options = ["--files", "--hidden", "--color=never", "--glob=!.git"]
    if not await ctx.workspace.do(in_repository, root):
        options.append("--no-require-git")
    code, complaint = await run_ripgrep(ctx.settings, options, root, search.take)
    # If only some folders could not be read, the rest is still shown; 1 means that there are no files.
    if code > 1 and not search.any_files:
        raise ToolError(complaint)
    if not search.found:
        return text_result("No files found matching pattern")
    names = sorted(map(shown_name, search.found))
    if len(names) < limit:
        return listing_result(names, {})
    notice = f"{limit} results limit reached. Use limit={2 * limit} for more, or refine pattern"
    return listing_result(names, {"resultLimitReached": limit}, notice)


class _Search:
    """The paths that match, collected from the files that ripgrep lists."""

    def __init__(self, pattern: str, root: str, limit: int) -> None:
        """Raises `ToolError` if the pattern makes no sense."""
        from spindle.base.globs import GlobError, PathGlob, expand_braces

        self.found: list[str] = []
        """Paths relative to the folder searched; folders with a slash at the end."""
        self.any_files = False
        self._folders = {""}
        """Folders already looked at."""
        self._limit = limit
        self._root: list[str] | None = None
        """Parts of the path to the folder searched, if the pattern is for whole paths and not for names."""
        ignore_case = pattern == pattern.lower()
        if "/" in pattern:
            self._root = [part for part in root.split("/") if part]
            if not pattern.startswith(("/", "**/")):
                pattern = f"**/{pattern}"
        try:
            self._globs = [PathGlob(choice.removeprefix("/"), ignore_case) for choice in expand_braces(pattern)]
        except GlobError as error:
            raise ToolError(str(error)) from None

    def take(self, line: bytes) -> bool:
        """Look at a file and at the folders that lead to it; return whether more files are wanted."""
        self.any_files = True
        path = os.fsdecode(line)
        self._look_at(path, "")
        folder = os.path.dirname(path)
        while folder not in self._folders:
            self._folders.add(folder)
            self._look_at(folder, "/")
            folder = os.path.dirname(folder)
        return len(self.found) < self._limit

    def _look_at(self, path: str, mark: str) -> None:
        parts = [os.path.basename(path)] if self._root is None else [*self._root, *path.split("/")]
        if len(self.found) < self._limit and any(glob.match(parts) for glob in self._globs):
            self.found.append(path + mark)


TOOL = Tool(
    name="find",
    description=(
        "Find files, and folders with files in them, by a glob pattern; returns paths relative to the folder searched. "
        f"Leaves out what .gitignore names, includes hidden files. Ends after {_DEFAULT_LIMIT} results or "
        f"{MAX_BYTES // 1024}KB, whichever comes first."
    ),
    parameters=arguments(
        "pattern",
        pattern="Glob such as '*.ts', '**/*.json' or 'src/**/*_test.py'",
        path="Folder to search; default: the working directory",
        limit=("number", f"Most results to return; default: {_DEFAULT_LIMIT}"),
    ),
    execute=_execute,
    safe_to_retry=True,
    snippet="Find files by glob pattern (respects .gitignore)",
    prepare=lambda args: renamed(args, OTHER_FOLDER | OTHER_LIMIT | {"glob_pattern": "pattern"}),
    also_takes=WORDS_ONLY,
)
