"""The `edit` tool: replace stretches of text in one file."""

from typing import Any

from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.events import ToolResult
from spindle.tools.base import (
    Tool,
    ToolContext,
    ToolError,
    arguments,
    doing,
    error_code,
    format_size,
    os_error_text,
    text_result,
    well_formed,
)
from spindle.tools.files import Cancel, file_lock, overwrite, require_regular, resolve_path, run_to_end

_MAX_FILE_BYTES = 256 * 1024 * 1024
_BOM = "\ufeff"


def _prepare(args: Any) -> Any:
    """Repair what models send instead of a list of edits: the list as text, a lone edit, the fields at top level."""
    if not isinstance(args, dict):
        return args
    args = dict(args)
    edits = args.get("edits")
    if isinstance(edits, str):
        try:
            edits = decode(edits)
        except DecodeError:
            return args
    if isinstance(edits, dict):
        edits = [edits]
    if isinstance(args.get("oldText"), str) and isinstance(args.get("newText"), str):
        lone = {"oldText": args.pop("oldText"), "newText": args.pop("newText")}
        edits = [*edits, lone] if isinstance(edits, list) else [lone]
    if isinstance(edits, list):
        args["edits"] = edits
    return args


async def _execute(call_id: str, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    if not args["edits"]:
        raise ToolError("Edit tool input is invalid. edits must contain at least one replacement.")
    path = resolve_path(args["path"], ctx.cwd)
    async with file_lock(path):
        return await run_to_end(lambda cancel: _edit(path, args, cancel))


def _edit(path: str, args: dict[str, Any], cancel: Cancel) -> ToolResult:
    from spindle.tools.replace import Edit, display_diff, find_changes, replace_texts, split_lines, unified_patch

    shown = args["path"]
    edits = [Edit(_unix(well_formed(edit["oldText"])), _unix(well_formed(edit["newText"]))) for edit in args["edits"]]
    try:
        size = require_regular(path).st_size
        if size > _MAX_FILE_BYTES:
            limit = format_size(_MAX_FILE_BYTES)
            raise ToolError(f"Could not edit file: {shown}. It is {format_size(size)}, more than {limit}.")
        # Opened for both at once, so that nothing is worked out for a file that cannot be written.
        file = open(path, "r+b")  # noqa: SIM115
    except IsADirectoryError as error:
        raise ToolError(os_error_text(error, "read")) from None
    except OSError as error:
        raise ToolError(f"Could not edit file: {shown}. Error code: {error_code(error)}.") from None
    with file:
        # Bytes that are no UTF-8 go through unharmed as surrogates.
        text = file.read().decode("utf-8", "surrogateescape")
        bom = _BOM if text.startswith(_BOM) else ""
        text = text.removeprefix(_BOM)
        first_newline = text.find("\n")
        crlf = first_newline > 0 and text[first_newline - 1] == "\r"
        replaced = replace_texts(_unix(text), edits, shown)
        cancel.check()
        new_text = replaced.text.replace("\n", "\r\n") if crlf else replaced.text
        with doing("write"):
            overwrite(file.fileno(), (bom + new_text).encode("utf-8", "surrogateescape"))
    old, new = replaced.old_lines, split_lines(replaced.text)
    changes = find_changes(old, replaced.regions)
    return text_result(
        f"Successfully replaced {len(edits)} block(s) in {shown}.",
        {
            "diff": _readable(display_diff(old, new, changes)),
            "patch": _readable(unified_patch(old, new, changes, shown)),
            "firstChangedLine": changes[0].new_start + 1,
        },
    )


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


TOOL = Tool(
    name="edit",
    description=(
        "Replace exact text in one file. Every oldText must occur exactly once in the file as it is now, and no two "
        "may overlap: merge changes that touch or lie close together into one edit, and make distant ones as several "
        "edits of one call. Keep oldText as short as uniqueness allows."
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
    guidelines=(
        "Change existing files with edit; oldText must match exactly, whitespace included.",
        "Make all changes to one file in one edit call, one entry of edits per place; never overlapping or nested.",
        "Keep oldText short, but unique; do not bridge distant changes with unchanged text.",
    ),
    prepare=_prepare,
    interruptible=False,
)
