"""From arguments to a mode: print, JSON, RPC, remote, export, lists and reports.

Whatever goes wrong on the way is one line on stderr and an exit code; modes are imported when chosen.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from spindle.cli.args import Options, UsageError, parse
from spindle.cli.tell import tell, warn

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Do what the command line asks for and return the exit code."""
    _open_standard_files()
    try:
        if argv and (command := _COMMANDS.get(argv[0])):
            _raise_on_interrupt()
            code = command(argv[1:])
        else:
            code = _run(parse(argv))
        sys.stdout.flush()  # a full disk shows only here
        return code
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        return _fail(str(error))
    except BrokenPipeError:
        _silence_stdout()
        return 1
    except OSError as error:
        _silence_stdout()
        return _fail(str(error))


def _run(options: Options) -> int:
    if options.version:
        from spindle.cli import version_text

        print(version_text(sys.argv[0]))
        return 0
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("The current directory does not exist any more") from None
    if options.help:
        from spindle.cli.help import run_help

        return run_help(options)
    for note in options.notes:
        tell("Note", note)
    if options.offline:
        os.environ["PI_OFFLINE"] = "1"
    if options.list_models is not None:
        return _list_models(options)
    if options.export is not None:
        return _export(options)
    return _run_agent(options)


def _run_agent(options: Options) -> int:
    from spindle.agent.errors import AgentError
    from spindle.cli.inputs import BadInput
    from spindle.cli.session_choice import NothingChosen
    from spindle.sessions.errors import SessionError

    run_mode = _mode(options)
    _raise_on_interrupt()
    try:
        return run_mode(options)
    except (AgentError, SessionError, BadInput) as error:
        return _fail(str(error))
    except NothingChosen as choice:
        print(choice, file=sys.stderr)
        return 0


def _mode(options: Options) -> Callable[[Options], int]:
    if options.remote is not None:
        from spindle.cli.remote_mode import run_remote

        return run_remote
    if options.mode == "rpc":
        from spindle.cli.rpc_mode import run_rpc

        return run_rpc
    if options.mode == "json":
        from spindle.cli.json_mode import run_json

        return run_json
    from spindle.cli.print_mode import run_print

    return run_print


def _list_models(options: Options) -> int:
    from spindle.agent_dir import agent_dir
    from spindle.cli.list_models import list_models
    from spindle.models.registry import ModelRegistry

    registry = ModelRegistry(agent_dir())
    if registry.error:
        warn(registry.error)
    print(list_models(registry, options.list_models or ""))
    return 0


def _export(options: Options) -> int:
    from spindle.export import run_export

    out = options.messages[0] if options.messages else None
    return run_export(options.export or "", out, redact=options.redact)


# -- commands ------------------------------------------------------------------------------------


def _doctor(argv: list[str]) -> int:
    from spindle.cli.doctor import run as examine

    options = parse(argv)
    if options != Options(approve=options.approve):
        raise UsageError("Usage: spindle doctor [--approve | --no-approve]")
    return examine(Path.cwd(), options.approve)


def _models(argv: list[str]) -> int:
    if argv and argv[0] in ("list", "pull", "remove", "-h", "--help"):
        from spindle.cli.models_command import run as models

        return models(argv)
    return _list_models(parse(["--list-models", *argv]))


def _sessions(argv: list[str]) -> int:
    from spindle.cli.sessions_command import run as sessions

    return sessions(argv)


def _trust(argv: list[str]) -> int:
    from spindle.cli.trust_command import run as trust

    return trust(argv)


def _schema(argv: list[str]) -> int:
    from spindle.protocol.schema import json_schema, reference_page

    if argv == ["--markdown"]:
        print(reference_page(), end="")
        return 0
    if argv:
        raise UsageError("Usage: spindle schema [--markdown]")
    import json

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0


def _foreign(argv: list[str]) -> int:
    raise UsageError("That is a command of pi which Spindle does not have; to send it as a message use -p")


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "doctor": _doctor,
    "models": _models,
    "schema": _schema,
    "sessions": _sessions,
    "trust": _trust,
    **dict.fromkeys(("auth", "config", "install", "list", "remove", "uninstall", "update"), _foreign),
}


def _fail(text: str) -> int:
    tell("Error", text)
    return 1


def _open_standard_files() -> None:
    """Fill in what the caller closed of stdin, stdout and stderr, before a socket is given one of their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Reading finds the end at once. Writing an answer nobody can get fails; writing a complaint does not.
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


def _raise_on_interrupt() -> None:
    """Make Ctrl-C an exception from here on, so that what is begun is cleaned up."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere: what was printed cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
