"""Files in a folder that git obeys. It would wait for one that is a pipe, for as long as nobody writes to it.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

LOOK_AFTER = 2.0
"""Seconds that git may take before somebody looks whether it waits for a pipe."""
_NAMES = (".gitignore", ".gitattributes")


def why_git_waits(folder: str) -> str | None:
    """Return why git can read nothing in a folder, in words; None if nothing in there holds it."""
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in _NAMES:
            if name in files:
                path = os.path.join(where, name)
                with suppress(OSError):
                    if stat.S_ISFIFO(os.stat(path).st_mode):
                        return f"{os.path.relpath(path, folder)} is a pipe, and git would wait for it"
    return None
