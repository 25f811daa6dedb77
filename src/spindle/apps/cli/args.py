"""Command line arguments become `Options`. A table says what every option means.

The help text (`usage.py`) is made of it and of the table of sub-commands. Long options that are not in the table are
kept for extensions (`unknown`), which may register them; options that only mean something to a terminal interface are
accepted with a note.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from spindle.apps.cli import is_pi
from spindle.apps.cli.subcommands import COMMANDS, REMOTE, why_no_command
from spindle.base.spelling import did_you_mean
from spindle.protocol.dialect import DIALECTS
from spindle.shapes.model import THINKING_LEVELS
from spindle.shapes.permission_modes import PERMISSION_MODES
from spindle.shapes.run_limits import RUN_LIMITS
from spindle.shapes.sandbox import SANDBOX_LEVELS

TOKENS = "tokens.json"
"""The file of the users, in the agent directory."""
LOG_LEVELS = ("debug", "info", "warning", "error")


class UsageError(Exception):
    """The command line makes no sense; the text is one line."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


class Options(Struct):
    messages: list[str] = []
    files: list[str] = []
    """`@file` arguments without their @."""
    mode: str | None = None
    """`text`, `json`, `rpc` or `acp`."""
    attach: str | None = None
    """URL of the server that the chat connects to."""
    print: bool = False
    provider: str | None = None
    model: str | None = None
    api_key: str | None = None
    fallback: list[str] = []
    models: list[str] = []
    thinking: str | None = None
    system_prompt: str | None = None
    append_system_prompt: list[str] = []
    continue_recent: bool = False
    resume: bool = False
    resume_run: bool = False
    recover: bool = False
    session: str | None = None
    session_id: str | None = None
    fork: str | None = None
    session_dir: str | None = None
    no_session: bool = False
    name: str | None = None
    tools: list[str] | None = None
    exclude_tools: list[str] = []
    cwd: str | None = None
    add_dir: list[str] = []
    yolo: bool = False
    approval_mode: str | None = None
    acp: bool = False
    transport: str | None = None
    wssport: str | None = None
    permission_mode: str | None = None
    on_question: Literal["deny", "wait"] = "deny"
    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []
    sandbox: str | None = None
    sandbox_writable: list[str] = []
    sandbox_network: str | None = None
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
    keep_background: bool = False
    exec: str | None = None
    exec_cwd: str | None = None
    no_title: bool = False
    provider_session_id: str | None = None
    """Id under which the provider caches; the session's own if not given."""
    approve: bool | None = None
    export: str | None = None
    redact: bool = False
    list_models: str | None = None
    """The search text; empty lists all."""
    run_limits: dict[str, str] = {}
    """Values of `--max-turns` and the other limits, by option."""
    json_schema: str | None = None
    """JSON, or the path of a file with it."""
    output: str | None = None
    """`text` or `json`."""
    dialect: str | None = None
    interrupt_mode: str | None = None
    """That of the dialect."""
    unattended: bool = False
    """No user answers questions of the model; set by the mode."""
    updates: Literal["full", "delta"] | None = None
    remote: str | None = None
    remote_token_file: str | None = None
    tokens: str | None = None
    """The file of the users; `tokens.json` without a directory is that of the agent directory."""
    remote_origins: list[str] = []
    remote_cert: str | None = None
    remote_key: str | None = None
    remote_insecure: bool = False
    remote_options: list[str] = []
    node_address: str | None = None
    store: str | None = None
    """Address of the store with the sessions."""
    log_format: str | None = None
    """`text` or `json`: lines on stderr of a server."""
    log_level: str | None = None
    log_content: bool = False
    config: str | None = None
    check: bool = False
    keep_sessions: str | None = None
    """An age as `90d`, or `forever`; that of the settings if not given."""
    drain: str | None = None
    """Seconds."""
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
    """The words after it, then the options before it."""

    def __repr__(self) -> str:
        return "Options(…)"  # they may hold a key


AnyOptions = TypeVar("AnyOptions", bound=Options)


class Option(Struct, frozen=True):
    names: str
    """Separated by blanks."""
    value: str = ""
    """Name of the value in the help; empty: a switch."""
    help: str = ""
    kind: str = "text"
    """`text`; `list` (repeatable); `words` (comma-separated); `no` (a switch that means no); `maybe` (value optional);
    `print` (a switch that may have a message); `limit` (of a run)."""
    choices: tuple[str, ...] = ()
    missing: str = ""
    """The value of a `maybe` option that is given without one."""
    modes: str = ""
    """Modes in which it has an effect, separated by blanks; empty: all."""
    field: str = ""
    """Attribute of `Options`; empty: named like the option."""

    @property
    def attribute(self) -> str:
        return self.field or self.names.split()[0].lstrip("-").replace("-", "_")


APPROVAL_MODES = {"always-ask": "default", "write": "acceptEdits", "yolo": "bypass"}
"""Permission modes by oh-my-pi's names."""
OPTIONS: tuple[Option, ...] = (
    Option("--provider", "NAME", "Provider of the model"),
    Option("--model", "PATTERN", "Model: provider/id, an id or a part of one, with an optional :level"),
    Option("--api-key", "KEY", "Key for the provider of that model"),
    Option("--fallback", "A,B", "Models that answer, in this order, when the model cannot", "words"),
    Option("--models", "A,B", "Models to cycle through (patterns, globs)", "words"),
    Option("--thinking", "LEVEL", f"How hard to think: {', '.join(THINKING_LEVELS)}"),
    Option("--system-prompt", "TEXT", "System prompt (text or file) instead of the built-in one"),
    Option("--append-system-prompt", "TEXT", "Text or file to add to it; repeatable", "list"),
    Option(
        "--mode",
        "MODE",
        "text (default), json (events), rpc or acp",
        choices=("text", "json", "rpc", "acp"),
        modes="text json rpc acp",
    ),
    Option("--attach", "URL", "Chat with a session of a server (ws://HOST:PORT, see spindle serve)"),
    Option("--print -p", "[MESSAGE]", "Run the messages, print the last answer, exit", "print", modes="text json"),
    Option("--continue -c", help="Go on with the newest session of this directory", field="continue_recent"),
    Option("--resume -r", help="Choose a session from a list"),
    Option("--resume-run", help="With -c or --session: go on with the run that was cut off", modes="text json chat"),
    Option("--session", "PATH|ID", "Go on with this session"),
    Option("--session-id", "ID", "Session with exactly this id; created if missing"),
    Option("--fork", "PATH|ID", "Start a new session as a copy of this one"),
    Option("--session-dir", "DIR", "Where sessions are kept"),
    Option("--no-session", help="Keep nothing on disk"),
    Option("--name -n", "NAME", "Name of the session", modes="text json rpc chat"),
    Option("--tools -t", "A,B", "Only these tools", "words"),
    Option("--exclude-tools -xt", "A,B", "Not these tools", "words"),
    Option("--cwd", "DIR", "Work in this directory"),
    Option("--add-dir", "DIR", "Let this folder count as part of the working directory; repeatable", "list"),
    Option("--yolo --auto-approve", help="The same as --permission-mode bypass"),
    Option(
        "--approval-mode",
        "MODE",
        "Permission mode by oh-my-pi's name: always-ask, write or yolo",
        choices=(*APPROVAL_MODES,),
    ),
    Option("--acp", help="The same as --mode acp; with --transport wss as a server"),
    Option("--transport", "KIND", "With --acp: stdio (default) or wss, by agent-cli's names", choices=("stdio", "wss")),
    Option("--wssport", "PORT", "With --transport wss: the port of the server (8338)"),
    Option("--permission-mode", "MODE", f"Which tools may run: {', '.join(PERMISSION_MODES)}"),
    Option("--allow", "RULE", "Let these tool calls run, as Bash(git *); repeatable", "list"),
    Option("--ask", "RULE", "Ask before these; repeatable", "list"),
    Option("--deny", "RULE", "Refuse these; repeatable", "list"),
    Option(
        "--on-question",
        "WHAT",
        "A question that has no answer means: deny (default), or wait until it is answered",
        choices=("deny", "wait"),
    ),
    Option("--sandbox", "LEVEL", f"What commands may write: {', '.join(SANDBOX_LEVELS)}", choices=(*SANDBOX_LEVELS,)),
    Option("--sandbox-writable", "PATH", "Let commands in the sandbox write there too; repeatable", "list"),
    Option("--sandbox-network", "NET", "Network of commands in the sandbox: on, off, or TCP ports as 443,8080"),
    Option("--no-builtin-tools -nbt", help="Only tools of extensions"),
    Option("--no-tools -nt", help="No tools at all"),
    Option("--mcp-config", "FILE", "Read MCP servers from this file too; repeatable", "list"),
    Option("--no-mcp", help="Use no MCP servers"),
    Option("--extension -e", "PATH", "Load an extension; repeatable", "list", field="extensions"),
    Option("--no-extensions -ne", help="Load no other extensions"),
    Option("--skill", "PATH", "Load a skill; repeatable", "list", field="skills"),
    Option("--no-skills -ns", help="Load no other skills"),
    Option("--prompt-template", "PATH", "Load a prompt template; repeatable", "list", field="prompt_templates"),
    Option("--no-prompt-templates -np", help="Load no other prompt templates"),
    Option("--no-context-files -nc", help="Leave AGENTS.md and CLAUDE.md alone"),
    Option("--no-rules", help="Load no stream rules"),
    Option(
        "--exec",
        "COMMAND",
        "Where tools work, not what to do: a command that leads there, as 'ssh HOST' (spindle exec asks, as -p)",
    ),
    Option("--exec-cwd", "DIR", "The working directory there"),
    Option("--keep-background", help="Let commands in the background outlive the agent"),
    Option("--approve -a", help="Trust this project for this run"),
    Option("--no-approve -na", help="Do not trust it", kind="no", field="approve"),
    Option("--export", "FILE", "Write a session as an HTML page: --export FILE [OUT]"),
    Option("--redact", help="Leave what looks like keys and tokens out of the exported page", modes="export"),
    Option("--list-models", "[SEARCH]", "List models that are ready to use", "maybe"),
    *(Option(limit.option, limit.words.value, limit.words.help, "limit", field="run_limits") for limit in RUN_LIMITS),
    Option("--json-schema", "FILE|JSON", "The result has to fit this JSON Schema", modes="text json batch"),
    Option("--output", "FORM", "With -p: text, or json (one object)", choices=("text", "json"), modes="text"),
    Option("--dialect", "NAME", "What RPC clients get to see", choices=DIALECTS, modes="json rpc"),
    Option("--updates", "FORM", "full or delta message updates", choices=("full", "delta"), modes="json rpc"),
    Option("--remote", "[ADDR]", f"Serve WebSocket clients ({REMOTE})", "maybe", missing=REMOTE),
    Option(
        "--remote-token-file", "FILE", "Token that clients must have (or SPINDLE_REMOTE_TOKEN)", modes="remote chat"
    ),
    Option(
        "--tokens",
        "[FILE]",
        "Serve the users of this file, each with a token (spindle tokens; tokens.json)",
        "maybe",
        missing=TOKENS,
        modes="remote",
    ),
    Option(
        "--remote-origin",
        "URL",
        "Let pages of this site connect too; repeatable",
        "list",
        modes="remote",
        field="remote_origins",
    ),
    Option("--remote-cert", "FILE", "TLS certificate", modes="remote"),
    Option("--remote-key", "FILE", "TLS key", modes="remote"),
    Option("--remote-insecure", help="Serve other machines without a token", modes="remote"),
    Option(
        "--remote-option",
        "NAME=N",
        "Change a limit of the server; repeatable",
        "list",
        modes="remote",
        field="remote_options",
    ),
    Option("--node-address", "URL", "Where other servers on the same store reach this one", modes="remote"),
    Option("--store", "ADDRESS", "Keep sessions in postgresql://… instead of files (SPINDLE_STORE)", modes="remote"),
    Option(
        "--log-format", "FORM", "What a server writes on stderr: text or json", choices=("text", "json"), modes="remote"
    ),
    Option("--log-level", "LEVEL", f"The least to log: {', '.join(LOG_LEVELS)}", choices=LOG_LEVELS, modes="remote"),
    Option("--recover", help="Go on with all runs that the end of a server cut off", modes="remote"),
    Option("--log-content", help="Log what is said, too: prompts, answers, tool calls", modes="remote"),
    Option("--config", "FILE", "Options of the server from a TOML file; the command line goes first", modes="remote"),
    Option("--check", help="Say whether the server could start so, and end", modes="remote"),
    Option("--keep-sessions", "AGE", "Delete sessions not written to for so long, as 90d (forever)", modes="remote"),
    Option("--drain", "SECONDS", "How long runs may go on after SIGTERM (0)", modes="remote"),
    Option(
        "--limit", "NAME=N", "sessions, idleSeconds, modelCalls, children of this process", "list", modes="rpc remote"
    ),
    Option(
        "--root",
        "DIR",
        "Let sessions that clients open work only here and below; repeatable",
        "list",
        modes="rpc remote acp",
        field="roots",
    ),
    Option("--provider-session-id", "ID", "Id for the provider's cache"),
    Option("--no-title", help="Invent no session titles (never done)"),
    Option("--offline", help="No network but the model's"),
    Option("--verbose", help="Say more on stderr"),
    Option("--help -h", help="Show this"),
    Option("--version -v -V", help="Show the version"),
)
IGNORED = (
    Option("--theme", "PATH"),
    Option("--use-theme", "NAME"),
    Option("--tui-mode", "MODE"),
    Option("--no-themes"),
)
"""Options of other programs, for their terminal interfaces: accepted, with a note."""
_BY_NAME = {name: option for option in (*OPTIONS, *IGNORED) for name in option.names.split()}


def parse(argv: Sequence[str]) -> Options:
    """Read a command line. Raises `UsageError`."""
    return parse_into(Options(), argv)


def parse_into(options: AnyOptions, argv: Sequence[str], more: Sequence[Option] = ()) -> AnyOptions:
    """Read a command line that also has `more` options of a sub-command. Raises `UsageError`."""
    by_name = _BY_NAME | {name: option for option in more for name in option.names.split()}
    waiting = list(reversed(argv))
    bare = False
    """Whether the first message stands where a sub-command would."""
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
        _take_option(options, argument, waiting, by_name)
    if bare and not more and _may_be_command(options) and not (options.help or options.version):
        _check_words(options)
    _check_level(options)
    _check_model(options)
    _use_mode(options)
    _use_transport(options)
    return options


def _check_words(options: Options) -> None:
    """Take `run "x"` as -p, and refuse words that look like a sub-command. Raises `UsageError`."""
    from spindle.apps.words import means_print

    if not is_pi() and means_print(options.messages):
        del options.messages[0]
        options.print = True
    elif (why := why_no_command(options.messages)) is not None:
        raise UsageError(why)


def _use_mode(options: Options) -> None:
    """Let the permission mode be the one that is meant by another name. Raises `UsageError` for two different ones."""
    other = "bypass" if options.yolo else None
    for named in (other, APPROVAL_MODES.get(options.approval_mode or "")):
        if named is not None:
            if options.permission_mode not in (None, named):
                raise UsageError(f"There are two permission modes: {options.permission_mode} and {named}")
            options.permission_mode = named


def _use_transport(options: Options) -> None:
    """Let agent-cli's words for an editor mean the mode or the server. Raises `UsageError` for words alone."""
    if not options.acp:
        if alone := options.transport or options.wssport:
            raise UsageError(f'--transport and --wssport go with --acp (there is "{alone}" without it)')
    elif options.transport == "wss":
        options.remote = f"{REMOTE.split(':')[0]}:{options.wssport or 8338}"
        options.notes.append(f"Editors connect to ws://{options.remote}/acp")
    else:
        options.mode = "acp"


def _take_option(options: Options, argument: str, waiting: list[str], by_name: dict[str, Option]) -> None:
    """Read an option, and its value from the waiting words (last first). Raises `UsageError`."""
    name, equals, attached = argument.partition("=") if argument.startswith("--") else (argument, "", "")
    option = by_name.get(name)
    if option is None:
        _keep_unknown(options, name, attached if equals else None, waiting)
        return
    if equals:
        waiting.append(attached)
    elif option.value and waiting and option.kind not in ("print", "maybe") and _is_option(waiting[-1], by_name):
        raise UsageError(f"{name} needs a value ({option.value}), and {waiting[-1]} is an option")
    _apply(options, option, name, waiting, attached=bool(equals))


def _is_option(word: str, by_name: dict[str, Option]) -> bool:
    return word == "--" or word.partition("=")[0] in by_name


def _may_be_command(options: Options) -> bool:
    """Say whether a word may be a sub-command: no option says that it is a message."""
    others = (options.mode, options.export, options.list_models, options.remote)
    return not options.print and not options.files and all(given is None for given in others)


def _check_level(options: Options) -> None:
    level = options.thinking
    if level is None or level in THINKING_LEVELS:
        return
    hint = did_you_mean(level, THINKING_LEVELS)
    text = f'Invalid thinking level "{level}".{hint} Valid values: {", ".join(THINKING_LEVELS)}'
    if options.mode != "rpc":
        raise UsageError(text)
    options.notes.append(text)  # as with pi: a client may know levels that we do not
    options.thinking = None


def _check_model(options: Options) -> None:
    """Refuse an empty name: it may be an empty variable of a script, and another model must not answer silently."""
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
    if not option.value:
        if attached:
            raise UsageError(f"{name} takes no value")
        value: Any = option.kind != "no"
    elif option.kind in ("print", "maybe"):
        value = waiting.pop() if attached or (waiting and not waiting[-1].startswith(("-", "@"))) else None
        if option.kind == "print":
            options.messages += [] if value is None else [value]
            value = True
        elif value is None:
            value = option.missing
    elif not waiting:
        raise UsageError(f"{name} needs a value ({option.value})")
    else:
        value = _value(options, option, name, waiting.pop())
    if option in IGNORED:
        options.notes.append(f"{name} only concerns terminal interfaces and is ignored")
    else:
        setattr(options, option.attribute, value)


def _value(options: Options, option: Option, name: str, text: str) -> Any:
    if option.choices and text not in option.choices:
        near = did_you_mean(text, option.choices)
        raise UsageError(f'{name} must be one of {", ".join(option.choices)}, not "{text}".{near}'.removesuffix("."))
    if option.kind == "limit":
        return {**options.run_limits, name: text}
    if option.kind == "list":
        if option.attribute == "extensions" and text.startswith("builtin:"):
            options.notes.append(f"{name} {text} names a part of pi and is ignored")
            return options.extensions
        return [*getattr(options, option.attribute), text]
    if option.kind == "words":
        return [word.strip() for word in text.split(",") if word.strip()]
    return text


MODE_NAMES = {
    "text": "-p",
    "json": "--mode json",
    "rpc": "--mode rpc",
    "acp": "spindle acp",
    "remote": "a server",
    "chat": "the chat",
    "batch": "spindle batch",
}


def ignored_options(options: Options, mode: str) -> list[str]:
    """Return the names of the given options that have no effect in a mode."""
    plain = Options(mode=mode if options.mode == mode else None)  # `spindle chat` is a mode by another name
    others = [option for option in OPTIONS if option.modes and mode not in option.modes.split()]
    given = [option for option in others if getattr(options, option.attribute) != getattr(plain, option.attribute)]
    return [option.names.split()[0] for option in given]


def ignored_note(options: Options, mode: str) -> str | None:
    """Return a line for stderr if something on the command line has no effect in a mode."""
    names = ignored_options(options, mode)
    unused = options.messages if mode in ("rpc", "acp", "remote") else []
    if options.mode == mode == "remote" and options.remote is None:
        unused = unused[1:]  # the first is the address
    if unused:
        names.append(f'the message "{unused[0]}"')
    if not names:
        return None
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect with {MODE_NAMES[mode]}"


def refuse_address_options(command: str, options: Options) -> None:
    """Refuse --port and the like of other servers, with the line that was meant. Raises `UsageError`."""
    given = {name: value for name in ("host", "listen", "bind", "port") if (value := options.unknown.get(name))}
    if not given:
        return
    host, port = REMOTE.split(":")
    for name, value in given.items():
        if name == "port":
            port = str(value)
        elif isinstance(value, str):
            before, colon, after = value.rpartition(":")
            host, port = (before or host, after) if colon and after.isdecimal() else (value, port)
    line = f"spindle {command} {f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}"
    raise UsageError(f"There is no option --{next(iter(given))}: the address is the first word, as in {line}")


def unknown_options(options: Options, registered: Sequence[str]) -> str | None:
    """Return an error line if there are options that no extension registered."""
    names = [f"--{name}" for name in options.unknown if name not in registered]
    if not names:
        return None
    known = [*(name for name in _BY_NAME if name.startswith("--")), *(f"--{name}" for name in registered)]
    near = [did_you_mean(name, known) for name in names]
    return f"Unknown option{'s' if len(names) > 1 else ''}: {', '.join(names)}{'.' * any(near)}{''.join(near)}"
