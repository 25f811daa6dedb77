"""The help text, at the width of the terminal, and the parser of sub-commands."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from spindle.apps.cli.args import OPTIONS, Option, UsageError
from spindle.apps.cli.subcommands import COMMANDS, Subcommand
from spindle.base.spelling import did_you_mean
from spindle.shapes.run_limits import RUN_LIMITS

if TYPE_CHECKING:
    from spindle.plugins.extensions.generation import Flag

_LEFT = 34
"""Width of the names, if there is room for two columns."""
_NARROW = 80
_ABOUT = (
    "Spindle is a coding agent: on a terminal you talk to it, programs drive it (--mode rpc, --remote), scripts run it "
    "(-p, --mode json). Text piped in and the contents of @files go before the first message; further messages follow "
    "one by one."
)
_COMMAND_GROUPS = {
    "chat": "Commands to talk:",
    "doctor": "Commands to set it up:",
    "sessions": "Commands for what was said:",
    "batch": "Commands for many:",
    "schema": "Other commands:",
}
"""Titles, by the command that begins the group."""
_OPTION_GROUPS = {
    "--provider": "Model and instructions",
    "--mode": "What to do",
    "--continue": "Session",
    "--tools": "Tools and folders",
    "--yolo": "What may run",
    "--no-builtin-tools": "Extensions, servers, skills, prompts",
    "--exec": "Tools that work elsewhere",
    "--approve": "This project",
    "--export": "Pages and lists",
    RUN_LIMITS[0].option: "Limits of a run",
    "--json-schema": "What comes out",
    "--remote": "A server",
    "--provider-session-id": "Other options",
}
"""The same for options."""
_EXAMPLES = (
    ('spindle -p "What does this project do?"', "the answer on stdout, nothing else"),
    ('git diff | spindle -p "Write a commit message"', "piped text goes before the message"),
    ('spindle -c -p "And the tests?"', "go on with the last session here"),
    ("spindle --model ollama/qwen3 -p hello", "a model of a server on this machine"),
    ("spindle --mode rpc", "serve a program on stdin and stdout"),
    ("spindle doctor", "what is found, and which model would be used"),
)
_VARIABLES = (
    ("ANTHROPIC_API_KEY, …", "Key of a provider; spindle doctor lists their names"),
    ("SPINDLE_DIR", "Agent directory; else PI_CODING_AGENT_DIR, else ~/.pi/agent"),
    ("PI_CODING_AGENT_SESSION_DIR", "Where sessions are kept"),
    ("SPINDLE_DIALECT", "What RPC clients get to see, as --dialect"),
    ("SPINDLE_REMOTE_TOKEN", "Token that clients of --remote must have"),
    ("SPINDLE_STORE", "Store of spindle serve and spindle sessions: postgresql://…"),
    ("HTTPS_PROXY, HTTP_PROXY", "Proxy for requests to models"),
)
_MODELS = (
    "Models without an account: local/NAME runs a file on this disk (spindle models pull smollm2 gets one); "
    "ollama/NAME, llamacpp/NAME, lmstudio/NAME, vllm/NAME use a server on this machine; scripted/FILE.json plays a "
    "script."
)
_FILES = (
    "Files: settings.json, models.json, auth.json, skills/, prompts/, extensions/, AGENTS.md in the agent directory, "
    "and .pi/ in a project that you trust (--approve for one run, spindle trust for good)."
)
_CODES = (
    "Exit codes: 0 done; 1 failed or aborted; 2 the command line is wrong; 3 a call was refused by permissions; "
    "4 a limit was reached; 5 no result fits the schema; 128 + n ended by signal n."
)


def help_text(flags: "Iterable[Flag]" = (), width: int | None = None) -> str:
    """Return the text, as wide as the terminal; `flags` are the options of extensions."""
    width = width or terminal_width()
    added = [(f"--{flag.name}" + (" VALUE" if flag.type is str else ""), flag.help) for flag in flags]
    parts = [
        "Usage: spindle [options] [--] [@files...] [messages...]\n       spindle COMMAND [--help]\n",
        _paragraph(_ABOUT, width),
        *(_table(title, rows, width) for title, rows in _commands()),
        _table("Examples:", _EXAMPLES, width),
        options_help(OPTIONS, width),
        _table("Options of extensions:", added, width) if added else "",
        _table("Environment:", _VARIABLES, width),
        _paragraph(_MODELS, width),
        _paragraph(_FILES, width),
        _paragraph(_CODES, width),
    ]
    return "\n".join(part for part in parts if part)


def options_help(options: Iterable[Option], width: int) -> str:
    """Return tables of the options, a group each."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for option in options:
        row = f"{option.names.replace(' ', ', ')} {option.value}".rstrip(), option.help
        groups.setdefault(_group_of(option), []).append(row)
    return "\n".join(_table(f"{title}:", rows, width) for title, rows in groups.items())


def _group_of(option: Option) -> str:
    """Return the title of the group that the option stands in: that of the last first option before it."""
    title = "Options"
    for other in OPTIONS:
        title = _OPTION_GROUPS.get(other.names.split()[0], title)
        if other is option:
            return title
    return "Options"


def _commands() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the groups of sub-commands."""
    groups: dict[str, list[tuple[str, str]]] = {}
    title = ""
    for name, command in COMMANDS.items():
        title = _COMMAND_GROUPS.get(name, title)
        groups.setdefault(title, []).append((f"spindle {name} {command.usage}".rstrip(), command.help))
    yield from groups.items()


def mode_help(name: str, command: Subcommand) -> str:
    """Return the help of a sub-command that is a mode by another name: the options that count there."""
    width = terminal_width()
    given = [option for option in OPTIONS if not option.modes or command.mode in option.modes.split()]
    head = f"Usage: spindle {name} {command.usage}\n\n" + _paragraph(f"{command.help}.", width)
    return f"{head}\n{options_help(given, width)}\n" + _paragraph("Options of extensions: spindle --help.", width)


def terminal_width() -> int:
    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 120))


def _paragraph(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False) + "\n"


def _table(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """Return a table of two columns; in a narrow terminal the second goes below the first."""
    lines = [title]
    for left, right in rows:
        indent = " " * (6 if width < _NARROW else _LEFT + 3)
        head = f"  {left}"
        if width >= _NARROW and len(left) <= _LEFT:
            head = f"{head:<{len(indent)}}"
            lines += textwrap.wrap(head + right, width, subsequent_indent=indent, break_on_hyphens=False)
        else:
            lines.append(head)
            lines += textwrap.wrap(right, width, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(line.rstrip() for line in lines) + "\n"


class CommandParser(argparse.ArgumentParser):
    """Arguments of a sub-command. Raises `UsageError` as the rest of the command line does."""

    def __init__(self, prog: str, **settings: object) -> None:
        super().__init__(prog=prog, allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def add_actions(self, texts: Mapping[str, str]) -> dict[str, argparse.ArgumentParser]:
        """Let the first word name an action; each has a text for the help. Returns their parsers."""
        actions = self.add_subparsers(metavar="ACTION", dest="action", required=True)
        return {name: actions.add_parser(name, help=text, description=text) for name, text in texts.items()}

    def format_help(self) -> str:
        """Return the help in the words of the others: `Usage:`, and no `[-h]`."""
        text = super().format_help().replace("usage: ", "Usage: ", 1).replace(" [-h]", "", 1)
        return text.replace("\npositional arguments:\n", "\nArguments:\n").replace("\noptions:\n", "\nOptions:\n")

    def error(self, message: str) -> NoReturn:
        if match := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            names = re.findall(r"[\w.-]+", match[2])
            message = f'unknown: "{match[1]}".{did_you_mean(match[1], names)} There are: {", ".join(names)}'
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")
