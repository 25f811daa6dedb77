"""What a question about a tool call shows: the change of a file, the command, the fields of a call, an address."""

import copy
from typing import Any, Final

from spindle.base.errors import told
from spindle.shapes.approvals import (
    AddressPreview,
    CallField,
    CommandPreview,
    DiffPreview,
    FailurePreview,
    FieldsPreview,
    Preview,
)
from spindle.shapes.builtin_tools import TOOLS
from spindle.shapes.codec import encode
from spindle.shapes.sandbox import SandboxLevel
from spindle.tools.base import Tool, ToolContext, ToolError

_MOST: Final = 64 * 1024
"""Characters of a field."""
_ADDRESSES: Final = ("url", "uri", "address", "href")


async def preview_of(
    tool: Tool, arguments: Any, ctx: ToolContext, *, level: SandboxLevel, unsure: str | None, far: str | None
) -> Preview:
    """Return what a call would do, without doing it. `arguments` are a copy."""
    if tool.preview is not None:
        try:
            return await tool.preview(arguments, ctx)
        except ToolError as error:
            return FailurePreview(reason=str(error))
        except Exception as error:  # of an odd path, or an editor that is silent: it is asked all the same
            return FailurePreview(reason=told(error))
    given = arguments if isinstance(arguments, dict) else {}
    if tool.name == "bash" and isinstance(command := given.get("command"), str):
        background = given.get("background") is True
        return CommandPreview(
            command=command, directory=ctx.cwd, sandbox=level, unsure=unsure, background=background, where=far
        )
    fields = [CallField(str(name), _value(value)) for name, value in given.items()]
    address = next((value for name in _ADDRESSES if isinstance(value := given.get(name), str)), "")
    if tool.name not in TOOLS and address.startswith(("http://", "https://")):
        return AddressPreview(address=address, fields=[one for one in fields if one.value != address])
    server = tool.name.split("__")[1] if tool.name.startswith("mcp__") and tool.name.count("__") >= 2 else None
    return FieldsPreview(fields=fields, server=server)


def summary_of(tool: Tool, arguments: Any, preview: Preview, far: str | None) -> str:
    """Return in words what a call would do. `far`: what leads to where it works, if not here."""
    said = _would(tool, arguments, preview)
    works_there = isinstance(preview, DiffPreview | FailurePreview) and far is not None
    return f"{said}, at the far side of {far}" if works_there else said


def _would(tool: Tool, arguments: Any, preview: Preview) -> str:
    path = arguments.get("path") if isinstance(arguments, dict) else None
    match preview:
        case DiffPreview(new_file=True, added=added):
            return f"Make the file {path} ({_lines(added)})"
        case DiffPreview(added=added, removed=removed):
            return f"{'Replace' if tool.name == 'write' else 'Change'} {path} (+{added} −{removed})"
        case CommandPreview(where=str(where)):
            return f"Run a command at the far side of {where}"
        case CommandPreview(background=True):
            return f"Run a command in the background, in {preview.directory}"
        case CommandPreview():
            return f"Run a command in {preview.directory}"
        case AddressPreview(address=address):
            return f"Ask for {address}"
        case FieldsPreview(server=str(server)):
            return f"Call {tool.name.split('__', 2)[2]} of the MCP server {server}"
        case FailurePreview() if isinstance(path, str):
            return f"{tool.name.capitalize()} {path}, which would fail"
    return f"Call {tool.name}" + (f" with {path}" if isinstance(path, str) else "")


def copied(arguments: Any) -> Any:
    """Return a copy for whoever is asked: changing it must not change what runs."""
    return copy.deepcopy(arguments)


def in_words(preview: Preview | None) -> str:
    """Return a preview as plain text, for whoever can show nothing else."""
    match preview:
        case DiffPreview(path=path, diff=diff, cut=cut, place=place):
            where = f" ({place})" if place else ""
            return f"{path}{where}\n{diff}" + ("\n… (cut)" if cut else "")
        case CommandPreview():
            about = [f"in {preview.directory}", f"sandbox: {preview.sandbox}"]
            about += [f"at the far side of {preview.where}"] if preview.where else []
            about += ["in the background"] if preview.background else []
            more = [f"{preview.command}\n({', '.join(about)})"]
            more += [f"Not certain: {preview.unsure}"] if preview.unsure else []
            more += [f"Stopped by the sandbox: {preview.stopped_by}"] if preview.stopped_by else []
            return "\n".join(more)
        case AddressPreview(address=address, fields=fields):
            return "\n".join([address, *(f"{one.name}: {one.value}" for one in fields)])
        case FieldsPreview(fields=fields):
            return "\n".join(f"{one.name}: {one.value}" for one in fields)
        case FailurePreview(reason=text):
            return f"It would fail: {text}"
    return preview.text if preview is not None else ""


def hunks(patch: str) -> list[tuple[str, str]]:
    """Return the old and the new text of each hunk of a unified diff."""
    found: list[tuple[list[str], list[str]]] = []
    before = ""
    for line in patch.split("\n")[2:]:
        if line.startswith("@@ "):
            found.append(([], []))
        elif line[:1] == "\\":  # no newline at the end: of the line before
            for side in found[-1]:
                if side and side[-1] is before:
                    side[-1] = before[:-1]
        elif line and found:
            before = f"{line[1:]}\n"
            if line[0] in " -":
                found[-1][0].append(before)
            if line[0] in " +":
                found[-1][1].append(before)
    return [("".join(old), "".join(new)) for old, new in found]


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _MOST else f"{text[:_MOST]} … ({len(text)} characters)"


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
