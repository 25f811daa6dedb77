"""Make the pages and tables that come from the code: docs/protocol.md, the tables of docs/ between `<!-- x -->` and
`<!-- /x -->`, and the list of tools for the web pages.

`python scripts/manual.py` writes them; with `--check` it only names files that are not current, and exits with 1.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from marks import put
from reference import reference_page

from spindle.agent.run.result import EXIT_CODES
from spindle.apps.cli.args import OPTIONS
from spindle.apps.cli.subcommands import COMMANDS
from spindle.base.settings import Settings
from spindle.events import AnyEvent
from spindle.llm.compat import ChatCompat, MessagesCompat, ResponsesCompat
from spindle.resources.field_notes import field_notes
from spindle.shapes.builtin_tools import BUILTIN_TOOLS, TOOLS, only_reads
from spindle.shapes.permission_modes import PERMISSION_MODES
from spindle.shapes.pieces import StreamEvent
from spindle.shapes.protected_files import PROTECTED_FILES, PROTECTED_FOLDERS
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.sandbox import SANDBOX_LEVELS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXITS = {
    "ok": "done",
    "error": "the run failed, or its last answer was cut at its limit; also: something is broken (`doctor`, "
    "`sessions check`), the session is locked",
    "aborted": "the run was aborted",
    "denied": "a tool call was refused by the permissions, even if the model went on without it",
    "limit": "a limit was reached: turns, cost, time, tokens, or a run that would not end by itself",
    "schema": "no result fits the JSON Schema of `--json-schema`",
    "waiting": "a call waits for the answer to its question (`--on-question wait`, "
    "[A question that waits](durable.md#a-question-that-waits))",
}
"""Status of a run → meaning of its exit code. Code 2 and the codes of signals do not come from a run."""


def parts() -> Iterator[tuple[str, str, str]]:
    """Yield page, name of the part, and its text."""
    yield "settings.md", "settings", "\n".join(_settings(Settings, ""))
    yield "providers.md", "compat", "\n".join(_compat())
    yield "cli.md", "options", "\n".join(_options())
    yield "cli.md", "commands", "\n".join(_commands())
    yield "cli.md", "exits", "\n".join(_exits())
    yield "cli.md", "limits", "\n".join(_limits())
    yield "cli.md", "tools", "\n".join(_tools())
    yield "python-api.md", "python-events", "\n".join(_python_events(get_args(AnyEvent)))
    yield "python-api.md", "python-pieces", "\n".join(_python_pieces())
    yield "permissions.md", "modes", "\n".join(_modes())
    yield "permissions.md", "protected", "\n".join(_protected())


# -- settings ----------------------------------------------------------------------------------------


def _settings(group: type[msgspec.Struct], prefix: str) -> list[str]:
    """Return a section for the keys of a group, then those of the groups in it."""
    notes = field_notes(group)
    fields = msgspec.structs.fields(group)
    inner = [item for item in fields if isinstance(item.type, type) and issubclass(item.type, msgspec.Struct)]
    lines = [f"## `{prefix.rstrip('.')}`" if prefix else "## Top level", ""]
    if prefix:
        lines += [_one_line(group.__doc__ or ""), ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    for item in fields:
        if item in inner:
            continue
        lines.append(_field(item, notes, prefix))
    for item in inner:
        lines += ["", *_settings(item.type, f"{prefix}{item.encode_name}.")]
    return lines


def _field(item: msgspec.structs.FieldInfo, notes: dict[str, str], prefix: str = "") -> str:
    """Return the row of a field: key, type, default, meaning."""
    default = item.default if item.default is not msgspec.NODEFAULT else item.default_factory()
    shown = "–" if default is None else f"`{msgspec.json.encode(default).decode()}`"
    key = f"{prefix}{item.encode_name}"
    return f"| `{key}` | {_type(item.type)} | {shown} | {_one_line(notes[item.encode_name])} |"


def _type(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if hasattr(kind, "__metadata__"):
        return _type(inner[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"object of {_type(inner[1])}"
    if origin is not None:  # a union
        return " or ".join(_type(option) for option in inner if option is not type(None))
    return {str: "text", bool: "true or false", int: "whole number", float: "number"}.get(kind, "anything")


# -- compat flags ------------------------------------------------------------------------------------


def _compat() -> list[str]:
    lines: list[str] = []
    for group in (ChatCompat, MessagesCompat, ResponsesCompat):
        notes = field_notes(group)
        lines += [_one_line(group.__doc__ or ""), "", "| flag | type | default | meaning |", "|---|---|---|---|"]
        lines += [*(_field(item, notes) for item in msgspec.structs.fields(group)), ""]
    return lines[:-1]


# -- Python ------------------------------------------------------------------------------------------


def _python_events(kinds: Iterable[type[msgspec.Struct]]) -> list[str]:
    """Return a table of events as a program sees them."""
    lines = ["| `type` | class and fields | what it says |", "|---|---|---|"]
    for tag, kind in sorted((str(kind.__struct_config__.tag), kind) for kind in kinds):
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        lines.append(f"| `{tag}` | `{kind.__name__}`{f': {fields}' if fields else ''} | {_first(kind.__doc__ or '')} |")
    return lines


def _python_pieces() -> list[str]:
    """Return a table of the pieces of a streamed answer."""
    lines = ["| `type` | class and fields |", "|---|---|"]
    for kind in get_args(StreamEvent):
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        lines.append(f"| `{kind.__struct_config__.tag}` | `{kind.__name__}`: {fields} |")
    return lines


def _first(text: str) -> str:
    """Return the first sentence of a docstring."""
    whole = _one_line(text)
    return whole[: whole.find(". ") + 1] if ". " in whole else whole


# -- the command line --------------------------------------------------------------------------------


def _options() -> list[str]:
    lines = ["| option | value | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        names = ", ".join(f"`{name}`" for name in option.names.split())
        value = f"`{_one_line(option.value)}`" if option.value else ""
        lines.append(f"| {names} | {value} | {_one_line(option.help)} |")
    return lines


def _commands() -> list[str]:
    lines = ["| command | what it does |", "|---|---|"]
    for name, command in COMMANDS.items():
        lines.append(f"| `{f'spindle {name} {command.usage}'.strip()}` | {getattr(command, 'help', '')} |")
    return lines


def _exits() -> list[str]:
    rows = {(code, f"`{status}`", EXITS[status]) for status, code in EXIT_CODES.items()}
    rows |= {(2, "–", "the command line is wrong, or names what there is not; nothing was done")}
    lines = ["| code | status | meaning |", "|---|---|---|"]
    lines += [f"| {code} | {status} | {meaning} |" for code, status, meaning in sorted(rows)]
    return [*lines, "| 128 + n | – | ended by signal n: 130 Ctrl-C, 143 SIGTERM, 129 the terminal was closed |"]


def _limits() -> list[str]:
    lines = ["| option | field of `prompt` | in Python | counts |", "|---|---|---|---|"]
    lines += [f"| `{one.option}` | `{one.wire_name}` | `{one.name}` | {one.words.unit} |" for one in RUN_LIMITS]
    return lines


# -- tools and permissions ---------------------------------------------------------------------------


def _tools() -> list[str]:
    lines = ["| tool | what it does | active by default | only reads | permission rule |", "|---|---|---|---|---|"]
    for name in BUILTIN_TOOLS:
        facts, tool = TOOLS[name], import_module(f"spindle.tools.{name}").TOOL
        rule = {"read": "Read", "search": "Read", "edit": "Edit"}.get(facts.kind, name.capitalize())
        marks = " | ".join("yes" if is_so else "" for is_so in (facts.default, only_reads(name)))
        lines.append(f"| `{name}` | {_one_line(tool.snippet)} | {marks} | `{rule}` |")
    return lines


def _modes() -> list[str]:
    lines = ["| mode | |", "|---|---|"]
    return [*lines, *(f"| `{name}` | {words.help} |" for name, words in PERMISSION_MODES.items())]


def _protected() -> list[str]:
    kinds = (("all in a folder", PROTECTED_FOLDERS), ("a file", PROTECTED_FILES))
    lines = ["| of this name, wherever it is | |", "|---|---|"]
    return [*lines, *(f"| {kind} | {', '.join(f'`{name}`' for name in names)} |" for kind, names in kinds)]


def _tool_kinds() -> str:
    kinds = "".join(f"  {name}: '{tool.kind}',\n" for name, tool in TOOLS.items())
    head = "// What the tools of the agent do. Made by scripts/manual.py from shapes/builtin_tools.py; do not edit.\n\n"
    return f"{head}/** @type {{Record<string, string>}} */\nexport const TOOL_KINDS = {{\n{kinds}}};\n"


def _permission_words() -> str:
    """Return the script with the words for permission modes and sandbox levels, as the formatter would have it."""
    text = (
        "// Words of modes and levels, made by scripts/manual.py from permission_modes.py and sandbox.py of shapes.\n"
    )
    for name, words in (("PERMISSION_MODES", PERMISSION_MODES), ("SANDBOX_LEVELS", SANDBOX_LEVELS)):
        lines = [_array([key, one.title, one.help]) for key, one in words.items()]
        text += f"\nexport const {name} = [\n{''.join(lines)}];\n"
    return text


def _array(texts: list[str]) -> str:
    quoted = [json.dumps(text) if "'" in text else f"'{text}'" for text in texts]
    line = f"  [{', '.join(quoted)}],\n"
    return line if len(line) <= 121 else "".join(["  [\n", *(f"    {text},\n" for text in quoted), "  ],\n"])


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# -- the pages ---------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every file with parts made from the code, and its current text."""
    texts: dict[str, str] = {}
    for page, name, made in parts():
        before = texts.get(page) or (DOCS / page).read_text()
        texts[page] = put(before, name, made)
    for page, text in texts.items():
        yield DOCS / page, text
    yield DOCS / "protocol.md", reference_page()
    yield ROOT / "src/spindle/web/shared/tool-kinds.js", _tool_kinds()
    yield ROOT / "src/spindle/web/chat/permission-words.js", _permission_words()


def main() -> int:
    stale = [(path, text) for path, text in pages() if path.read_text() != text]
    for path, text in stale:
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is not current: run python scripts/manual.py")
        else:
            path.write_text(text)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
