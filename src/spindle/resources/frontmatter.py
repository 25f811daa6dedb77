"""The YAML between two `---` lines at the start of a Markdown file.

Nearly all of it is `key: value`, which is read here by hand; PyYAML, if installed, is only asked about the rest.
Numbers stay text: nothing that reads front matter wants them otherwise.
"""

import re
from typing import Any

_KEY = r"([A-Za-z_][\w.-]*)\s*:(?:\s+(.*))?$"
_DOUBLE_QUOTED = r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?'
_SINGLE_QUOTED = r"'((?:[^']|'')*)'\s*(?:#.*)?"
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}


class BadFrontMatter(ValueError):
    """The front matter is not valid YAML; the text says where."""


class _BeyondUs(ValueError):
    """YAML that may be fine but is more than this module reads."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the keys and the trimmed body. Raises `BadFrontMatter`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    end = text.find("\n---", 3) if text.startswith("---") else -1
    if end < 0:
        return {}, text.strip()
    block, body = text[4:end], text[end + 4 :].strip()
    try:
        return _parse_simple(block.split("\n")), body
    except _BeyondUs as problem:
        return _parse_yaml(block, str(problem)), body


def _parse_yaml(block: str, problem: str) -> dict[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise BadFrontMatter(problem) from None
    try:
        value = yaml.load(block, yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise BadFrontMatter(" ".join(str(error).split())) from None
    if not isinstance(value, dict):
        raise BadFrontMatter("front matter must be `key: value` lines")
    return {str(k): _CONSTANTS.get(v, v) if isinstance(v, str) else v for k, v in value.items()}


def _parse_simple(lines: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    number = 0
    while number < len(lines):
        line = lines[number].rstrip()
        number += 1
        if not line or line.lstrip().startswith("#"):
            continue
        match = re.match(_KEY, line)
        if not match:
            raise _BeyondUs(f"line {number}: expected `key: value`")
        first, nested = (match[2] or "").strip(), number
        # The items of a list may stand as far left as its key.
        inside = (" ", "\t") if first else (" ", "\t", "- ")
        while number < len(lines) and (not lines[number].strip() or lines[number].startswith(inside)):
            number += 1
        result[match[1]] = _value(first, lines[nested:number], nested)
    return result


def _value(first: str, block: list[str], number: int) -> Any:
    """Read a value whose first line is `first`, followed by the more indented lines `block`."""
    if first[:1] in ("|", ">"):
        return _block_scalar(first, block, number)
    rest = [line.strip() for line in block if line.strip()]
    if not first and rest:
        if all(line.startswith("- ") for line in rest):
            return [_scalar(line[2:].strip(), number) for line in rest]
        return _parse_simple(_dedent(block)) if re.match(_KEY, rest[0]) else _scalar(" ".join(rest), number)
    if first.startswith("[") and first.endswith("]") and not rest:
        return [_scalar(item.strip(), number) for item in first[1:-1].split(",") if item.strip()]
    return _scalar(" ".join([first, *rest]), number)


def _scalar(text: str, number: int) -> Any:
    if text[:1] in ('"', "'"):
        quoted = re.fullmatch(_DOUBLE_QUOTED if text[0] == '"' else _SINGLE_QUOTED, text)
        if not quoted:
            raise _BeyondUs(f"line {number}: text after or inside the quotes")
        return _unescape(quoted[1], number) if text[0] == '"' else quoted[1].replace("''", "'")
    text = re.split(r"\s#", text, maxsplit=1)[0].strip()
    if text[:1] in ("[", "{", "&", "*", "!", "%", "@", "`") or ": " in text or text.endswith(":"):
        raise _BeyondUs(f"line {number}: a value with special characters needs quotes")
    return _CONSTANTS.get(text, text)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    from spindle.shapes.codec import DecodeError, decode

    try:
        return str(decode(f'"{text}"'))
    except DecodeError:
        raise _BeyondUs(f"line {number}: unknown escape in quotes") from None


def _block_scalar(marker: str, lines: list[str], number: int) -> str:
    if marker[1:] not in ("", "-", "+"):
        raise _BeyondUs(f"line {number}: block text with `{marker}`")
    content = _dedent(lines)
    while content and not content[-1]:
        content.pop()
    text = "\n".join(content)
    # Folding: a single line break is a space, an empty line is a line break.
    return text if marker[0] == "|" else re.sub(r"(?<!\n)\n(?!\n)", " ", text).replace("\n\n", "\n")


def _dedent(lines: list[str]) -> list[str]:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[indent:].rstrip() for line in lines]
