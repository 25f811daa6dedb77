"""A question to the user, however the terminal can ask it: with keys, with a list to search, or with a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spindle.console.look import clean, one_line, visible

_SHOWN = 10
"""So many options are shown at a time."""


@dataclass
class Question:
    title: str
    options: Sequence[str] = ()
    """Empty: a text is asked for. Else the answer is the number of one."""
    keys: str = ""
    """A key for each option, which chooses it at once."""
    prefill: str = ""
    chosen: int = 0
    """The option that Enter takes, of those that fit what was typed."""

    def fitting(self, typed: str) -> list[int]:
        """Return the options that have every typed word."""
        words = typed.lower().split()
        return [at for at, option in enumerate(self.options) if all(word in option.lower() for word in words)]

    def lines(self, typed: str) -> list[tuple[str, bool]]:
        """Return what to show, and for each line whether it is the chosen one."""
        fitting = self.fitting(typed)
        first = max(0, min(self.chosen - _SHOWN // 2, len(fitting) - _SHOWN))
        keys = [f"{key}  " for key in self.keys] or [""] * len(self.options)
        shown = [(keys[at] + self.options[at], at == fitting[self.chosen]) for at in fitting[first : first + _SHOWN]]
        hidden = len(fitting) - len(shown)
        more = f"… {hidden} more: arrows, or type to search" if hidden else "" if shown else "(nothing fits)"
        return [*shown, (more, False)] if more and self.options else shown

    def read(self, line: str) -> int | str | None:
        """Understand an answer that came as a line. None: it is none of the options."""
        word = line.strip()
        if not self.options:
            return line
        if word.isdecimal():
            return int(word) - 1 if 0 < int(word) <= len(self.options) else None
        key = word if word in self.keys else word[:1].lower()  # yes, always, no
        return self.keys.index(key) if key and key in self.keys else None


def question_of(request: dict[str, Any]) -> Question:
    """Make a question of an `extension_ui_request`."""
    title = visible(request.get("title") or "").strip()
    match request["method"]:
        case "confirm":
            message = visible(request.get("message") or "").strip()
            return Question(f"{title}\n{message}".strip(), ["Yes", "No"], "yn")
        case "select":
            options = [one_line(str(option)) for option in request.get("options") or ()]
            about_permissions = options[:1] == ["Allow once"] and options[-1:] == ["Deny"]
            return Question(title, options, ("yn" if len(options) == 2 else "yaAn") if about_permissions else "")
    hint = f" ({one_line(request['placeholder'])})" if request.get("placeholder") else ""
    return Question(title + hint, prefill=clean(request.get("prefill") or ""))
