"""Files that people edit by hand: reading them, writing JSON back without harm, saying what is wrong with them.

Reading strips a byte order mark; errors name line and column. Writing is atomic and happens under a lock that other
programs sharing the agent directory respect: a `<file>.lock` directory.
"""

import asyncio
import errno
import os
import re
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from spindle.base import limits
from spindle.base.agent_dir import agent_dir, agent_dir_problem
from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.messages import Wire

_SIZE_LIMIT = 64 << 20
_TOLD = "spindle-told.json"
"""The file of the agent directory that remembers which warnings were told."""
_REMEMBERED = 500
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = "(?s)" + _STRING + r"|(//[^\n]*|/\*.*?\*/)"
_TRAILING_COMMA = "(?s)" + _STRING + r"|(,)(?=\s*[}\]])"


class Collision(Wire):
    """Two resources have the same name."""

    resource_type: str
    name: str
    winner_path: str
    loser_path: str


class Diagnostic(Wire):
    """Something wrong with a resource, for a person to read and for a program to use."""

    type: Literal["warning", "error", "collision"]
    message: str
    path: str | None = None
    collision: Collision | None = None

    def __str__(self) -> str:
        if self.collision is not None:
            return f"{self.message}: using {self.collision.winner_path}, ignoring {self.collision.loser_path}"
        return f"{self.message} ({self.path})" if self.path and self.path not in self.message else self.message


class Standing(str):
    """A warning about files that says the same until they are changed."""

    __slots__ = ()


def is_news(warning: Standing) -> bool:
    """Say whether a warning has not been told yet, and remember that it is told now."""
    from hashlib import sha256

    path, key = agent_dir() / _TOLD, sha256(warning.encode("utf-8", "replace")).hexdigest()[:16]

    def add(told: dict[str, Any]) -> None:
        told[key] = time.strftime("%Y-%m-%d")
        for oldest in list(told)[:-_REMEMBERED]:
            del told[oldest]

    with suppress(BadFile, OSError):  # then it is told again next time
        if key in (read_object(path) or {}):
            return False
        edit_json(path, add, 0o600)
    return True


def report(diagnostics: Sequence[Diagnostic], *, verbose: bool) -> None:
    """Print diagnostics to stderr: errors every time, others once. `spindle doctor` shows all, and so does `verbose`.

    Flaws of single files are left to `spindle doctor`: some people have many.
    """
    for diagnostic in diagnostics:
        is_flaw = diagnostic.path is not None and os.path.exists(diagnostic.path)
        if verbose or diagnostic.type == "error" or (not is_flaw and is_news(Standing(diagnostic))):
            print(f"Warning: {diagnostic}", file=sys.stderr)


class BadFile(ValueError):
    """A file that is there but cannot be used; the text says why."""


def read_text(path: Path) -> str:
    """Read UTF-8 text without its byte order mark; bytes that are no UTF-8 are replaced. Raises `OSError`.

    Pipes and devices are refused: a stranger's project may have one, or a link to one, where a file should be.
    """
    # Opening a pipe waits for its writer unless told not to.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        if status.st_size > _SIZE_LIMIT:
            raise OSError(errno.EFBIG, "Too large", str(path))
        return file.read().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def parse_json(text: str, *, comments: bool = False) -> Any:
    """Parse JSON, with `//` and `/* */` comments and trailing commas if `comments`. Raises `BadFile`."""
    with suppress(DecodeError):  # most files have no comments
        return decode(text)
    if comments:
        text = re.sub(_COMMENT, lambda m: re.sub(r"[^\n]+", " ", m[1]) if m[1] else m[0], text)
        text = re.sub(_TRAILING_COMMA, lambda m: " " if m[1] else m[0], text)
    try:
        return decode(text)
    except DecodeError as error:
        problem = str(error)
    # The standard parser knows line and column, which is what a person editing the file needs.
    import json

    try:
        json.loads(text)
    except ValueError as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise BadFile(problem)


def read_object(path: Path, *, comments: bool = False) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no such file. Raises `BadFile`."""
    try:
        text = read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if path.parent == agent_dir() and agent_dir_problem():
            return None  # reported once for the whole directory
        raise BadFile(error.strerror or str(error)) from None
    return parse_object(text, comments=comments)


def parse_object(text: str, *, comments: bool = False) -> dict[str, Any]:
    """Parse the text of a file with a JSON object, or with nothing. Raises `BadFile`."""
    if not text.strip():
        return {}
    value = parse_json(text, comments=comments)
    if not isinstance(value, dict):
        raise BadFile("must be a JSON object")
    return {key: _whole(item) for key, item in value.items()}


def _whole(value: Any) -> Any:
    """Turn 1e6 into an integer: JSON has one kind of number, and people write them as they like."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold `<path>.lock` while the block runs. Raises `BadFile` if another program holds it too long."""
    lock = Path(f"{path}.lock")
    for _ in _taking(lock, limits.FILE_LOCK_WAIT, limits.FILE_LOCK_STALE):
        time.sleep(0.02)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            lock.rmdir()


def _taking(lock: Path, wait: float, stale: float) -> Iterator[None]:
    """Take a lock; yield whenever the caller should let a moment pass. Raises `BadFile` after `wait` seconds.

    A lock that is older than `stale` seconds counts as abandoned.
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            lock.mkdir()
            return
        except FileExistsError:
            with suppress(FileNotFoundError):
                if time.time() - lock.stat().st_mtime > stale:
                    lock.rmdir()
                    continue
            if time.monotonic() > deadline:
                raise BadFile(f"another program holds {lock}") from None
        yield


@asynccontextmanager
async def hold_lock(path: Path) -> AsyncIterator[None]:
    """Hold `<path>.lock` during a request to a server, and keep it from going stale. Raises `BadFile`, `OSError`."""
    lock = Path(f"{path}.lock")
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in _taking(lock, limits.LOGIN_LOCK_WAIT, limits.LOGIN_LOCK_STALE):
        await asyncio.sleep(0.05)
    touching = asyncio.create_task(_touch(lock))
    try:
        yield
    finally:
        touching.cancel()
        with suppress(FileNotFoundError):
            lock.rmdir()


async def _touch(lock: Path) -> None:
    while True:
        await asyncio.sleep(limits.LOGIN_LOCK_TOUCH)
        with suppress(FileNotFoundError):
            os.utime(lock)


def write_atomic(path: Path, text: str, mode: int = 0o644, *, private: bool = False) -> None:
    """Replace the file as a whole, through symbolic links; it keeps its own mode unless it is to be `private`."""
    path = Path(os.path.realpath(path))
    mode = 0o600 if private else mode
    with suppress(FileNotFoundError):
        mode = mode if private else path.stat().st_mode & 0o777
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any, mode: int = 0o644, *, private: bool = False) -> None:
    """Replace the file by this value. In names that are no UTF-8 the odd bytes are escapes, which JSON readers take."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    write_atomic(path, f"{text}\n", mode, private=private)


def edit_json(path: Path, change: Callable[[dict[str, Any]], None], mode: int = 0o644) -> None:
    """Change a JSON object in place: read, `change`, write, under the lock.

    Keys that `change` does not touch keep their values and order. Raises `BadFile`, and leaves the file alone,
    if it cannot be parsed.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_lock(path):
        value = read_object(path) or {}
        change(value)
        write_json(path, value, mode)
