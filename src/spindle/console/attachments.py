"""What stands as a mark in the input: long pastes and pictures."""

import os
import re
from typing import Any, NamedTuple

from spindle.client import image_file

_LONG_LINES, _LONG_TEXT = 10, 2000
"""A paste with more stands as one mark in the input."""
_PICTURE = re.compile(r"\.(png|jpe?g|gif|webp)$", re.IGNORECASE)
_CLIPBOARDS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)


class Entry(NamedTuple):
    """What the user has sent."""

    text: str
    images: list[dict[str, Any]]
    later: bool = False
    """To be delivered when the run is over."""


class Attachments:
    def __init__(self) -> None:
        self._pastes: dict[str, str] = {}
        self._images: dict[str, dict[str, Any]] = {}

    def paste(self, text: str) -> str:
        """Return what to insert for a pasted text, which may be the path of a picture that was dropped here."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        path = text.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
        if _is_picture(path):
            return self._image(os.path.basename(path), image_file(os.path.expanduser(path)))
        count = len(text.splitlines())
        if count <= _LONG_LINES and len(text) <= _LONG_TEXT:
            return text
        mark = f"[paste {len(self._pastes) + 1}: {count} lines]"
        self._pastes[mark] = text
        return mark

    async def clipboard(self) -> str | None:
        """Return what to insert for a picture in the clipboard; None if there is none."""
        import base64

        from spindle.limits import CLIPBOARD
        from spindle.process import run

        for command in _CLIPBOARDS:
            try:
                done = await run(command, timeout=CLIPBOARD)
            except OSError:
                continue
            if done.output.startswith(b"\x89PNG"):
                data = base64.b64encode(done.output).decode()
                return self._image("clipboard", {"type": "image", "data": data, "mimeType": "image/png"})
        return None

    def entry(self, text: str, later: bool = False) -> Entry:
        """Put the pastes back and collect the pictures, `@picture.png` too."""
        images = [image for mark, image in self._images.items() if mark in text]
        named = re.findall(r"(?<!\S)@(\S+)", text)
        images += [image_file(os.path.expanduser(path)) for path in named if _is_picture(path)]
        for mark, pasted in self._pastes.items():
            text = text.replace(mark, pasted)
        return Entry(text, images, later)

    def _image(self, name: str, image: dict[str, Any]) -> str:
        mark = f"[image {len(self._images) + 1}: {name}]"
        self._images[mark] = image
        return mark


def _is_picture(path: str) -> bool:
    return bool(_PICTURE.search(path)) and os.path.isfile(os.path.expanduser(path))
