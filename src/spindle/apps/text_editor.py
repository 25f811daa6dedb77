"""The editor that the user has chosen, for a text that is to be changed."""

import os
import shlex
import subprocess
import tempfile
from contextlib import suppress


def edited(text: str, suffix: str) -> str:
    """Run `$VISUAL` or `$EDITOR` on a text, which nobody else can read; return what it has become."""
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.NamedTemporaryFile("w+", suffix=suffix, encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        with suppress(OSError, ValueError):
            subprocess.run([*words, file.name], check=False)
        with open(file.name, encoding="utf-8", errors="surrogateescape") as changed:  # some editors replace the file
            return changed.read()
