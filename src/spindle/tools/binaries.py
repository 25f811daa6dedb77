"""Where to find programs that do a job better than we can."""

import os
import sys

from spindle.tools.base import ToolSettings

__all__ = ["find_program", "on_path"]


def on_path(name: str, path: str | None = None) -> str | None:
    """Return the program `name` from the folders of `path`, by default those of PATH."""
    # Like shutil.which, which would load five compression libraries.
    for folder in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        program = os.path.join(folder, name)
        if folder and os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return None


def find_program(names: tuple[str, ...], settings: ToolSettings) -> str | None:
    """Return the first of `names` in the agent's own folder, on PATH, or next to our Python, where wheels put them."""
    folders = (settings.bin_dir or "", None, os.path.dirname(sys.executable))
    found = (on_path(name, folder) for folder in folders for name in names)
    return next((program for program in found if program), None)
