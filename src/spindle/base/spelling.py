"""Words for people: the names that a misspelt or half-typed one may stand for, and plurals."""

from collections.abc import Iterable

_NEAR = 0.8
"""How alike two names must be to count as the same; 1 is equal."""


def nearest(wanted: str, names: Iterable[str]) -> str | None:
    """Return the name that `wanted` probably stands for: another case, or a slip of a letter or two."""
    wanted = _plain(wanted)
    plain = {other: name for name in names if _may_be_near(wanted, other := _plain(name))}
    if not plain:
        return None
    import difflib

    found = difflib.get_close_matches(wanted, plain, 1, _NEAR)
    return plain[found[0]] if found else None


def _may_be_near(one: str, other: str) -> bool:
    """Say whether two names share enough letters, in any order, to be near. Quick, and false for most names."""
    shared = sum(min(one.count(letter), other.count(letter)) for letter in set(one))
    return 2 * shared >= _NEAR * (len(one) + len(other))


def letters_apart(one: str, other: str) -> int:
    """Return how many letters must be put in, left out or exchanged to make one name of the other."""
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, row[0] = row[0], at
        for to, wanted in enumerate(other, 1):
            before, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, before + (letter != wanted))
    return row[-1]


def did_you_mean(wanted: str, names: Iterable[str], prefix: str = "") -> str:
    """Return ` Did you mean X?` for the nearest names, or nothing if none is near; `prefix` goes before each."""
    import difflib

    by_lower = {name.lower(): prefix + name for name in names}
    near = [by_lower[name] for name in difflib.get_close_matches(wanted.lower(), by_lower, 2, 0.75)]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def counted(number: int, noun: str) -> str:
    """Return `1 tool`, `2 tools`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_order(typed: str, name: str) -> bool:
    """Say whether `name` has the typed letters in this order, not necessarily together."""
    letters = iter(name)
    return all(letter in letters for letter in typed)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
