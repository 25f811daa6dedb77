"""Files, links and folders get the form back that they had in a state, each in one step.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

RESTORING = ".spindle-restoring"
"""A file that is being put back has this name in the folder until it is complete."""


class Folder:
    """The folder that a state is put back into. Its methods raise `OSError`.

    Paths are absolute, or seen from the folder; that of a folder ends with a slash. No link is followed, also none that
    a program makes meanwhile: each folder on the way is opened in the one before.
    """

    def __init__(self, root: str, modes: dict[str, int], empty: list[str], usual: int) -> None:
        """`modes` and `empty` folders are those of the state; `usual` are the permissions of its other folders."""
        self._root = os.open(root, _FOLDER)
        self._modes = modes
        self._empty = set(empty)
        self._usual = usual
        self._made: dict[str, int] = {}
        """Folders that were made, or opened, with the permissions that they get in the end."""

    def close(self) -> None:
        os.close(self._root)

    @contextmanager
    def _around(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the folder that a path lies in, and its name there; `make` missing folders."""
        *folders, name = path.rstrip("/").split("/")
        here = os.open("/", _FOLDER) if path.startswith("/") else os.dup(self._root)
        try:
            at = ""
            for one in folders:
                at += f"{one}/"
                if not one:
                    continue
                if make:
                    self._make(here, one, at)
                try:
                    below = os.open(one, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                except OSError as error:
                    if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                        raise
                    why = "a link leads to it" if _is_link(one, here) else f"{at.rstrip('/')} is no folder"
                    raise OSError(why) from None
                os.close(here)
                here = below
            yield here, name
        finally:
            os.close(here)

    def _make(self, above: int, name: str, path: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, 0o777 if path.startswith("/") else 0o700, dir_fd=above)
            if not path.startswith("/"):
                self._made[path] = self._modes.get(path, self._usual)

    def make(self, folder: str) -> None:
        with self._around(f"{folder}x", make=True):
            pass

    def finish(self) -> None:
        for folder, mode in reversed(list(self._made.items())):
            with suppress(FileNotFoundError), self._around(folder) as (above, name):
                if stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
                    _set_mode(name, above, mode)

    def unlock(self, path: str) -> None:
        """Let us write into the folders above a path; those that were closed get the permissions of the state."""
        for one in folders_of(path):
            try:
                with self._around(one) as (above, name):
                    mode = os.lstat(name, dir_fd=above).st_mode
                    if not stat.S_ISDIR(mode):
                        return
                    if mode & 0o700 != 0o700:
                        _set_mode(name, above, stat.S_IMODE(mode) | 0o700)
                        self._made[one] = self._modes.get(one, self._usual)
            except OSError:
                return

    def set_mode(self, path: str, mode: int) -> None:
        if f"{path.rstrip('/')}/" in self._made:
            self._made[f"{path.rstrip('/')}/"] = stat.S_IMODE(mode)
            return
        with self._around(path) as (above, name):
            if not _is_link(name, above):
                _set_mode(name, above, stat.S_IMODE(mode))

    def remove(self, path: str) -> None:
        try:
            with self._around(path) as (above, name):
                (os.rmdir if path.endswith("/") else os.unlink)(name, dir_fd=above)
        except FileNotFoundError:
            if path.startswith("/"):
                raise
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # it has ignored files, which stay
                raise
        if path.startswith("/"):
            return
        for folder in reversed(list(folders_of(path.rstrip("/")))):
            if folder in self._empty:
                break
            try:
                with self._around(folder) as (above, name):
                    os.rmdir(name, dir_fd=above)
            except OSError:  # it has other files, ignored ones perhaps
                break

    def write(self, path: str, mode: int, content: bytes) -> None:
        with self._around(path, make=True) as (above, name):
            # Beside the file if that is elsewhere: perhaps on another disk.
            beside = above if path.startswith("/") else self._root
            with suppress(FileNotFoundError):
                if _is_folder(RESTORING, beside):  # of somebody else: kept, under another name
                    os.rename(RESTORING, f"{RESTORING}.{os.urandom(3).hex()}", src_dir_fd=beside, dst_dir_fd=beside)
                else:
                    os.unlink(RESTORING, dir_fd=beside)
            try:
                if stat.S_ISLNK(mode):
                    os.symlink(content, os.fsencode(RESTORING), dir_fd=beside)
                else:
                    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                    with open(os.open(RESTORING, how, 0o600, dir_fd=beside), "wb") as file:
                        file.write(content)
                        os.fchmod(file.fileno(), stat.S_IMODE(mode))
                with suppress(NotADirectoryError, FileNotFoundError):
                    os.rmdir(name, dir_fd=above)  # a folder has taken its place, and its files are gone by now
                os.replace(RESTORING, name, src_dir_fd=beside, dst_dir_fd=above)
            except OSError:  # the disk is full, perhaps
                with suppress(FileNotFoundError):
                    os.unlink(RESTORING, dir_fd=beside)
                raise


_PLACE = (os.O_PATH if sys.platform == "linux" else os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC
"""Opens what cannot be read, too, where the system has that."""
_FOLDER = _PLACE | os.O_DIRECTORY


def _is_link(name: str, above: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=above).st_mode)
    except OSError:
        return False


def _is_folder(name: str, above: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode)


def _set_mode(name: str, above: int, mode: int) -> None:
    """Set the mode of a file or folder, which may be closed to us, but not that of what a link leads to."""
    file = os.open(name, _PLACE | os.O_NOFOLLOW, dir_fd=above)
    try:
        if stat.S_ISLNK(os.fstat(file).st_mode):
            raise OSError("a link leads to it")
        os.chmod(f"/proc/self/fd/{file}" if sys.platform == "linux" else file, mode)
    finally:
        os.close(file)


def _check_place(path: str) -> None:
    """Raise `OSError` if a folder above a path is a link now: it may lead where the agent must not write or read."""
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        raise OSError("a link leads to it")


class KeptForm(NamedTuple):
    mode: int
    content: bytes | None
    """What a link says; None: it is a file."""


def kept_form(path: str, largest: int) -> KeptForm | None:
    """Return what there is to be kept at a path; None if there is no file or link. Raises `OSError`."""
    try:
        _check_place(path)
        about = os.lstat(path)
    except OSError as error:
        if error.errno in (None, errno.ENOENT, errno.ENOTDIR):
            return None
        raise
    if stat.S_ISDIR(about.st_mode):
        return None
    if stat.S_ISLNK(about.st_mode):
        return KeptForm(about.st_mode, os.fsencode(os.readlink(path)))
    if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
        raise OSError(f"not a file, or larger than {largest >> 20} MB")
    if not os.access(path, os.R_OK):
        raise OSError("not readable")
    return KeptForm(about.st_mode, None)


def folders_of(path: str) -> Iterator[str]:
    """Yield the folders above a path, the outermost first, each with a slash at its end."""
    at = path.find("/")
    while at != -1:
        yield path[: at + 1]
        at = path.find("/", at + 1)
