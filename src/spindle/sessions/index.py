"""Finding session files: lists for people, the latest session, a session by its id.

They are in one directory per project under the agent directory, or in one that the user names. Reads files, never
changes them.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from spindle.base.agent_dir import agent_dir
from spindle.sessions.catalog import NO_STAMP, Row, stamp_of
from spindle.sessions.entries import UNREADABLE, Header
from spindle.sessions.file import StrPath, absolute, session_dir_for
from spindle.sessions.load import read_header
from spindle.sessions.lock import is_locked
from spindle.sessions.tally import SessionInfo, Tally
from spindle.shapes.codec import decode, encode

Progress: TypeAlias = Callable[[int, int], None]
"""Called after each file with the number of files read so far, and of all files."""

_decode_info = msgspec.json.Decoder(SessionInfo).decode


def decode_info(facts: bytes) -> SessionInfo:
    """Return the session that `read_row` has found. A run that goes on in another process is not interrupted."""
    try:
        info = _decode_info(facts)
    except UNREADABLE:  # half of a surrogate pair in it
        info = msgspec.convert(decode(facts), SessionInfo)
    if info.interrupted and is_locked(Path(info.path)):
        return replace(info, interrupted=False)
    return info


class FoundFile(msgspec.Struct, frozen=True):
    """A session that was found by its id."""

    path: str
    id: str
    cwd: str
    in_project: bool
    """Whether it belongs to the project that the caller named."""


def list_sessions(
    cwd: StrPath, session_dir: StrPath | None = None, on_progress: Progress | None = None
) -> list[SessionInfo]:
    """Return the sessions of a project, the latest first."""
    from spindle.sessions.pages import list_page

    return list_page(cwd, session_dir, on_progress=on_progress).sessions


def list_all_sessions(session_dir: StrPath | None = None, on_progress: Progress | None = None) -> list[SessionInfo]:
    """Return the sessions of all projects, or all in `session_dir`, the latest first."""
    from spindle.sessions.pages import list_page

    return list_page(None, session_dir, on_progress=on_progress).sessions


def most_recent_session(cwd: StrPath, session_dir: StrPath | None = None) -> Path | None:
    """Return the session file of the project that was written to last."""
    directory, only_cwd = place_of(cwd, session_dir)
    latest_first = sorted(_files(directory), key=_modification_time, reverse=True)
    return next((Path(path) for path, _ in _headers(latest_first, only_cwd)), None)


def find_by_id(cwd: StrPath, session_id: str, session_dir: StrPath | None = None) -> str | None:
    """Return the file of the project's session with exactly this id."""
    directory, only_cwd = place_of(cwd, session_dir)
    return next((path for path, header in _headers(_files(directory), only_cwd) if header.id == session_id), None)


def find_session(session_id: str, cwd: StrPath, session_dir: StrPath | None = None) -> str | None:
    """Return the file of the session with exactly this id: of this project, else of any.

    A file usually has its session's id in its name, so few files are opened.
    """
    directory, only_cwd = place_of(cwd, session_dir)
    for paths, wanted_cwd in ((_files(directory), only_cwd), (all_session_files(session_dir), None)):
        named = sorted(paths, key=lambda path: not path.name.endswith(f"_{session_id}.jsonl"))
        for path, header in _headers(named, wanted_cwd):
            if header.id == session_id:
                return path
    return None


def find_sessions(start: str, cwd: StrPath, session_dir: StrPath | None = None) -> list[FoundFile]:
    """Return the sessions whose id is `start`, else those whose id begins with it; those of the project come first.

    More than one means that `start` is too short to tell them apart.
    """
    directory, only_cwd = place_of(cwd, session_dir)
    own = [FoundFile(path, header.id, header.cwd, True) for path, header in _headers(_files(directory), only_cwd)]
    known = {found.path for found in own}
    others = [path for path in all_session_files(session_dir) if str(path) not in known]
    foreign = [FoundFile(path, header.id, header.cwd, False) for path, header in _headers(others, None)]
    for fits in (start.__eq__, lambda id: id.startswith(start)):
        for group in (own, foreign):
            if hits := [found for found in group if fits(found.id)]:
                return hits
    return []


def read_info(path: Path) -> SessionInfo | None:
    """Return what a list shows of one file; None if it is no session."""
    facts = read_row(path).facts
    return None if facts is None else decode_info(facts)


def read_row(path: Path, only_cwd: str | None = None) -> Row:
    """Return the row of a file for the catalog, as it was when we began to read it.

    Of a session of another project than `only_cwd` only the header is read.
    """
    try:
        with open(path, "rb") as lines:
            status = os.fstat(lines.fileno())
            stamp = stamp_of(status)
            header = read_header(lines)
            if header is None or not isinstance(header.id, str):
                return Row(stamp)
            if not _belongs(header, only_cwd):
                return Row(stamp, header.cwd)
            tally = Tally()
            for line in lines:
                tally.add(line)
    except OSError:
        return Row(NO_STAMP)
    info = tally.info(str(path), header, status.st_mtime_ns // 1_000_000)
    return Row(stamp, info.cwd, info.modified, info.id, encode(info))


# -- files ---------------------------------------------------------------------------------------


def place_of(cwd: StrPath, session_dir: StrPath | None) -> tuple[Path, str | None]:
    """Return the directory to look in, and the project to filter by if the directory may hold several projects."""
    default = session_dir_for(cwd)
    directory = Path(absolute(session_dir)) if session_dir else default
    return directory, None if directory == default else absolute(cwd)


def _belongs(header: Header, only_cwd: str | None) -> bool:
    """Say whether the session can be opened, and belongs to the project `only_cwd` if that is given."""
    is_of_project = only_cwd is None or (header.cwd != "" and absolute(header.cwd) == only_cwd)
    return isinstance(header.id, str) and is_of_project


def _files(directory: Path) -> list[Path]:
    try:  # not `item.is_file()`, which raises for a link to itself: then all files would be missing
        with os.scandir(directory) as items:
            return [Path(item.path) for item in items if item.name.endswith(".jsonl") and os.path.isfile(item)]
    except OSError:
        return []


def all_session_files(session_dir: StrPath | None) -> list[Path]:
    """Return the files of all projects, or all in `session_dir`, damaged ones too."""
    return [path for directory in folders_of_all(session_dir) for path in _files(directory)]


def folders_of_all(session_dir: StrPath | None) -> list[Path]:
    """Return the directories with the sessions of all projects."""
    if session_dir:
        return [Path(absolute(session_dir))]
    try:
        with os.scandir(agent_dir() / "sessions") as items:
            return [Path(item.path) for item in items if os.path.isdir(item)]
    except OSError:
        return []


def _headers(paths: Iterable[Path], only_cwd: str | None) -> Iterator[tuple[str, Header]]:
    for path in paths:
        try:
            with open(path, "rb") as lines:
                header = read_header(lines)
        except OSError:
            continue
        if header is not None and _belongs(header, only_cwd):
            yield str(path), header


def _modification_time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
