"""Whether the numbers of a file tell of every change: if they do, what was read of it need not be read again."""

import ctypes
import os
import sys

_TICK = 20_000_000
"""Nanoseconds: two changes within one tick of the kernel's clock may have the same time."""
_SECONDS = 2_100_000_000
"""The same for a file system that keeps whole seconds."""
_MAPPED = {0x01021994, 0x858458F6, 0x794C7630}
"""tmpfs, ramfs, and overlay, which may lie over these: who has mapped a file writes to it without a trace."""

_told: dict[int, bool] = {}


def is_settled(changed: int, now: int) -> bool:
    """Say whether a change from `now` on gets another time than that of the last change. Both in nanoseconds."""
    return now - changed > (_TICK if changed % 1_000_000_000 else _SECONDS)


def shows_writes(path: str, device: int) -> bool:
    """Say whether each write to a file on this device changes the file's numbers."""
    if device not in _told:
        _told[device] = sys.platform != "linux" or file_system(path) not in _MAPPED
    return _told[device]


def file_system(path: str) -> int:
    """Return the number of the kind of file system that a path is on."""
    found = (ctypes.c_long * 64)()
    failed = ctypes.CDLL(None).statfs(os.fsencode(path), found)
    return 0x01021994 if failed else found[0] & 0xFFFFFFFF
