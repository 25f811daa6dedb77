"""Ignore files: what their lines mean, and what several of them say together about a path."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from spindle.tools.globs import GlobError, PathGlob

__all__ = ["IgnoreFile", "parse_rule"]


@dataclass(frozen=True, slots=True)
class _Rule:
    glob: PathGlob
    negated: bool
    folders_only: bool
    anchored: bool
    """Matched against the path from the ignore file's folder; else against the name alone."""

    def match(self, parts: Sequence[str], is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return self.glob.match(parts if self.anchored else parts[-1:])


def parse_rule(line: str) -> _Rule | None:
    """Read one line as git does. None for blank lines and comments. Raises `GlobError`."""
    pattern = _without_trailing_spaces(line.rstrip("\r\n"))
    if not pattern or pattern.startswith("#"):
        return None
    negated = pattern.startswith("!")
    if negated:
        pattern = pattern[1:]
    folders_only = pattern.endswith("/")
    if folders_only:
        pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    return _Rule(PathGlob(pattern), negated, folders_only, anchored)


class IgnoreFile:
    """The rules of one ignore file, for paths below the folder it lies in."""

    __slots__ = ("_rules",)

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[_Rule] = []
        for line in lines:
            # A line that makes no sense says nothing.
            with suppress(GlobError):
                self._rules += filter(None, [parse_rule(line)])
        self._rules.reverse()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, parts: Sequence[str], is_folder: bool) -> bool | None:
        """Return True if the path (its components, from the file's folder) is ignored, False if it is explicitly
        not, None if nothing is said. The last rule that matches decides."""
        for rule in self._rules:
            if rule.match(parts, is_folder):
                return not rule.negated
        return None


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    # `\ ` keeps its space.
    return stripped + " " if backslashes % 2 and len(stripped) < len(line) else stripped
