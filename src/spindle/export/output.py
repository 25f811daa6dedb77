"""Put a finished page on disk: whole or not at all, over ordinary files only."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from spindle.export.errors import ExportError

__all__ = ["write_page"]


def write_page(path: Path, page: Iterable[bytes], *, source: Path | None = None) -> None:
    """Write the pieces of a page to `path`, replacing an ordinary file that stands there.

    A link, a device or a folder is refused, and so is `source`, the session itself. The page is written beside
    the target and renamed, so a full disk or a crash leaves what was there before. Raises `ExportError`.
    """
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    if found is not None:
        _check_replaceable(path, found, source)
    # A name of its own: another export of the same session may be under way, or have been killed.
    scratch = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        # An ordinary file with the user's default permissions: a page is made to be shared.
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    try:
        with os.fdopen(handle, "wb", buffering=1 << 18) as file:
            file.writelines(page)
        scratch.replace(path)
    except OSError as error:
        raise _refusal(path, error) from None
    finally:
        scratch.unlink(missing_ok=True)


def _check_replaceable(path: Path, found: os.stat_result, source: Path | None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ExportError(f"Cannot write {path}: it is a folder; name a file in it")
    if stat.S_ISLNK(found.st_mode):
        raise ExportError(f"Cannot write {path}: it is a symbolic link; name the file it points to")
    if not stat.S_ISREG(found.st_mode):
        raise ExportError(f"Cannot write {path}: it is not an ordinary file")
    if source is not None and source.exists() and os.path.samestat(found, source.stat()):
        raise ExportError(f"Cannot write {path}: it is the session itself; choose another name")


def _refusal(path: Path, error: OSError | ValueError) -> ExportError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ExportError(f"Cannot write {path}: the folder {path.parent} does not exist")
    reason = error.strerror if isinstance(error, OSError) else None
    return ExportError(f"Cannot write {path}: {reason or error}")
