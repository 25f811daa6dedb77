"""Glob patterns for paths (`*`, `?`, `[a-z]`, `\\x`, `**` across folders, `{a,b}` where asked for) and ignore files.

Matching takes time proportional to pattern times path, whatever the pattern: patterns come from models and from
strangers' files.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple


class GlobError(ValueError):
    """The pattern is not valid."""


class PathGlob:
    """A pattern for a whole path, matched folder by folder."""

    __slots__ = ("_segments",)

    def __init__(self, pattern: str, ignore_case: bool = False) -> None:
        """Raises `GlobError`."""
        segments: list[re.Pattern[str] | None] = []
        for name in pattern.split("/"):
            if name != "**":
                segments.append(_compile_segment(name, ignore_case))
            elif not segments or segments[-1] is not None:
                segments.append(None)
        if segments[-1] is None:  # `a/**` matches paths inside a, not a itself.
            segments.append(_compile_segment("*", ignore_case))
        self._segments = segments

    def match(self, parts: Sequence[str]) -> bool:
        """Return whether the pattern matches the path with these components."""
        segments = self._segments
        part = segment = 0
        # After a mismatch, the last `**` takes one part more. Going back further would find nothing new.
        retry_segment, retry_part = -1, 0
        while part < len(parts):
            if segment < len(segments):
                pattern = segments[segment]
                if pattern is None:
                    segment += 1
                    retry_segment, retry_part = segment, part
                    continue
                if pattern.fullmatch(parts[part]):
                    segment += 1
                    part += 1
                    continue
            if retry_segment < 0:
                return False
            retry_part += 1
            segment, part = retry_segment, retry_part
        return segment == len(segments)


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns that `{a,b}` stands for, nested ones too.

    Raises `GlobError` if there are too many, or a brace is not closed.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        group = _first_group(current)
        if group is None:
            done.append(current)
        else:
            start, end, choices = group
            waiting += [current[:start] + choice + current[end:] for choice in reversed(choices)]
        if len(done) + len(waiting) > 1000:
            raise GlobError(f"error parsing glob '{pattern}': too many alternatives")
    return done


def _first_group(pattern: str) -> tuple[int, int, list[str]] | None:
    depth, start, cut, position = 0, 0, 0, 0
    choices: list[str] = []
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position += 1
        elif character == "[":
            position = max(position, _class_end(pattern, position))
        elif character == "{":
            if depth == 0:
                start, cut = position, position + 1
            depth += 1
        elif character == "," and depth == 1:
            choices.append(pattern[cut:position])
            cut = position + 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                return start, position + 1, [*choices, pattern[cut:position]]
        position += 1
    if depth:
        raise GlobError(f"error parsing glob '{pattern}': unclosed alternate group; missing '}}'")
    return None


def _class_end(pattern: str, start: int) -> int:
    """Return where the `]` of the class opened at `start` is, or -1."""
    first = start + 1
    if pattern[first : first + 1] in ("!", "^"):
        first += 1
    return pattern.find("]", first + 1)


def _compile_segment(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    pieces: list[str] = [""]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "."
        elif character == "[":
            end = _class_end(pattern, position)
            if end < 0:
                raise GlobError(f"error parsing glob '{pattern}': unclosed character class; missing ']'")
            pieces[-1] += _class_regex(pattern[position + 1 : end], pattern)
            position = end
        else:
            if character == "\\" and position + 1 < len(pattern):
                position += 1
                character = pattern[position]
            pieces[-1] += re.escape(character)
        position += 1
    first, *rest = pieces
    # Every piece but the last takes the first place where it fits, for good: no backtracking between stars. A group in
    # a lookahead is never tried again; old versions of Python have no atomic groups.
    fixed = (f"(?=(.*?{piece}))\\{number}" for number, piece in enumerate(rest[:-1], 1))
    regex = first + "".join(fixed) + (f".*{rest[-1]}" if rest else "")
    return re.compile(regex, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _class_regex(body: str, pattern: str) -> str:
    negated = body[:1] in ("!", "^")
    escaped = re.sub(r"[\\\[&~|]", r"\\\g<0>", body[negated:])
    if escaped.startswith("^"):
        escaped = "\\" + escaped
    regex = f"[{'^' if negated else ''}{escaped}]"
    try:
        re.compile(regex)
    except re.error:
        raise GlobError(f"error parsing glob '{pattern}': invalid range; '{body}'") from None
    return regex


# -- ignore files --------------------------------------------------------------------------------


class _Rule(NamedTuple):
    glob: PathGlob
    negated: bool
    folders_only: bool
    anchored: bool
    """Matched against the path from the ignore file's folder; else against the name alone."""

    def match(self, parts: Sequence[str], is_folder: bool) -> bool:
        return (is_folder or not self.folders_only) and self.glob.match(parts if self.anchored else parts[-1:])


def _parse_rule(line: str) -> _Rule | None:
    """Read one line as git does. None for blank lines and comments. Raises `GlobError`."""
    line = line.rstrip("\r\n")
    stripped = line.rstrip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    # A trailing space stays if a backslash escapes it.
    line = stripped + " " if backslashes % 2 and len(stripped) < len(line) else stripped
    if line.startswith("#"):
        return None
    pattern = line[line.startswith("!") :].rstrip("/")
    name = pattern[pattern.startswith("/") :]
    return _Rule(PathGlob(name), line.startswith("!"), line.endswith("/"), "/" in pattern) if name else None


class IgnoreFile:
    """The rules of one ignore file, for paths below the folder it lies in."""

    __slots__ = ("_rules",)

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[_Rule] = []
        for line in lines:
            # Invalid lines are skipped.
            with suppress(GlobError):
                self._rules += filter(None, [_parse_rule(line)])
        self._rules.reverse()

    def verdict(self, parts: Sequence[str], is_folder: bool) -> bool | None:
        """Return True if the path (its components, from the file's folder) is ignored, False if it is explicitly
        not, None if no rule matches. The last rule that matches decides."""
        return next((not rule.negated for rule in self._rules if rule.match(parts, is_folder)), None)
