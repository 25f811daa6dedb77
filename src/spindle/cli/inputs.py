"""What the command line gives as messages: piped text, `@files`, and the words themselves."""

import os
import sys

from msgspec import Struct

from spindle.agent_dir import expand_home
from spindle.shapes.content import Image

__all__ = ["BadInput", "Inputs", "gather", "read_piped"]


class BadInput(Exception):
    """An input cannot be had; the text is one line."""


class Inputs(Struct, frozen=True):
    messages: list[str]
    """One prompt each, in order."""
    images: list[Image] = []
    """They go with the first."""


def read_piped() -> str | None:
    """Return what is piped into stdin, trimmed; None if that is nothing, a terminal, or closed."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip() or None


def gather(messages: list[str], files: list[str], cwd: str, piped: str | None) -> Inputs:
    """Put the first message together of piped text, files and words, without separators. Raises `BadInput`."""
    first = piped or ""
    images: list[Image] = []
    for name in files:
        text, image = _read_file(os.path.abspath(os.path.join(cwd, expand_home(name))))
        first += text
        images += [image] if image else []
    rest = list(messages)
    if rest:
        first += rest.pop(0)
    return Inputs([first, *rest] if first else rest, images)


def _read_file(path: str) -> tuple[str, Image | None]:
    from spindle.tools.images import SNIFF_BYTES, sniff_image

    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"File not found: {path}") from None
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror or error}") from None
    if not data:
        return "", None
    if mime_type := sniff_image(data[:SNIFF_BYTES]):
        return _attach(path, data, mime_type)
    return f'<file name="{path}">\n{data.decode("utf-8", "replace")}\n</file>\n', None


def _attach(path: str, data: bytes, mime_type: str) -> tuple[str, Image | None]:
    from spindle.tools.files import Cancel
    from spindle.tools.images import ImageLimits, prepare_image

    image, notes = prepare_image(data, mime_type, ImageLimits(), True, Cancel())
    return f'<file name="{path}">{" ".join(notes)}</file>\n', image
