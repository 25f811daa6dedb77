"""Files, links and folders get the form back that they had in a state, each in one step.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

RESTORING = ".spindle-restoring"
"""A file that is being put back has this name in the folder until it is complete."""


class Folder:
    """The folder that a state is put back into. Its methods raise `OSError`.

    Paths are absolute, or seen from the folder; that of a folder ends with a slash. No link is followed.
    """

    def __init__(self, root: str, modes: dict[str, int], empty: list[str], usual: int) -> None:
        """`modes` and `empty` folders are those of the state; `usual` are the permissions of its other folders."""
        self.root = root
        self._modes = modes
        self._empty = set(empty)
        self._usual = usual
        self._made: dict[str, int] = {}
        """Folders that were made, or opened, with the permissions that they get in the end."""

    def _parent(self, path: str) -> str:
        """Make the folder that a file belongs in, and return it. Raises `OSError` if something else has its name."""
        folder = os.path.dirname(path)
        if path.startswith("/"):
            _check_place(path)
            os.makedirs(folder, exist_ok=True)
            return folder
        here = self.root
        for one in folders_of(path):
            here = os.path.join(self.root, one.rstrip("/"))
            with suppress(FileExistsError):
                os.mkdir(here, 0o700)
                self._made[here] = self._modes.get(one, self._usual)
            if not stat.S_ISDIR(os.lstat(here).st_mode):
                raise OSError(f"{one.rstrip('/')} is no folder")
        return here

    def make(self, folder: str) -> None:
        self._parent(f"{folder}x")

    def finish(self) -> None:
        for folder, mode in reversed(list(self._made.items())):
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(folder).st_mode):
                    os.chmod(folder, mode)

    def unlock(self, path: str) -> None:
        """Let us write into the folders above a path; those that were closed get the permissions of the state."""
        for one in folders_of(path):
            whole = os.path.join(self.root, one[:-1])
            try:
                mode = os.lstat(whole).st_mode
                if not stat.S_ISDIR(mode):
                    return
                if mode & 0o700 != 0o700:
                    os.chmod(whole, stat.S_IMODE(mode) | 0o700)
                    self._made[whole] = self._modes.get(one, self._usual)
            except OSError:
                return

    def set_mode(self, path: str, mode: int) -> None:
        whole = os.path.join(self.root, path.rstrip("/"))
        if whole in self._made:
            self._made[whole] = stat.S_IMODE(mode)
        elif not stat.S_ISLNK(os.lstat(whole).st_mode):
            os.chmod(whole, stat.S_IMODE(mode))

    def remove(self, path: str) -> None:
        whole = os.path.join(self.root, path.rstrip("/"))
        _check_place(whole)
        if path.startswith("/"):
            os.unlink(path)
            return
        try:
            (os.rmdir if path.endswith("/") else os.unlink)(whole)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # it has ignored files, which stay
                raise
        for folder in reversed(list(folders_of(path.rstrip("/")))):
            if folder in self._empty:
                break
            try:
                os.rmdir(os.path.join(self.root, folder))
            except OSError:  # it has other files, ignored ones perhaps
                break

    def write(self, path: str, mode: int, content: bytes) -> None:
        beside = os.path.join(self.root, RESTORING)
        whole = os.path.join(self._parent(path), os.path.basename(path))
        if path.startswith("/"):  # perhaps on another disk
            beside = os.path.join(os.path.dirname(path), RESTORING)
        with suppress(FileNotFoundError):
            os.unlink(beside)
        try:
            if stat.S_ISLNK(mode):
                os.symlink(content, os.fsencode(beside))
            else:
                with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                    file.write(content)
                    os.fchmod(file.fileno(), stat.S_IMODE(mode))
            if os.path.isdir(whole) and not os.path.islink(whole):
                os.rmdir(whole)  # a folder has taken its place, and its files are gone by now
            os.replace(beside, whole)
        except OSError:  # the disk is full, perhaps
            with suppress(FileNotFoundError):
                os.unlink(beside)
            raise


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
