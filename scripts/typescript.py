#!/usr/bin/env python3
"""Write `clients/typescript/src/protocol.ts`: the schema as TypeScript types. `--check` says whether it is current."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from spindle.protocol.schema import json_schema

PLACE = Path(__file__).resolve().parent.parent / "clients/typescript/src/protocol.ts"
HEAD = """\
// Made from the registry in the code by `python scripts/typescript.py`; do not edit.

"""


def types() -> str:
    schema = json_schema()
    lines = [HEAD]
    for name, shape in schema["$defs"].items():
        lines.append(_comment(shape, "") + _declared(name, shape))
    lines.append("/** What each command takes and what it answers. */\nexport interface Commands {\n")
    for name in schema["commands"]:
        title = "".join(word.title() for word in name.split("_"))
        response = schema["$defs"][f"{title}Response"]["properties"]
        answer = _type(response["data"], "  ") if "data" in response else "undefined"
        doc = _comment(schema["$defs"][f"{title}Command"], "  ")
        lines.append(
            f"{doc}  {name}: {{ fields: Omit<{title}Command, 'id' | 'type' | 'sessionId'>; data: {answer} }};\n"
        )
    return "".join([*lines, "}\n"])


def _declared(name: str, shape: dict[str, Any]) -> str:
    if shape.get("type") == "object" and "properties" in shape:
        return f"export interface {name} {_object(shape, '')}\n\n"
    return f"export type {name} = {_type(shape, '')};\n\n"


def _object(shape: dict[str, Any], indent: str) -> str:
    lines, required = ["{"], shape.get("required", ())
    for key, item in shape["properties"].items():
        quoted = key if re.fullmatch(r"[A-Za-z_]\w*", key) else json.dumps(key)
        lines.append(
            f"{_comment(item, f'{indent}  ')}{indent}  {quoted}{'' if key in required else '?'}: ".rstrip("\n")
        )
        lines[-1] += f"{_type(item, f'{indent}  ')};"
    return "\n".join([*lines, f"{indent}}}"])


def _type(shape: dict[str, Any], indent: str) -> str:
    if "$ref" in shape:
        return str(shape["$ref"].rpartition("/")[2])
    if options := shape.get("anyOf") or shape.get("oneOf"):
        return " | ".join(dict.fromkeys(_type(option, indent) for option in options))
    if "const" in shape or "enum" in shape:
        return " | ".join(json.dumps(value) for value in shape.get("enum", [shape.get("const")]))
    match shape.get("type"):
        case "array":
            item = _type(shape["items"], indent)
            return f"({item})[]" if " | " in item else f"{item}[]"
        case "object" if "properties" in shape:
            return _object(shape, indent)
        case "object":
            inner = shape.get("additionalProperties")
            return f"Record<string, {_type(inner, indent) if isinstance(inner, dict) else 'unknown'}>"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as kind:
            return kind
    return "unknown"


def _comment(shape: dict[str, Any], indent: str) -> str:
    text = " ".join(str(shape.get("description", "")).split()).replace("*/", "* /")
    return f"{indent}/** {text} */\n" if text else ""


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if PLACE.read_text(encoding="utf-8") != types():
            sys.exit(f"{PLACE.name} is not current: python scripts/typescript.py")
    else:
        PLACE.write_text(types(), encoding="utf-8")
