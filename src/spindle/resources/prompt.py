"""The system prompt, and the instructions that lie in the directories themselves: AGENTS.md, CLAUDE.md and variants.

The prompt consists of named sections in a fixed order. The same input gives the same text, so that provider caches
hit; nothing here depends on the clock. A custom prompt takes the place of `preamble`, `tools`, `rules` and `docs`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import Diagnostic, read_text
from spindle.programs.search_path import on_path
from spindle.resources.slash_commands import Skill, skills_section
from spindle.resources.sources import ancestors
from spindle.shapes.builtin_tools import of_kind
from spindle.tools.base import Tool

_PREAMBLE = (
    "You are a coding agent. You work for a person in a directory of their machine, with the tools you are given, and "
    "you report what you did."
)
_UNATTENDED = (
    "Nobody reads along and nobody answers questions: decide yourself, finish the work, and say in your last answer "
    "what you assumed."
)
CONTEXT_NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
_OUR_TAGS = r"(?i)<(?=[\s/]*(?:project_instructions|project_context|cwd)\b)"


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
        if directory in hidden:
            continue
        for name in CONTEXT_NAMES:
            path = directory / name
            if not os.path.isfile(path):
                continue
            try:
                if directory != agent_dir and (reason := _refused(path, cwd)):
                    diagnostics.append(Diagnostic("warning", f"Not read: {path}, {reason}"))
                    continue
                files.setdefault(path, ContextFile(path, read_text(path)))
                break
            except OSError as error:
                diagnostics.append(Diagnostic("warning", f"Cannot read {path}: {error.strerror or error}"))
    return list(files.values()), diagnostics


def _refused(path: Path, cwd: Path) -> str | None:
    """Return why a file must not be read: a stranger may have put it there, or it links to a private file of the user.

    Inside the repository of `cwd`, files of any owner are read: the user chose to work there. Raises `OSError`.
    """
    ours = {0, os.getuid()} if hasattr(os, "getuid") else {0}
    chosen = ours | {os.stat(cwd).st_uid}
    outside = not path.parent.resolve().is_relative_to(_repository(cwd, chosen))
    if outside and not {os.lstat(path).st_uid, os.stat(path).st_uid} <= ours:
        return "it is outside of the repository and belongs to another user"
    if not path.resolve().is_relative_to(_repository(path.parent, chosen)):
        return f"it is a link out of the repository to {path.resolve()}"
    return None


def _repository(directory: Path, users: set[int]) -> Path:
    """Return the nearest directory with a `.git` of these users (anyone can put one in /tmp), else the directory."""
    directory = directory.resolve()
    for root in ancestors(directory):
        try:
            if os.lstat(root / ".git").st_uid in users:
                return root
        except OSError:
            continue
    return directory


def _hidden_by_worktree(cwd: Path) -> set[Path]:
    """Return directories of a main repository whose context files a git worktree nested in it replaces."""
    for root in ancestors(cwd):
        marker = root / ".git"
        if os.path.isdir(marker):
            return set()
        if os.path.isfile(marker):
            try:
                git_dir = root / read_text(marker).partition("gitdir:")[2].strip()
            except OSError:
                return set()
            # Anyone can write such a file; only the main repository has the directory it names.
            git_dir = git_dir.resolve()
            if git_dir.parent.name != "worktrees" or not os.path.isdir(git_dir):
                return set()
            main = git_dir.parents[2]
            inside = [directory for directory in ancestors(cwd) if directory.is_relative_to(root)]
            own = {
                path.relative_to(root) for path in inside if any(os.path.isfile(path / name) for name in CONTEXT_NAMES)
            }
            return {path for path in root.parents if path.is_relative_to(main) and path.relative_to(main) in own}
    return set()


# -- the prompt ----------------------------------------------------------------------------------


class PromptParts(Struct, frozen=True):
    """The input for the sections, besides the tools."""

    custom: str | None = None
    append: Sequence[str] = ()
    client: str = ""
    """Text that the client adds for its session; subagents do not get it."""
    context_files: Sequence[ContextFile] = ()
    skills: Sequence[Skill] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    """Sections of extensions."""
    unattended: bool = False
    """No user answers questions of the model."""
    no_manual: bool = False
    """The agent is not told where its manual is."""


def build_system_prompt(tools: Sequence[Tool], cwd: str, parts: PromptParts) -> str:
    return render_sections(prompt_sections(tools, cwd, parts))


def prompt_sections(tools: Sequence[Tool], cwd: str, parts: PromptParts) -> dict[str, str]:
    """Return the sections by name, in order; empty ones are left out."""
    names = {tool.name for tool in tools}
    sections = {"preamble": parts.custom} if parts.custom is not None else _own_sections(tools, parts.no_manual)
    sections["addendum"] = "\n\n".join(text.strip() for text in (*parts.append, parts.client) if text.strip())
    sections["project_context"] = _project_context(parts.context_files)
    sections["skills"] = skills_section(list(parts.skills)) if names & {"read", "bash"} else ""
    sections["cwd"] = f"Working directory: {_inert(cwd.replace(chr(92), '/'))}"
    sections["unattended"] = _UNATTENDED if parts.unattended else ""
    for name, text in parts.extra.items():
        if re.fullmatch(r"[a-z][a-z0-9_-]*", name) and name != "preamble":
            sections[name] = text
    return {name: text for name, text in sections.items() if text}


def render_sections(sections: Mapping[str, str]) -> str:
    """Wrap every section but the preamble in a tag of its name."""
    return "\n\n".join(
        text if name == "preamble" else f"<{name}>\n{text}\n</{name}>" for name, text in sections.items()
    )


def _inert(text: str) -> str:
    """Keep a project's text inside its tag: the text can neither close the tag nor open another like it."""
    return re.sub(_OUR_TAGS, "&lt;", text) if "<" in text else text


def _own_sections(tools: Sequence[Tool], no_manual: bool) -> dict[str, str]:
    listed = [f"- {tool.name}: {tool.snippet}" for tool in tools if tool.snippet]
    return {
        "preamble": _PREAMBLE,
        "tools": "\n".join(listed or ["(none)"]) + "\n\nThe project may give you more tools than these.",
        "rules": "\n".join(f"- {rule}" for rule in _rules(tools)),
        "docs": "" if no_manual else _docs(tools),
    }


def _docs(tools: Sequence[Tool]) -> str:
    """Tell the agent where its manual is, if it has a tool to read it."""
    directory = manual()
    if directory is None or not {tool.name for tool in tools} & {"read", "bash"}:
        return ""
    return (
        f"The program you run in is Spindle; {directory} is its manual. Read it only when the user asks about this "
        "program (its settings, models, extensions, protocol)."
    )


@cache
def manual() -> Path | None:
    """Return the folder of the manual: in the package, or beside the sources in a checkout."""
    package = Path(__file__).parents[1]
    places = (package / "docs", package.parents[1] / "docs")
    return next((place for place in places if os.path.isfile(place / "settings.md")), None)


def _rules(tools: Sequence[Tool]) -> list[str]:
    names = {tool.name for tool in tools}
    rules = []
    if "bash" in names:
        path = os.environ.get("PATH", os.defpath)
        finders = [name for name in of_kind("search") if name in names]
        rules.append(
            f"To look around, prefer {', '.join(finders)} over bash: they are quicker and leave ignored files out"
            if finders
            else f"To look around, use bash with ls, {_search_program(path)} and find"
        )
    rules += [guideline.strip() for tool in tools for guideline in tool.guidelines]
    rules += ["Keep answers short", "Give the path of every file you talk about"]
    return [rule for rule in dict.fromkeys(rules) if rule]


@cache
def _search_program(path: str) -> str:
    """Return rg if shell commands find it: the rg beside our Python, which the tools use, is not on their PATH."""
    return "rg" if on_path("rg", os.pathsep.join((path, os.path.join(agent_dir(), "bin")))) else "grep"


def _project_context(files: Sequence[ContextFile]) -> str:
    if not files:
        return ""
    blocks = []
    for file in files:
        path = _inert(str(file.path)).replace('"', "&quot;")
        text = _inert(file.content.strip())
        blocks.append(f'<project_instructions path="{path}">\n{text}\n</project_instructions>')
    return "\n\n".join(["Instructions of this project and its user. Where two differ, the later one counts.", *blocks])
