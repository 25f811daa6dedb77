"""What was wrong with a resource, in a form that a person and a program can both use."""

import os
import sys
from collections.abc import Sequence
from typing import Literal

from spindle.shapes.content import Wire

__all__ = ["Collision", "Diagnostic", "report"]


class Collision(Wire):
    resource_type: str
    name: str
    winner_path: str
    loser_path: str


class Diagnostic(Wire):
    type: Literal["warning", "error", "collision"]
    message: str
    path: str | None = None
    collision: Collision | None = None

    def __str__(self) -> str:
        if self.collision is not None:
            return f"{self.message}: using {self.collision.winner_path}, ignoring {self.collision.loser_path}"
        return f"{self.message} ({self.path})" if self.path and self.path not in self.message else self.message


def report(diagnostics: Sequence[Diagnostic], *, verbose: bool) -> None:
    """Write them on stderr. Flaws of files are only counted unless `verbose`: some people have many."""
    quiet = [d for d in diagnostics if d.path and d.type != "error" and not verbose and os.path.exists(d.path)]
    for diagnostic in diagnostics:
        if diagnostic not in quiet:
            print(f"Warning: {diagnostic}", file=sys.stderr)
    if quiet:
        what = "flaw" if len(quiet) == 1 else "flaws"
        print(f"Warning: {len(quiet)} {what} in skills, prompts or rules (see `spindle doctor`)", file=sys.stderr)
