"""Where answers of the client end up: dialogs of extensions, results of host tools.

These frames are not commands. They get no response, are handled the moment they arrive, and one that nobody waits for
is dropped.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["Answers"]

Taker = Callable[[dict[str, Any]], bool]


class Answers:
    def __init__(self) -> None:
        # An answer to a dialog is never a command, even if no dialog is open.
        self._takers: dict[str, Taker] = {"extension_ui_response": lambda frame: True}

    def register(self, kind: str, taker: Taker) -> None:
        """Let `taker` have frames of this type; it returns False for one it does not recognise."""
        self._takers[kind] = taker

    def receive(self, frame: dict[str, Any]) -> bool:
        """Hand the frame on. Returns whether it was an answer."""
        kind = frame.get("type")
        taker = self._takers.get(kind) if isinstance(kind, str) else None
        return taker is not None and taker(frame)
