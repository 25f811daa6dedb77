"""The permission modes: they decide about tool calls that no rule covers. `agent/fences/rules.py` applies them."""

from typing import Final, Literal

from msgspec import Struct

PermissionMode = Literal["bypass", "default", "acceptEdits", "plan", "dontAsk"]


class ModeWords(Struct, frozen=True):
    """Texts about a mode, for people."""

    title: str
    help: str


PERMISSION_MODES: Final[dict[PermissionMode, ModeWords]] = {
    "bypass": ModeWords("Bypass", "Every tool call is allowed"),
    "default": ModeWords("Ask", "Reading is free, everything else is asked about"),
    "acceptEdits": ModeWords("Accept edits", "Edits in the working directory are allowed, the rest is asked about"),
    "plan": ModeWords("Plan", "Only reading is allowed"),
    "dontAsk": ModeWords("Don't ask", "What no rule allows is refused"),
}
"""In the order in which they are shown. Type checkers need the names above too; a test compares the two."""
