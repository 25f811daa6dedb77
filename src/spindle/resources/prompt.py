"""The system prompt, and the instructions that lie in the directories themselves: AGENTS.md, CLAUDE.md and variants.

The prompt is named sections in a fixed order, the same text for the same input, so that provider caches hit; nothing
here depends on the clock. A custom prompt takes the place of `preamble`, `tools` and `rules`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from spindle.config.user_files import Diagnostic, read_text
from spindle.resources.slash_commands import Skill, skills_section
from spindle.resources.sources import ancestors
from spindle.tools.base import Tool

_PREAMBLE = (
    "You are a coding agent. You work for a person in a directory of their machine: you read files, run commands, "
    "change code and create files with the tools you are given, and you report what you did."
)
_NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")


# -- context files -------------------------------------------------------------------------------


class ContextFile(Struct, frozen=True):
    path: Path
    content: str


def load_context_files(agent_dir: Path, cwd: Path) -> tuple[list[ContextFile], list[Diagnostic]]:
    """Return the file of the agent directory, then those from the outermost directory down to `cwd`."""
    diagnostics: list[Diagnostic] = []
    hidden = _hidden_by_worktree(cwd)
    files: dict[Path, ContextFile] = {}
    for directory in (agent_dir, *reversed(ancestors(cwd))):
        if directory not in hidden and (found := _first(directory, diagnostics)):
            files.setdefault(found.path, found)
    return list(files.values()), diagnostics


def _first(directory: Path, diagnostics: list[Diagnostic]) -> ContextFile | None:
    for name in _NAMES:
        path = directory / name
        if not path.is_file():
            continue
        try:
            return ContextFile(path, read_text(path))
        except OSError as error:
            diagnostics.append(Diagnostic("warning", f"Cannot read {path}: {error.strerror or error}"))
    return None


def _hidden_by_worktree(cwd: Path) -> set[Path]:
    """Return directories of a main repository whose place a git worktree nested inside it has taken."""
    for root in ancestors(cwd):
        marker = root / ".git"
        if marker.is_dir():
            return set()
        if marker.is_file():
            try:
                git_dir = root / read_text(marker).partition("gitdir:")[2].strip()
            except OSError:
                return set()
            if git_dir.parent.name != "worktrees":
                return set()
            main = git_dir.resolve().parents[2]
            inside = [directory for directory in ancestors(cwd) if directory.is_relative_to(root)]
            own = {path.relative_to(root) for path in inside if any((path / name).is_file() for name in _NAMES)}
            return {path for path in root.parents if path.is_relative_to(main) and path.relative_to(main) in own}
    return set()


# -- the prompt ----------------------------------------------------------------------------------


class PromptParts(Struct, frozen=True):
    """What the sections are made of besides the tools."""

    custom: str | None = None
    append: Sequence[str] = ()
    context_files: Sequence[ContextFile] = ()
    skills: Sequence[Skill] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    """Sections of extensions."""


def build_system_prompt(tools: Sequence[Tool], cwd: str, parts: PromptParts) -> str:
    """Return the whole prompt for the active tools."""
    return render_sections(prompt_sections(tools, cwd, parts))


def prompt_sections(tools: Sequence[Tool], cwd: str, parts: PromptParts) -> dict[str, str]:
    """Return the sections by name, in order; those with nothing to say are missing."""
    names = {tool.name for tool in tools}
    sections = {"preamble": parts.custom} if parts.custom is not None else _own_sections(tools)
    sections["addendum"] = "\n\n".join(text.strip() for text in parts.append if text.strip())
    sections["project_context"] = _project_context(parts.context_files)
    sections["skills"] = skills_section(list(parts.skills)) if names & {"read", "bash"} else ""
    sections["cwd"] = f"Working directory: {cwd.replace(chr(92), '/')}"
    for name, text in parts.extra.items():
        if re.fullmatch(r"[a-z][a-z0-9_-]*", name) and name != "preamble":
            sections[name] = text
    return {name: text for name, text in sections.items() if text}


def render_sections(sections: Mapping[str, str]) -> str:
    """Wrap every section but the preamble in a tag of its name."""
    return "\n\n".join(
        text if name == "preamble" else f"<{name}>\n{text}\n</{name}>" for name, text in sections.items()
    )


def _own_sections(tools: Sequence[Tool]) -> dict[str, str]:
    listed = [f"- {tool.name}: {tool.snippet}" for tool in tools if tool.snippet]
    return {
        "preamble": _PREAMBLE,
        "tools": "\n".join(listed or ["(none)"]) + "\n\nThe project may give you more tools than these.",
        "rules": "\n".join(f"- {rule}" for rule in _rules(tools)),
    }


def _rules(tools: Sequence[Tool]) -> list[str]:
    names = {tool.name for tool in tools}
    rules = []
    if "bash" in names:
        finders = [name for name in ("grep", "find", "ls") if name in names]
        rules.append(
            f"To look around, prefer {', '.join(finders)} over bash: they are quicker and leave ignored files out"
            if finders
            else "To look around, use bash with ls, rg and find"
        )
    rules += [guideline.strip() for tool in tools for guideline in tool.guidelines]
    rules += ["Keep answers short", "Give the path of every file you talk about"]
    return [rule for rule in dict.fromkeys(rules) if rule]


def _project_context(files: Sequence[ContextFile]) -> str:
    if not files:
        return ""
    blocks = [
        f'<project_instructions path="{file.path}">\n{file.content.strip()}\n</project_instructions>' for file in files
    ]
    return "\n\n".join(["Instructions of this project and its user. Where two differ, the later one counts.", *blocks])
