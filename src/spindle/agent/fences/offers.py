"""What "Always allow" offers in a question about a tool call: rules, with words for people, the narrowest first."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from spindle.agent.fences.rules import Policy, decide, rules_of

ALWAYS: Final = "Always allow"
HERE: Final = "./**"
_VERBS: Final = {"Read": "reading", "Edit": "edits"}


class Offer(Struct, frozen=True):
    text: str
    """As the user reads it."""
    rules: list[str]


def offers(always: Sequence[str], cwd: str, tool: str, arguments: Any) -> list[Offer]:
    """Return the offers for a call that `always`, the rules of a decision, would allow."""
    if not always:
        return []
    found = [list(always)]
    for rule in _wider(always[0]) if len(always) == 1 else ():
        policy = Policy(cwd, "default", rules_of("allow", [rule], "offer"))
        if decide(policy, tool, arguments).rule is not None:  # a wildcard does not stand for protected files
            found.append([rule])
    return [Offer(_text(rules), rules) for rules in found]


def _wider(rule: str) -> Iterator[str]:
    """Yield what people mean beyond one folder: all of the working directory; outside of it, reading in general."""
    kind, _, pattern = rule.partition("(")
    if kind in _VERBS and pattern.startswith("./") and pattern not in (f"{HERE})", "./)"):
        yield f"{kind}({HERE})"
    elif kind == "Read" and pattern.startswith("//"):
        yield kind


def _text(rules: list[str]) -> str:
    names = ", ".join(rules)
    words = _words(rules[0]) if len(rules) == 1 else None
    return f"{ALWAYS} {names if words is None else f'{words}: {names}'}"


def _words(rule: str) -> str | None:
    kind, _, pattern = rule.partition("(")
    if kind not in _VERBS:
        return None
    place = pattern[:-1].replace("//", "/", 1).removeprefix("./")
    if place in ("", "**"):
        return f"{_VERBS[kind]} in the working directory" if pattern else f"{_VERBS[kind]} everywhere"
    folder = place.removesuffix("/**")
    return f"{_VERBS[kind]} {'in' if folder != place else 'of'} {folder}"
