"""Patterns written for ripgrep, understood by Python's `re`.

What Python has no word for (Unicode classes, swapped greed) is refused with a clear text. What only Python has
(look-around, back references) is let through.
"""

import re

__all__ = ["compile_pattern", "required_text"]

_ESCAPES = {"z": r"\Z", "<": r"\b(?=\w)", ">": r"\b(?<=\w)"}
_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_TOKEN = re.compile(
    r"\\[xuU]\{(?P<code>[0-9A-Fa-f]+)\}"
    r"|(?P<unicode_class>\\[pP](?:\{[^}]*\}|.))"
    r"|\\(?P<escaped>.)"
    r"|\[:(?P<posix>[a-z]+):\]"
    r"|\(\?(?P<flags_on>[a-zA-Z]*)(?:-(?P<flags_off>[a-zA-Z]+))?(?P<flags_end>[:)])"
    r"|(?P<named_group>\(\?<(?=[A-Za-z_]))"
    r"|.",
    re.DOTALL,
)

_SIMPLE_TOKEN = re.compile(r"(?P<gap>\.[*+?]?|[\^$]|\\[b<>])|\\(?P<escaped>[^\w\s])|(?P<plain>[^\\|()\[\]{}?*+])")
_NEWLINE = 'the literal "\\n" is not allowed in a regex, because every line is searched by itself'


def required_text(pattern: str, *, literal: bool) -> str:
    """Return a text that every match contains; empty if the pattern is not simple enough to tell."""
    if literal:
        return pattern
    runs, end = [""], 0
    for token in _SIMPLE_TOKEN.finditer(pattern):
        if token.start() != end:
            return ""  # an operator: what stands beside it may be optional
        end = token.end()
        if token["gap"]:
            runs.append("")
        else:
            runs[-1] += token["escaped"] or token["plain"]
    return max(runs, key=len) if end == len(pattern) else ""


def compile_pattern(pattern: str, *, ignore_case: bool, literal: bool) -> re.Pattern[str]:
    """Raises `ValueError` with a text like ripgrep's."""
    try:
        if "\n" in pattern:
            raise ValueError(_NEWLINE)
        return re.compile(re.escape(pattern) if literal else _translate(pattern), re.IGNORECASE if ignore_case else 0)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"regex parse error:\n    {pattern}\nerror: {error}") from None


def _translate(pattern: str) -> str:
    out: list[str] = []
    # `(?i)` holds to the end of its group; Python wants `(?i:` and an end. One list of these per open group.
    scopes: list[list[str]] = [[]]
    class_start = -1
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token["unicode_class"]:
            raise ValueError(f"{text} needs ripgrep, which is not installed")
        if token["code"]:
            text = re.escape(chr(int(token["code"], 16)))
        elif class_start >= 0:
            if token["posix"]:
                text = _POSIX_CLASSES.get(token["posix"], re.escape(text))
            elif text == "[":
                text = r"\["
            elif text == "]" and pattern[class_start + 1 : token.start()] not in ("", "^"):
                class_start = -1
        elif token["escaped"] == "n":
            raise ValueError(_NEWLINE)
        elif token["escaped"]:
            text = _ESCAPES.get(token["escaped"], text)
        elif token["flags_end"]:
            text = _flag_group(token["flags_on"], token["flags_off"] or "")
            if token["flags_end"] == ":":
                scopes.append([])
            else:
                scopes[-1].append(text)
        elif token["named_group"]:
            text = "(?P<"
            scopes.append([])
        elif text == "[":
            class_start = token.start()
        elif text == "(":
            scopes.append([])
        elif text == ")" and len(scopes) > 1:
            text += ")" * len(scopes.pop())
        elif text == "|":
            text = ")" * len(scopes[-1]) + "|" + "".join(scopes[-1])
        out.append(text)
    return "".join(out) + ")" * len(scopes[0])


def _flag_group(on: str, off: str) -> str:
    if unknown := set(on + off) - set("imsxuR"):
        raise ValueError(f"flag {min(unknown)} needs ripgrep, which is not installed")
    # Python always is as if with u, and has nothing like R (line ends may be CRLF).
    on, off = (flags.replace("u", "").replace("R", "") for flags in (on, off))
    return f"(?{on}{'-' if off else ''}{off}:"
