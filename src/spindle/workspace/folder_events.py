"""Which folders have got or lost entries: one question to the kernel for all of them, where it can tell.

It is told of a change before the call that makes it returns. Where it cannot tell (other systems, files of other
machines, too many folders, no watches left) each folder is asked for its time (`git_dirs`).
"""

import ctypes
import os
import struct
import sys
from typing import Final

from spindle.programs.file_times import file_system

_MOST_WATCHED: Final = 5_000
"""Each watch takes a kilobyte of the kernel, and the user has not many."""
_LOCAL: Final = {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E}
"""ext4, XFS, Btrfs, tmpfs, overlay, F2FS, ZFS, bcachefs: nobody changes them behind the kernel's back."""
_ATTRIB: Final = 0x4
_MASK: Final = _ATTRIB | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x01000000 | 0x02000000
"""Moved, made, removed; the folder itself removed or moved; only folders, not behind links."""
_LOST, _ENDED = 0x4000, 0x8000
_EVENT: Final = struct.Struct("iIII")
_READ: Final = 1 << 16


class FolderEvents:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = -1
        self._watched: dict[tuple[int, int], int] = {}
        """Device and inode of folders, with the numbers of their watches. A watch ends with its folder, whose number
        another one may get."""
        self._of: dict[int, tuple[int, int]] = {}
        """The same, by watch."""
        self._local: dict[int, bool] = {}
        """By device."""
        self._begin()

    def _begin(self) -> None:
        self.give_up()
        self._watched, self._of = {}, {}
        self._file = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) if sys.platform == "linux" else -1

    def __del__(self) -> None:
        self.give_up()

    def give_up(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    @property
    def can_tell(self) -> bool:
        return self._file >= 0

    def watch(self, path: str, number: tuple[int, int]) -> bool:
        """Watch a folder with this device and inode; return whether that is new, so that it has to be looked at."""
        if self._file < 0 or number in self._watched:
            return False
        if number[0] not in self._local:
            self._local[number[0]] = file_system(path) in _LOCAL
        watch = -1
        if self._local[number[0]] and len(self._watched) < _MOST_WATCHED:
            watch = self._libc.inotify_add_watch(self._file, os.fsencode(path), _MASK)
        if watch < 0:
            self.give_up()
        else:
            self._watched[number], self._of[watch] = watch, number
        return True

    def changed(self) -> set[tuple[int, int]] | None:
        """Return the numbers of the folders to which something has happened since this was asked last.

        None: it cannot be told, and may be any of them.
        """
        found = set[tuple[int, int]]()
        try:
            while self._take(os.read(self._file, _READ), found):
                pass
        except BlockingIOError:
            return found
        except OSError:
            self.give_up()
        return None

    def _take(self, data: bytes, found: set[tuple[int, int]]) -> bool:
        """Add the folders to those found that events tell of, but for changed attributes of what lies in them.

        Return whether no event was lost.
        """
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if mask & _LOST:
                self._begin()
                return False
            if not (mask & _ATTRIB and length) and watch in self._of:
                found.add(self._of[watch])
            if mask & _ENDED and (number := self._of.pop(watch, None)) is not None:
                self._watched.pop(number, None)
        return True
