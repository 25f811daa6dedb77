"""Bounds for all sessions of a process together, from settings and command line."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import fields, replace

from spindle.agent import AgentError
from spindle.apps.cli.args import Options, UsageError
from spindle.base.settings import Bounds, Settings
from spindle.llm import stream
from spindle.programs import children

FILES_OF_A_SESSION = 3
"""The session file and its lock; some sessions also have a pipe to a program, or a connection to a model."""
OTHER_FILES = 1100
"""Connections of clients, and files of the process itself."""
MANY_SESSIONS = 20_000


def chosen_bounds(options: Options, settings: Settings) -> Bounds:
    numbers = {item.encode_name: item.name for item in fields(Bounds) if item.name != "roots"}
    given: dict[str, int] = {}
    for assignment in options.limit:
        name, _, text = assignment.partition("=")
        if name not in numbers:
            raise UsageError(f"Unknown limit {name!r}; there are {', '.join(numbers)}")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise UsageError(f"--limit {name} must be a whole number, not {text!r}")
        given[numbers[name]] = int(text)
    for root in options.roots:
        if not os.path.isdir(root):
            raise UsageError(f"--root: there is no directory {root}")
    return replace(settings.limits, **given, roots=options.roots or settings.limits.roots)


def apply(bounds: Bounds) -> None:
    """Set the bounds that do not belong to the pool of sessions."""
    stream.most_calls = bounds.model_calls
    children.most = bounds.children


def allowed_in(roots: Sequence[str]) -> Callable[[str], None]:
    """Return a function that raises `AgentError` for a directory outside of `roots`; without roots all are allowed."""
    real = [os.path.realpath(root) for root in roots]

    def check(cwd: str) -> None:
        place = Path(os.path.realpath(cwd))
        if real and not any(place.is_relative_to(root) for root in real):
            raise AgentError(f"Sessions may not work in {cwd}; allowed: {', '.join(real)}")

    return check


def sessions_with_files(sessions: int) -> int:
    """Return how many sessions the process can hold, once it may have as many files open as they need."""
    most = allow_files(OTHER_FILES + FILES_OF_A_SESSION * (sessions or MANY_SESSIONS))
    if most is None:
        return sessions
    can = (most - min(OTHER_FILES, most // 4)) // FILES_OF_A_SESSION
    return min(sessions, can) if sessions else (can if can < MANY_SESSIONS else 0)


def allow_files(wanted: int) -> int | None:
    """Let this process open so many files, as far as the system allows. Returns how many; None: as many as wanted.

    Systems allow 256 or 1024 open files to a program that does not ask for more.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return None
    most = wanted if hard == unlimited else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # the system has a bound of its own, which it does not tell
        return soft
    return most
