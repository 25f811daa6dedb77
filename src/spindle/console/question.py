"""A question to the user, however the terminal can ask it: with keys, with a list to search, or with a line."""

from dataclasses import dataclass, field
from typing import Any

from spindle.console.look import clean, one_line

Json = dict[str, Any]

_YES, _NO = "Yes", "No"
_SHOWN = 10
"""So many options are shown at a time."""


@dataclass
class Question:
    title: str
    options: list[str] = field(default_factory=list)
    """Empty: a text is asked for."""
    keys: dict[str, int] = field(default_factory=dict)
    """Keys that choose an option at once."""
    prefill: str = ""
    chosen: int = 0
    """The option that Enter takes, of those that fit what was typed."""
    typed: str = ""

    def fitting(self) -> list[str]:
        """Return the options that have every typed word."""
        words = self.typed.lower().split()
        return [option for option in self.options if all(word in option.lower() for word in words)]

    def move(self, steps: int) -> None:
        self.chosen = max(0, min(self.chosen + steps, len(self.fitting()) - 1))

    def lines(self) -> list[tuple[str, bool]]:
        """Return what to show, and for each line whether it is the chosen one."""
        if not self.options:
            return []
        fitting = self.fitting()
        self.move(0)
        first = max(0, min(self.chosen - _SHOWN // 2, len(fitting) - _SHOWN))
        key_of = {self.options[number]: key for key, number in self.keys.items()}
        shown = [
            (f"{key_of[option]}  {option}" if option in key_of else option, first + number == self.chosen)
            for number, option in enumerate(fitting[first : first + _SHOWN])
        ]
        if not fitting:
            shown.append(("(nothing fits)", False))
        hidden = len(fitting) - len(shown)
        return [*shown, (f"… {hidden} more: arrows, or type to search", False)] if hidden > 0 else shown

    def read(self, line: str) -> str | None:
        """Understand an answer that came as a line. None: it is none of the options."""
        if not self.options:
            return line
        word = line.strip()
        number = self.keys.get(word[:1]) if word[:1] in self.keys and len(word) != 2 else None
        if word.isdecimal() and 0 < int(word) <= len(self.options):
            number = int(word) - 1
        if number is not None:
            return self.options[number]
        return next((option for option in self.options if option.lower() == word.lower()), None)


def question_of(request: Json) -> Question:
    """Make a question of an `extension_ui_request`."""
    title = one_line(request.get("title") or "")
    match request["method"]:
        case "confirm":
            message = clean(request.get("message") or "").strip()
            return Question(f"{title}\n{message}".strip(), [_YES, _NO], {"y": 0, "n": 1})
        case "select":
            options = [one_line(str(option)) for option in request.get("options") or ()]
            return Question(title, options, _permission_keys(options))
    hint = f" ({one_line(request['placeholder'])})" if request.get("placeholder") else ""
    return Question(title + hint, prefill=clean(request.get("prefill") or ""))


def answer_to(request: Json, answer: str | None) -> Any:
    """Return an answer in the form that the request wants: the option as it was given, a truth value, a text."""
    if answer is None:
        return None
    if request["method"] == "confirm":
        return answer == _YES
    if request["method"] == "select":
        return next(option for option in request["options"] if one_line(str(option)) == answer)
    return answer


def _permission_keys(options: list[str]) -> dict[str, int]:
    """Return y, a, A and n for the options of a question about permissions."""
    if options[:1] != ["Allow once"] or options[-1:] != ["Deny"]:
        return {}
    keys = ["y", "a", "A", "n"] if len(options) == 4 else ["y", "n"]
    return {key: number for number, key in enumerate(keys)}
