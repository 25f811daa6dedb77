"""What was wrong with a resource, in a form that a person and a program can both use."""

import sys
from typing import Literal

from spindle.types.content import Wire

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


def report(diagnostics: list[Diagnostic]) -> None:
    """Write each one on a line of stderr."""
    for diagnostic in diagnostics:
        print(f"{'Error' if diagnostic.type == 'error' else 'Warning'}: {diagnostic}", file=sys.stderr)
