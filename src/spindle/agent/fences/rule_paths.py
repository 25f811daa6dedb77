"""The patterns of `Read` and `Edit` rules, and which paths they fit. Reads the disk only to resolve links."""

import glob
import os
import re
import sys
from functools import lru_cache
from itertools import islice
from typing import Final

from spindle.agent.fences.links import home, is_far, real_path
from spindle.agent.fences.shell.gaps import ANY, FOLDERS, NUMBER, ONE, PLACE, STAR, WORDS, Pattern, has_gap
from spindle.base.globs import PathGlob, expand_braces

_IGNORE_CASE: Final = sys.platform == "darwin"
_MOST_FILES: Final = 1000
"""Files that the wildcards of a word are tried on."""
_PROCESS_LINK = re.compile(r"^/+proc/+(?:[^/]|\0.)+/+(?:task/+[^/]+/+)?(?:cwd|root)(?=/|$)")
"""Links of the kernel to the folders of a process, which is not ours."""
_MOST_WILD_PARTS: Final = 2
_LONGEST: Final = 4096
"""Characters of a path."""


def check(pattern: str) -> None:
    """Raise `GlobError` if the pattern is not valid."""
    _globs(_anchored(pattern, "/", wide=True)[1])


def fits(pattern: str, path: str, cwd: str, *, wide: bool = False) -> bool:
    """Say whether a pattern fits an absolute path. `wide`: a parent folder fits too, a mere name fits everywhere."""
    folder, rest = _anchored(pattern, cwd, wide=wide)
    globs = _globs(rest)
    for base in {folder, real_path(folder)}:
        parts = below(base, path)
        if parts is None:
            continue
        if (not rest and (wide or not parts)) or (not parts and rest == "**"):
            return True
        ends = range(1, len(parts) + 1) if wide else (len(parts),)
        if any(glob.match(parts[:end]) for glob in globs for end in ends):
            return True
    return False


def named(word: str, place: str) -> list[str]:
    """Return the absolute paths that a word of a shell may mean: as it was written, and as the kernel resolves it.

    A word with wildcards means the files that it fits, too. A path with gaps stays one.
    """
    word = _PROCESS_LINK.sub(ANY, word.replace(PLACE, place).removeprefix("file://"))
    if len(word) > _LONGEST:
        return []
    if not has_gap(word) and not has_gap(place):
        path = os.path.join(place, word)
        return [os.path.normpath(path), real_path(path)]
    paths = []
    wild_parts = sum(has_gap(part) for part in word.split("/"))
    if not is_far() and wild_parts <= _MOST_WILD_PARTS and not any(gap in word + place for gap in (ANY, WORDS, NUMBER)):
        wild = "".join({STAR: "*", ONE: "?"}.get(t, glob.escape(t)) for t in re.findall(r"(?s)\0.|[^\0]+", word))
        for found in islice(glob.iglob(os.path.join(glob.escape(place), wild)), _MOST_FILES):
            paths += [os.path.normpath(found), real_path(found)]
    if not word.startswith(("/", ANY, WORDS)):
        word = f"{place}/{word}"
    return [*paths, _widened(word)]


def _widened(path: str) -> str:
    """Widen the gaps of a path by what `..` may do: in front of a gap there is a gap, and behind it the last `..`."""
    if gap := re.search("\0[aw]", path):
        folder, _, start = path[: gap.start()].rpartition("/")
        known = folder and not has_gap(folder) and not _has_folder(folder, start)
        # Where no folder begins like the text before the gap, the gap has no slash.
        path = path[: gap.start()] + STAR + path[gap.end() :] if known else path[gap.start() :]
    up = path.rfind("/..")
    return re.sub("(?<=.)/(?:[.]?/)+", "/", ANY + path[up + 3 :] if up >= 0 else path)


def _has_folder(folder: str, start: str) -> bool:
    """Say whether there is a folder whose name begins like this."""
    if is_far():
        return True
    try:
        with os.scandir(folder) as entries:
            return not start or any(entry.name.startswith(start) and entry.is_dir() for entry in entries)
    except (OSError, ValueError):
        return False


def may_fit(pattern: str, path: str, cwd: str) -> bool:
    """Say whether a pattern, or a parent folder of it, may fit an absolute path with gaps."""
    folder, rest = _anchored(pattern, cwd, wide=True)
    below = _may_be_folder(rest.rpartition("/")[2] or folder, cwd)
    path = path.lower() if _IGNORE_CASE else path
    bases = {folder, real_path(folder)}
    return any(one.may_fit(path) for base in bases for one in _with_gaps(base, rest, below))


def _may_be_folder(path: str, cwd: str) -> bool:
    """Say whether a rule may mean a folder: a name with an ending is taken for a file, a hidden one if it is none."""
    name = os.path.basename(path)
    if is_far():
        return True
    if name.startswith(".") and not name.startswith(".."):
        return any(os.path.isdir(os.path.join(base, path)) for base in (cwd, home()))
    return re.search(r"\.\w+$", name) is None or os.path.isdir(os.path.join(cwd, path))


@lru_cache(1000)
def _with_gaps(base: str, rest: str, below: bool) -> list[Pattern]:
    """Return the patterns as those for text with gaps. `below`: the files in a folder that fits do so, too."""
    found = []
    for one in expand_braces(rest):
        tokens = list(base.rstrip("/"))
        folder = len(tokens)
        *parts, last = one.split("/")
        tokens += ["/"] if one else []
        for part in parts:
            tokens += FOLDERS if part == "**" else [*_tokens(part), "/"]
        tokens += [ANY] if last == "**" else _tokens(last)
        ends = [len(tokens), folder] if one == "**" else [len(tokens)]
        if _IGNORE_CASE:
            tokens = [token if has_gap(token) else token.lower() for token in tokens]
        found.append(Pattern([*tokens, "/", ANY] if below else tokens, ends))
    return found


def _tokens(part: str) -> list[str]:
    wildcards = {"*": STAR, "?": ONE}
    pieces = re.findall(r"(?s)\\.|\[[!^]?.[^\]]*\]|.", part)
    return [ONE if len(p) > 2 else wildcards.get(p, p[-1:]) for p in pieces]


def is_exact(pattern: str) -> bool:
    """Say whether a pattern stands for one path."""
    return "/" in pattern and not _anchored(pattern, "/", wide=False)[1]


def suggested(kind: str, path: str, cwd: str, *, exact: bool = False) -> str:
    """Suggest a rule: the folder of the file; the file itself if `exact`, or to edit it in the working directory."""
    inside = below(real_path(cwd), path)
    shown = [re.sub(r"([*?\[{\\])", r"\\\1", part) for part in (path.split("/")[1:] if inside is None else inside)]
    start = "//" if inside is None else "./"
    if not exact and (len(shown) > 1 or (kind == "Read" and inside is not None)):
        return f"{kind}({start}{'/'.join([*shown[:-1], '**'])})"
    return f"{kind}({start}{'/'.join(shown)})"


def below(base: str, path: str) -> list[str] | None:
    """Return the parts of a path that follow the folder; None if the path is outside."""
    if _IGNORE_CASE:
        base, path = base.lower(), path.lower()
    if path == base:
        return []
    prefix = base.rstrip("/") + "/"
    return path[len(prefix) :].split("/") if path.startswith(prefix) else None


def _anchored(pattern: str, cwd: str, *, wide: bool) -> tuple[str, str]:
    """Return the folder that a pattern begins at, and the part of the pattern from its first wildcard on."""
    if pattern.startswith("//"):
        base, pattern = "/", pattern[2:]
    elif pattern == "~" or pattern.startswith("~/"):
        base, pattern = home(), pattern[2:]
    elif "/" not in pattern.rstrip("/") and pattern not in (".", "..", "/", "./", "../"):
        base, pattern = "/" if wide else cwd, f"**/{pattern}"  # a mere name, at any depth
    else:
        base, pattern = cwd, pattern.lstrip("/")
    if pattern.endswith("/") or pattern in ("", ".", ".."):
        pattern = f"{pattern.rstrip('/')}/**".lstrip("/")
    parts = pattern.split("/")
    plain = next((i for i, part in enumerate(parts) if re.search(r"[*?\[{\\]", part)), len(parts))
    return os.path.normpath(os.path.join(base, *parts[:plain])), "/".join(parts[plain:])


def anchored(pattern: str, cwd: str) -> tuple[str, str]:
    """Return the folder or file that a pattern begins at, and the rest of it, which has wildcards."""
    return _anchored(pattern, cwd, wide=True)


@lru_cache(1000)
def _globs(pattern: str) -> list[PathGlob]:
    return [PathGlob(one, _IGNORE_CASE) for one in expand_braces(pattern)] if pattern else []
