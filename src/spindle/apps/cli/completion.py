"""`spindle completion`: scripts that let a shell complete sub-commands, options and their values.

They are made from the tables and parsers that read the command line. A script follows the words that were typed to a
place (`spindle`, `spindle keys`, `spindle keys set`), and offers the words of that place.
"""

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from spindle.apps.cli.args import OPTIONS, Option
from spindle.apps.cli.main import load
from spindle.apps.cli.subcommands import COMMANDS
from spindle.apps.cli.usage import CommandParser
from spindle.models.catalog import builtin_providers
from spindle.shapes.model import THINKING_LEVELS
from spindle.shapes.permission_modes import PERMISSION_MODES

_VALUES: dict[str, Callable[[], Iterable[str]]] = {
    "MODEL": lambda: load("models_command:PULLABLE"),
    "PROVIDER": builtin_providers,
    "--provider": builtin_providers,
    "--thinking": lambda: THINKING_LEVELS,
    "--permission-mode": lambda: PERMISSION_MODES,
}
"""Values that are not listed in their declaration, by name of the option or of the value."""


class CommandPlace(Struct):
    """Where a command line stands after some sub-commands."""

    path: str
    options: list[Option]
    words: dict[str, str] = field(default_factory=dict)
    """Words that may come here, with their help: sub-commands, or choices of an argument."""
    below: "list[CommandPlace]" = field(default_factory=list)

    def all(self) -> "Iterator[CommandPlace]":
        yield self
        for place in self.below:
            yield from place.all()


def parser() -> CommandParser:
    parser = CommandParser(
        "spindle completion",
        description="Print a script that completes the words of spindle. "
        'bash, in ~/.bashrc: eval "$(spindle completion bash)". '
        'zsh, in ~/.zshrc after compinit: eval "$(spindle completion zsh)". '
        "fish: spindle completion fish > ~/.config/fish/completions/spindle.fish",
    )
    parser.add_argument("shell", choices=tuple(_SHELLS), metavar="SHELL", help=", ".join(_SHELLS))
    return parser


def run(argv: list[str]) -> int:
    """Print the script. Raises `UsageError`."""
    if not argv:
        parser().print_help()
        return 0
    print(_SHELLS[parser().parse_args(argv).shell](list(_tree().all())), end="")
    return 0


# -- the places of our command line ----------------------------------------------------------------


def _tree() -> CommandPlace:
    top = CommandPlace("spindle", list(OPTIONS), {name: command.help for name, command in COMMANDS.items()})
    for name, command in COMMANDS.items():
        path = f"spindle {name}"
        if command.mode:
            fit = [option for option in OPTIONS if not option.modes or command.mode in option.modes.split()]
            top.below.append(CommandPlace(path, fit))
            continue
        arguments = load(command.arguments)
        if isinstance(arguments, tuple):
            taken = {name for option in arguments for name in option.names.split()}
            others = [option for option in OPTIONS if not taken.intersection(option.names.split())]
            top.below.append(CommandPlace(path, [*arguments, *others]))
        else:
            top.below.append(_of_parser(path, arguments()))
    return top


def _of_parser(path: str, parser: argparse.ArgumentParser) -> CommandPlace:
    place = CommandPlace(path, [])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            place.words.update({name: texts.get(name, "") for name in action.choices})
            place.below += [_of_parser(f"{path} {name}", below) for name, below in action.choices.items()]
        elif action.option_strings:
            value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
            choices = tuple(map(str, action.choices or ()))
            place.options.append(Option(" ".join(action.option_strings), value, action.help or "", choices=choices))
        else:
            place.words.update(dict.fromkeys(map(str, action.choices or _words_of(str(action.metavar))), ""))
    return place


def _values(option: Option) -> tuple[str, ...]:
    return option.choices or _words_of(option.names.split()[0])


def _words_of(name: str) -> tuple[str, ...]:
    return tuple(_VALUES[name]()) if name in _VALUES else ()


def _takes_word(option: Option) -> bool:
    """Say whether the word after the option is its value, whatever it looks like."""
    return bool(option.value) and option.kind not in ("print", "maybe")


def _steps(places: list[CommandPlace]) -> list[str]:
    return [place.path for place in places[1:]]


def _skips(places: list[CommandPlace]) -> list[str]:
    """Return options whose value is no sub-command, each after its place."""
    taking = ((place, option) for place in places for option in place.options if _takes_word(option))
    return [f"{place.path} {name}" for place, option in taking for name in option.names.split()]


def _offered(places: list[CommandPlace]) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield options whose values are known, each after its place, and the values."""
    for place in places:
        for option in place.options:
            if values := _values(option):
                yield [f"{place.path} {name}" for name in option.names.split()], values


def _names(place: CommandPlace) -> list[str]:
    return [name for option in place.options for name in option.names.split()]


# -- shells ----------------------------------------------------------------------------------------


def _either(patterns: Iterable[str]) -> str:
    return "|".join(shlex.quote(pattern) for pattern in patterns)


def _bash(places: list[CommandPlace]) -> str:
    values = "".join(
        f'        {_either(where)}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$current")); return ;;\n'
        for where, words in _offered(places)
    )
    offers = "".join(
        f"        {shlex.quote(place.path)}) words={shlex.quote(' '.join(place.words))} "
        f"options={shlex.quote(' '.join(_names(place)))} ;;\n"
        for place in places
    )
    return f"""\
# Completion of spindle for bash: eval "$(spindle completion bash)"
_spindle() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} place=spindle words= options= i
    COMPREPLY=()
    if [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD - 2]}}; elif [[ $current == = ]]; then current=; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$place ${{COMP_WORDS[i]}}" in
        {_either(_steps(places))}) place="$place ${{COMP_WORDS[i]}}" ;;
        {_either(_skips(places))}) i=$((i + 1)) ;;
        esac
    done
    case "$place $before" in
{values}        {_either(_skips(places))}) return ;;
    esac
    case "$place" in
{offers}    esac
    if [[ $current == -* ]]; then words=$options; fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _spindle spindle
"""


def _zsh(places: list[CommandPlace]) -> str:
    def described(rows: Iterable[tuple[str, str]]) -> str:
        return " ".join(shlex.quote(name.replace(":", "\\:") + (f":{text}" if text else "")) for name, text in rows)

    values = "".join(
        f"    ({_either(where)}) compadd -- {shlex.join(words)}; return ;;\n" for where, words in _offered(places)
    )
    offers = "".join(
        f"    ({shlex.quote(place.path)}) sub=({described(place.words.items())})\n"
        f"      options=({described((name, one.help) for one in place.options for name in one.names.split())}) ;;\n"
        for place in places
    )
    return f"""\
#compdef spindle
# Completion of spindle for zsh: eval "$(spindle completion zsh)", after compinit
_spindle() {{
  local place=spindle before=${{words[CURRENT-1]}}
  local -a sub options
  integer i
  for ((i = 2; i < CURRENT; i++)); do
    case "$place ${{words[i]}}" in
    ({_either(_steps(places))}) place="$place ${{words[i]}}" ;;
    ({_either(_skips(places))}) i=$((i + 1)) ;;
    esac
  done
  case "$place $before" in
{values}    ({_either(_skips(places))}) _files; return ;;
  esac
  case "$place" in
{offers}  esac
  if [[ $PREFIX == -* ]]; then _describe option options
  elif (( $#sub )); then _describe word sub
  else _files; fi
}}
if [[ ${{funcstack[1]}} == _spindle ]]; then _spindle "$@"; else compdef _spindle spindle; fi
"""


def _fish(places: list[CommandPlace]) -> str:
    def quote(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def names(option: Option) -> str:
        kinds = (("--", "-l"), ("-", "-s"))
        parts = []
        for name in option.names.split():
            flag = next(flag for start, flag in kinds if name.startswith(start))
            bare = name.lstrip("-")
            parts.append(f"{'-o' if flag == '-s' and len(bare) > 1 else flag} {bare}")
        return " ".join(parts)

    lines = []
    for place in places:
        here = f"complete -c spindle -n {quote(f'__spindle_is_at {quote(place.path)}')}"
        if place.words:
            lines.append(f"{here} -f")
        lines += [f"{here} -a {quote(name)} -d {quote(text)}" for name, text in place.words.items()]
        for option in place.options:
            value = f" -x -a {quote(' '.join(words))}" if (words := _values(option)) else " -r" * _takes_word(option)
            lines.append(f"{here} {names(option)}{value} -d {quote(option.help)}")
    return f"""\
# Completion of spindle for fish: save it as ~/.config/fish/completions/spindle.fish
function __spindle_is_at
    set -l place spindle
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch "$place $word"
            case {" ".join(map(quote, _steps(places)))}
                set place "$place $word"
            case {" ".join(map(quote, _skips(places)))}
                set skip 1
        end
    end
    test "$place" = $argv[1]
end
{chr(10).join(lines)}
"""


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
