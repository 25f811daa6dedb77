"""Servers as a person sets them up: written into a file, logged in at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile, edit_json, read_text
from spindle.plugins.mcp import McpError
from spindle.plugins.mcp.server_config import KEYS, ServerConfig, Servers, resolve, user_file
from spindle.resources.trust import TrustDecision, TrustStore


def write_server(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Write a server into a file, in place of one of the same name. Raises `McpError`, `BadFile`."""
    check = Servers()
    check.add({name: entry}, "here")
    if name in check.problems:
        raise McpError(check.problems[name].removeprefix("here: "))
    # People write keys into their own file.
    edit(path, lambda servers: servers.__setitem__(name, entry), 0o600 if path == user_file() else 0o644)


def remove_server(path: Path, name: str) -> None:
    """Take a server out of a file. Raises `McpError` if it is not in there, `BadFile`."""
    found = False

    def change(servers: dict[str, Any]) -> None:
        nonlocal found
        found = servers.pop(name, None) is not None

    if path.exists():
        edit(path, change)
    if not found:
        raise McpError(f"there is no server {name!r} in {path}")


def switch_server(path: Path, name: str, *, on: bool) -> None:
    """Switch a server of a file on or off. Raises `McpError` if it is not in there, `BadFile`."""
    found = False

    def change(servers: dict[str, Any]) -> None:
        nonlocal found
        entry = servers.get(name)
        if found := isinstance(entry, dict):
            entry.pop("disabled", None)
            entry["enabled"] = on

    if path.exists():
        edit(path, change)
    if not found:
        raise McpError(f"there is no server {name!r} in {path}: a server is switched where it is configured")


def edit(path: Path, change: Callable[[dict[str, Any]], None], mode: int = 0o644) -> None:
    """Change the servers of a file, under the key that the file uses. Raises `BadFile`, with the path."""

    def change_file(value: dict[str, Any]) -> None:
        servers = value.setdefault(next((key for key in KEYS if key in value), KEYS[0]), {})
        if not isinstance(servers, dict):
            raise BadFile("its servers are not an object")
        change(servers)

    store, project = TrustStore(agent_dir()), TrustDecision(True, "", Path.cwd())
    try:
        own = not path.exists() or store.is_agreed(path, read_text(path), project)
        edit_json(path, change_file, mode)
        if own and path != user_file():  # the user's own change of what they had agreed to
            store.agree(path, read_text(path))
    except BadFile as error:
        raise BadFile(f"Cannot change {path}: {error} (a file with comments has to be changed by hand)") from None
    except OSError as error:
        raise BadFile(f"Cannot change {path}: {error.strerror or error}") from None


async def log_in(given: ServerConfig, cwd: str, show: Callable[[str], None]) -> bool:
    """Log in at an HTTP server; `show` is called with the address to visit. Returns whether there is a login now.

    Raises `McpError`.
    """
    from spindle.plugins.mcp.connection import ServerConnection
    from spindle.plugins.mcp.oauth import LoopbackBrowser, ServerLogin, kept
    from spindle.plugins.mcp.streamable import HttpTransport

    config = await resolve(given)
    async with LoopbackBrowser(show, config.oauth.callback_port if config.oauth else None) as browser:
        connection = ServerConnection(HttpTransport(config, ServerLogin(config, browser)), cwd)
        try:
            await connection.open()
        finally:
            await connection.close()
    return kept(config.url or "") is not None
