"""Definitions of subagents: Markdown files whose front matter says who the subagent is, and whose body is its prompt.

These are the files of Claude Code and of packages for pi. Keys that only other programs know are ignored. Many of the
files that people share are not valid YAML, so their lines are read one by one then.
"""

import os
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from spindle.base.user_files import Diagnostic, read_text
from spindle.resources.frontmatter import BadFrontMatter, split_front_matter
from spindle.resources.sources import ancestors

_OUTSIDE_BRACKETS = r",(?![^(]*\))"
_OTHER_NAMES = {"glob": "find", "multiedit": "edit"}
_SUMMARY = 120
"""Characters of a description that the model gets: many descriptions have pages of examples."""
_NAME = 64


class AgentDefinition(Struct, frozen=True):
    name: str
    description: str = ""
    tools: tuple[str, ...] | None = None
    """A list of tools (`shapes/tool_lists.py`), also with `name(pattern)` of permission rules; None: all."""
    never: tuple[str, ...] = ()
    """Tools that it may not use, in the same form."""
    model: str | None = None
    """A pattern; None: the model of the agent that calls it."""
    thinking: str | None = None
    prompt: str | None = None
    """Takes the place of the built-in part of the system prompt; None: that part stays."""
    path: Path | None = None
    """None: it is built in, or a program has given it."""
    given: bool = False
    """Whether a program has given it."""

    @property
    def has_patterns(self) -> bool:
        """Whether some calls of a tool are allowed, and others are not."""
        return any("(" in tool for tool in (*(self.tools or ()), *self.never))

    @property
    def summary(self) -> str:
        """The beginning of the description, on one line."""
        text = " ".join(re.split(r"<example|\\n|\n\s*\n", self.description, maxsplit=1)[0].split())
        return text if len(text) <= _SUMMARY else f"{text[: _SUMMARY - 1].rsplit(' ', 1)[0]}…"


BUILTIN_AGENTS = (
    AgentDefinition("general", "your tools"),
    AgentDefinition(
        "explore",
        "only reads",
        tools=("read", "grep", "find", "ls"),
        prompt="You explore a directory of the user's machine for another agent. You can only read. Find what the task "
        "asks for, and answer with it: facts with paths and line numbers, short. Say what you did not find.",
    ),
)


def agent_places(cwd: Path, *, home: Path) -> list[Path]:
    """Return the folders of a project with definitions, those of inner directories first; `home` is no project."""
    places = []
    for directory in ancestors(cwd):
        if directory != home:
            places += [directory / ".pi" / "agents", directory / ".claude" / "agents"]
        if os.path.exists(directory / ".git"):
            return places
    return places[:2]  # no repository: only the directory itself is the project


def load_agents(
    cwd: Path, agent_dir: Path, *, project_trusted: bool
) -> tuple[dict[str, AgentDefinition], list[Diagnostic]]:
    """Return the definitions that hold in `cwd`, by name; the first of two equal names wins, the built-in ones last."""
    home = Path(os.path.expanduser("~"))
    places = agent_places(cwd, home=home) if project_trusted else []
    found: dict[str, AgentDefinition] = {}
    problems: list[Diagnostic] = []
    for place in (*places, agent_dir / "agents", home / ".claude" / "agents"):
        for path in files_in(place):
            try:
                definition = _read(path)
            except OSError as error:
                problems.append(Diagnostic("warning", f"Cannot read agent: {error.strerror or error}", str(path)))
                continue
            if definition is not None:
                found.setdefault(definition.name, definition)
    for definition in BUILTIN_AGENTS:
        found.setdefault(definition.name, definition)
    return found, problems


def files_in(place: Path) -> list[Path]:
    """Return the Markdown files in a folder and in the folders of it, which some collections have."""
    found: list[Path] = []
    for folder, inner, names in os.walk(place):
        inner[:] = sorted(name for name in inner if not name.startswith(".")) if Path(folder) == place else []
        found += [Path(folder, name) for name in sorted(names) if name.endswith(".md") and not name.startswith(".")]
    return found


def _read(path: Path) -> AgentDefinition | None:
    """Return the definition in a file; None if the file is none, such as a README. Raises `OSError`."""
    text = read_text(path)
    try:
        front, body = split_front_matter(text)
    except BadFrontMatter:
        front, body = _line_by_line(text)
    name, description = _text(front.get("name")) or path.stem, _text(front.get("description"))
    if not front or not (description or front.get("name")):
        return None
    tools, never = front.get("tools"), front.get("disallowedTools")
    if isinstance(tools, dict):  # switches: tools that are not named stay
        never, tools = [name for name, on in tools.items() if on is False], None
    return AgentDefinition(
        " ".join(name.split())[:_NAME],
        description,
        None if tools is None or tools == "" else tuple(_tools(tools)),
        tuple(_tools(never)),
        _text(front.get("model")) or None,
        _text(front.get("thinking")) or None,
        body or None,
        path,
    )


def _line_by_line(text: str) -> tuple[dict[str, Any], str]:
    """Return keys and body of a file whose front matter is not YAML: each `key: value` at the start of a line."""
    _, block, body = re.split(r"(?m)^---.*$", text.replace("\r\n", "\n").replace("\r", "\n"), maxsplit=2)
    found = re.finditer(r"(?ms)^([A-Za-z][\w-]*):[ \t]*(.*?)(?=^[A-Za-z][\w-]*:|\Z)", block)
    return {match[1]: match[2].strip().strip("\"'") for match in reversed(list(found))}, body.strip()


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _tools(value: Any) -> list[str]:
    """Return the tools of a list or of a text with commas, by our names."""
    items = value if isinstance(value, list) else re.split(_OUTSIDE_BRACKETS, value) if isinstance(value, str) else []
    tools = []
    for item in items:
        name, bracket, pattern = str(item).strip().strip("[]\"'").partition("(")
        sign = name[:1] if name[:1] in ("+", "-") else ""
        name = name[len(sign) :].strip()
        lower = name.lower()
        known = _OTHER_NAMES.get(lower, name if "__" in name else lower)
        tools += [f"{sign}{known}{bracket}{pattern}"] if name else []
    return tools
