"""Whether a project may bring its own settings, prompts, skills and code.

Decisions are remembered in `<agent dir>/trust.json` by real path and hold for everything below. Without a decision, a
project is not trusted.
"""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from spindle.base.user_files import BadFile, Diagnostic, file_lock, read_object, write_atomic
from spindle.resources.rule_files import foreign_rule_places
from spindle.resources.sources import ancestors

_GATED = (
    "settings.json",
    "extensions",
    "skills",
    "prompts",
    "commands",
    "agent/prompts",
    "rules",
    "SYSTEM.md",
    "APPEND_SYSTEM.md",
    "mcp.json",
)


class TrustDecision(Struct, frozen=True):
    trusted: bool
    reason: str
    skipped: list[Path] = field(default_factory=list)
    """Paths of an untrusted project that were not loaded."""

    def notice(self) -> Diagnostic | None:
        """Say which paths were not loaded and how to allow them; None if there are none."""
        if not self.skipped:
            return None
        names = ", ".join(str(path) for path in self.skipped)
        return Diagnostic(
            "warning",
            f"Project not trusted ({self.reason}), not loaded: {names}. "
            "Use --approve for this run, or run `spindle trust` here to remember it.",
        )


class TrustStore:
    def __init__(self, agent_dir: Path) -> None:
        self.path = agent_dir / "trust.json"
        self.problem: Diagnostic | None = None

    def lookup(self, cwd: Path) -> tuple[bool, Path] | None:
        """Return the decision of the nearest directory that has one, and that directory."""
        try:
            decisions = read_object(self.path) or {}
        except BadFile as error:
            self.problem = Diagnostic("error", f"Cannot use {self.path}: {error}", str(self.path))
            return None
        for directory in ancestors(cwd.resolve()):
            decision = decisions.get(str(directory))
            if isinstance(decision, bool):
                return decision, directory
        return None

    def remember(self, directory: Path, trusted: bool) -> None:
        """Keep a decision. Raises `BadFile`, `OSError`."""
        import json

        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(self.path):
            decisions = (read_object(self.path) or {}) | {str(directory.resolve()): trusted}
            write_atomic(self.path, json.dumps(decisions, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def gated_paths(cwd: Path) -> list[Path]:
    found = [path for name in _GATED if os.path.exists(path := cwd / ".pi" / name)]
    if os.path.exists(path := cwd / ".mcp.json"):
        found.append(path)
    home = Path.home()
    for directory in ancestors(cwd):
        if directory != home and os.path.isdir(path := directory / ".agents" / "skills"):
            found.append(path)
        if os.path.exists(directory / ".git"):
            break
    return found + foreign_rule_places(cwd)


def decide(
    cwd: Path,
    store: TrustStore,
    *,
    approve: bool | None = None,
    default: str = "ask",
    ask: Callable[[Path], bool | None] | None = None,
) -> TrustDecision:
    """Decide for a working directory: the command line, then `ask`, then the remembered decision, then the default."""
    paths = gated_paths(cwd)
    if not paths:
        return TrustDecision(bool(approve), "nothing to trust")
    if approve is not None:
        return _decision(approve, "--approve" if approve else "--no-approve", paths)
    if ask is not None and (answer := ask(cwd)) is not None:
        return _decision(answer, "an extension said so", paths)
    if found := store.lookup(cwd):
        return _decision(found[0], f"remembered for {found[1]}", paths)
    if default == "ask":
        return _decision(False, "nobody was asked", paths)
    return _decision(default == "always", f"defaultProjectTrust is {default}", paths)


def _decision(trusted: bool, reason: str, paths: list[Path]) -> TrustDecision:
    return TrustDecision(trusted, reason, [] if trusted else paths)
