"""Opening only what is safe to open: a pipe or a device could block for ever or never end."""

import errno
import os
import stat

from .base import ToolError

__all__ = ["require_folder", "require_regular"]


def require_regular(path: str) -> os.stat_result:
    """Return the status of a regular file.

    Raises `OSError` if there is none or if it is a directory, `ToolError` for pipes, sockets and devices.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"Not a regular file: {path}")
    return status


def require_folder(path: str) -> None:
    """Raise `ToolError` unless this is a folder."""
    if not os.path.isdir(path):
        raise ToolError(f"{'Not a directory' if os.path.exists(path) else 'Path not found'}: {path}")
