"""`spindle tokens`: the users of a server. A token is shown once, when it is made; the file holds its hash."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spindle.apps.cli import warn
from spindle.apps.cli.args import TOKENS, UsageError
from spindle.apps.cli.serving import tokens_file
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile
from spindle.protocol.account import DayBook
from spindle.protocol.users import User, add_user, read_users, revoke_user
from spindle.shapes.permission_modes import PERMISSION_MODES
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.sandbox import SANDBOX_LEVELS

_NUMBERS = {
    "runs_per_day": ("runsPerDay", int, "N", "runs on one day (UTC)"),
    "cost_per_day": ("costPerDay", float, "USD", "US dollars on one day (UTC)"),
    **{
        limit.name: (limit.wire_name, limit.type, limit.words.value, f"{limit.words.unit.lower()} in a run")
        for limit in RUN_LIMITS
    },
}
"""By argument: key in the file, type, placeholder, help."""


def parser() -> CommandParser:
    parser = CommandParser("spindle tokens", description="The users of spindle serve --tokens.")
    actions = parser.add_actions(
        {
            "add": "Add a user, or give one another token. The token is printed, and stored nowhere.",
            "list": "List the users, what they may do, and what they have used up today.",
            "revoke": "Remove a user. Running servers end the user's connections within a second or two.",
        }
    )
    for name, action in actions.items():
        action.add_argument(
            "--file", metavar="FILE", default=TOKENS, help="default: tokens.json of the agent directory"
        )
        if name != "list":
            action.add_argument("name", metavar="NAME", help="letters, digits, dots, _ and -")
    _add_limits(actions["add"])
    return parser


def _add_limits(action: argparse.ArgumentParser) -> None:
    for name, (_, kind, value, text) in _NUMBERS.items():
        action.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=value, help=f"at most so many {text}")
    action.add_argument("--root", action="append", metavar="DIR", help="sessions work only here and below; repeatable")
    action.add_argument("--model", action="append", metavar="PATTERN", help="as anthropic/*; repeatable; none: all")
    action.add_argument("--permission-mode", choices=PERMISSION_MODES, help="mode that the user cannot change")
    action.add_argument("--sandbox", choices=SANDBOX_LEVELS, help="least level of the sandbox of the user's sessions")
    action.add_argument("--admin", action="store_true", help="may read /metrics, and use sessions of others")


def run(argv: list[str]) -> int:
    """Carry out `spindle tokens <argv>`. Raises `UsageError`."""
    given = parser().parse_args(argv or ["list"])
    path = tokens_file(given.file)
    try:
        if given.action == "list":
            return _list(path)
        if given.action == "revoke":
            revoke_user(path, given.name)
            print(f"{given.name} is no user any more.")
            return 0
        return _add(path, given)
    except (BadFile, OSError) as error:
        raise UsageError(str(error), 1) from None


def _add(path: Path, given: argparse.Namespace) -> int:
    values: dict[str, Any] = {key: getattr(given, name) for name, (key, *_) in _NUMBERS.items()}
    values |= {"permissionMode": given.permission_mode, "sandbox": given.sandbox}
    values |= {"models": given.model, "admin": given.admin or None}
    values["roots"] = [str(Path(root).absolute()) for root in given.root or ()] or None
    values["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    token = add_user(path, given.name, {key: value for key, value in values.items() if value is not None})
    for root in given.root or ():
        if not Path(root).is_dir():
            warn(f"There is no directory {root} yet")
    print(token)
    print(f"This is the token of {given.name}. It is shown only now; {path} has its hash.", file=sys.stderr)
    return 0


def _list(path: Path) -> int:
    users = read_users(path)
    for name, user in users.items():
        book = DayBook(agent_dir() / "usage" / name)
        book.refresh()
        rules = {key: value for key, value in _shown(user).items() if value}
        print(f"{name}  today: {book.runs} runs, ${book.cost:.4f}", *(f"{key}={value}" for key, value in rules.items()))
    if not users:
        print(f"{path} has no users: spindle tokens add NAME makes one.", file=sys.stderr)
    return 0


def _shown(user: User) -> dict[str, Any]:
    known = zip(User.__struct_encode_fields__, (getattr(user, name) for name in User.__struct_fields__), strict=True)
    rest = {key: value for key, value in known if key not in ("token", "limits")} | user.run_limits()
    return {key: ",".join(value) if isinstance(value, tuple) else value for key, value in rest.items()}
