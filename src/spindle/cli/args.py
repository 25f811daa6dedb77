"""Command line arguments become `Options`. Two tables say what every sub-command and every option means.

The help text (`usage.py`) is made of both. Long options that are not in the table are kept for extensions (`unknown`),
which may register them; options that only mean something to a terminal interface are accepted with a note.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from spindle.spelling import did_you_mean

LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
DIALECTS = ("spindle", "pi-0.74", "pi-0.87", "xcsh")
PERMISSION_MODES = ("bypass", "default", "acceptEdits", "plan", "dontAsk")
REMOTE = "127.0.0.1:3838"


class UsageError(Exception):
    """The command line makes no sense; the text is one line."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


class Command(Struct, frozen=True):
    target: str
    """`module:function`; the function takes the arguments after the name and returns the exit code."""
    usage: str = ""
    """The arguments, for the help."""
    help: str = ""
    """What it does, in a line."""


COMMANDS = {
    "chat": Command("spindle.cli.interactive:run_chat", "[OPTIONS]", "Talk to it here; plain spindle does, too"),
    "doctor": Command("spindle.cli.doctor:run_doctor", "", "What is found, what is wrong, which model would be used"),
    "models": Command("spindle.cli.models_command:run", "[SEARCH]", "Models to use; also: show, pull, refresh"),
    "login": Command("spindle.cli.login_command:run_login", "[PROVIDER]", "Sign in to Copilot, ChatGPT or OpenRouter"),
    "logout": Command("spindle.cli.login_command:run_logout", "[PROVIDER]", "Forget a login or a key in auth.json"),
    "mcp": Command("spindle.cli.mcp_command:run", "[ACTION]", "Servers with tools of others: add, list, remove, login"),
    "sessions": Command("spindle.cli.sessions_command:run", "[ACTION]", "List, show, rename, delete, check sessions"),
    "trust": Command("spindle.cli.doctor:run_trust", "[--no] [DIR]", "Let a project bring its own settings and code"),
    "batch": Command("spindle.cli.batch_command:run", "TASKS -o DIR", "Do many tasks, one machine or many"),
    "acp": Command("spindle.cli.serving:run_acp", "[OPTIONS]", "Serve an editor that speaks the Agent Client Protocol"),
    "schema": Command("spindle.cli.main:run_schema", "[--markdown]", "The commands and events of the wire"),
}
"""A line here is all that a new sub-command needs."""
MISSING_COMMANDS = {
    "help": "spindle --help shows the help",
    "version": "spindle --version shows the version",
    "auth": "keys are in the environment and in auth.json (spindle doctor says which)",
    "config": "settings are in settings.json (spindle doctor says where)",
    "install": "extensions are Python files in the folder extensions of the agent directory, or named with -e",
    "remove": "extensions are files; delete what you do not want",
    "uninstall": "extensions are files; delete what you do not want",
    "update": "pip install --upgrade spindle-agent updates Spindle",
    "list": "spindle doctor lists extensions, spindle models and spindle sessions list the others",
}
"""Words that people try, most of them commands of pi, and what to do instead. A command of the same name goes first."""


class Options(Struct):
    messages: list[str] = []
    files: list[str] = []
    """`@file` arguments without their @."""
    mode: str | None = None
    """`text`, `json`, `rpc` or `acp`."""
    attach: str | None = None
    """URL of the server whose session the chat holds."""
    print: bool = False
    provider: str | None = None
    model: str | None = None
    api_key: str | None = None
    models: list[str] = []
    thinking: str | None = None
    system_prompt: str | None = None
    append_system_prompt: list[str] = []
    continue_recent: bool = False
    resume: bool = False
    session: str | None = None
    session_id: str | None = None
    fork: str | None = None
    session_dir: str | None = None
    no_session: bool = False
    name: str | None = None
    tools: list[str] | None = None
    exclude_tools: list[str] = []
    permission_mode: str | None = None
    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []
    mcp_config: list[str] = []
    no_mcp: bool = False
    no_builtin_tools: bool = False
    no_tools: bool = False
    extensions: list[str] = []
    no_extensions: bool = False
    skills: list[str] = []
    no_skills: bool = False
    prompt_templates: list[str] = []
    no_prompt_templates: bool = False
    no_context_files: bool = False
    no_rules: bool = False
    no_title: bool = False
    provider_session_id: str | None = None
    """Id under which the provider caches; the session's own if not given."""
    approve: bool | None = None
    export: str | None = None
    redact: bool = False
    list_models: str | None = None
    """The search text; empty lists all."""
    max_turns: str | None = None
    max_cost: str | None = None
    max_time: str | None = None
    max_total_tokens: str | None = None
    json_schema: str | None = None
    """JSON, or the path of a file with it."""
    output: str | None = None
    """`text` or `json`."""
    dialect: str | None = None
    updates: Literal["full", "delta"] | None = None
    remote: str | None = None
    remote_token_file: str | None = None
    remote_origins: list[str] = []
    remote_cert: str | None = None
    remote_key: str | None = None
    remote_insecure: bool = False
    remote_options: list[str] = []
    log_format: str | None = None
    """`text` or `json`: lines on stderr of a server."""
    limit: list[str] = []
    """Assignments as `sessions=100`."""
    roots: list[str] = []
    verbose: bool = False
    offline: bool = False
    help: bool = False
    version: bool = False
    unknown: dict[str, str | bool] = {}
    """Long options for extensions, without their dashes."""
    notes: list[str] = []
    """Lines for stderr."""
    command: str | None = None
    """The sub-command: the first word, if it is one."""
    command_arguments: list[str] = []
    """What stands after it, then the options before it."""

    def __repr__(self) -> str:
        return "Options(…)"  # they may hold a key


AnyOptions = TypeVar("AnyOptions", bound=Options)


class Option(Struct, frozen=True):
    names: str
    """Separated by blanks."""
    field: str
    """Attribute of `Options`; empty: an option of another program, accepted and ignored."""
    value: str = ""
    """Name of the value in the help; empty: a switch."""
    help: str = ""
    kind: str = "text"
    """`text`; `list` (repeatable); `words` (comma-separated); `yes` and `no` (switches); `maybe` (value optional);
    `print` (a switch that may have a message)."""
    choices: tuple[str, ...] = ()
    missing: str = ""
    """What `maybe` means without a value."""
    modes: str = ""
    """Modes in which it means something, separated by blanks; empty: in all."""


def _switch(names: str, attribute: str, help: str, kind: str = "yes") -> Option:
    return Option(names, attribute, "", help, kind)


OPTIONS: tuple[Option, ...] = (
    Option("--provider", "provider", "NAME", "Provider of the model"),
    Option("--model", "model", "PATTERN", "Model: provider/id, an id or a part of one, with an optional :level"),
    Option("--api-key", "api_key", "KEY", "Key for the provider of that model"),
    Option("--models", "models", "A,B", "Models to cycle through (patterns, globs)", "words"),
    Option("--thinking", "thinking", "LEVEL", f"How hard to think: {', '.join(LEVELS)}"),
    Option("--system-prompt", "system_prompt", "TEXT", "System prompt (text or file) instead of the built-in one"),
    Option("--append-system-prompt", "append_system_prompt", "TEXT", "Text or file to add to it; repeatable", "list"),
    Option(
        "--mode",
        "mode",
        "MODE",
        "text (default), json (events), rpc or acp",
        choices=("text", "json", "rpc", "acp"),
        modes="text json rpc acp",
    ),
    Option("--attach", "attach", "URL", "Chat with a session of a server (ws://HOST:PORT, see --remote)"),
    Option(
        "--print -p", "print", "[MESSAGE]", "Run the messages, print the last answer, exit", "print", modes="text json"
    ),
    _switch("--continue -c", "continue_recent", "Go on with the newest session of this directory"),
    _switch("--resume -r", "resume", "Choose a session from a list"),
    Option("--session", "session", "PATH|ID", "Go on with this session"),
    Option("--session-id", "session_id", "ID", "Session with exactly this id; created if missing"),
    Option("--fork", "fork", "PATH|ID", "Start a new session as a copy of this one"),
    Option("--session-dir", "session_dir", "DIR", "Where sessions are kept"),
    _switch("--no-session", "no_session", "Keep nothing on disk"),
    Option("--name -n", "name", "NAME", "Name of the session", modes="text json rpc chat"),
    Option("--tools -t", "tools", "A,B", "Only these tools", "words"),
    Option("--exclude-tools -xt", "exclude_tools", "A,B", "Not these tools", "words"),
    Option("--permission-mode", "permission_mode", "MODE", f"Which tools may run: {', '.join(PERMISSION_MODES)}"),
    Option("--allow", "allow", "RULE", "Let these tool calls run, as Bash(git *); repeatable", "list"),
    Option("--ask", "ask", "RULE", "Ask before these; repeatable", "list"),
    Option("--deny", "deny", "RULE", "Refuse these; repeatable", "list"),
    _switch("--no-builtin-tools -nbt", "no_builtin_tools", "Only tools of extensions"),
    _switch("--no-tools -nt", "no_tools", "No tools at all"),
    Option("--mcp-config", "mcp_config", "FILE", "Read MCP servers from this file too; repeatable", "list"),
    _switch("--no-mcp", "no_mcp", "Use no MCP servers"),
    Option("--extension -e", "extensions", "PATH", "Load an extension; repeatable", "list"),
    _switch("--no-extensions -ne", "no_extensions", "Load no other extensions"),
    Option("--skill", "skills", "PATH", "Load a skill; repeatable", "list"),
    _switch("--no-skills -ns", "no_skills", "Load no other skills"),
    Option("--prompt-template", "prompt_templates", "PATH", "Load a prompt template; repeatable", "list"),
    _switch("--no-prompt-templates -np", "no_prompt_templates", "Load no other prompt templates"),
    _switch("--no-context-files -nc", "no_context_files", "Leave AGENTS.md and CLAUDE.md alone"),
    _switch("--no-rules", "no_rules", "Load no stream rules"),
    _switch("--approve -a", "approve", "Trust this project for this run"),
    _switch("--no-approve -na", "approve", "Do not trust it", "no"),
    Option("--export", "export", "FILE", "Write a session as an HTML page: --export FILE [OUT]"),
    Option(
        "--redact",
        "redact",
        "",
        "Leave what looks like keys and tokens out of the exported page",
        "yes",
        modes="export",
    ),
    Option("--list-models", "list_models", "[SEARCH]", "List models that are ready to use", "maybe"),
    Option("--max-turns", "max_turns", "N", "End a run after so many model calls"),
    Option("--max-cost", "max_cost", "USD", "End a run when it has cost so much"),
    Option("--max-time", "max_time", "SECONDS", "End a run after this time"),
    Option("--max-total-tokens", "max_total_tokens", "N", "End a run after so many tokens, input and output"),
    Option(
        "--json-schema", "json_schema", "FILE|JSON", "The result has to fit this JSON Schema", modes="text json batch"
    ),
    Option("--output", "output", "FORM", "With -p: text, or json (one object)", choices=("text", "json"), modes="text"),
    Option("--dialect", "dialect", "NAME", "What RPC clients get to see", choices=DIALECTS, modes="json rpc"),
    Option(
        "--updates", "updates", "FORM", "full or delta message updates", choices=("full", "delta"), modes="json rpc"
    ),
    Option("--remote", "remote", "[ADDR]", f"Serve WebSocket clients ({REMOTE})", "maybe", missing=REMOTE),
    Option(
        "--remote-token-file",
        "remote_token_file",
        "FILE",
        "Token that clients must have (or SPINDLE_REMOTE_TOKEN)",
        modes="remote chat",
    ),
    Option(
        "--remote-origin",
        "remote_origins",
        "URL",
        "Let pages of this site connect too; repeatable",
        "list",
        modes="remote",
    ),
    Option("--remote-cert", "remote_cert", "FILE", "TLS certificate", modes="remote"),
    Option("--remote-key", "remote_key", "FILE", "TLS key", modes="remote"),
    Option("--remote-insecure", "remote_insecure", "", "Serve other machines without a token", "yes", modes="remote"),
    Option(
        "--remote-option",
        "remote_options",
        "NAME=N",
        "Change a limit of the server; repeatable",
        "list",
        modes="remote",
    ),
    Option(
        "--log-format",
        "log_format",
        "FORM",
        "What a server writes on stderr: text or json",
        choices=("text", "json"),
        modes="remote",
    ),
    Option(
        "--limit",
        "limit",
        "NAME=N",
        "sessions, idleSeconds, modelCalls, children of this process",
        "list",
        modes="rpc remote",
    ),
    Option(
        "--root",
        "roots",
        "DIR",
        "Let sessions that clients open work only here and below; repeatable",
        "list",
        modes="rpc remote acp",
    ),
    Option("--provider-session-id", "provider_session_id", "ID", "Id for the provider's cache"),
    _switch("--no-title", "no_title", "Invent no session titles (never done)"),
    _switch("--offline", "offline", "No network but the model's"),
    _switch("--verbose", "verbose", "Say more on stderr"),
    _switch("--help -h", "help", "Show this"),
    _switch("--version -v -V", "version", "Show the version"),
    Option("--theme", "", "PATH", kind="list"),
    Option("--use-theme", "", "NAME"),
    Option("--tui-mode", "", "MODE"),
    _switch("--no-themes", "", ""),
)
_BY_NAME = {name: option for option in OPTIONS for name in option.names.split()}


def parse(argv: Sequence[str]) -> Options:
    """Read a command line. Raises `UsageError`."""
    return parse_into(Options(), argv)


def parse_into(options: AnyOptions, argv: Sequence[str], more: Sequence[Option] = ()) -> AnyOptions:
    """Read a command line that also has `more` options of a sub-command. Raises `UsageError`."""
    by_name = _BY_NAME | {name: option for option in more for name in option.names.split()}
    waiting = list(reversed(argv))
    bare = False
    """The first message stands there as a command would."""
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            for rest in reversed(waiting):
                _positional(options, rest)
            break
        if not argument.startswith("-") or argument == "-":
            if argument in COMMANDS and not (more or options.messages) and _may_be_command(options):
                options.command = argument
                options.command_arguments = [*reversed(waiting), *argv[: len(argv) - len(waiting) - 1]]
                break
            bare = bare or not options.messages
            _positional(options, argument)
            continue
        name, equals, attached = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        option = by_name.get(name)
        if option is None:
            _keep_unknown(options, name, attached if equals else None, waiting)
            continue
        if equals:
            waiting.append(attached)
        elif option.value and waiting and option.kind in ("text", "list", "words") and _is_option(waiting[-1], by_name):
            raise UsageError(f"{name} needs a value ({option.value}), and {waiting[-1]} is an option")
        _apply(options, option, name, waiting, attached=bool(equals))
    if bare and not more and _may_be_command(options) and not (options.help or options.version):
        _refuse_command(options.messages)
    _check_level(options)
    _check_model(options)
    return options


def _is_option(word: str, by_name: dict[str, Option]) -> bool:
    return word == "--" or word.partition("=")[0] in by_name


def _may_be_command(options: Options) -> bool:
    """Say whether a word may be a command: nothing says that it is a message."""
    others = (options.mode, options.export, options.list_models, options.remote)
    return not options.print and not options.files and all(given is None for given in others)


def _refuse_command(words: list[str]) -> None:
    """Raise `UsageError` if the words look like a command that does not exist."""
    word, alone = words[0], len(words) == 1
    send = f"To send it as a message: spindle -p {word}" + ("" if alone else " …")
    known = word if word in MISSING_COMMANDS or not alone else word.lower()
    if known in MISSING_COMMANDS:
        raise UsageError(f'Spindle has no command "{word}": {MISSING_COMMANDS[known]}. {send}')
    if not re.fullmatch(r"[A-Za-z][\w-]*", word):
        return
    near = did_you_mean(word, COMMANDS, "spindle ")
    if alone or near:
        raise UsageError(f'Spindle has no command "{word}".{near} {send}')


def _check_level(options: Options) -> None:
    level = options.thinking
    if level is None or level in LEVELS:
        return
    text = f'Invalid thinking level "{level}".{did_you_mean(level, LEVELS)} Valid values: {", ".join(LEVELS)}'
    if options.mode != "rpc":
        raise UsageError(text)
    options.notes.append(text)  # as with pi: a client may know levels that we do not
    options.thinking = None


def _check_model(options: Options) -> None:
    """A script may have an empty variable there: another model than was meant must not answer in silence."""
    for name in ("model", "provider"):
        if getattr(options, name) == "":
            if options.mode != "rpc":
                raise UsageError(f"--{name} is empty: give it a name, or leave it out")
            options.notes.append(f"--{name} is empty and ignored")
            setattr(options, name, None)


def _positional(options: Options, argument: str) -> None:
    if argument.startswith("@") and len(argument) > 1:
        options.files.append(argument[1:])
    else:
        options.messages.append(argument)


def _keep_unknown(options: Options, name: str, attached: str | None, waiting: list[str]) -> None:
    if not name.startswith("--"):
        raise UsageError(f"Unknown option: {name}")
    value: str | bool = True
    if attached is not None:
        value = attached
    elif waiting and not waiting[-1].startswith(("-", "@")):
        value = waiting.pop()
    options.unknown[name[2:]] = value


def _apply(options: Options, option: Option, name: str, waiting: list[str], *, attached: bool) -> None:
    if option.kind in ("yes", "no"):
        if attached:
            raise UsageError(f"{name} takes no value")
        if option.field:
            setattr(options, option.field, option.kind == "yes")
    elif option.kind in ("print", "maybe"):
        given = waiting.pop() if attached or (waiting and not waiting[-1].startswith(("-", "@"))) else None
        if option.kind == "maybe":
            setattr(options, option.field, option.missing if given is None else given)
        else:
            options.print = True
            options.messages += [] if given is None else [given]
    elif not waiting:
        raise UsageError(f"{name} needs a value ({option.value})")
    else:
        _set_value(options, option, name, waiting.pop())
    if not option.field:
        options.notes.append(f"{name} only concerns terminal interfaces and is ignored")


def _set_value(options: Options, option: Option, name: str, value: str) -> None:
    if option.choices and value not in option.choices:
        near = did_you_mean(value, option.choices)
        raise UsageError(f'{name} must be one of {", ".join(option.choices)}, not "{value}".{near}'.removesuffix("."))
    if not option.field:
        return
    result: Any = value
    if option.kind == "list":
        result = [*getattr(options, option.field), value]
    elif option.kind == "words":
        result = [word.strip() for word in value.split(",") if word.strip()]
    setattr(options, option.field, result)


MODE_NAMES = {
    "text": "-p",
    "json": "--mode json",
    "rpc": "--mode rpc",
    "acp": "spindle acp",
    "remote": "--remote",
    "chat": "the chat",
    "batch": "spindle batch",
}


def ignored_options(options: Options, mode: str) -> list[str]:
    """Return the names of the given options that mean nothing in a mode."""
    plain = Options(mode=mode if options.mode == mode else None)  # `spindle chat` is a mode by another name
    others = [option for option in OPTIONS if option.modes and mode not in option.modes.split()]
    return [
        option.names.split()[0] for option in others if getattr(options, option.field) != getattr(plain, option.field)
    ]


def ignored_note(options: Options, mode: str) -> str | None:
    """Return a line for stderr if something on the command line has no effect in a mode."""
    names = ignored_options(options, mode)
    if options.messages and mode in ("rpc", "acp", "remote"):
        names.append(f'the message "{options.messages[0]}"')
    if not names:
        return None
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect with {MODE_NAMES[mode]}"


def unknown_options(options: Options, registered: Sequence[str]) -> str | None:
    """Return an error line if there are options that no extension registered."""
    names = [f"--{name}" for name in options.unknown if name not in registered]
    if not names:
        return None
    known = [*(name for name in _BY_NAME if name.startswith("--")), *(f"--{name}" for name in registered)]
    near = [did_you_mean(name, known) for name in names]
    return f"Unknown option{'s' if len(names) > 1 else ''}: {', '.join(names)}{'.' * any(near)}{''.join(near)}"
