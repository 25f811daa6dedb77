"""Instructions that lie in the directories themselves: AGENTS.md, CLAUDE.md and their variants."""

from pathlib import Path

from msgspec import Struct

from spindle.config.diagnostics import Diagnostic
from spindle.config.files import read_text
from spindle.resources.sources import ancestors

__all__ = ["ContextFile", "load_context_files"]

_NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")


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
            own = {directory.relative_to(root) for directory in inside if _has_file(directory)}
            return {
                directory
                for directory in root.parents
                if directory.is_relative_to(main) and directory.relative_to(main) in own
            }
    return set()


def _has_file(directory: Path) -> bool:
    return any((directory / name).is_file() for name in _NAMES)
