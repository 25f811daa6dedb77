"""Where programs are: the folders of PATH, and beside it those of our own.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import os
import sys


def on_path(name: str, path: str | None = None) -> str | None:
    """Return the program `name` from the folders of `path`, by default those of PATH."""
    # Like shutil.which, which would load five compression libraries.
    for folder in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        program = os.path.join(folder, name)
        if folder and os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return None


def find_ripgrep(bin_dir: str | None) -> str | None:
    """Return rg from `bin_dir` (the agent's own folder), from PATH, or from next to our Python, where its wheel is."""
    folders = (bin_dir or "", None, os.path.dirname(sys.executable))
    return next((program for folder in folders if (program := on_path("rg", folder))), None)
