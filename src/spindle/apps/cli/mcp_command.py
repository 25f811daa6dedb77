"""`spindle mcp`: list MCP servers and their states; write them into a file; log in and out."""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spindle.agent.hooks import McpServerState
from spindle.apps.cli import tell
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base import limits
from spindle.base.spelling import counted
from spindle.base.user_files import BadFile
from spindle.plugins.mcp import McpError
from spindle.plugins.mcp.server_config import ServerConfig, load_servers, resolve, user_file
from spindle.plugins.mcp.user_servers import log_in, remove_server, write_server
from spindle.programs.children import kill_all
from spindle.resources.loader import ResourceOptions, Resources, load_resources
from spindle.shapes.codec import encode


def run(argv: list[str]) -> int:
    """Carry out `spindle mcp <argv>`. Returns the exit code."""
    head, dashes, command = argv, [], []
    if "--" in argv:  # the words behind it are the server's command, with their dashes
        place = argv.index("--")
        head, dashes, command = argv[:place], ["--"], argv[place + 1 :]
    reader = parser()
    if not argv:
        reader.print_help()
        return 0
    options, more = reader.parse_known_args(head)  # words behind an option are left over
    if wrong := [word for word in more if word.startswith("-") or options.action is not _add]:
        reader.error(f"unrecognized arguments: {' '.join(wrong)}")
    options.command = [*getattr(options, "command", []), *more, *command]
    if dashes and options.action is not _add:
        raise UsageError("-- is for the command of a server: spindle mcp add NAME -- COMMAND")
    try:
        return int(options.action(options))
    except (McpError, BadFile, OSError) as error:
        tell("Error", str(error))
        return 1


def parser() -> CommandParser:
    parser = CommandParser("spindle mcp", description="MCP servers: tools of other programs.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: object, text: str, *, approve: bool = True) -> argparse.ArgumentParser:
        one = actions.add_parser(name, help=text, description=text)
        if approve:
            one.add_argument("--approve", "-a", action="store_true", default=None, help="trust this project")
        one.set_defaults(action=action)
        return one

    new = add("add", _add, "Write a server into a file, in place of one of the same name.", approve=False)
    new.add_argument("name")
    new.add_argument("command", nargs="*", metavar="URL | -- COMMAND [ARGUMENT...]")
    new.add_argument("--project", action="store_true", help="into .mcp.json of this directory, not into your own file")
    new.add_argument("--env", "-e", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    new.add_argument("--header", "-H", action="append", default=[], metavar="NAME: VALUE", help="repeatable")
    new.add_argument("--timeout", type=float, metavar="SECONDS", help="for one answer")
    new.add_argument("--exposure", choices=("direct", "deferred", "hidden"), help="how the model gets its tools")
    new.add_argument(
        "--description", metavar="TEXT", help="what it is for; the model sees this when it looks for tools"
    )
    add("list", _list, "Start every server and say how it is.").add_argument(
        "--json", action="store_true", help="one JSON object per line"
    )
    gone = add("remove", _remove, "Take a server out of the file it is in.", approve=False)
    gone.add_argument("name")
    gone.add_argument("--project", action="store_true", help="out of .mcp.json of this directory")
    add("login", _login, "Log in at an HTTP server with a browser.").add_argument("name")
    add("logout", _logout, "Forget a login.").add_argument("name")
    return parser


# -- files ---------------------------------------------------------------------------------------


def _add(options: argparse.Namespace) -> int:
    words = options.command
    if not words:
        raise McpError("a server needs an address, or -- and its command")
    entry: dict[str, Any] = {}
    if len(words) == 1 and words[0].startswith(("http://", "https://")):
        entry |= {"type": "http", "url": words[0]}
        if options.env:
            raise McpError("--env is for servers with a command")
        if headers := dict(_pairs(options.header, ":", "--header")):
            entry["headers"] = headers
    else:
        entry |= {"command": words[0], "args": words[1:]}
        if options.header:
            raise McpError("--header is for servers with an address")
        if env := dict(_pairs(options.env, "=", "--env")):
            entry["env"] = env
    for name in ("timeout", "exposure", "description"):
        if (value := getattr(options, name)) is not None:
            entry[name] = value
    path = _chosen_file(options)
    write_server(path, options.name, entry)
    print(f"{options.name}: written to {path}")
    return 0


def _pairs(texts: list[str], separator: str, option: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, found, value = text.partition(separator)
        if not found or not name.strip():
            raise McpError(f"{option} takes NAME{separator}VALUE, not {text!r}")
        yield name.strip(), value.strip() if separator == ":" else value


def _remove(options: argparse.Namespace) -> int:
    path = _chosen_file(options)
    remove_server(path, options.name)
    print(f"{options.name}: removed from {path}")
    return 0


def _chosen_file(options: argparse.Namespace) -> Path:
    return Path.cwd() / ".mcp.json" if options.project else user_file()


# -- servers -------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    resources = load_resources(Path.cwd(), ResourceOptions(approve=options.approve))
    states = examine(resources)
    for state in states:
        print(encode(state).decode() if options.json else "\n".join(lines_of(state)))
    if not states and not options.json:
        print("No MCP servers. Add one with: spindle mcp add NAME -- COMMAND")
    if skipped := [path for path in resources.trust.skipped if path.name in ("mcp.json", ".mcp.json")]:
        names = ", ".join(map(str, skipped))
        print(
            f"Not looked at, because the project is not trusted (spindle trust, or --approve): {names}", file=sys.stderr
        )
    return 0


def examine(resources: Resources) -> list[McpServerState]:
    """Start every server of a directory for a moment, and return their states."""
    found = load_servers(resources.cwd, resources.trust)
    for note in found.notes:
        print(f"Note: {note}", file=sys.stderr)
    states = found.unused()
    if configs := found.enabled():
        try:
            states = [*asyncio.run(_look(configs, resources)), *states]
        finally:
            kill_all()
    return states


async def _look(configs: list[ServerConfig], resources: Resources) -> list[McpServerState]:
    from spindle.plugins.mcp.shared_server import leave, server_for

    user = object()
    servers = [server_for(user, config, str(resources.cwd), resources.secret_variables) for config in configs]
    await asyncio.wait([server.start_soon() for server in servers], timeout=limits.MCP_LIST)
    states = [server.shown() for server in servers]
    await leave(user, servers)
    return states


def lines_of(state: McpServerState) -> Iterator[str]:
    tools = "" if state.tools is None else f", {counted(state.tools, 'tool')}"
    pid = "" if state.pid is None else f", pid {state.pid}"
    protocol = f", protocol {state.protocol}" if state.protocol else ""
    kind = f" ({state.transport})" if state.transport else ""
    yield f"{state.name}{kind}: {state.state}{tools}{pid}{protocol}"
    if state.error:
        yield from (f"    {line}" for line in state.error.splitlines())
    elif state.stderr:
        yield "    stderr:"
        yield from (f"    {line}" for line in state.stderr.splitlines()[-5:])


def doctor_lines(resources: Resources) -> Iterator[str]:
    """Yield the part of `spindle doctor` about MCP servers, each started for a moment."""
    states = examine(resources)
    yield f"MCP servers ({len(states)})"
    for state in states:
        head, *rest = lines_of(state)
        yield f"  {'error ' if state.state == 'invalid' else ''}{head}"
        yield from (f"  {line}" for line in rest)


# -- logins --------------------------------------------------------------------------------------


def _http_server(options: argparse.Namespace) -> ServerConfig:
    resources = load_resources(Path.cwd(), ResourceOptions(approve=options.approve))
    found = load_servers(resources.cwd, resources.trust)
    config = found.configs.get(options.name)
    if config is None:
        raise McpError(found.problems.get(options.name) or f"there is no server {options.name!r}")
    if config.url is None:
        raise McpError(f"{options.name} is a program on this machine, where no one logs in")
    return config


def _login(options: argparse.Namespace) -> int:
    return asyncio.run(_log_in(_http_server(options)))


async def _log_in(given: ServerConfig) -> int:
    is_kept = await log_in(given, str(Path.cwd()), _show)
    print(f"{given.name}: " + ("logged in" if is_kept else "it wants no login"))
    return 0


def _show(url: str) -> None:
    import webbrowser

    print(f"Log in with your browser:\n\n  {url}\n", flush=True)
    webbrowser.open(url)


def _logout(options: argparse.Namespace) -> int:
    from spindle.plugins.mcp.oauth import keep, kept

    config = asyncio.run(resolve(_http_server(options)))
    if kept(config.url or "") is None:
        print(f"{config.name}: there was no login")
        return 0
    keep(config.url or "", None)
    print(f"{config.name}: logged out")
    return 0
