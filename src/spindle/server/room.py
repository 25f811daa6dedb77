"""Room on the disk that data is kept on: how much there is, and when it is too little."""

import os
import shutil
from pathlib import Path
from typing import Final

LOW: Final = 1 << 30
"""Bytes below which operators are warned."""
LEAST: Final = 64 << 20
"""Bytes below which a server takes no new work: what it has acknowledged still has to be written."""


def free(folder: str | os.PathLike[str]) -> int | None:
    """Return the free bytes of the disk that a folder is on, or will be; None if that cannot be told."""
    path = Path(folder)
    try:
        while not path.exists() and path != path.parent:
            path = path.parent
        return shutil.disk_usage(path).free
    except OSError:
        return None
