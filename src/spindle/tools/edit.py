"""The `edit` tool: replace stretches of text in one file."""

import re
from typing import TYPE_CHECKING, Any

from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.events import ToolResult
from spindle.tools.base import (
    OTHER_PATH,
    WORDS_ONLY,
    Files,
    Tool,
    ToolContext,
    ToolError,
    arguments,
    renamed,
    text_result,
)
from spindle.tools.diff_preview import diff_preview
from spindle.tools.files import elsewhere, file_lock, require_text_place, resolve_path
from spindle.workspace.disk import read_for_edit
from spindle.workspace.texts import well_formed
from spindle.workspace.threads import run_abandonable

if TYPE_CHECKING:
    from spindle.shapes.approvals import Preview
    from spindle.tools.replace import LineChange, Lines

_MAX_FILE_BYTES = 256 * 1024 * 1024
_BOM = "\ufeff"
_OTHER_NAMES = OTHER_PATH | {"old_string": "oldText", "oldString": "oldText", "old_str": "oldText"}
_OTHER_NAMES |= {"new_string": "newText", "newString": "newText", "new_str": "newText"}
_OTHER_NAMES |= {"replaceAll": "replace_all", "allow_multiple": "replace_all"}
_LINE_END = r"\r\n|\r|\n"
_YES = (True, "true", "True")


def _prepare(args: Any) -> Any:
    """Repair what models send instead of a list of edits: the list as text, a lone edit, the fields at top level."""
    if not isinstance(args, dict):
        return args
    args = dict(renamed(args, _OTHER_NAMES))
    edits = args.get("edits")
    if isinstance(edits, str):
        try:
            edits = decode(edits)
        except DecodeError:
            return args
    if isinstance(edits, dict):
        edits = [edits]
    if isinstance(edits, list):
        edits = [renamed(edit, _OTHER_NAMES) for edit in edits]
    if isinstance(args.get("oldText"), str) and isinstance(args.get("newText"), str):
        lone = {"oldText": args.pop("oldText"), "newText": args.pop("newText")}
        edits = [*edits, lone] if isinstance(edits, list) else [lone]
    if isinstance(edits, list):
        # Beside one edit or all of them: how models of other programs ask for every occurrence.
        count = args.pop("expected_replacements", None)
        if args.pop("replace_all", None) in _YES or (isinstance(count, int) and count > 1):
            edits = [{"replace_all": True, **edit} if isinstance(edit, dict) else edit for edit in edits]
        args["edits"] = edits
    return args


def _place(args: dict[str, Any], ctx: ToolContext) -> str:
    if not args["edits"]:
        raise ToolError("Edit tool input is invalid. edits must contain at least one replacement.")
    path = resolve_path(args["path"], ctx.cwd, ctx.workspace.home)
    ctx.require(path, write=True)
    return path


async def _preview(args: dict[str, Any], ctx: ToolContext) -> "Preview":
    path, place = _place(args, ctx), None
    text = None if ctx.files is None else await ctx.files.read(path)
    if text is not None and ctx.files is not None:
        place = ctx.files.name
    else:
        data = await ctx.workspace.do(read_for_edit, path, args["path"], ctx.cwd, _MAX_FILE_BYTES)
        text = data.decode("utf-8", "surrogateescape")
    details = await run_abandonable(lambda cancel: _replace(text, args)[1])
    return diff_preview(path, details["diff"], details["patch"], place=place)


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    path = _place(args, ctx)
    async with file_lock(path):
        if ctx.files is not None:
            await ctx.workspace.do(require_text_place, path)
            text = await ctx.files.read(path)
            if text is not None:
                return await _edit_elsewhere(path, text, args, ctx.files)
        return await _edit(path, args, ctx)


async def _edit_elsewhere(path: str, text: str, args: dict[str, Any], files: Files) -> ToolResult:
    new_text, details = await run_abandonable(lambda cancel: _replace(text, args))
    if not await files.write(path, new_text):
        raise ToolError(f"Could not edit file: {args['path']}. It was not written in {files.name}.")
    return _done(args, details, elsewhere(path, new_text, files))


async def _edit(path: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    def new(data: bytes) -> tuple[bytes, dict[str, Any]]:
        # Bytes that are not UTF-8 pass unchanged, as surrogates.
        text, details = _replace(data.decode("utf-8", "surrogateescape"), args)
        return text.encode("utf-8", "surrogateescape"), details

    return _done(args, await ctx.workspace.edit(path, args["path"], ctx.cwd, _MAX_FILE_BYTES, new))


def _done(args: dict[str, Any], details: dict[str, Any], where: str = "") -> ToolResult:
    every = " everywhere" if any(edit.get("replace_all") in _YES for edit in args["edits"]) else ""
    return text_result(f"Successfully replaced {len(args['edits'])} block(s) in {args['path']}{every}{where}.", details)


def _replace(text: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the new text of a file, and the details of the result. Raises `ToolError`."""
    from spindle.tools.replace import Edit, Lines, display_diff, find_changes, replace_texts, unified_patch

    shown = args["path"]
    edits = [
        Edit(_unix(well_formed(edit["oldText"])), _unix(well_formed(edit["newText"])), edit.get("replace_all") in _YES)
        for edit in args["edits"]
    ]
    bom = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(_BOM)
    replaced = replace_texts(_unix(text), edits, shown)
    old, new = replaced.old_lines, Lines(replaced.text)
    changes = find_changes(old, replaced.regions)
    new_text = _with_line_ends(text, old, new, changes) if "\r" in text else replaced.text
    return bom + new_text, {
        "diff": _readable(display_diff(old, new, changes)),
        "patch": _readable(unified_patch(old, new, changes, shown)),
        "firstChangedLine": changes[0].new_start + 1,
    }


def _with_line_ends(text: str, old: "Lines", new: "Lines", changes: "list[LineChange]") -> str:
    """Put the changed lines into the text as it was: other lines keep their endings, new ones take those of the old."""
    usual = re.findall(_LINE_END, text[: text.find("\n") + 1])[-1:] or ["\n"]
    pieces: list[str] = []
    plain = done = 0
    """Positions reached in the text with plain newlines and in `text`; always at the start of a line."""
    for change in changes:
        start = _line_start(text, done, old.starts[change.start] - plain)
        end = _line_start(text, start, old.starts[change.end] - old.starts[change.start])
        replaced = re.findall(_LINE_END, text[start:end])
        before = re.findall(_LINE_END, text[max(0, start - 2) : start])[-1:]
        endings = replaced or before or usual
        pieces.append(text[done:start])
        for number, line in enumerate(new[change.new_start : change.new_end]):
            body, newline, _ = line.partition("\n")
            pieces += body, newline and endings[min(number, len(endings) - 1)]
        plain, done = old.starts[change.end], end
    return "".join([*pieces, text[done:]])


def _line_start(text: str, start: int, length: int) -> int:
    """Return where the line begins that, with plain newlines, would begin `length` characters after `start`."""
    end = start + length
    while (further := start + length + text.count("\r\n", start, end)) != end:
        end = further
    return end + 1 if length and text[end - 1 : end + 1] == "\r\n" else end


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


TOOL = Tool(
    name="edit",
    description=(
        "Replace exact text in one file. Every oldText must occur exactly once in the file as it is now, and no two "
        "may overlap: merge changes that touch or lie close together into one edit, and make distant ones as several "
        "edits of the same call. Keep oldText as short as uniqueness allows."
    ),
    parameters=arguments(
        "path",
        "edits",
        path="File to edit, relative or absolute",
        edits={
            "type": "array",
            "description": "Replacements, all matched against the file as it is before the call",
            "items": arguments(
                "oldText",
                "newText",
                oldText="Exact text that occurs once in the file",
                newText="Text to put in its place",
            ),
        },
    ),
    execute=_execute,
    snippet="Make precise changes to files by replacing exact text, several places in one call",
    guidelines=("Change existing files with edit; oldText must match exactly, whitespace included.",),
    prepare=_prepare,
    also_takes=WORDS_ONLY,
    preview=_preview,
    interruptible=False,
)
