"""The YAML between two `---` lines at the start of a Markdown file.

Numbers and dates stay text: no reader of front matter wants them converted.
"""

import re
from functools import cache
from typing import Any

from spindle.shapes.codec import decode

_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_DEEPEST = 50
_HINT = r"(?m)^argument-hint:[ \t]*\[.*\].*$"
"""Many people write `[file] [option]`, which is no YAML. The key is not used here, so the line is dropped."""
_PAIR = r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w"
"""One character in JSON's escapes, of which YAML would make two halves."""


class BadFrontMatter(ValueError):
    """The front matter is not valid YAML; the text says where."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the keys and the trimmed body. Raises `BadFrontMatter`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    end = text.find("\n---", 3) if text.startswith("---") else -1
    if end < 0:
        return {}, text.strip()
    block, body = text[4:end], text[end + 4 :].strip()
    return _read(re.sub(_PAIR, lambda pair: str(decode(f'"{pair[0]}"')), re.sub(_HINT, "", block))), body


def _read(block: str) -> dict[str, Any]:
    import yaml

    depth = 0
    try:
        for event in yaml.parse(block, _loader()):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:  # libyaml would overflow the stack, which ends the process
                raise BadFrontMatter("nested too deeply")
        value = yaml.load(block, _loader())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2
        raise BadFrontMatter(f"line {line}: {error.problem} (does a value need quotes?)") from None
    except yaml.YAMLError as error:
        raise BadFrontMatter(" ".join(str(error).split())) from None
    if not isinstance(value, dict | None):
        raise BadFrontMatter("front matter must be `key: value` lines")
    return {str(key): inner for key, inner in (value or {}).items()}


@cache
def _loader() -> Any:
    """Return the class that turns YAML into values. It is made on first use: importing PyYAML takes 30 ms."""
    import yaml

    class Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
        def construct_scalar(self, node: Any) -> Any:
            text = super().construct_scalar(node).rstrip("\n")
            return text if node.style else _CONSTANTS.get(text, text)

    return Loader
