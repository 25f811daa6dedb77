"""Errors of the operating system in the words Node programs use, which models and clients know.

`ENOENT: no such file or directory, open '/a/b'`.
"""

import errno
import os

__all__ = ["error_code", "os_error_text"]

_TEXTS = {
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
"""Where the wording differs from the C library's."""


def error_code(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "UNKNOWN")


def os_error_text(error: OSError, operation: str, path: str | None = None) -> str:
    """Describe a failed `operation` (`open`, `mkdir`, …) on `path`."""
    code = error_code(error)
    text = _TEXTS.get(code) or (os.strerror(error.errno).lower() if error.errno else str(error))
    return f"{code}: {text}, {operation}" + (f" '{path}'" if path is not None else "")
