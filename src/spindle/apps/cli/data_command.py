"""`spindle data`: what is stored, how much and since when; `spindle data prune` deletes by age."""

import argparse
import sys
import time
from pathlib import Path

from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir
from spindle.base.settings import Retention
from spindle.base.terminal import plain
from spindle.resources.loader import ResourceOptions, load_settings
from spindle.sessions.entries import iso_time
from spindle.sessions.holdings import KINDS, Places, holdings, outdated, places
from spindle.sessions.open import wanted_directory
from spindle.sessions.retention import ages, delete_old, seconds
from spindle.shapes.codec import encode
from spindle.tools.base import format_size


def parser() -> CommandParser:
    parser = CommandParser("spindle data", description="What is stored on this machine, and how old data is deleted.")
    actions = parser.add_actions(
        {
            "show": "Show what is stored, how much, and since when (without an action, too).",
            "prune": "Delete what is old; nothing that is in use. Say which kinds, or all are meant.",
        }
    )
    for action in actions.values():
        action.add_argument("--session-dir", metavar="DIR", help="where to look besides the usual places")
    actions["show"].add_argument("--json", action="store_true", help="one JSON object per line")
    prune = actions["prune"]
    prune.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(kind.name for kind in KINDS))
    prune.add_argument("--older-than", metavar="AGE", help="written last before so long: 12h, 90d, 6w, 3m, 1y")
    prune.add_argument("--keep-last", type=int, metavar="N", help="but never the last N of a kind")
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")
    return parser


def run(argv: list[str]) -> int:
    """Carry out `spindle data <argv>`. Raises `UsageError`."""
    given = parser().parse_args(["show", *argv] if not argv or argv[0] in ("--json", "--session-dir") else argv)
    store, _, _ = load_settings(Path.cwd(), ResourceOptions())
    directory = wanted_directory(given.session_dir, store.settings.session_dir)
    where = places() if directory is None else places(directory)
    if given.action == "show":
        return _show(given, where)
    return _prune(given, where, store.settings.retention)


def _show(given: argparse.Namespace, where: Places) -> int:
    found = holdings(where)
    if given.json:
        for one in found:
            oldest = None if one.oldest is None else iso_time(int(one.oldest * 1000))
            print(encode({"kind": one.kind.name, "count": one.number, "bytes": one.bytes, "oldest": oldest}).decode())
        return 0
    for one in found:
        since = "" if one.oldest is None else f"since {time.strftime('%Y-%m-%d', time.localtime(one.oldest))}"
        print(
            f"{one.kind.name:<12} {format_size(one.bytes):>9}  {one.number:>7,}  {since:<17} {one.kind.what}".rstrip()
        )
    print(f"{'together':<12} {format_size(sum(one.bytes for one in found)):>9}  in {agent_dir()}")
    return 0


def _prune_as_set(given: argparse.Namespace, where: Places, retention: Retention) -> int:
    """Delete what the settings say is too old."""
    if not ages(retention) or given.kinds or given.dry_run:
        raise UsageError(
            "spindle data prune needs --older-than, as 90d, or --keep-last, as 50; without them it does what the "
            "setting retention says"
        )
    for ended in delete_old(retention, where):
        for why in ended.left:
            print(plain(f"Left: {why}"), file=sys.stderr)
        print(f"{ended.kind.name:<12} {format_size(ended.bytes):>9}  {ended.number:>7,} deleted")
    return 0


def _prune(given: argparse.Namespace, where: Places, retention: Retention) -> int:
    names = {kind.name: kind for kind in KINDS}
    if unknown := [name for name in given.kinds if name not in names]:
        raise UsageError(f"There is no kind {unknown[0]!r} of data; there are {', '.join(names)}")
    if given.older_than is None and given.keep_last is None:
        return _prune_as_set(given, where, retention)
    if given.keep_last is not None and given.keep_last < 0:
        raise UsageError("--keep-last must not be below 0")
    before = None if given.older_than is None else time.time() - _seconds(given.older_than)
    for kind in [names[name] for name in given.kinds] or KINDS:
        count = size = 0
        for item in outdated(kind, where, before, given.keep_last):
            why = None if given.dry_run else kind.remove(item.path)
            if why is not None:
                print(plain(f"Left: {why}"), file=sys.stderr)
                continue
            count, size = count + 1, size + item.bytes
            if given.dry_run:
                print(plain(f"{kind.name:<12} {format_size(item.bytes):>9}  {_day(item.time)}  {item.path}"))
        print(f"{kind.name:<12} {format_size(size):>9}  {count:>7,} {'would go' if given.dry_run else 'deleted'}")
    return 0


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def _seconds(age: str) -> float:
    found = seconds(age)
    if found is None:
        raise UsageError(f"--older-than takes a number and a unit, as 12h, 90d, 6w, 3m or 1y; not {age!r}")
    return found
