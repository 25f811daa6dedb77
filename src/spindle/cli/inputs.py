"""What the command line gives as messages: piped text, `@files`, and the words themselves."""

import os
import sys
from dataclasses import dataclass, field

from spindle.types.content import Image
from spindle.types.paths import expand_home

__all__ = ["BadInput", "Inputs", "assemble", "read_piped"]


class BadInput(Exception):
    """An input cannot be had; the text is one line."""


@dataclass(frozen=True, slots=True)
class Inputs:
    messages: list[str]
    """One prompt each, in order."""
    images: list[Image] = field(default_factory=list)
    """They go with the first."""


def read_piped() -> str | None:
    """Return what is piped into stdin, trimmed; None if it is a terminal or closed."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip() or None


def assemble(messages: list[str], files: list[str], cwd: str, piped: str | None, *, resize: bool = True) -> Inputs:
    """Put the first message together of piped text, files and words, without separators. Raises `BadInput`."""
    first = piped or ""
    images: list[Image] = []
    for name in files:
        text, found = _read_file(os.path.abspath(os.path.join(cwd, expand_home(name))), resize)
        first += text
        images += found
    rest = list(messages)
    if rest:
        first += rest.pop(0)
    return Inputs([first, *rest] if first or images else rest, images)


def _read_file(path: str, resize: bool) -> tuple[str, list[Image]]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"File not found: {path}") from None
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror or error}") from None
    if not data:
        return "", []
    return f'<file name="{path}">\n{data.decode("utf-8", "replace")}\n</file>\n', []
