"""Files as a person looks at them: what is in a folder, a part of a text, a picture. Nothing that blocks is opened.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from spindle.workspace.disk import (
    CHUNK,
    SNIFF_BYTES,
    Cancel,
    ToolError,
    collation_key,
    doing,
    holds_secrets,
    read_on,
    require_folder,
    require_regular,
    shown_name,
    sniff_image,
)


class FolderItem(NamedTuple):
    """What is in a folder."""

    name: str
    kind: str
    """`folder`, `file`, or `other`: a pipe, a socket, a device, a link to nowhere."""
    size: int
    link: str | None
    """Where a link leads, in its own words."""


def look_into(cancel: Cancel, path: str, most: int) -> tuple[list[FolderItem], int]:
    """Return what is in a folder, folders first, and how much there is of it. Raises `ToolError`."""
    require_folder(path)
    with doing("scandir", path), os.scandir(path) as entries:
        found = [(not _leads_to_folder(entry), entry.name) for entry in entries]
    found.sort(key=lambda one: (one[0], collation_key(one[1])))
    return [_inside(path, name, cancel) for _, name in found[:most]], len(found)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _inside(folder: str, name: str, cancel: Cancel) -> FolderItem:
    cancel.check()
    path, link = os.path.join(folder, name), None
    try:
        link = shown_name(os.readlink(path)) if os.path.islink(path) else None
        status = os.stat(path)
    except OSError:
        return FolderItem(shown_name(name), "other", 0, link)
    is_file = stat.S_ISREG(status.st_mode)
    kind = "file" if is_file else "folder" if stat.S_ISDIR(status.st_mode) else "other"
    return FolderItem(shown_name(name), kind, status.st_size if is_file else 0, link)


def regular_files(cancel: Cancel, paths: list[str]) -> list[bool]:
    """Say of each path whether it leads to a regular file."""
    return [os.path.isfile(path) for path in paths]


class Piece(NamedTuple):
    """A part of a file, for a person."""

    size: int
    """Of the whole file."""
    mime_type: str | None
    """Of a picture; None for a text, empty for anything else."""
    begin: int
    """The byte that it begins with."""
    line: int
    """The number of its first line, if a line was asked for."""
    data: bytes


def read_piece(cancel: Cancel, path: str, line: int, begin: int | None, most: int, largest_image: int) -> Piece:
    """Return a part of a text from a byte on, or else from a line on; or a picture. Raises `ToolError`.

    A part ends with a line if it can, and in no case within a character. If there are fewer lines, it is the beginning.
    """
    with doing("open", path):
        require_regular(path)
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with doing("read", path):
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or holds_secrets(f"/dev/fd/{file}"):  # it has changed meanwhile
                raise ToolError(f"Not a regular file: {path}")
            head = os.read(file, SNIFF_BYTES)
            mime_type = sniff_image(head)
            if mime_type is None and b"\0" in head:
                mime_type = ""
            if mime_type is not None:
                fits = mime_type and status.st_size <= largest_image
                return Piece(status.st_size, mime_type, 0, 1, b"".join(read_on(file, head, cancel)) if fits else b"")
            start = _start_of(file, line, cancel) if begin is None else begin
            os.lseek(file, start or 0, os.SEEK_SET)
            data = os.read(file, most)
            rest = status.st_size - (start or 0) - len(data)
            return Piece(
                status.st_size, None, start or 0, 1 if start is None else line, _whole(data) if rest > 0 else data
            )
    finally:
        os.close(file)


def _start_of(file: int, line: int, cancel: Cancel) -> int | None:
    """Return where a line begins in a file; None: there are fewer."""
    os.lseek(file, 0, os.SEEK_SET)
    at, before = 0, line - 1
    while before > 0:
        cancel.check()
        chunk = os.read(file, CHUNK)
        if not chunk:
            return None
        count = chunk.count(b"\n")
        if count < before:
            at, before = at + len(chunk), before - count
            continue
        end = -1
        for _ in range(before):
            end = chunk.index(b"\n", end + 1)
        return at + end + 1
    return 0


def _whole(data: bytes) -> bytes:
    """Return the whole lines of a part of a text; of a single line the whole characters."""
    end = data.rfind(b"\n") + 1
    if not end:
        end = len(data)
        while end > max(0, len(data) - 4) and data[end - 1] & 0xC0 == 0x80:
            end -= 1
        end -= end > 0 and data[end - 1] >= 0xC0
    return data[:end] or data
