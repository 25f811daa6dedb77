"""`spindle sessions`: list, show, export, rename, delete, check and repair sessions."""

import argparse
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from spindle.apps.cli import silence_stdout, warn
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.session_choice import agrees, locate
from spindle.apps.cli.usage import CommandParser
from spindle.apps.session_title import session_title
from spindle.base.agent_dir import agent_dir_problem
from spindle.base.spelling import counted
from spindle.base.terminal import plain
from spindle.sessions import SessionNotFound
from spindle.sessions.entries import Entry, SessionError, iso_time, now_ms
from spindle.sessions.index import all_session_files, most_recent_session, read_info
from spindle.sessions.load import InvalidSession
from spindle.sessions.lock import SessionLocked
from spindle.sessions.manager import SessionManager
from spindle.sessions.open import delete, loaded_from, removed_from, wanted_directory
from spindle.sessions.pages import list_page, page_of_store
from spindle.sessions.repair import examine, repair_copy
from spindle.sessions.shelf import NO_LINES
from spindle.sessions.store import SessionStore, shared_store
from spindle.sessions.tally import SessionInfo
from spindle.sessions.transfer import named_in
from spindle.sessions.tree import TreeNode, entry_message
from spindle.shapes import messages
from spindle.shapes.codec import encode

IN_STORES = ("list", "show", "tree", "trace", "export", "rename", "delete", "import", "copy")
"""Actions that a store can be named for."""
_HARMLESS = ("newer version",)
_ONE_SESSION = "path of a session file, or the beginning of a session id"
_SHORT_ID = 8
"""At least so many characters of an id are shown."""


def run(argv: list[str]) -> int:
    """Carry out `spindle sessions <argv>`. Returns the exit code."""
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        argv = ["list", *argv]
    options = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    try:
        return int(options.action(options))
    except SessionNotFound as error:
        raise UsageError(str(error)) from None
    except SessionError as error:
        text = f"{error.what}. End that program first" if isinstance(error, SessionLocked) else str(error)
        print(f"Error: {plain(text)}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, a pager perhaps, has seen enough
        silence_stdout()
        return 0


def run_export(argv: list[str]) -> int:
    """Carry out `spindle export <argv>`. Returns the exit code."""
    from spindle.export import run_export

    options = export_parser().parse_args(argv)
    try:
        return run_export(str(_find(options.session, options)), options.output, redact=options.redact)
    except SessionNotFound as error:
        raise UsageError(str(error)) from None
    except SessionError as error:
        print(f"Error: {plain(str(error))}", file=sys.stderr)
        return 1


def export_parser() -> CommandParser:
    parser = CommandParser(
        "spindle export",
        description="Write a session as one HTML page. (spindle sessions export writes the current branch as JSONL.)",
    )
    parser.add_argument("session", nargs="?", metavar="SESSION", help=f"{_ONE_SESSION}; default: the newest here")
    parser.add_argument("output", nargs="?", metavar="FILE", help="default: pi-session-<name>.html here")
    parser.add_argument("--redact", action="store_true", help="leave out what looks like keys and tokens")
    parser.add_argument("--session-dir", metavar="DIR", help="where to look instead of the usual directory")
    return parser


def parser() -> CommandParser:
    parser = CommandParser("spindle sessions", description="Look at stored sessions and mend them.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: object, text: str) -> argparse.ArgumentParser:
        one = actions.add_parser(name, help=text, description=text)
        one.add_argument("--session-dir", metavar="DIR", help="where to look instead of the usual directory")
        one.set_defaults(action=action, store=None)
        if name in IN_STORES:
            one.add_argument("--store", metavar="ADDRESS", help="look in this store: postgresql://… (SPINDLE_STORE)")
            one.add_argument("--user", metavar="NAME", help="the sessions of this user of a server, in the store")
        return one

    listing = add("list", _list, "List the sessions of this directory, the latest first (without an action, too).")
    listing.add_argument("--all", action="store_true", help="of all directories")
    listing.add_argument("--limit", type=int, metavar="N", help="the latest N; default: all")
    listing.add_argument("--cursor", metavar="CURSOR", help="go on where a list with --limit has ended")
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    for name, action, text in (
        ("show", _show, "Print the current conversation."),
        ("tree", _tree, "Print all branches."),
        ("trace", _trace, "Print when prompts, model calls and tools came, how long they took, what they cost."),
        ("export", _export, "Write the current conversation, without other branches, to a new file."),
    ):
        one = add(name, action, text)
        one.add_argument("session", nargs="?", help=f"{_ONE_SESSION}; default: the newest here")
        if name == "trace":
            one.add_argument("--json", action="store_true", help="one JSON object per line")
    one.add_argument("output", nargs="?", help="default: session-<time>.jsonl here")
    rename = add("rename", _rename, "Give a session a name; an empty one takes it away.")
    rename.add_argument("session", help=_ONE_SESSION)
    rename.add_argument("name", nargs="+", help="the new name")
    deletion = add("delete", _delete, "Delete sessions for good; asks first.")
    deletion.add_argument("sessions", nargs="+", metavar="session", help=_ONE_SESSION)
    deletion.add_argument("--yes", action="store_true", help="do not ask")
    check = add("check", _check, "Say what is wrong; exit code 1 if anything is.")
    check.add_argument("sessions", nargs="*", metavar="session", help=_ONE_SESSION)
    check.add_argument(
        "--all", action="store_true", help="every session of every directory; only what is wrong is told"
    )
    imports = add("import", _import, "Put session files into a store; each keeps its id.")
    imports.add_argument("files", nargs="+", metavar="file", help="a session file, or a directory of them")
    copying = add("copy", _copy, "Write sessions of a store as files, with all branches; pi opens them.")
    copying.add_argument("sessions", nargs="*", metavar="session", help="id, or the beginning of one")
    copying.add_argument("--all", action="store_true", help="every session")
    copying.add_argument("--to", metavar="DIR", default=".", help="the directory; default: here")
    repair = add("repair", _repair, "Write a sound copy; the file itself is never changed.")
    repair.add_argument("session", help=_ONE_SESSION)
    repair.add_argument("output", nargs="?", help="default: <name>.repaired.jsonl beside it")
    return parser


# -- actions -------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    place = None if options.all else Path.cwd()
    if (store := _store(options)) is not None:
        page = page_of_store(store, place, limit=options.limit, cursor=options.cursor)
    else:
        page = list_page(place, _directory(options), limit=options.limit, cursor=options.cursor)
    infos = page.sessions
    _print(infos, options)
    if page.cursor is not None:
        print(f"More: --cursor {page.cursor}", file=sys.stderr)
    elif not infos:
        print("No sessions." if options.all else "No sessions here (--all: of all directories).", file=sys.stderr)
    return 0


def _print(infos: Sequence[SessionInfo], options: argparse.Namespace) -> None:
    if options.json:
        for info in infos:
            created = iso_time(info.created) if info.created is not None else None
            plain = {**msgspec.to_builtins(info), "created": created, "modified": iso_time(info.modified)}
            _say(encode(plain).decode())
        return
    short = _short_ids([info.id for info in infos])
    width = max(map(len, short.values()), default=0)
    for info in infos:
        _say(_row(info, f"{short[info.id]:<{width}}", with_cwd=options.all))


def _show(options: argparse.Namespace) -> int:
    with _open(options) as session:
        context = session.build_session_context()
        facts = {
            "Session": session.get_session_id(),
            "File": session.get_session_file(),
            "Directory": session.get_cwd(),
            "Name": session.get_session_name(),
            "Model": f"{'/'.join(context.model)}, thinking {context.thinking_level}" if context.model else None,
        }
        for what, fact in facts.items():
            if fact:
                _say(f"{what:<9} {_in_a_line(fact)}")
        for entry in session.get_branch():
            said = _said(entry)
            if said is not None:
                _say(f"\n--- {_in_a_line(said[0])}\n{said[1]}".rstrip())
    return 0


def _tree(options: argparse.Namespace) -> int:
    with _open(options) as session:
        on_path = {entry.id for entry in session.get_branch()}
        # A chain of single children stays in one column; only a fork indents.
        stack: list[tuple[TreeNode, int]] = [(root, 0) for root in reversed(session.get_tree())]
        while stack:
            node, depth = stack.pop()
            mark = "●" if node.entry.id in on_path else "○"
            label = f" [{node.label}]" if node.label else ""
            said = _said(node.entry)
            headline = f"({node.entry.type})" if said is None else f"{said[0]}: {_in_a_line(said[1])[:100]}"
            _say(f"{'  ' * depth}{mark} {_in_a_line(f'{node.entry.id}{label} {headline}')}")
            below = depth + (len(node.children) > 1)
            stack.extend((child, below) for child in reversed(node.children))
    return 0


def _trace(options: argparse.Namespace) -> int:
    from spindle.apps.cli.timeline import as_line, timeline

    with _open(options) as session:
        for happened in timeline(session.get_entries()):
            _say(encode(happened).decode() if options.json else as_line(happened))
    return 0


def _export(options: argparse.Namespace) -> int:
    with _open(options) as session:
        stamp = iso_time(now_ms()).replace(":", "-").replace(".", "-")
        _say(f"Exported to: {session.export_branch(options.output or f'session-{stamp}.jsonl')}")
    return 0


def _import(options: argparse.Namespace) -> int:
    from spindle.sessions.transfer import put_file

    store, code = _needed_store(options), 0
    for name in map(Path, options.files):
        for path in sorted(name.glob("*.jsonl")) if name.is_dir() else [name]:
            try:
                _say(f"{put_file(store, path)}  from {path}")
            except SessionError as error:
                print(f"Error: {plain(str(error))}", file=sys.stderr)
                code = 1
    return code


def _copy(options: argparse.Namespace) -> int:
    from spindle.sessions.transfer import every_id, named_in, put_into_files

    store = _needed_store(options)
    if bool(options.sessions) == options.all:
        raise UsageError("spindle sessions copy: name sessions, or use --all")
    for id in every_id(store) if options.all else [named_in(store, name) for name in options.sessions]:
        _say(f"{id}  to {put_into_files(store, id, Path(options.to))}")
    return 0


def _rename(options: argparse.Namespace) -> int:
    if (store := _store(options)) is not None:
        id = named_in(store, options.session)
        with loaded_from(store, id) as stored:
            stored.append_name(" ".join(options.name).strip())
            stored.sync()
            if stored.write_error:
                raise SessionError(stored.write_error)
            _say(f"{id}: {f'now called {_in_a_line(stored.name)}' if stored.name else 'has no name any more'}")
        return 0
    path = _find(options.session, options)
    if not path.is_file():
        raise SessionError(f"File not found: {path}")
    with SessionManager.open(path) as session:
        session.append_session_info(" ".join(options.name).strip())
        if session.write_error:
            raise SessionError(f"Cannot write {path}: {session.write_error}")
        name = session.get_session_name()
    _say(f"{path}: {f'now called {_in_a_line(name)}' if name else 'has no name any more'}")
    return 0


def _delete(options: argparse.Namespace) -> int:
    if (store := _store(options)) is not None:
        ids = [named_in(store, name) for name in options.sessions]
        for id in ids:
            if (found := store.load(id, NO_LINES)) is not None:
                print(plain(_row(found.card.info, id, with_cwd=True)), file=sys.stderr)
        if not _agreed(options, len(ids)):
            return 1
        for id in ids:
            removed_from(store, id)
            _say(f"Deleted {id}")
        return 0
    paths = [_find(name, options) for name in options.sessions]
    for path in paths:
        if not path.is_file():
            raise SessionError(f"File not found: {path}")
        info = read_info(path)
        if info is None:  # it may be any file
            raise SessionError(f"Not a session: {path}")
        print(plain(f"{path}\n  {_row(info, info.id, with_cwd=True)}"), file=sys.stderr)
    if not _agreed(options, len(paths)):
        return 1
    for path in paths:
        try:
            delete(path)
        except OSError as error:
            raise SessionError(f"Cannot delete {path}: {error.strerror}") from None
        _say(f"Deleted {path}")
    return 0


def _agreed(options: argparse.Namespace, number: int) -> bool:
    """Ask whether so many sessions are to be deleted, unless --yes says so. Raises `UsageError` without a terminal."""
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("spindle sessions delete needs a terminal to ask at, or --yes")
    if agrees(f"Delete {'it' if number == 1 else f'these {number}'} for good?"):
        return True
    print("Nothing deleted.", file=sys.stderr)
    return False


def _check(options: argparse.Namespace) -> int:
    if not options.sessions and not options.all:
        raise UsageError("spindle sessions check: name a session, or use --all")
    found = sorted(all_session_files(_directory(options))) if options.all else []
    codes = [_check_one(str(path), options, quiet=True) for path in found]
    codes += [_check_one(name, options, quiet=False) for name in options.sessions]
    if options.all:
        _say(f"{counted(len(found), 'session')}, {sum(codes[: len(found)])} with damage")
    return max(codes, default=0)


def _check_one(name: str, options: argparse.Namespace, *, quiet: bool) -> int:
    """Check a session; return 1 if anything is wrong. With `quiet` a sound session prints nothing."""
    try:
        path = _find(name, options)
        damage = examine(path)
    except FileNotFoundError:
        _say(f"File not found: {path}")
        return 1
    except SessionError as error:
        _say(str(error))
        if isinstance(error, InvalidSession):
            _say("  `spindle sessions repair` can save what is left of it.")
        return 1
    if damage or not quiet:
        _say(f"{path}: {'sound' if not damage else f'{len(damage)} finding(s)'}")
    for item in damage:
        _say(f"  {item}")
    return int(any(item.kind not in _HARMLESS for item in damage))


def _repair(options: argparse.Namespace) -> int:
    source = _find(options.session, options)
    target = Path(options.output) if options.output else source.with_suffix(".repaired.jsonl")
    for what in repair_copy(source, target, str(Path.cwd())):
        _say(f"  {what}")
    _say(f"Repaired copy: {target}")
    return 0


# -- finding a session ---------------------------------------------------------------------------


def _open(options: argparse.Namespace) -> SessionManager:
    if (store := _store(options)) is None:
        return SessionManager.open(_find(options.session, options), read_only=True)
    if options.session is not None:
        id = named_in(store, options.session)
    elif cards := store.page(cwd=os.getcwd(), limit=1).cards:
        id = cards[0].info.id
    else:
        raise SessionError(f"No sessions of this directory in {store.name}")
    return SessionManager(loaded_from(store, id, read_only=True))


def _store(options: argparse.Namespace) -> SessionStore | None:
    """Return the store that the user wants; None: files. Raises `StoreError`."""
    address = options.store or (os.environ.get("SPINDLE_STORE") if options.session_dir is None else None)
    if not address:
        return None
    store = shared_store(address)
    return store.within(options.user) if options.user else store


def _needed_store(options: argparse.Namespace) -> SessionStore:
    if (store := _store(options)) is None:
        raise UsageError("Which store? Name it with --store postgresql://…, or in SPINDLE_STORE")
    return store


def _find(name: str | None, options: argparse.Namespace) -> Path:
    """Return the file of a session; without a name, of the newest session of this directory. Raises `SessionError`."""
    directory = _directory(options)
    if name is not None:
        return Path(locate(name, os.getcwd(), directory))
    newest = most_recent_session(os.getcwd(), directory)
    if newest is None:
        raise SessionError("No sessions here (spindle sessions list --all: of all directories)")
    return newest


def _directory(options: argparse.Namespace) -> str | None:
    from spindle.resources.loader import ResourceOptions, load_settings

    if problem := agent_dir_problem():
        warn(problem)
    store, _, _ = load_settings(Path.cwd(), ResourceOptions())
    return wanted_directory(options.session_dir, store.settings.session_dir)


# -- words ---------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(plain(text))


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def _short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest beginning of each id that no other has."""
    short: dict[str, str] = {}
    waiting, length = set(ids), _SHORT_ID
    while waiting:
        seen = Counter(id[:length] for id in set(ids))
        short |= {id: id[:length] for id in waiting if seen[id[:length]] == 1 or len(id) <= length}
        waiting -= short.keys()
        length += 1
    return short


def _row(info: SessionInfo, short_id: str, *, with_cwd: bool) -> str:
    title = ("[interrupted] " if info.interrupted else "") + _in_a_line(session_title(info.name, info.first_message))
    place = f"  {_in_a_line(info.cwd)}" if with_cwd else ""
    when = iso_time(info.modified)[:16].replace("T", " ")
    row = f"{when}  {short_id}  {info.message_count:>5}{place}  {title[:80]}"
    return row[: shutil.get_terminal_size().columns] if sys.stdout.isatty() else row


def _said(entry: Entry) -> tuple[str, str] | None:
    """Return the speaker and the text of an entry; None if it holds no message."""
    match entry_message(entry):
        case messages.UserMessage(content=content):
            return "user", messages.text_of(content, " ")
        case messages.AssistantMessage() as answer:
            called = [block for block in answer.content if isinstance(block, messages.ToolCall)]
            calls = [f"[{call.name} {encode(call.arguments).decode()}]" for call in called]
            error = [f"({answer.stop_reason}: {answer.error_message})"] if answer.error_message else []
            return "assistant", "\n".join([messages.text_of(answer.content, "\n"), *calls, *error]).strip()
        case messages.ToolResultMessage(tool_name=name, content=content, is_error=is_error):
            return f"{name} failed" if is_error else f"{name} result", messages.text_of(content, "\n")
        case messages.BashExecutionMessage(command=command, output=output):
            return "user's command", f"$ {command}\n{output}"
        case messages.CustomMessage(custom_type=kind, content=content):
            return kind, messages.text_of(content, " ")
        case messages.BranchSummaryMessage(summary=summary):
            return "summary of another branch", summary
        case messages.CompactionSummaryMessage(summary=summary):
            return "summary of what came before", summary
    return None
