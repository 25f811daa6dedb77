"""From the path a model wrote to the path that is meant.

Nothing is fenced in: absolute paths and `..` go wherever they lead.
"""

import os

from spindle.tools.base import ToolError

__all__ = ["resolve_existing", "resolve_path"]

_PLAIN_SPACES = dict.fromkeys([0x00A0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
_NARROW_SPACE = "\u202f"
_CURLY_QUOTE = "\u2019"


def resolve_path(path: str, cwd: str) -> str:
    """Return the absolute, normalised path. Raises `ToolError` for one that no file can have."""
    path = path.translate(_PLAIN_SPACES).removeprefix("@")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    elif path.startswith("file://"):
        path = _from_url(path)
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(f"Path is not valid text: {path!a}") from None
    if b"\0" in encoded:
        raise ToolError(f"Path must not contain null bytes: {path!a}")
    resolved = os.path.normpath(os.path.join(cwd, path))
    # POSIX lets exactly two leading slashes mean something else; nobody does.
    return resolved[1:] if resolved.startswith("//") else resolved


def resolve_existing(path: str, cwd: str) -> str:
    """Like `resolve_path`; if there is no such file, try the spellings macOS gives to file names.

    Those are: a narrow space before AM and PM in screenshots, decomposed accents, a curly apostrophe.
    """
    resolved = resolve_path(path, cwd)
    if os.path.lexists(resolved):
        return resolved
    import re
    from unicodedata import normalize

    decomposed = normalize("NFD", resolved)
    spellings = (
        re.sub(r" (AM|PM)\.", _NARROW_SPACE + r"\1.", resolved, flags=re.IGNORECASE),
        decomposed,
        resolved.replace("'", _CURLY_QUOTE),
        decomposed.replace("'", _CURLY_QUOTE),
    )
    return next((spelling for spelling in spellings if os.path.lexists(spelling)), resolved)


def _from_url(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ToolError(f"File URL must name a file of this machine: {url}")
    return unquote(parts.path)
