#!/usr/bin/env python3
"""Write `src/spindle/client/commands.py`: each command as a method with types. `--check` says whether it is current.

What a method takes, answers and does comes from the registry. The tables below say where the client differs.
"""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from spindle.protocol.commands import COMMANDS
from spindle.protocol.registry import CommandSpec

PLACE = Path(__file__).resolve().parent.parent / "src/spindle/client/commands.py"
HEAD = '''\
# mypy: disable-error-code="empty-body"
"""Every command of the protocol as a method.

Made from the registry in the code by `python scripts/python_client.py`; do not edit.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from spindle.client.methods import Images, Sender, Timeout, command
from spindle.client.transport import Json
from spindle.shapes.permission_modes import PermissionMode


class Commands(Sender):
    """The methods of `RpcClient` that are commands of the protocol."""
'''
LEFT_OUT = {
    *("prompt", "get_tree"),  # in `client/methods.py`
    "open_session",  # returns a handle
    *(
        "negotiate_protocol",
        "set_event_filter",
        "set_subagent_subscription",
    ),  # it needs whole lines and all events
    "set_host_uri_schemes",  # it serves no addresses
}
WHOLE = {
    *("steer", "follow_up", "abort_and_prompt", "new_session", "clone", "get_subagents", "get_login_providers"),
}
"""They return `data` as it is, although it has a single key."""
PARTS = {"list_sessions": "sessions", "search_sessions": "sessions", "cycle_thinking_level": "level"}
"""They return one value of `data`."""
PATIENT = {
    *("abort_and_prompt", "compact", "handoff", "bash", "login", "navigate_tree", "make_session_name"),
    *("export_html", "export_page", "upload_file", "get_changes", "restore"),
}
"""They may take long, so nothing ends the wait unless the caller says so."""
KEYWORDS = {
    "restore": "hunks",
    "set_approval": "tools",
    "set_permissions": "mode",
    "answer_permission": "input",
    "answer_question": "input",
    "get_subagent_messages": "subagent_id",
}
"""The first parameter that is given by name; elsewhere the first switch that may be left out, or pictures."""
TYPES = {
    ("set_permissions", "mode"): "PermissionMode | None",
    ("set_permissions", "sandbox"): "str | Mapping[str, Any] | None",
    ("set_thinking_level", "level"): "str",
}
"""Types that are not those of the registry."""


def page() -> str:
    return "".join([HEAD, *_methods()])


def _methods() -> Iterator[str]:
    room = ""
    for name, spec in sorted(COMMANDS.items(), key=lambda item: item[1].handler.__module__):
        if name in LEFT_OUT:
            continue
        if room != (room := spec.handler.__module__.rpartition(".")[2]):
            yield f"\n    # -- {room.replace('_', ' ')} {'-' * (93 - len(room))}\n"
        yield _method(name, spec)


def _method(name: str, spec: CommandSpec) -> str:
    key = None if name in WHOLE else PARTS.get(name, spec.key)
    answer = spec.answer
    if name in PARTS:
        kinds = get_args(answer) or (answer,)
        (part,) = (field.type for field in msgspec.structs.fields(kinds[0]) if field.name == key)
        answer = part | None if NoneType in kinds else part
    returned = "Json" if name in WHOLE else _answer(answer)
    unset = "UNSET" if name not in PATIENT else "None"
    parameters = ", ".join(["self", *_parameters(name, spec), f"timeout: Timeout = {unset}"])
    mark = f'@command("{key}")' if key else "@command()"
    doc = _doc(spec.doc)
    return f"\n    {mark}\n    async def {name}({parameters}) -> {returned}:\n{doc}\n"


def _parameters(name: str, spec: CommandSpec) -> Iterator[str]:
    """Yield the parameters before `timeout`, which is always given by name."""
    named = False
    for field, parameter in signature(spec.handler).parameters.items():
        if field == "call":
            continue
        kind, default = parameter.annotation, parameter.default
        is_switch = kind is bool and default is not Parameter.empty
        if not named and (field == KEYWORDS[name] if name in KEYWORDS else is_switch or field == "images"):
            named = True
            yield "*"
        if field == "images":
            yield "images: Images = None"
            continue
        text = TYPES.get((name, field)) or _given(kind)
        if field.endswith("_path"):
            text = text.replace("str", "str | Path")
        yield f"{field}: {text}" + ("" if default is Parameter.empty else f" = {default!r}")
    if not named:
        yield "*"


def _doc(text: str) -> str:
    paragraphs = cleandoc(text).split("\n\n")
    lines = textwrap.indent(cleandoc(text), " " * 8)
    if max(map(len, lines.split("\n"))) + 6 > 120:
        filled = [textwrap.fill(" ".join(one.split()), 106) for one in paragraphs]
        lines = textwrap.indent("\n\n".join(filled), " " * 8)
    lines = lines.strip()
    end = "\n        " if "\n" in lines else ""
    return f'        """{lines}{end}"""'


def _given(kind: Any) -> str:
    """Return the type of a parameter, as a program gives it."""
    inner = get_args(kind)
    match get_origin(kind):
        case origin if origin is Annotated:
            return _given(inner[0])
        case origin if origin is Literal:
            return f"Literal[{', '.join(map(_quoted, inner))}]"
        case origin if origin in (Union, UnionType):
            return " | ".join(dict.fromkeys(map(_given, inner)))
        case None if kind is Any or kind is NoneType or kind in (str, int, float, bool):
            return {Any: "Any", NoneType: "None"}.get(kind) or kind.__name__
        case origin if origin is dict or origin is None:
            return "Mapping[str, Any]"
    return f"Sequence[{'Mapping[str, Any]' if inner[0] is Any else _given(inner[0])}]"


def _answer(kind: Any) -> str:
    """Return the type of an answer: what JSON makes of it."""
    inner = get_args(kind)
    if kind in (str, int, float, bool):
        return str(kind.__name__)
    if kind is None or kind is NoneType:
        return "None"
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(_answer, inner)))
    if get_origin(kind) is Literal:
        return "str"
    if get_origin(kind) is Annotated:
        return _answer(inner[0])
    return f"list[{_answer(inner[0])}]" if get_origin(kind) is list else "Json"


def _quoted(value: str) -> str:
    return f'"{value}"'


def main() -> int:
    command = [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(PLACE), "-"]
    text = subprocess.run(command, input=page(), capture_output=True, text=True, check=True).stdout
    if text == (PLACE.read_text() if PLACE.exists() else ""):
        return 0
    if "--check" not in sys.argv:
        PLACE.write_text(text)
        return 0
    print(f"{PLACE.name} is not current: run python scripts/python_client.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
