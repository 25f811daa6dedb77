"""The `grep` tool: lines that match a pattern, found by ripgrep or our stand-in for it."""

import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from spindle.shapes.codec import decode, encode
from spindle.shapes.events import ToolResult
from spindle.tools.base import Tool, ToolContext, ToolError, text_result
from spindle.tools.binaries import find_program
from spindle.tools.files import require_regular
from spindle.tools.listing import listing_result
from spindle.tools.paths import resolve_path
from spindle.tools.program import LineTooLongError, argument, run_program
from spindle.tools.threads import Cancel, run_abandonable
from spindle.tools.truncate import MAX_BYTES, MAX_LINE_LENGTH, truncate_line

__all__ = ["TOOL"]

_DEFAULT_LIMIT = 100
_MAX_CONTEXT = MAX_BYTES // 5
"""A line of output takes more than five bytes, so no more lines than this could ever be shown."""
_KEPT_BYTES = 16 * MAX_LINE_LENGTH
_CHUNK = 1024 * 1024


class _Match(msgspec.Struct):
    path: str
    line: int
    text: str


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = resolve_path(args.get("path") or ".", ctx.cwd)
    limit = max(1, int(args.get("limit", _DEFAULT_LIMIT)))
    context = min(max(0, int(args.get("context") or 0)), _MAX_CONTEXT)
    await run_abandonable(lambda _: _check_path(path))
    rg = find_program(("rg",), ctx.settings)
    try:
        matches = await _search(_command(args, path, ctx.cwd, rg), ctx.cwd, limit)
    except LineTooLongError:  # ripgrep prints lines whole, whatever their length; our stand-in does not
        matches = await _search(_command(args, path, ctx.cwd, None), ctx.cwd, limit)
    if not matches:
        return text_result("No matches found")
    return await run_abandonable(lambda cancel: _format(matches, path, limit, context, cancel))


def _check_path(path: str) -> None:
    try:
        require_regular(path)  # ripgrep itself would wait for ever at a pipe
    except IsADirectoryError:
        pass
    except OSError:
        raise ToolError(f"Path not found: {path}") from None


def _command(args: dict[str, Any], path: str, cwd: str, rg: str | None) -> list[str]:
    pattern, glob = argument(args["pattern"]), argument(args.get("glob") or "")
    ignore_case, literal = bool(args.get("ignoreCase")), bool(args.get("literal"))
    if rg is None:
        request = {
            "pattern": pattern,
            "path": path,
            "glob": glob,
            "ignoreCase": ignore_case,
            "literal": literal,
            "cwd": cwd,
        }
        # -P: a module of the project at hand must not be taken for one of ours.
        return [sys.executable, "-P", "-m", "spindle.tools.search", encode(request).decode()]
    command = [rg, "--json", "--line-number", "--color=never", "--hidden"]
    if ignore_case:
        command.append("--ignore-case")
    if literal:
        command.append("--fixed-strings")
    if glob:
        command += ["--glob", glob]
    return [*command, "--", pattern, path]


async def _search(command: list[str], cwd: str, limit: int) -> list[_Match]:
    matches: list[_Match] = []

    def take(line: bytes) -> bool:
        if len(matches) < limit and (match := _read_event(line)):
            matches.append(match)
        return len(matches) < limit

    code, complaint = await run_program("ripgrep", command, cwd, take)
    matches.sort(key=lambda match: match.path.split(os.sep))  # ripgrep's threads finish in any order
    # A file that could not be read is no reason to keep quiet about the others.
    if code not in (0, 1) and not matches:
        raise ToolError(complaint)
    return matches


def _read_event(line: bytes) -> _Match | None:
    if not line.startswith(b'{"type":"match"'):
        return None
    data = decode(line)["data"]
    path, text = (_plain_bytes(data[key]) for key in ("path", "lines"))
    # Of a line of many megabytes only the part that can be shown is kept.
    return _Match(os.fsdecode(path), data["line_number"], text[:_KEPT_BYTES].decode("utf-8", "replace"))


def _plain_bytes(value: dict[str, str]) -> bytes:
    """Read ripgrep's form of text that may not be UTF-8."""
    if "text" in value:
        return value["text"].encode("utf-8", "surrogateescape")
    from base64 import b64decode

    return b64decode(value["bytes"])


def _format(matches: list[_Match], root: str, limit: int, context: int, cancel: Cancel) -> ToolResult:
    in_folder = os.path.isdir(root)
    surroundings = _read_surroundings(matches, context, cancel) if context else {}
    lines: list[str] = []
    any_cut = False
    for match in matches:
        name = os.path.relpath(match.path, root) if in_folder else os.path.basename(match.path)
        name = os.fsencode(name).decode("utf-8", "replace").replace(os.sep, "/")
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


def _read_surroundings(matches: list[_Match], context: int, cancel: Cancel) -> dict[str, dict[int, str]]:
    """Return, file by file, the matched lines and those around them, by number."""
    wanted: dict[str, set[int]] = {}
    for match in matches:
        wanted.setdefault(match.path, set()).update(range(match.line - context, match.line + context + 1))
    return {path: _read_lines(path, numbers, cancel) for path, numbers in wanted.items()}


def _read_lines(path: str, wanted: set[int], cancel: Cancel) -> dict[int, str]:
    found: dict[int, str] = {}
    last = max(wanted)
    number, ended = 0, True
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_line_heads(file), 1):
                if number in wanted:
                    cancel.check()
                    found[number] = line.decode("utf-8", "replace")
                if number == last:
                    return found
                ended = line.endswith(b"\n")
    except OSError:
        return {}
    if ended and number + 1 in wanted:
        found[number + 1] = ""  # As editors number them.
    return found


def _line_heads(file: BinaryIO) -> Iterator[bytes]:
    """Yield every line, of one of many megabytes only what can be shown of it."""
    while line := file.readline(_KEPT_BYTES):
        head = line
        while not line.endswith(b"\n") and (rest := file.readline(_CHUNK)):
            line = rest
        yield head if head is line or not line.endswith(b"\n") else head + b"\n"


TOOL = Tool(
    name="grep",
    label="grep",
    description=(
        "Search file contents for a pattern; returns matching lines with file names and line numbers. Leaves out what "
        f".gitignore names, includes hidden files. Ends after {_DEFAULT_LIMIT} matches or {MAX_BYTES // 1024}KB, "
        f"whichever comes first; lines are cut at {MAX_LINE_LENGTH} characters."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Regular expression, or plain text if literal is set"},
            "path": {"type": "string", "description": "Folder or file to search; default: the working directory"},
            "glob": {"type": "string", "description": "Only files matching this, such as '*.ts' or 'src/**/*.py'"},
            "ignoreCase": {"type": "boolean", "description": "Ignore case; default: false"},
            "literal": {"type": "boolean", "description": "Take the pattern as plain text; default: false"},
            "context": {"type": "number", "description": "Lines to show before and after each match; default: 0"},
            "limit": {"type": "number", "description": f"Most matches to return; default: {_DEFAULT_LIMIT}"},
        },
        "required": ["pattern"],
    },
    execute=_execute,
    snippet="Search file contents for patterns (respects .gitignore)",
)
