"""The clipboard of the user: a picture from it, a text into it."""

import base64
import os
from contextlib import suppress

from spindle.base.limits import CLIPBOARD
from spindle.programs.process import run

_PICTURES = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_TEXTS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
)
"""Programs that copy, and the variable that must be set for each."""


async def picture() -> bytes | None:
    """Return the picture in the clipboard as PNG; None if there is none."""
    for command in _PICTURES:
        with suppress(OSError):
            png = (await run(command, timeout=CLIPBOARD)).output
            if png.startswith(b"\x89PNG"):
                return png
    return None


async def copy(text: str) -> bool:
    """Copy a text with a program of this machine; return whether one did it. Over ssh it is another clipboard."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    for variable, command in _TEXTS:
        if not variable or os.environ.get(variable):
            with suppress(OSError):
                if (await run(command, input=text.encode(), timeout=CLIPBOARD)).code == 0:
                    return True
    return False


def sequence(text: str) -> str:
    """Return what asks the terminal itself to copy a text (OSC 52), also at the other end of a connection."""
    return f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
