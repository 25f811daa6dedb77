"""Files that tools write. A file that is replaced keeps its links and permissions, and survives a full disk and a kill.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from spindle.workspace.disk import Cancel, ToolError, doing, os_error_text, require_regular
from spindle.workspace.texts import kept_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_file(cancel: Cancel, path: str, data: bytes) -> None:
    """Make a file, with its folders, or replace all of it. Raises `ToolError`."""
    folder = os.path.dirname(path)
    with doing("mkdir", folder):
        os.makedirs(folder, exist_ok=True)
    with doing("open", path), suppress(FileNotFoundError):
        require_regular(path)
    cancel.check()
    with doing("write"):
        try:
            replace_file(path, data)
        except PermissionError as error:
            raise ToolError(os_error_text(error, "open", path)) from None


def put_upload(cancel: Cancel, path: str, data: bytes) -> str:
    """Make a file in a new folder, which only the user may read; return its path. Raises `ToolError`.

    `path` begins in the folder for temporary files, unless it is absolute.
    """
    place = os.path.join(kept_folder(), path)
    folder = os.path.dirname(place)
    with doing("mkdir", folder):
        os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
        os.mkdir(folder, 0o700)
    write_file(cancel, place, data)
    return place


def write_again(cancel: Cancel, path: str, data: bytes) -> None:
    """Replace the content of a file that there is. Raises `ToolError`."""
    cancel.check()
    with doing("write"):
        replace_file(path, data)


def replace_file(path: str, data: bytes) -> None:
    """Replace the content of the file at `path` by `data`: a kill at any time leaves the old content or the new.

    The new content is written beside the old and takes its name, mode, owner and attributes; a link stays a link. Where
    that is impossible (other hard links, a read-only folder, an owner we cannot set) the file itself is overwritten.
    Raises `OSError`.
    """
    path = os.path.realpath(path)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        _write_beside(path, data, None)
        return
    try:
        if os.fstat(file).st_nlink > 1 or not _write_beside(path, data, file):
            overwrite(file, data)
    finally:
        os.close(file)


def _write_beside(path: str, data: bytes, old: int | None) -> bool:
    """Write a new file and rename it to `path`. Return False if it cannot take the place of the open file `old`."""
    folder, name = os.path.split(path)
    scratch = os.path.join(folder, f".{name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if old is None else 0o600)
    except OSError as error:
        if old is None or error.errno in _NO_ROOM:
            raise
        return False
    try:
        try:
            if old is not None and not _dress(file, old):
                return False
            write_all(file, data)
        finally:
            os.close(file)
        try:
            os.replace(scratch, path)
        except OSError:
            if old is None:
                raise
            return False  # a mount point, or a file of another user in a folder such as /tmp
        return True
    finally:
        with suppress(FileNotFoundError):
            os.unlink(scratch)


def _dress(file: int, old: int) -> bool:
    """Give a file the owner, the mode and the attributes of the file `old`. Return whether that was possible."""
    status, mine = os.fstat(old), os.fstat(file)
    try:
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(file, status.st_uid, status.st_gid)
        os.fchmod(file, stat.S_IMODE(status.st_mode))
        if hasattr(os, "listxattr"):
            for name in os.listxattr(old):
                if not name.startswith("security."):  # the system sets these
                    os.setxattr(file, name, os.getxattr(old, name))
    except OSError as error:
        return error.errno == errno.ENOTSUP  # no attributes on this file system
    return True


def overwrite(file: int, data: bytes) -> None:
    """Replace the content of an open file in place.

    Raises `OSError`. If the disk is full the old content stays, on file systems that can reserve room.
    """
    status = os.fstat(file)
    size = status.st_size
    room = size if status.st_blocks * 512 >= size else 0  # a file with holes lacks room even for its own content
    if len(data) > room and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, room, len(data) - room)
        except OSError as error:
            if error.errno in _NO_ROOM:
                os.ftruncate(file, size)
                raise
            # This file system cannot reserve room; writing will show whether there is enough.
    os.lseek(file, 0, os.SEEK_SET)
    write_all(file, data)
    os.ftruncate(file, len(data))


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
