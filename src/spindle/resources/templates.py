"""Prompt templates: Markdown files that `/name args` turns into a message."""

import os
import re
from pathlib import Path

from msgspec import Struct

from spindle.config.user_files import Collision, Diagnostic, read_text
from spindle.resources.frontmatter import BadFrontMatter, split_front_matter
from spindle.resources.sources import Source, SourceInfo

__all__ = ["Template", "load_templates", "split_arguments", "substitute"]

_DESCRIPTION_WIDTH = 60
_PLACEHOLDER = (
    r"\$\{(?P<key>\d+|@|ARGUMENTS):-(?P<default>[^}]*)\}"
    r"|\$\{@:(?P<start>\d+)(?::(?P<length>\d+))?\}"
    r"|\$(?P<plain>\d+|@|ARGUMENTS)"
)


class Template(Struct, frozen=True):
    name: str
    description: str
    content: str
    path: Path
    info: SourceInfo
    argument_hint: str | None = None

    @property
    def command(self) -> str:
        """What follows the slash."""
        return self.name

    def expand(self, arguments: str) -> str:
        """Return the message that the command stands for."""
        return substitute(self.content, split_arguments(arguments))


def load_templates(sources: list[Source]) -> tuple[list[Template], list[Diagnostic]]:
    """Load every template of the sources; the first of two equal names wins."""
    templates: dict[str, Template] = {}
    diagnostics: list[Diagnostic] = []
    for source in sources:
        if source.explicit and not source.path.exists():
            diagnostics.append(Diagnostic("warning", "prompt template path does not exist", str(source.path)))
        for path in _files(source):
            if not source.selection.allows(path):
                continue
            try:
                template = _read(path, source)
            except (OSError, BadFrontMatter) as error:
                diagnostics.append(Diagnostic("warning", f"prompt template not loaded: {error}", str(path)))
                continue
            winner = templates.setdefault(template.name, template)
            if winner.path != path:
                clash = Collision("prompt", template.name, str(winner.path), str(path))
                diagnostics.append(Diagnostic("collision", f'name "/{template.name}" collision', str(path), clash))
    return list(templates.values()), diagnostics


def _files(source: Source) -> list[Path]:
    if source.path.is_file():
        return [source.path] if source.path.suffix == ".md" else []
    try:
        with os.scandir(source.path) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.endswith(".md") and not entry.name.startswith(".") and entry.is_file()
            )
    except OSError:
        return []
    return [source.path / name for name in names]


def _read(path: Path, source: Source) -> Template:
    matter, body = split_front_matter(read_text(path))
    description, hint = matter.get("description"), matter.get("argument-hint")
    if not isinstance(description, str) or not description:
        first = next((line.strip() for line in body.split("\n") if line.strip()), "")
        description = first[:_DESCRIPTION_WIDTH] + ("..." if len(first) > _DESCRIPTION_WIDTH else "")
    return Template(path.stem, description, body, path, source.info(path), hint if isinstance(hint, str) else None)


def split_arguments(text: str) -> list[str]:
    """Split at whitespace; quotes of both kinds hold words together, nothing is escaped, empty ones vanish."""
    words: list[str] = []
    word, quote = "", ""
    for char in text:
        if quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "\"'":
            quote = char
        elif char.isspace():
            words += [word] if word else []
            word = ""
        else:
            word += char
    return [*words, word] if word else words


def substitute(content: str, words: list[str]) -> str:
    """Fill in the placeholders once; what the arguments themselves contain is left alone."""

    def value(key: str) -> str:
        if not key.isdigit():
            return " ".join(words)
        number = _number(key)
        return words[number - 1] if 1 <= number <= len(words) else ""

    def replace(match: re.Match[str]) -> str:
        if match["start"] is not None:
            start = max(_number(match["start"]) - 1, 0)
            stop = None if match["length"] is None else start + _number(match["length"])
            return " ".join(words[start:stop])
        if match["key"] is not None:
            return value(match["key"]) or match["default"]
        return value(match["plain"])

    return re.sub(_PLACEHOLDER, replace, content)


def _number(digits: str) -> int:
    return int(digits[:9])  # no message has so many words, and int() refuses thousands of digits
