"""`spindle tokens`: the users of a server. A token is shown once, when it is made; the file holds its hash."""

import argparse
import re
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spindle.apps.cli import warn
from spindle.apps.cli.args import TOKENS, UsageError
from spindle.apps.cli.serving import opened_store, tokens_file
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile
from spindle.server.day_book import USAGE, DayBook
from spindle.server.records import KINDS, Records
from spindle.server.users import NAME, User, add_user, change_user, read_users, revoke_user, rotate_token
from spindle.sessions.lock import SessionLocked
from spindle.sessions.open import delete, removed_from
from spindle.sessions.store import SessionStore
from spindle.shapes.permission_modes import PERMISSION_MODES
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.sandbox import SANDBOX_LEVELS

_SERVER_ENDS = 10.0
"""Seconds in which a running server ends the sessions of a user who is removed."""
_DAYS_OF_USAGE = 1100
"""How far back a store is looked at for what a user has used up on a day."""


def _lower(unit: str) -> str:
    return unit if unit[:2].isupper() else unit.lower()


_NUMBERS = {
    "runs_per_day": ("runsPerDay", int, "N", "runs on one day (UTC)"),
    "cost_per_day": ("costPerDay", float, "USD", "US dollars on one day (UTC)"),
    **{
        limit.name: (limit.wire_name, limit.type, limit.words.value, f"{_lower(limit.words.unit)} in a run")
        for limit in RUN_LIMITS
    },
}
"""By argument: key in the file, type, placeholder, help."""
_OTHERS = {
    "permission_mode": "permissionMode",
    "sandbox": "sandbox",
    "model": "models",
    "root": "roots",
    "admin": "admin",
    "owner": "owner",
}
_KEYS = {name.replace("_", "-"): key for name, key in [*((n, v[0]) for n, v in _NUMBERS.items()), *_OTHERS.items()]}
"""By option: key in the file."""


def parser() -> CommandParser:
    parser = CommandParser("spindle tokens", description="The users of spindle serve --tokens.")
    actions = parser.add_actions(
        {
            "add": "Add a user. The token is printed, and stored nowhere.",
            "rotate": "Give a user another token, which is printed. The old one ends, and so do the user's browsers.",
            "set": "Change what a user may do: what is named, and nothing else.",
            "list": "List the users, what they may do, and what they have used up today.",
            "remove": "Remove a user; with --with-data also the user's sessions, uploads, checkpoints and usage.",
            "revoke": "Remove a user. Running servers end the user's connections within a second or two.",
        }
    )
    for name, action in actions.items():
        action.add_argument(
            "--file", metavar="FILE", default=TOKENS, help="default: tokens.json of the agent directory"
        )
        if name != "list":
            action.add_argument("name", metavar="NAME", help="letters, digits, dots, _ and -")
    remove = actions["remove"]
    remove.add_argument("--with-data", action="store_true", help="delete what is stored of the user, for good")
    remove.add_argument("--session-dir", metavar="DIR", help="that of the server, if it was started with one")
    remove.add_argument("--store", metavar="ADDRESS", help="that of the server: postgresql://… (SPINDLE_STORE)")
    _add_limits(actions["add"])
    _add_limits(actions["set"])
    actions["set"].add_argument(
        "--clear", action="append", metavar="OPTION", choices=_KEYS, help="no longer so: as cost-per-day; repeatable"
    )
    return parser


def _add_limits(action: argparse.ArgumentParser) -> None:
    for name, (_, kind, value, text) in _NUMBERS.items():
        action.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=value, help=f"at most so many {text}")
    action.add_argument("--root", action="append", metavar="DIR", help="sessions work only here and below; repeatable")
    action.add_argument("--model", action="append", metavar="PATTERN", help="as anthropic/*; repeatable; none: all")
    action.add_argument("--permission-mode", choices=PERMISSION_MODES, help="mode that the user cannot change")
    action.add_argument("--sandbox", choices=SANDBOX_LEVELS, help="least level of the sandbox of the user's sessions")
    action.add_argument("--owner", action="store_true", help="may change keys, settings, rules and servers of all")
    action.add_argument("--admin", action="store_true", help="may read /metrics, and use sessions of others")


def run(argv: list[str]) -> int:
    """Carry out `spindle tokens <argv>`. Raises `UsageError`."""
    given = parser().parse_args(argv or ["list"])
    path = tokens_file(given.file)
    try:
        return _ACTIONS[given.action](path, given)
    except (BadFile, OSError) as error:
        raise UsageError(str(error), 1) from None


def _add(path: Path, given: argparse.Namespace) -> int:
    token = add_user(path, given.name, _named(given) | {"created": datetime.now(UTC).isoformat(timespec="seconds")})
    return _print_token(path, given.name, token)


def _rotate(path: Path, given: argparse.Namespace) -> int:
    return _print_token(path, given.name, rotate_token(path, given.name))


def _set(path: Path, given: argparse.Namespace) -> int:
    named = {_KEYS[name]: None for name in given.clear or ()} | _named(given)
    if not named:
        raise UsageError(f"Name what to change, as --cost-per-day 5, or --clear with one of: {', '.join(_KEYS)}.")
    change_user(path, given.name, named)
    print(_line(given.name, read_users(path)[given.name]))
    return 0


def _revoke(path: Path, given: argparse.Namespace) -> int:
    revoke_user(path, given.name)
    print(f"{given.name} is no user any more.")
    return 0


def _remove(path: Path, given: argparse.Namespace) -> int:
    if not given.with_data:
        return _revoke(path, given)
    folder = Path(given.session_dir or agent_dir() / "users") / given.name
    usage = agent_dir() / "usage" / given.name
    if not re.fullmatch(NAME, given.name):
        raise UsageError(f"{given.name!r} is no name of a user")
    store = opened_store(given.store)
    space = None if store is None else store.within(given.name)
    if given.name in read_users(path):
        _revoke(path, given)
    elif not (folder.is_dir() or usage.is_dir() or (space is not None and space.page(limit=1).cards)):
        raise UsageError(f"{path} has no user {given.name!r}, and nothing is stored of one", 1)
    until = time.monotonic() + _SERVER_ENDS
    while left := [*_delete_sessions(folder), *([] if space is None else _empty(space))]:
        if time.monotonic() > until:
            print("\n".join(left), file=sys.stderr)
            print("End that program, and run this again.", file=sys.stderr)
            return 1
        time.sleep(0.2)
    for kind in KINDS:
        Records(kind, agent_dir(), store).forget(given.name)
    for place in (folder, usage):
        shutil.rmtree(place, ignore_errors=True)
        if place.exists():
            raise UsageError(f"Cannot delete {place}", 1)
    if store is not None:
        store.close()
    print(f"What was stored of {given.name} is deleted. Logs and backups are not looked at.")
    return 0


def _delete_sessions(folder: Path) -> list[str]:
    """Delete the sessions in a folder; return why some are still there."""
    left = []
    for file in folder.glob("*.jsonl"):
        try:
            delete(file)
        except SessionLocked as error:
            left.append(error.what)
    return left


def _empty(space: SessionStore) -> list[str]:
    """Delete what a user has in a store; return why some is still there."""
    left, cursor = [], None
    for day in range(_DAYS_OF_USAGE):
        key = (datetime.now(UTC) - timedelta(days=day)).strftime("%Y-%m-%d")
        if (record := space.get(USAGE, key)) is not None:
            space.put(USAGE, key, None, record.revision)
    while True:
        page = space.page(cursor=cursor)
        for card in page.cards:
            try:
                removed_from(space, card.info.id)
            except SessionLocked as error:
                left.append(error.what)
        if (cursor := page.cursor) is None:
            return left


def _named(given: argparse.Namespace) -> dict[str, Any]:
    """Return the values that the command line names, by their keys in the file."""
    values = {key: getattr(given, name.replace("-", "_")) for name, key in _KEYS.items()}
    for root in given.root or ():
        if not Path(root).is_dir():
            warn(f"There is no directory {root} yet")
    values["roots"] = [str(Path(root).absolute()) for root in given.root or ()]
    return {key: value for key, value in values.items() if value is not None and value is not False and value != []}


def _print_token(path: Path, name: str, token: str) -> int:
    print(token)
    print(f"This is the token of {name}. It is shown only now; {path} has its hash.", file=sys.stderr)
    return 0


def _list(path: Path, given: argparse.Namespace) -> int:
    users = read_users(path)
    for name, user in users.items():
        print(_line(name, user))
    if not users:
        print(f"{path} has no users: spindle tokens add NAME makes one.", file=sys.stderr)
    return 0


def _line(name: str, user: User) -> str:
    book = DayBook(agent_dir() / "usage" / name)
    book.refresh()
    rules = [f"{key}={value}" for key, value in _shown(user).items() if value]
    return " ".join([f"{name}  today: {book.runs} runs, ${book.cost:.4f}", *rules])


def _shown(user: User) -> dict[str, Any]:
    known = zip(User.__struct_encode_fields__, (getattr(user, name) for name in User.__struct_fields__), strict=True)
    rest = {key: value for key, value in known if key not in ("token", "limits")} | user.run_limits()
    return {key: ",".join(value) if isinstance(value, tuple) else value for key, value in rest.items()}


_ACTIONS = {"add": _add, "remove": _remove, "rotate": _rotate, "set": _set, "revoke": _revoke, "list": _list}
