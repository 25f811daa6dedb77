"""A small stand-in for ripgrep, run as a program of its own: `python -m spindle.tools.search <JSON>`.

A process and not a thread, because Python's `re` cannot be interrupted: a pattern that backtracks for ever would
stop the whole agent, while a process can be killed. It prints the events of `rg --json` that matter.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from spindle.tools.base import ToolError
from spindle.tools.files import require_regular
from spindle.tools.gitignore import parse_rule
from spindle.tools.globs import GlobError, expand_braces
from spindle.tools.rust_regex import compile_pattern, required_text
from spindle.tools.walk import Override, walk

__all__ = ["main"]

_HEAD = 64 * 1024
_CHUNK = 1024 * 1024
_SHOWN = 2000
"""Characters of a line that are reported; more than anyone shows."""


def main() -> int:
    request: dict[str, Any] = json.loads(sys.argv[1])
    try:
        search = _Search(request["pattern"], ignore_case=request["ignoreCase"], literal=request["literal"])
        override = _override(request["glob"], request["cwd"]) if request["glob"] else None
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = False
    for path in _files(request["path"], override):
        for number, line in search.matches(path, skip_binary=path != request["path"]):
            found = True
            data = {"path": {"text": path}, "lines": {"text": line[:_SHOWN]}, "line_number": number}
            print(json.dumps({"type": "match", "data": data}, separators=(",", ":")))
    return 0 if found else 1


def _files(path: str, override: Override | None) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for entry in walk(path, ".rgignore", require_git=True, override=override):
        if not entry.is_folder and not entry.is_link:
            yield entry.path


class _Search:
    """What is searched for."""

    def __init__(self, pattern: str, *, ignore_case: bool, literal: bool) -> None:
        """Raises `ValueError`."""
        self._pattern = compile_pattern(pattern, ignore_case=ignore_case, literal=literal)
        self._ignore_case = ignore_case
        needle = required_text(pattern, literal=literal)
        self._needle = (needle.lower() if ignore_case else needle).encode() if needle.isascii() else b""
        """Bytes that a file with a match contains; most files are done with after a look for them."""
        self._odd_cases = ignore_case and any(byte in b"iks" for byte in self._needle)
        """Each of these letters has one more form outside of ASCII, such as the sign for kelvin."""

    def matches(self, path: str, *, skip_binary: bool) -> Iterator[tuple[int, str]]:
        try:
            require_regular(path)
            with open(path, "rb") as file:
                head = file.read(_HEAD)
                utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
                if not utf16 and ((skip_binary and b"\0" in head) or not self._may_match(head, file)):
                    return
            with open(path, encoding="utf-16" if utf16 else "utf-8-sig", errors="replace", newline="\n") as lines:
                number, reported = 1, 0
                while line := lines.readline(_CHUNK):  # a line longer than that is searched in pieces
                    if skip_binary and "\0" in line:
                        return
                    if number != reported and self._pattern.search(line.removesuffix("\n")):
                        yield number, line
                        reported = number
                    number += line.endswith("\n")
        except (OSError, ToolError) as error:
            print(f"{path}: {error}", file=sys.stderr)

    def _may_match(self, head: bytes, rest: BinaryIO) -> bool:
        chunk, overlap = head, b""
        while chunk:
            data = overlap + chunk
            if self._needle in (data.lower() if self._ignore_case else data):
                return True
            if self._odd_cases and not data.isascii():
                return True
            overlap = data[-len(self._needle) :]
            chunk = rest.read(_CHUNK)
        return False


def _override(glob: str, cwd: str) -> Override:
    """Return what `--glob` means: only files that match, or with `!` all but those; paths count from `cwd`."""
    negated = glob.startswith("!")
    rules = [rule for pattern in expand_braces(glob.removeprefix("!")) if (rule := parse_rule(pattern))]
    if not rules:
        raise GlobError(f"error parsing glob '{glob}'")

    def verdict(path: str, is_folder: bool) -> bool | None:
        parts = os.path.relpath(path, cwd).split(os.sep)
        if any(rule.match(parts, is_folder) for rule in rules):
            return not negated
        return None if negated or is_folder else False

    return verdict


if __name__ == "__main__":
    sys.exit(main())
