"""What is wrong with a session file, for a person to read."""

from msgspec import Struct

__all__ = ["SKIPPED", "Damage"]

SKIPPED = frozenset({"bad line", "torn line", "no id"})
"""Kinds of which the line takes no part in the session. It stays in the file."""


class Damage(Struct, frozen=True):
    kind: str
    line: int
    """Counted from 1."""
    text: str
    entry_id: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.text}"
