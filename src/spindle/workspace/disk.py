"""Files as tools look at them: found, read, listed. Each function with a `Cancel` is one call, here or on the far side.

Only regular files are opened: a pipe or a device could block for ever or never end.

Runs on this machine and on the far side of a pipe: Python 3.8, standard library only.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
import struct
import threading
from contextlib import contextmanager
from typing import Any, BinaryIO, Iterator, NamedTuple

from spindle.programs.search_path import on_path
from spindle.workspace.texts import LineWindow, TextSize

CHUNK = 64 * 1024
SNIFF_BYTES = 4100
_NARROW_SPACE = "\u202f"
_CURLY_QUOTE = "\u2019"
_OF_PROCESSES = ("environ", "cmdline", "mem", "auxv")
"""Files in which Linux shows the variables, words and memory of a process, ours too: keys are in them."""
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BMP_HEADER_SIZES = (12, 40, 52, 56, 64, 108, 124)
_BMP_DEPTHS = (1, 4, 8, 16, 24, 32)


class ToolError(Exception):
    """A tool failed in a way the model should read about: the text becomes an error result."""

    def __init__(self, text: str, details: Any = None) -> None:
        super().__init__(text)
        self.details = details
        """Details of the error result."""


class Cancel(threading.Event):
    """Tells work in a thread to stop; the work checks it now and then."""

    def check(self) -> None:
        """Raise `ToolError` if the result is not wanted any more."""
        if self.is_set():
            raise ToolError("Operation aborted")


# -- words ---------------------------------------------------------------------------------------

_ERROR_TEXTS = {
    "EBUSY": "resource busy or locked",
    "EEXIST": "file already exists",
    "EIO": "i/o error",
    "EISDIR": "illegal operation on a directory",
    "ELOOP": "too many symbolic links encountered",
    "ENAMETOOLONG": "name too long",
    "ENXIO": "no such device or address",
    "EROFS": "read-only file system",
    "ETXTBSY": "text file is busy",
    "EXDEV": "cross-device link not permitted",
}
"""Errors of the operating system in the words Node programs use, where the C library's differ: models know Node's."""


def error_code(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "UNKNOWN")


def os_error_text(error: OSError, operation: str, path: str | None = None) -> str:
    """Describe a failed `operation` (`open`, `mkdir`, …) on `path`."""
    if error.errno is None:  # not from the system; its text is readable already
        return str(error)
    code = error_code(error)
    text = _ERROR_TEXTS.get(code) or os.strerror(error.errno).lower()
    return f"{code}: {text}, {operation}" + (f" '{path}'" if path is not None else "")


@contextmanager
def doing(operation: str, path: str | None = None) -> Iterator[None]:
    """Turn an `OSError` of this operation into a `ToolError`."""
    try:
        yield
    except OSError as error:
        raise ToolError(os_error_text(error, operation, path)) from None


def format_size(count: int) -> str:
    """Write a number of bytes for people: `512B`, `50.0KB`, `1.5MB`."""
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / (1024 * 1024):.1f}MB"


def shown_name(name: str) -> str:
    """Return a file name as a text that every wire can carry."""
    return os.fsencode(name).decode("utf-8", "replace")


# -- looking -------------------------------------------------------------------------------------


def holds_secrets(path: str) -> bool:
    """Say whether a path leads, by whatever links, to a file that shows secrets of a process."""
    try:
        real = os.path.realpath(path)
        if os.path.basename(real) not in _OF_PROCESSES:
            return False
        return os.stat(real).st_dev == os.stat("/proc").st_dev
    except (OSError, ValueError):
        return False


def require_regular(path: str) -> os.stat_result:
    """Return the status of a regular file.

    Raises `OSError` if there is none or if it is a directory, `ToolError` for pipes, sockets, devices and files with
    secrets of a process.
    """
    if holds_secrets(path):
        raise ToolError(f"{path} shows secrets of a process and is not opened")
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


def is_folder(cancel: Cancel, path: str) -> bool:
    """Say whether a path is a folder, or a file that can be searched. Raises `ToolError` if it is neither."""
    try:
        require_regular(path)  # ripgrep itself would wait for ever at a pipe
    except IsADirectoryError:
        return True
    except OSError:
        raise ToolError(f"Path not found: {path}") from None
    return False


def may_run(cancel: Cancel, path: str) -> bool | None:
    """Say whether a file may be executed; None if there is no file."""
    return os.access(path, os.X_OK) if os.path.isfile(path) else None


def in_repository(cancel: Cancel, path: str) -> bool:
    """Say whether a folder lies in a git repository. Raises `ToolError` if it is not a folder."""
    require_folder(path)
    while not os.path.lexists(os.path.join(path, ".git")):
        path, folder = os.path.dirname(path), path
        if path == folder:
            return False
    return True


def existing(path: str) -> str:
    """Return a path; if there is no such file, one of the spellings macOS gives to file names.

    Those are: a narrow space before AM and PM in screenshots, decomposed accents, a curly apostrophe.
    """
    if os.path.lexists(path):
        return path
    import re
    from unicodedata import normalize

    decomposed = normalize("NFD", path)
    spellings = (
        re.sub(r" (AM|PM)\.", _NARROW_SPACE + r"\1.", path, flags=re.IGNORECASE),
        decomposed,
        path.replace("'", _CURLY_QUOTE),
        decomposed.replace("'", _CURLY_QUOTE),
    )
    return next((spelling for spelling in spellings if os.path.lexists(spelling)), path)


def real_paths(cancel: Cancel, paths: list[str]) -> list[str]:
    """Return where paths lead, by whatever links."""
    return [os.path.realpath(existing(path)) for path in paths]


def names_in(cancel: Cancel, folder: str, begin: str, most: int) -> list[str]:
    """Return the entries of a folder that begin with a text, folders with a slash at the end; none if it is none."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.name + "/" * entry.is_dir() for entry in entries if entry.name.startswith(begin)]
    except OSError:
        return []
    return sorted(found)[:most]


def list_folder(cancel: Cancel, path: str, limit: int) -> tuple[list[str], bool]:
    """Return the names in a folder in alphabetical order, folders with a slash; and whether there are more.

    Raises `ToolError`.
    """
    require_folder(path)
    try:
        names = sorted(os.listdir(path), key=collation_key)
    except OSError as error:
        raise ToolError(f"Cannot read directory: {os_error_text(error, 'scandir', path)}") from None
    lines: list[str] = []
    for name in names:
        cancel.check()
        if len(lines) == limit:
            return lines, True
        try:
            mode = os.stat(os.path.join(path, name)).st_mode
        except OSError:
            continue  # A link to nowhere.
        lines.append(shown_name(name) + ("/" if stat.S_ISDIR(mode) else ""))
    return lines, False


_ALPHABET = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_RANKS = {character: rank for rank, character in enumerate(_ALPHABET)}


def collation_key(name: str) -> tuple[list[int], str, str]:
    """Sort as dictionaries do: case does not count, accents only between names that are otherwise equal."""
    from unicodedata import combining, normalize

    decomposed = normalize("NFD", name.casefold())
    letters = [
        _RANKS.get(character, len(_RANKS) + ord(character)) for character in decomposed if not combining(character)
    ]
    return letters, decomposed, name


def find_shell(cwd: str, custom: str | None) -> str:
    """Return the shell for commands in a folder. Raises `ToolError` if there is no such folder or shell."""
    if not os.path.isdir(cwd):
        raise ToolError(f"Working directory does not exist: {cwd}\nCannot execute bash commands.")
    if custom and not os.path.exists(custom):
        raise ToolError(f"Custom shell path not found: {custom}")
    return custom or ("/bin/bash" if os.path.exists("/bin/bash") else on_path("bash") or "sh")


# -- names that are near -------------------------------------------------------------------------

_CANDIDATES = 3
_MAX_ENTRIES = 5000
"""Names in a tree that are looked at."""
_PASSED_OVER = ("node_modules", "__pycache__", "venv", "dist", "build", "target")


def near_files(path: str, cwd: str) -> str:
    """Return a sentence with the files whose names are nearest to the absolute `path`; empty if none is near."""
    from difflib import SequenceMatcher

    name = os.path.basename(path).lower()
    scored: dict[str, float] = {}
    for other in _entries(os.path.dirname(path), cwd):
        there = os.path.basename(other).lower()
        score = SequenceMatcher(None, there, name).ratio() if there != name else 1.0
        if there == name or score >= 0.7:
            scored[other] = 1.0 if there == name else score * 0.9
    beside = os.path.dirname(path)
    best = sorted(scored, key=lambda other: (-scored[other], os.path.dirname(other) != beside, len(other), other))
    if not best:
        return ""
    named = [_relative(other, cwd) for other in best[:_CANDIDATES]]
    step = "Call again with that path" if len(named) == 1 else "Call again with the path that is meant"
    return f"\nThere is {', '.join(named)}. {step}."


def _entries(folder: str, cwd: str) -> Iterator[str]:
    """Yield the entries of `folder`, then those below `cwd`, up to a limit."""
    count = 0
    for top, deep in ((folder, False), (cwd, True)):
        for where, folders, files in os.walk(top):
            folders[:] = [one for one in folders if not one.startswith(".") and one not in _PASSED_OVER]
            for one in (*files, *folders):
                yield os.path.join(where, one)
                count += 1
            if not deep or count > _MAX_ENTRIES:
                break


def _relative(path: str, cwd: str) -> str:
    return os.path.relpath(path, cwd) if path.startswith(cwd.rstrip("/") + "/") else path


# -- reading -------------------------------------------------------------------------------------


class Picture(NamedTuple):
    mime_type: str
    size: int
    data: bytes | None
    """None: it is too large."""


class Stretch(NamedTuple):
    """What was read of a file: a stretch of a text, as in `LineWindow`, or a picture."""

    text: str = ""
    total_lines: int = 0
    size: TextSize = TextSize(0, 0)
    first_line_bytes: int = 0
    picture: Picture | None = None


def read_stretch(cancel: Cancel, path: str, cwd: str, start: int, limit: int | None, largest_image: int) -> Stretch:
    """Return a stretch of a text file, or a picture of up to so many bytes. Raises `ToolError`."""
    path = existing(path)
    try:
        size = require_regular(path).st_size
        # Not blocking, in case the file has become a pipe meanwhile.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except IsADirectoryError as error:
        raise ToolError(os_error_text(error, "read")) from None
    except OSError as error:
        near = near_files(path, cwd) if isinstance(error, FileNotFoundError) else ""
        raise ToolError(os_error_text(error, "access", path) + near) from None
    try:
        if holds_secrets(f"/dev/fd/{file}"):  # a link has changed meanwhile
            raise ToolError(f"{path} shows secrets of a process and is not opened")
        with doing("read"):
            head = os.read(file, SNIFF_BYTES)
            mime_type = sniff_image(head)
            if mime_type is None:
                return window_of(read_on(file, head, cancel), start, limit)
            data = None if size > largest_image else b"".join(read_on(file, head, cancel))
            return Stretch(picture=Picture(mime_type, size, data))
    finally:
        os.close(file)


def read_on(file: int, head: bytes, cancel: Cancel) -> Iterator[bytes]:
    chunk = head
    while chunk:
        yield chunk
        cancel.check()
        chunk = os.read(file, CHUNK)


def window_of(chunks: Iterator[bytes], start: int, limit: int | None) -> Stretch:
    """Return a stretch of a text: its beginning, and the sizes of all of it."""
    window = LineWindow(start, limit)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        window.feed(decoder.decode(chunk))
    window.feed(decoder.decode(b"", True))
    return Stretch(window.text, window.total_lines, window.size, window.first_line_bytes)


def read_for_edit(cancel: Cancel, path: str, shown: str, cwd: str, largest: int) -> bytes:
    """Return the content of a file that is to be changed. Raises `ToolError` if it cannot be, or is too large."""
    try:
        size = require_regular(path).st_size
        if size > largest:
            limit = format_size(largest)
            raise ToolError(f"Could not edit file: {shown}. It is {format_size(size)}, more than {limit}.")
        # Opened for reading and writing, so that no change is computed for a file that cannot be written.
        with open(path, "r+b") as file:
            return file.read()
    except IsADirectoryError as error:
        raise ToolError(os_error_text(error, "read")) from None
    except OSError as error:
        near = near_files(path, cwd) if isinstance(error, FileNotFoundError) else ""
        raise ToolError(f"Could not edit file: {shown}. Error code: {error_code(error)}.{near}") from None


def read_old(cancel: Cancel, path: str, largest: int) -> bytes | None:
    """Return the content of a file that is to be replaced; None: there is none. Raises `ToolError`."""
    with doing("read", path):
        try:
            size = require_regular(path).st_size
            if size > largest:
                raise ToolError(f"{path} is {format_size(size)}, more than {format_size(largest)}")
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


def read_lines(cancel: Cancel, wanted: dict[str, list[int]], longest: int) -> dict[str, list[tuple[int, str]]]:
    """Return the wanted lines of files with their numbers, of long lines the beginning.

    A file that cannot be read has none.
    """
    return {path: _lines_of(path, set(numbers), longest, cancel) for path, numbers in wanted.items()}


def _lines_of(path: str, wanted: set[int], longest: int, cancel: Cancel) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    last = max(wanted)
    number, ended = 0, True
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_line_heads(file, longest), 1):
                if number in wanted:
                    cancel.check()
                    found.append((number, line.decode("utf-8", "replace")))
                if number == last:
                    return found
                ended = line.endswith(b"\n")
    except OSError:
        return []
    if ended and number + 1 in wanted:
        found.append((number + 1, ""))  # editors count a line after the last newline
    return found


def _line_heads(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """Yield every line; of a very long line only the beginning."""
    while True:
        line = head = file.readline(longest)
        if not line:
            return
        while not line.endswith(b"\n"):
            rest = file.readline(1 << 20)
            if not rest:
                break
            line = rest
        yield head if head is line or not line.endswith(b"\n") else head + b"\n"


def project_files(
    cancel: Cancel, cwd: str, names: list[str], folders: list[str], most_files: int, most_bytes: int
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return files of a project by path: `names` in the folder and all above it, and Markdown files in `folders`.

    The folders are looked for up to the top of the repository. Returns also where the working directory and that top
    are. Raises `ToolError` if there is no such directory.
    """
    if not os.path.isdir(cwd):
        raise ToolError(f"There is no directory {cwd} on the far side: --exec-cwd names another one")
    cwd = os.path.realpath(cwd)
    found: dict[str, bytes] = {}
    room = [most_bytes]

    def take(path: str) -> None:
        try:
            if len(found) < most_files and require_regular(path).st_size <= room[0]:
                with open(path, "rb") as file:
                    found[path] = file.read(room[0])
                room[0] -= len(found[path])
        except (OSError, ToolError):
            pass

    here, inside, top = cwd, True, cwd
    while True:
        for name in names:
            take(os.path.join(here, name))
        for folder in folders if inside else ():
            for where, inner, files in os.walk(os.path.join(here, folder)):
                cancel.check()
                inner.sort()
                for name in sorted(files):
                    if name.endswith(".md") or name in (".gitignore", ".ignore", ".fdignore"):
                        take(os.path.join(where, name))
        if inside and os.path.lexists(os.path.join(here, ".git")):
            inside, top = False, here
        if here == os.path.dirname(here):
            return found, {"cwd": cwd, "root": top, "inRepository": not inside}
        here = os.path.dirname(here)


def sniff_image(head: bytes) -> str | None:
    """Return the MIME type if a picture begins with these bytes. File names do not count."""
    if head.startswith(b"\xff\xd8\xff") and head[3:4] != b"\xf7":
        return "image/jpeg"
    if head.startswith(_PNG_SIGNATURE + b"\0\0\0\rIHDR"):
        return None if _is_animated_png(head) else "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return "image/bmp" if _is_bmp(head) else None


def _is_animated_png(head: bytes) -> bool:
    position = len(_PNG_SIGNATURE)
    while position + 8 <= len(head):
        length, kind = struct.unpack_from(">I4s", head, position)
        if kind in (b"acTL", b"IDAT"):
            return bool(kind == b"acTL")
        position += 12 + length
    return False


def _is_bmp(head: bytes) -> bool:
    if not head.startswith(b"BM") or len(head) < 30:
        return False
    (header_size,) = struct.unpack_from("<I", head, 14)
    planes, depth = struct.unpack_from("<HH", head, 22 if header_size == 12 else 26)
    return header_size in _BMP_HEADER_SIZES and planes == 1 and depth in _BMP_DEPTHS
