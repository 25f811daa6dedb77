"""A question to the user, however the terminal can ask it: with keys, with a list to search, or with a line."""

from dataclasses import dataclass, field
from typing import Any

from spindle.console.look import clean, one_line, visible

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
        if word.isdecimal() and 0 < int(word) <= len(self.options):
            return self.options[int(word) - 1]
        number = self.keys.get(word, self.keys.get({"yes": "y", "no": "n", "always": "a"}.get(word.lower(), "")))
        return None if number is None else self.options[number]


def question_of(request: dict[str, Any]) -> Question:
    """Make a question of an `extension_ui_request`."""
    title = visible(request.get("title") or "").strip()
    if request["method"] == "confirm":
        message = visible(request.get("message") or "").strip()
        return Question(f"{title}\n{message}".strip(), [_YES, _NO], {"y": 0, "n": 1})
    if request["method"] == "select":
        options = [one_line(str(option)) for option in request.get("options") or ()]
        about_permissions = options[:1] == ["Allow once"] and options[-1:] == ["Deny"]
        keys = ("yn" if len(options) == 2 else "yaAn") if about_permissions else ""
        return Question(title, options, {key: number for number, key in enumerate(keys)})
    hint = f" ({one_line(request['placeholder'])})" if request.get("placeholder") else ""
    return Question(title + hint, prefill=clean(request.get("prefill") or ""))


def answer_to(request: dict[str, Any], answer: str | None) -> Any:
    """Return an answer in the form that the request wants: the option as it was given, a truth value, a text."""
    if request["method"] == "confirm" and answer is not None:
        return answer == _YES
    return next((option for option in request.get("options") or () if one_line(str(option)) == answer), answer)
