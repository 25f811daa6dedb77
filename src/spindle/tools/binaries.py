"""Where to find programs that do a job better than we can."""

import os
import sys

from .base import ToolSettings

__all__ = ["find_program"]


def find_program(names: tuple[str, ...], settings: ToolSettings) -> str | None:
    """Return the first of `names` in the agent's own folder, on PATH, or next to our Python, where wheels put them."""
    from shutil import which

    folders = (settings.bin_dir or "", os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable))
    found = (which(name, path=folder) for folder in folders if folder for name in names)
    return next((program for program in found if program), None)
