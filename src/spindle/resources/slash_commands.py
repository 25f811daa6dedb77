"""Slash commands that are Markdown files: skills and prompt templates. Extensions add others, which are not here.

A skill is a folder with a SKILL.md that tells the model how to do one kind of task; a template is a message with
placeholders. Both are found below the sources in order; the first of two equal names wins and the other becomes a
diagnostic.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct

from spindle.base.user_files import Collision, Diagnostic, read_text
from spindle.resources.frontmatter import BadFrontMatter, split_front_matter
from spindle.resources.sources import Source, SourceInfo

if TYPE_CHECKING:
    from spindle.base.globs import IgnoreFile

_NAME_LIMIT = 64
_DESCRIPTION_LIMIT = 1024
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})
_IGNORE_FILES = (".gitignore", ".ignore", ".fdignore")
Ignores: TypeAlias = "tuple[tuple[Path, IgnoreFile], ...]"
"""Ignore files from the root down, each with its directory."""
_DESCRIPTION_WIDTH = 60
_PLACEHOLDER = (
    r"\$\{(?P<key>\d+|@|ARGUMENTS):-(?P<default>[^}]*)\}"
    r"|\$\{@:(?P<start>\d+)(?::(?P<length>\d+))?\}"
    r"|\$(?P<plain>\d+|@|ARGUMENTS)"
)
_QUOTED = r"""(?:"[^"]*"?|'[^']*'?)"""
"""Up to the closing quote, or the end of the text."""
T = TypeVar("T", "Skill", "Template")


class Skill(Struct, frozen=True):
    name: str
    description: str
    path: Path
    """The Markdown file itself."""
    info: SourceInfo
    hidden: bool = False
    """`disable-model-invocation`: only a person may invoke it."""
    text: str | None = None
    """The content of the file, if it is not on this machine."""

    @property
    def command(self) -> str:
        """What follows the slash."""
        return f"skill:{self.name}"

    def expand(self, arguments: str) -> str:
        """Return the message that the command stands for. Raises `OSError` if the file cannot be read."""
        try:
            _, body = split_front_matter(read_text(self.path) if self.text is None else self.text)
        except BadFrontMatter as error:
            raise OSError(f"{self.path}: {error}") from None
        block = (
            f'<skill name="{self.name}" location="{self.path}">\n'
            f"References are relative to {self.path.parent}.\n\n{body}\n</skill>"
        )
        arguments = arguments.strip()
        return f"{block}\n\n{arguments}" if arguments else block


def load_skills(sources: list[Source]) -> tuple[list[Skill], list[Diagnostic]]:
    """Load every skill of the sources; the first of two equal names wins."""
    skills: dict[str, Skill] = {}
    seen: set[str] = set()
    diagnostics: list[Diagnostic] = []
    for source in sources:
        if source.explicit and not os.path.exists(source.path):
            diagnostics.append(Diagnostic("warning", "skill path does not exist", str(source.path)))
            continue
        for path, loose in _candidates(source):
            real = os.path.realpath(path)
            if real in seen or not source.selection.allows(path):
                continue
            seen.add(real)
            if skill := _read_skill(path, loose, source, diagnostics):
                _keep_first(skills, skill, "skill", skill.name, diagnostics)
    return list(skills.values()), diagnostics


def _keep_first(found: dict[str, T], item: T, kind: str, shown_name: str, diagnostics: list[Diagnostic]) -> None:
    winner = found.setdefault(item.name, item)
    if winner.path != item.path:
        clash = Collision(kind, item.name, str(winner.path), str(item.path))
        diagnostics.append(Diagnostic("collision", f'name "{shown_name}" collision', str(item.path), clash))


def _candidates(source: Source) -> list[tuple[Path, bool]]:
    """Return files that may be skills, and whether each is a loose file rather than a SKILL.md."""
    if os.path.isfile(source.path):
        return [(source.path, source.path.name != "SKILL.md")] if source.path.suffix == ".md" else []
    found: list[tuple[Path, bool]] = []
    # A stack instead of recursion, and real paths so that loops of symbolic links end.
    pending: list[tuple[Path, Ignores]] = [(source.path, ())]
    entered: set[str] = set()
    while pending:
        directory, ignores = pending.pop()
        real = os.path.realpath(directory)
        if real in entered:
            continue
        entered.add(real)
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue
        if any(entry.name == "SKILL.md" and entry.is_file() for entry in entries):
            found.append((directory / "SKILL.md", False))
            continue
        ignores += _ignore_files(directory, {entry.name for entry in entries})
        below: list[tuple[Path, Ignores]] = []
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "node_modules":
                continue
            path, is_directory = directory / entry.name, entry.is_dir()
            if _is_ignored(path, is_directory, ignores):
                continue
            if is_directory:
                below.append((path, ignores))
            elif entry.name.endswith(".md") and (directory != source.path) is source.nested_only and entry.is_file():
                found.append((path, True))
        pending += reversed(below)
    return found


def _ignore_files(directory: Path, names: set[str]) -> Ignores:
    present = [name for name in _IGNORE_FILES if name in names]
    if not present:
        return ()
    from spindle.base.globs import IgnoreFile

    try:
        return tuple((directory, IgnoreFile(read_text(directory / name).split("\n"))) for name in present)
    except OSError:
        return ()


def _is_ignored(path: Path, is_directory: bool, ignores: Ignores) -> bool:
    for base, file in reversed(ignores):
        verdict = file.verdict(path.relative_to(base).parts, is_directory)
        if verdict is not None:
            return verdict
    return False


def _read_skill(path: Path, loose: bool, source: Source, diagnostics: list[Diagnostic]) -> Skill | None:
    try:
        matter, _ = split_front_matter(read_text(path))
    except (OSError, BadFrontMatter) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else f"invalid front matter: {error}"
        diagnostics.append(Diagnostic("warning", reason, str(path)))
        return None
    description = matter.get("description")
    description = description.strip() if isinstance(description, str) else ""
    if not description and loose:
        return None
    name = matter.get("name")
    name = name if isinstance(name, str) and name else path.parent.name
    diagnostics += [Diagnostic("warning", problem, str(path)) for problem in _problems(name, description)]
    if not description:
        return None
    return Skill(name, description, path, source.info(path), matter.get("disable-model-invocation") is True)


def _problems(name: str, description: str) -> list[str]:
    invalid = "name contains invalid characters (must be lowercase a-z, 0-9, hyphens only)"
    length, limit = len(description), _DESCRIPTION_LIMIT
    checks = (
        (len(name) > _NAME_LIMIT, f"name exceeds {_NAME_LIMIT} characters ({len(name)})"),
        (not re.fullmatch(r"[a-z0-9-]+", name), invalid),
        (name.startswith("-") or name.endswith("-"), "name must not start or end with a hyphen"),
        ("--" in name, "name must not contain consecutive hyphens"),
        (not description, "description is required"),
        (length > limit, f"description exceeds {limit} characters ({length})"),
    )
    return [problem for found, problem in checks if found]


def skills_section(skills: list[Skill]) -> str:
    """Return the list of skills for the model; empty if it may use none."""
    listed = [skill for skill in skills if not skill.hidden]
    if not listed:
        return ""
    lines = [
        "Skills are instructions for particular kinds of work. When a task fits one of the descriptions below,",
        "read the file at its location before you start and follow it.",
        "Relative paths inside a skill are meant from the directory that the skill's file is in.",
        "",
        "<available_skills>",
    ]
    for skill in listed:
        facts = {"name": skill.name, "description": skill.description, "location": str(skill.path)}
        shown = [f"    <{key}>{value.translate(_ESCAPED)}</{key}>" for key, value in facts.items()]
        lines += ["  <skill>", *shown, "  </skill>"]
    lines.append("</available_skills>")
    return "\n".join(lines)


# -- templates ---------------------------------------------------------------------------------------


class Template(Struct, frozen=True):
    name: str
    description: str
    content: str
    path: Path
    info: SourceInfo

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
        if source.explicit and not os.path.exists(source.path):
            diagnostics.append(Diagnostic("warning", "prompt template path does not exist", str(source.path)))
        for path in _template_files(source):
            if not source.selection.allows(path):
                continue
            try:
                template = _read_template(path, source)
            except (OSError, BadFrontMatter) as error:
                diagnostics.append(Diagnostic("warning", f"prompt template not loaded: {error}", str(path)))
            else:
                _keep_first(templates, template, "prompt", f"/{template.name}", diagnostics)
    return list(templates.values()), diagnostics


def _template_files(source: Source) -> list[Path]:
    if os.path.isfile(source.path):
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


def _read_template(path: Path, source: Source) -> Template:
    matter, body = split_front_matter(read_text(path))
    description = matter.get("description")
    if not isinstance(description, str) or not description:
        first = next((line.strip() for line in body.split("\n") if line.strip()), "")
        description = first[:_DESCRIPTION_WIDTH] + ("..." if len(first) > _DESCRIPTION_WIDTH else "")
    return Template(path.stem, description, body, path, source.info(path))


def split_arguments(text: str) -> list[str]:
    """Split at whitespace. Quotes of both kinds hold words together; there are no escapes; empty words are dropped."""
    words = re.findall(rf"""(?:{_QUOTED}|[^\s"'])+""", text)
    return [plain for word in words if (plain := re.sub(_QUOTED, lambda quoted: quoted[0].strip(quoted[0][0]), word))]


def substitute(content: str, words: list[str]) -> str:
    """Fill in the placeholders once; placeholders in the arguments themselves are left alone."""

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
