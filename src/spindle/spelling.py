"""What a misspelt name may have meant."""

from collections.abc import Iterable

_NEAR = 0.8
"""How alike two names are that are taken for the same; 1 is equal."""


def nearest(wanted: str, names: Iterable[str]) -> str | None:
    """Return the name that `wanted` probably stands for: another case, or a slip of a letter or two."""
    import difflib

    plain = {_plain(name): name for name in names}
    found = difflib.get_close_matches(_plain(wanted), plain, 1, _NEAR)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
