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
    "auth": Subcommand(
        "auth_command:run", "check", "Whether a provider can be used, for scripts", "auth_command:parser"
    ),
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
    "extensions": Subcommand(
        "extensions_command:run",
        "[ACTION]",
        "Python code that changes agents: list, new, add, remove",
        "extensions_command:parser",
    ),
    "trust": Subcommand(
        "doctor:run_trust", "[--no] [DIR]", "Let a project bring its own settings and code", "doctor:trust_parser"
    ),
    "sessions": Subcommand(
        "sessions_command:run", "[ACTION]", "List, show, rename, delete, check sessions", "sessions_command:parser"
    ),
    "data": Subcommand(
        "data_command:run", "[ACTION]", "What is stored, how much; prune: delete what is old", "data_command:parser"
    ),
    "export": Subcommand(
        "sessions_command:run_export",
        "[SESSION] [FILE]",
        "Write a session as an HTML page",
        "sessions_command:export_parser",
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


def why_no_command(words: list[str]) -> str | None:
    """Return an error if the words look like a sub-command that does not exist."""
    from spindle.apps.words import on_the_command_line

    word, alone = words[0], len(words) == 1
    send = f"To send it as a message: spindle -p {word}" + ("" if alone else " …")
    if instead := on_the_command_line(words):
        return f'Spindle has no command "{word}": {_filled_in(instead)}. {send}'
    if not re.fullmatch(r"[A-Za-z][\w-]*", word):
        return None
    near = did_you_mean(word, COMMANDS, "spindle ")
    return f'Spindle has no command "{word}".{near} {send}' if alone or near else None


def _filled_in(text: str) -> str:
    if not text.endswith("UPDATE"):
        return text
    from spindle.base.installation import update_command

    return text.removesuffix("UPDATE") + update_command()
