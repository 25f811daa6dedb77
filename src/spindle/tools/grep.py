"""The `grep` tool: lines that match a pattern, found by ripgrep. How to find and run ripgrep is here too."""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from spindle.shapes.events import ToolResult
from spindle.tools.base import (
    OTHER_FOLDER,
    OTHER_LIMIT,
    WORDS_ONLY,
    Tool,
    ToolContext,
    ToolError,
    arguments,
    os_error_text,
    renamed,
    text_result,
)
from spindle.tools.files import resolve_path
from spindle.tools.truncate import MAX_BYTES, MAX_LINE_LENGTH, listing_result, truncate_line
from spindle.workspace.disk import is_folder, read_lines, shown_name
from spindle.workspace.settings import ToolSettings
from spindle.workspace.texts import well_formed
from spindle.workspace.threads import run_abandonable

_DEFAULT_LIMIT = 100
_MAX_CONTEXT = MAX_BYTES // 5
"""A line of output takes more than five bytes, so no more lines than this could ever be shown."""
_KEPT_BYTES = 16 * MAX_LINE_LENGTH
"""Bytes read of a line: enough for the part that is shown, however many bytes a character takes."""
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LINE_BYTES = 16 * 1024 * 1024


# -- ripgrep, for find too --------------------------------------------------------------------------


def argument(pattern: str) -> str:
    """Return a pattern in a form for the command line. Raises `ToolError` if there is none."""
    if "\0" in pattern:
        raise ToolError("Pattern must not contain null bytes")
    return well_formed(pattern)


async def run_ripgrep(
    settings: ToolSettings, options: Sequence[str], cwd: str, take: Callable[[bytes], bool]
) -> tuple[int, str]:
    """Run rg; return its exit code and its complaint.

    `take` gets every line of output and says whether it wants more; rg is killed when it does not. Raises `ToolError`
    if rg cannot be started, or prints a line that would take too much memory.
    """
    rest: list[bytes] = []
    """Pieces of an unfinished line; joined once, not once per piece."""
    errors = bytearray()
    too_long = False

    def take_output(data: bytes) -> None:
        nonlocal rest, too_long
        rest.append(data)
        wants_more = True
        if b"\n" in data:
            *lines, last = b"".join(rest).split(b"\n")
            rest = [last]
            wants_more = all(map(take, lines))
        too_long = wants_more and sum(map(len, rest)) > _MAX_LINE_BYTES
        if too_long or not wants_more:
            process.kill()

    def take_errors(data: bytes) -> None:
        errors.extend(data[: _MAX_ERROR_BYTES - len(errors)])

    # --no-config: the user's own options would change what is printed.
    given = ["--no-config", *options]
    try:
        process = await settings.workspace.ripgrep(given, cwd, take_output, take_errors)
    except OSError as error:
        raise ToolError(f"Failed to run ripgrep: {os_error_text(error, 'spawn', 'rg')}") from None
    code = await process.wait()
    if too_long:
        raise ToolError(f"ripgrep printed a line of more than {_MAX_LINE_BYTES} bytes")
    return code, errors.decode("utf-8", "replace").strip() or f"ripgrep exited with code {code}"


# -- the tool ----------------------------------------------------------------------------------------


class _MatchLine(msgspec.Struct):
    path: str
    line: int
    text: str


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = resolve_path(args.get("path") or ".", ctx.cwd, ctx.workspace.home)
    ctx.require(path)
    limit = max(1, int(args.get("limit", _DEFAULT_LIMIT)))
    context = min(max(0, int(args.get("context") or 0)), _MAX_CONTEXT)
    in_folder = await ctx.workspace.do(is_folder, path)
    matches: list[_MatchLine] = []
    may_read = lru_cache(None)(lambda file: ctx.may_read(file) and not ctx.workspace.hides(file))

    def take(line: bytes) -> bool:
        if (match := _read_match(line)) and may_read(match.path):
            matches.append(match)
        return len(matches) < limit

    code, complaint = await run_ripgrep(ctx.settings, _options(args, path, in_folder), ctx.cwd, take)
    del matches[limit:]
    matches.sort(key=lambda match: match.path.split(os.sep))  # ripgrep's threads finish in any order
    if not matches:
        # If only some files could not be read, matches in the others are still shown.
        if code not in (0, 1):
            raise ToolError(complaint)
        return text_result("No matches found")
    wanted: dict[str, list[int]] = {}
    for match in matches if context else ():
        wanted.setdefault(match.path, []).extend(range(match.line - context, match.line + context + 1))
    around = await ctx.workspace.do(read_lines, wanted, _KEPT_BYTES) if wanted else {}
    return await run_abandonable(lambda cancel: _format(matches, around, path, in_folder, limit, context))


def _options(args: dict[str, Any], path: str, in_folder: bool) -> list[str]:
    # Not --json: that prints lines whole, whatever their length.
    options = ["--no-heading", "--with-filename", "--null", "--line-number", "--color=never", "--hidden"]
    options += [f"--max-columns={_KEPT_BYTES}", "--max-columns-preview"]
    if not in_folder:
        options.append("--text")  # a file that is named is searched, whatever its content
    if args.get("ignoreCase"):
        options.append("--ignore-case")
    if args.get("literal"):
        options.append("--fixed-strings")
    if glob := args.get("glob"):
        options += ["--glob", argument(glob)]
    return [*options, "--", argument(args["pattern"]), path]


def _read_match(line: bytes) -> _MatchLine | None:
    """Read `<path> NUL <number>:<text>`; None for remarks on binary files."""
    path, _, rest = line.partition(b"\0")
    number, colon, text = rest.partition(b":")
    return _MatchLine(os.fsdecode(path), int(number), text.decode("utf-8", "replace")) if colon else None


def _format(
    matches: list[_MatchLine],
    around: dict[str, list[tuple[int, str]]],
    root: str,
    in_folder: bool,
    limit: int,
    context: int,
) -> ToolResult:
    surroundings = {path: dict(lines) for path, lines in around.items()}
    lines: list[str] = []
    any_cut = False
    for match in matches:
        name = os.path.relpath(match.path, root) if in_folder else os.path.basename(match.path)
        name = shown_name(name).replace(os.sep, "/")
        known = surroundings.get(match.path, {match.line: match.text})
        if match.line not in known:
            lines.append(f"{name}:{match.line}: (unable to read file)")
        for number in range(match.line - context, match.line + context + 1):
            if number in known:
                text, cut = truncate_line(known[number].removesuffix("\n").replace("\r", ""))
                any_cut = any_cut or cut
                mark = ":" if number == match.line else "-"
                lines.append(f"{name}{mark}{number}{mark} {text}")
    limits: dict[str, Any] = {}
    notice = remark = ""
    if len(matches) >= limit:
        limits["matchLimitReached"] = limit
        notice = f"{limit} matches limit reached. Use limit={2 * limit} for more, or refine pattern"
    if any_cut:
        limits["linesTruncated"] = True
        remark = f"Some lines truncated to {MAX_LINE_LENGTH} chars. Use read tool to see full lines"
    return listing_result(lines, limits, notice, remark)


_OTHER_NAMES = OTHER_FOLDER | OTHER_LIMIT
_OTHER_NAMES |= {"include": "glob", "-i": "ignoreCase", "ignore_case": "ignoreCase", "fixed_strings": "literal"}
_LINES_AROUND = ("-A", "-B", "-C")


def _prepare(args: Any) -> Any:
    """Take what grep itself, and programs that are like it, call our options."""
    args = renamed(args, _OTHER_NAMES)
    if isinstance(args, dict) and any(name in args for name in _LINES_AROUND):
        args = dict(args)
        counts = [args.pop(name, 0) for name in _LINES_AROUND]
        args.setdefault("context", max((count for count in counts if isinstance(count, int | float)), default=0))
    return args


TOOL = Tool(
    name="grep",
    description=(
        "Search file contents for a pattern; returns matching lines with file names and line numbers. Leaves out what "
        f".gitignore names, includes hidden files. Ends after {_DEFAULT_LIMIT} matches or {MAX_BYTES // 1024}KB, "
        f"whichever comes first; lines are cut at {MAX_LINE_LENGTH} characters."
    ),
    parameters=arguments(
        "pattern",
        pattern="Regular expression, or plain text if literal is set",
        path="Folder or file to search; default: the working directory",
        glob="Only files matching this, such as '*.ts' or 'src/**/*.py'",
        ignoreCase=("boolean", "Ignore case; default: false"),
        literal=("boolean", "Take the pattern as plain text; default: false"),
        context=("number", "Lines to show before and after each match; default: 0"),
        limit=("number", f"Most matches to return; default: {_DEFAULT_LIMIT}"),
    ),
    execute=_execute,
    safe_to_retry=True,
    snippet="Search file contents for patterns (respects .gitignore)",
    prepare=_prepare,
    also_takes=WORDS_ONLY | {"-n"},  # lines always have their numbers
)
