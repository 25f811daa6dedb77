"""The table of sub-commands, and what to tell a user who types a word that is none."""

import re

from msgspec import Struct

from spindle.base.spelling import did_you_mean

REMOTE = "127.0.0.1:3838"
"""Where a server listens if no address is given."""


class Subcommand(Struct, frozen=True):
    target: str
    """`module:function` of this package; the function takes the arguments after the name and returns the exit code."""
    usage: str = ""
    """The arguments, for the help."""
    help: str = ""
    """What it does, in a line."""
    arguments: str = ""
    """`module:name` of its arguments, for help and completion: a function that returns a parser, or options that it has
    besides those of an agent."""
    mode: str = ""
    """The mode that it stands for. Such a command has the options of an agent, and its target takes `Options`."""


COMMANDS = {
    "chat": Subcommand("interactive:run_chat", "[OPTIONS]", "Talk to it here; plain spindle does, too", mode="chat"),
    "doctor": Subcommand(
        "doctor:run_doctor", "", "What is found, what is wrong, which model would be used", "doctor:parser"
    ),
    "models": Subcommand(
        "models_command:run", "[SEARCH]", "Models to use; also: show, pull, refresh", "models_command:parser"
    ),
    "keys": Subcommand("keys_command:run", "[ACTION]", "Keys of providers: set, list, remove", "keys_command:parser"),
    "login": Subcommand(
        "login_command:run_login",
        "[PROVIDER]",
        "Sign in to Copilot, ChatGPT or OpenRouter",
        "login_command:login_parser",
    ),
    "logout": Subcommand(
        "login_command:run_logout", "[PROVIDER]", "Forget a login or a key in auth.json", "login_command:logout_parser"
    ),
    "mcp": Subcommand(
        "mcp_command:run", "[ACTION]", "Servers with tools of others: add, list, remove, login", "mcp_command:parser"
    ),
    "sessions": Subcommand(
        "sessions_command:run", "[ACTION]", "List, show, rename, delete, check sessions", "sessions_command:parser"
    ),
    "export": Subcommand(
        "sessions_command:run_export",
        "[SESSION] [FILE]",
        "Write a session as an HTML page",
        "sessions_command:export_parser",
    ),
    "trust": Subcommand(
        "doctor:run_trust", "[--no] [DIR]", "Let a project bring its own settings and code", "doctor:trust_parser"
    ),
    "batch": Subcommand(
        "batch_command:run", "TASKS -o DIR", "Do many tasks, one machine or many", "batch_command:OPTIONS"
    ),
    "serve": Subcommand(
        "serving:run_remote", "[ADDR] [OPTIONS]", f"Serve a page, HTTP and WebSocket clients ({REMOTE})", mode="remote"
    ),
    "tokens": Subcommand(
        "tokens_command:run", "[ACTION]", "Users of a server: add, list, revoke", "tokens_command:parser"
    ),
    "web": Subcommand(
        "serving:run_web", "[ADDR] [OPTIONS]", "Serve the page and open it in the browser", mode="remote"
    ),
    "acp": Subcommand(
        "serving:run_acp", "[OPTIONS]", "Serve an editor that speaks the Agent Client Protocol", mode="acp"
    ),
    "schema": Subcommand(
        "main:run_schema", "[--markdown]", "The commands and events of the wire", "main:schema_parser"
    ),
    "completion": Subcommand(
        "completion:run", "SHELL", "Let bash, zsh or fish complete the words of spindle", "completion:parser"
    ),
    "help": Subcommand("main:run_help", "[COMMAND]", "This, or the help of a command", "main:help_parser"),
    "version": Subcommand("main:run_version", "", "The version", "main:version_parser"),
}
"""A line here is all that a new sub-command needs."""
MISSING_COMMANDS = {
    "auth": "keys are stored with spindle keys set PROVIDER, spindle login signs in",
    "config": "settings are in settings.json (spindle doctor says where)",
    "install": "extensions are Python files in the folder extensions of the agent directory, or named with -e",
    "remove": "extensions are files; delete what you do not want",
    "uninstall": "extensions are files; delete what you do not want",
    "update": "a newer Spindle comes with ",
    "upgrade": "a newer Spindle comes with ",
    "list": "spindle doctor lists extensions, spindle models and spindle sessions list the others",
}
"""Words that people try, most of them commands of pi, and what to do instead. A command of the same name goes first."""
LONE_WORDS = {
    "ask": 'ask with spindle -p "…", or in the chat: spindle',
    "continue": "spindle -c goes on with the last session of this directory",
    "exec": 'ask with spindle -p "…"',
    "history": "spindle sessions lists what was said here",
    "init": "nothing has to be set up but a model: spindle keys set PROVIDER",
    "new": "spindle begins a new session each time; -c goes on with the last",
    "provider": "spindle keys lists providers that have a key, spindle models their models",
    "providers": "spindle keys lists providers that have a key, spindle models their models",
    "resume": "spindle -c goes on with the last session of this directory, spindle --resume lets you choose",
    "run": 'ask with spindle -p "…", or in the chat: spindle',
    "settings": "settings are in settings.json (spindle doctor says where)",
    "setup": "nothing has to be set up but a model: spindle keys set PROVIDER",
    "status": "spindle doctor says what is found and which model would be used",
}
"""The same for words that begin a message if others follow."""


def why_no_command(words: list[str]) -> str | None:
    """Return an error if the words look like a sub-command that does not exist."""
    word, alone = words[0], len(words) == 1
    send = f"To send it as a message: spindle -p {word}" + ("" if alone else " …")
    known = MISSING_COMMANDS | LONE_WORDS if alone else MISSING_COMMANDS
    instead = known.get(word) or (known.get(word.lower()) if alone else None)
    if instead:
        return f'Spindle has no command "{word}": {_filled_in(instead)}. {send}'
    if not re.fullmatch(r"[A-Za-z][\w-]*", word):
        return None
    near = did_you_mean(word, COMMANDS, "spindle ")
    return f'Spindle has no command "{word}".{near} {send}' if alone or near else None


def _filled_in(text: str) -> str:
    if not text.endswith(" "):
        return text
    from spindle.base.installation import update_command

    return text + update_command()
