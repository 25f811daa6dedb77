"""Does what the arguments ask for: a sub-command, a report, or a mode that runs an agent.

Each is imported only if it is asked for. Every error becomes one line on stderr and an exit code.
"""

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from spindle.apps.cli import end_of_start, silence_stdout, tell, version_text
from spindle.apps.cli.args import (
    MODE_NAMES,
    Options,
    UsageError,
    ignored_note,
    parse,
    parse_into,
    refuse_address_options,
)
from spindle.apps.cli.subcommands import COMMANDS
from spindle.base.spelling import did_you_mean
from spindle.base.terminal import guard_output

if TYPE_CHECKING:
    from spindle.apps.cli.usage import CommandParser

_MODES = {
    "text": "one_shot:run_print",
    "json": "one_shot:run_json",
    "rpc": "serving:run_rpc",
    "acp": "serving:run_acp",
    "remote": "serving:run_remote",
    "chat": "interactive:run_chat",
}
"""Module and function of each mode; the function takes the options and returns the exit code."""


def run(argv: list[str]) -> int:
    """Do what the command line asks for and return the exit code."""
    _open_standard_files()
    guard_output()
    try:
        code = _run(argv)
        sys.stdout.flush()  # a full disk shows only here
        return code
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        _fail(str(error))
        return error.code
    except BrokenPipeError:
        silence_stdout()
        return 1
    except OSError as error:
        code = _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        silence_stdout()
        return code


def _run(argv: list[str]) -> int:
    options = parse(argv)
    command = COMMANDS[options.command] if options.command is not None else None
    if command is not None and not command.mode:
        if options.offline:
            os.environ["PI_OFFLINE"] = "1"
        arguments = [word for word in options.command_arguments if word not in ("--offline", "--verbose")]
        work = load(command.target)
        end_of_start()
        return int(work(arguments))
    if command is not None:  # a mode by another name: it takes every option
        name, options = options.command, parse_into(Options(mode=command.mode), options.command_arguments)
        if command.mode == "remote":
            refuse_address_options(str(name), options)
        if options.help:
            from spindle.apps.cli.usage import mode_help

            print(mode_help(str(name), command), end="")
            return 0
    if options.offline:
        os.environ["PI_OFFLINE"] = "1"
    if options.version:
        print(version_text(sys.argv[0], options.dialect))
        return 0
    _enter(options.cwd)
    if options.help:
        from spindle.apps.cli.assemble import run_help

        return run_help(options)
    for note in options.notes:
        tell("Note", note)
    if options.list_models is not None:
        from spindle.apps.cli.models_command import list_models

        return list_models(options.list_models)
    if options.export is not None:
        from spindle.export import run_export

        if more := options.messages[1:]:
            raise UsageError(f'--export writes one page; "{more[0]}" is one name too many')
        return run_export(options.export, next(iter(options.messages), None), redact=options.redact)
    mode = command.mode if command is not None else _mode(options)
    return _run_agent(options, mode, command.target if command is not None else _MODES[mode])


def _enter(cwd: str | None) -> None:
    """Go to the working directory, if one is given. Raises `UsageError` if it is not there."""
    try:
        if cwd is not None:
            os.chdir(os.path.expanduser(cwd))
        os.getcwd()
    except OSError as error:
        gone = "The current directory does not exist any more"
        raise UsageError(gone if cwd is None else f"--cwd {cwd}: {error.strerror}") from None


def _mode(options: Options) -> str:
    if options.remote is not None:
        return "remote"
    if options.mode is None and not options.print:
        from spindle.apps.cli.interactive import wanted

        if wanted(options):
            return "chat"
    return options.mode or "text"


def _run_agent(options: Options, mode: str, target: str) -> int:
    from spindle.agent import AgentError, OptionError
    from spindle.apps.cli.session_choice import NothingChosen
    from spindle.sessions.entries import SessionError, SessionNotFound

    if options.attach is not None and mode != "chat":
        if options.print or options.mode is not None or options.remote is not None:
            raise UsageError(f"--attach is for the chat and does not go with {MODE_NAMES[mode]}")
        mode, target = "chat", _MODES["chat"]  # which says that it needs a terminal
    if note := ignored_note(options, mode):
        tell("Note", note)
    run_mode = load(target)
    try:
        return int(run_mode(options))
    except (OptionError, SessionNotFound) as error:
        raise UsageError(str(error)) from None
    except (AgentError, SessionError) as error:
        return _fail(str(error))
    except NothingChosen as choice:
        print(choice, file=sys.stderr)
        return 0


def load(target: str) -> Any:
    """Import `module:name` of this package. From here on Ctrl-C is an exception, so that all is cleaned up."""
    module, _, name = target.partition(":")
    found = getattr(import_module(f"spindle.apps.cli.{module}"), name)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return found


# -- sub-commands that are a few lines -------------------------------------------------------------


def help_parser() -> "CommandParser":
    from spindle.apps.cli.usage import CommandParser

    parser = CommandParser("spindle help", description="Show the help, or that of a command.")
    parser.add_argument("command", nargs="?", choices=tuple(COMMANDS), metavar="COMMAND", help="its name")
    return parser


def run_help(argv: list[str]) -> int:
    if argv and argv[0] not in COMMANDS and not argv[0].startswith("-"):
        near = did_you_mean(argv[0], COMMANDS)
        raise UsageError(f'Spindle has no command "{argv[0]}".{near} To send it as a message: spindle -p help …')
    command = help_parser().parse_args(argv).command
    return _run([*([command] if command else ()), "--help"])


def version_parser() -> "CommandParser":
    from spindle.apps.cli.usage import CommandParser

    return CommandParser("spindle version", description="Print the version.")


def run_version(argv: list[str]) -> int:
    version_parser().parse_args(argv)
    print(version_text(sys.argv[0]))
    return 0


def schema_parser() -> "CommandParser":
    from spindle.apps.cli.usage import CommandParser

    parser = CommandParser("spindle schema", description="Print the commands and events of the wire as JSON Schema.")
    parser.add_argument("--markdown", action="store_true", help="print the reference page (docs/protocol.md) instead")
    return parser


def run_schema(argv: list[str]) -> int:
    """`spindle schema [--markdown]`: print the commands and events of the wire."""
    import json

    from spindle.protocol.schema import json_schema
    from spindle.resources.prompt import manual

    if schema_parser().parse_args(argv).markdown:
        if (folder := manual()) is None:
            return _fail("The manual is not installed")
        print((folder / "protocol.md").read_text(encoding="utf-8"), end="")
        return 0

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0


def _fail(text: str) -> int:
    tell("Error", text)
    return 1


def _open_standard_files() -> None:
    """Open stdin, stdout and stderr if the caller closed them, before a socket is given one of their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Reading finds the end at once. Writing to a closed stdout fails; writing to a closed stderr does not.
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
