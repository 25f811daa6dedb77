"""Which session a command line means: a new one, the last one, a named one, a copy."""

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from spindle.apps.cli import tell, warn
from spindle.apps.cli.args import Options, UsageError
from spindle.base.agent_dir import agent_dir_problem
from spindle.base.settings import Settings
from spindle.base.spelling import counted
from spindle.sessions import open as sessions
from spindle.sessions.entries import SessionError
from spindle.sessions.file import is_path
from spindle.sessions.lock import SessionLocked
from spindle.sessions.session import Saving, Session

if TYPE_CHECKING:  # loaded only to look for a session
    from spindle.sessions.index import FoundFile
    from spindle.sessions.tally import SessionInfo

_LISTED = 20
_BY_STRENGTH = ("--no-session", "--fork", "--session", "--session-id", "--resume", "--continue")
"""If several are given, the first of this order counts, as with pi."""


class NothingChosen(Exception):
    """The user was asked and chose not to go on; the text says so."""


def choose_session(options: Options, settings: Settings, cwd: str) -> Session:
    """Open or begin the session. Raises `UsageError`, `SessionError`, `NothingChosen`."""
    _check(options)
    try:
        session = _choose(options, settings, cwd)
    except SessionLocked as error:
        import shlex

        raise SessionError(f"{error.what}. Go on in a copy: --fork {shlex.quote(str(error.path))}") from None
    if damage := [item for item in session.damage if item.kind != "newer version"]:
        more = f" and {len(damage) - 1} more" if damage[1:] else ""
        warn(f"The session file is damaged ({damage[0]}{more}): see spindle sessions check {session.path}")
    return session


def _choose(options: Options, settings: Settings, cwd: str) -> Session:
    directory = sessions.wanted_directory(options.session_dir, settings.session_dir)
    saving: Saving = {"fsync": settings.fsync, "on_write_error": warn}
    nowhere = directory is None and agent_dir_problem() is not None
    if options.no_session or (nowhere and options.session is None and options.fork is None):
        return sessions.in_memory(cwd)
    if options.fork is not None:
        return sessions.forked_from(locate(options.fork, cwd, directory), cwd, directory, **saving)
    if options.session is not None:
        return _open_named(options.session, cwd, directory, saving)
    if options.session_id is not None:
        from spindle.sessions.index import find_by_id

        found = find_by_id(cwd, options.session_id, directory)
        if found is not None:
            return _open(found, directory, saving)
        try:
            session = sessions.create(cwd, directory, id=options.session_id, **saving)
        except SessionError as error:
            raise UsageError(f"--session-id {options.session_id!r}: {error}") from None
        warn(f"No session with id {options.session_id}, creating it")
        return session
    if options.resume:
        from spindle.sessions.index import list_sessions

        return _open(_pick(list_sessions(cwd, directory)), directory, saving)
    if options.continue_recent:
        return sessions.recent(cwd, directory, **saving)
    return sessions.create(cwd, directory, **saving)


def choosing_options(options: Options) -> list[str]:
    """Return the names of the given options that choose a session."""
    given = {
        "--session": options.session is not None,
        "--session-id": options.session_id is not None,
        "--fork": options.fork is not None,
        "--continue": options.continue_recent,
        "--resume": options.resume,
        "--no-session": options.no_session,
    }
    return [name for name, present in given.items() if present]


def _check(options: Options) -> None:
    given = choosing_options(options)
    others = ", ".join(name for name in given if name not in ("--fork", "--session-id"))
    if options.fork is not None and others:
        raise UsageError(f"--fork cannot be combined with {others}")
    if options.session_id is not None and (others or options.fork is not None):
        raise UsageError(f"--session-id cannot be combined with {others or '--fork'}")
    strongest, *weaker = [name for name in _BY_STRENGTH if name in given] or [""]
    if weaker:
        tell("Note", f"{', '.join(weaker)} {'has' if len(weaker) == 1 else 'have'} no effect with {strongest}")


def _open_named(name: str, cwd: str, directory: str | None, saving: Saving) -> Session:
    if is_path(name):
        return _open(os.path.join(cwd, name), directory, saving)
    found = _search(name, cwd, directory)
    if found.in_project:
        return _open(found.path, directory, saving)
    print(f"Session found in different project: {found.cwd}", file=sys.stderr)
    if not agrees("Fork this session into current directory?"):
        raise NothingChosen("Aborted.")
    return sessions.forked_from(found.path, cwd, directory, **saving)


def _open(path: str, directory: str | None, saving: Saving) -> Session:
    session = sessions.load(path, directory, **saving)
    if os.path.isdir(session.cwd):
        return session
    session.close()
    raise SessionError(
        f"Stored session working directory does not exist: {session.cwd}\n"
        f"Session file: {path}\nCurrent working directory: {os.getcwd()}"
    )


def locate(name: str, cwd: str, directory: str | None) -> str:
    """Return the file of the session that a path or the beginning of an id names. Raises `SessionError`."""
    return os.path.join(cwd, name) if is_path(name) else _search(name, cwd, directory).path


def _search(name: str, cwd: str, directory: str | None) -> "FoundFile":
    from spindle.sessions.named import named_session

    return named_session(name, cwd, directory)


def _pick(sessions: "list[SessionInfo]") -> str:
    """Show the sessions as a numbered list and return the path of the one that is chosen."""
    if not sessions:
        raise NothingChosen("No sessions here yet")
    from spindle.apps.session_title import session_title

    if not sys.stdin.isatty():
        raise UsageError("--resume needs a terminal to ask at; name a session with --session")
    for number, info in enumerate(sessions[:_LISTED], 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.modified / 1000))
        title = " ".join(session_title(info.name, info.first_message).split())[:60]
        print(f"{number:>3}  {when}  {title} ({counted(info.message_count, 'message')})", file=sys.stderr)
    answer = ask("Session number: ")
    if not answer.isdecimal() or not 1 <= int(answer) <= min(len(sessions), _LISTED):
        raise NothingChosen("No session selected")
    return sessions[int(answer) - 1].path


def agrees(question: str) -> bool:
    return ask(f"{question} [y/N] ").lower() in ("y", "yes")


def ask(question: str) -> str:
    """Ask on stderr, because stdout may belong to a program; the end of input is an empty answer."""
    # This blocks the event loop, whose signal handlers would wait; nothing is open yet that needs cleaning up.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
