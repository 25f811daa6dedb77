"""Files as tools may use them.

Only what is safe is opened: a pipe or a device could block for ever or never end. What is replaced keeps its links
and permissions, and is not lost to a full disk.
"""

import errno
import os
import stat

from spindle.tools.base import ToolError

__all__ = ["overwrite", "require_folder", "require_regular"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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


def overwrite(file: int, data: bytes) -> None:
    """Replace all that an open file holds.

    Raises `OSError`. If that is for want of room the old content stays, on file systems that can promise room.
    """
    status = os.fstat(file)
    size = status.st_size
    room = size if status.st_blocks * 512 >= size else 0  # a file with holes has not even room for what it holds
    if len(data) > room and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, room, len(data) - room)
        except OSError as error:
            if error.errno in _NO_ROOM:
                os.ftruncate(file, size)
                raise
            # This one cannot; then writing will tell.
    os.lseek(file, 0, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.ftruncate(file, len(data))
