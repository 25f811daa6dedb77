"""The title of a session in a list for people: its name, or its first message without the texts of files."""

import os
import re
from typing import Final

_FILES: Final = re.compile(r'<file name="([^"]*)">.*?(?:</file>|$)', re.DOTALL)


def session_title(name: str | None, first_message: str) -> str:
    """Return the title; of a message of files alone, their names. Empty if nothing was said."""
    if name:
        return name
    words = _FILES.sub("", first_message).strip()
    return words or " ".join(f"@{os.path.basename(path)}" for path in _FILES.findall(first_message))
