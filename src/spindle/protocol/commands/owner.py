"""Commands for the owner of the agent directory: ways to a model, keys, settings, rules, MCP servers, folders.

What changes something is marked with `owner`: on a server it wants the code that the server prints (`unlock`). A key
can be set and removed, and is never told.
"""

import asyncio
import os
from functools import partial
from typing import Any, Literal

from msgspec import field

from spindle.agent import AgentError
from spindle.agent.hooks import ExtensionInForce, McpServerState
from spindle.base.agent_dir import agent_dir
from spindle.base.user_files import BadFile
from spindle.protocol.registry import Call, command
from spindle.resources.sources import CommandItem
from spindle.shapes.events import PullProgress
from spindle.shapes.messages import Wire
from spindle.shapes.owner import AccountState, KeyState, SettingItem, Way

# A process that serves no person needs little of this: modules are imported where they are used.


@command("unlock", key="permit")
async def unlock(call: Call, code: str | None = None, permit: str | None = None) -> str:
    """Show the code that the server printed, or the permit that an earlier answer gave for a code: then this client may
    change keys, settings, rules and servers. A code counts once. On stdin and stdout nothing is locked."""
    from spindle.server.permit import WrongCode

    account = call.client.account
    if account.permit is not None:
        if permit is not None and not await asyncio.to_thread(account.permit.knows, permit):
            raise WrongCode("The server does not know this browser any more: it wants the code again")
        if permit is None:
            permit = await asyncio.to_thread(account.permit.take, code or "")
    call.client.unlock()
    return permit or ""


@command("get_account")
def get_account(call: Call) -> AccountState:
    """Return who the client is on this server, what its user may do, and what is used up today."""
    return call.client.account.state()


# -- models ------------------------------------------------------------------------------------------


@command("get_model_ways", key="ways")
async def get_model_ways(call: Call) -> list[Way]:
    """Return the ways to a model, the least work first. Asks the servers on this machine, for a second at most."""
    from spindle.models.ways import ways_to_a_model

    return await asyncio.to_thread(ways_to_a_model, call.agent.resources.registry.sibling())


@command("get_keys", key="keys")
def get_keys(call: Call) -> list[KeyState]:
    """Return the providers with a key or a login, and where it comes from; never the key."""
    from spindle.models import keys

    return keys.key_states(call.agent.resources.registry)


class KeyKept(Wire, kw_only=True):
    provider: str | None = None
    """Whose key was kept; left out if it could be of several."""
    candidates: list[str] = field(default_factory=list)
    """Providers that have such keys; say which."""


@command("set_key", owner=True)
async def set_key(call: Call, key: str, provider: str | None = None) -> KeyKept:
    """Keep a key of a provider (or of a product: `claude`) in `auth.json`. Without `provider` it is told by the key's
    first letters; if several have such keys, nothing is kept and the answer names them."""
    from spindle.models import keys
    from spindle.models.ways import provider_of_word, providers_of_key

    registry = call.agent.resources.registry
    try:
        key = keys.check_key(key)
        if provider is None:
            names = providers_of_key(key)
            if len(names) != 1:
                if not names:
                    raise AgentError("The key does not say whose it is: name its provider")
                return KeyKept(candidates=list(names))
            provider = names[0]
        named = provider_of_word(provider) or keys.provider_named(registry, provider)
        if named is None:
            raise AgentError("There is no provider of that name")
        await keys.keep_key(registry, named, keys.stored_form(key, literal=True))
    except keys.BadKey as error:
        raise AgentError(str(error)) from None
    call.agent.prompting.look_for_model()
    return KeyKept(provider=named)


@command("remove_key", owner=True)
async def remove_key(call: Call, provider: str) -> None:
    """Forget the key or the login of a provider in `auth.json`."""
    from spindle.models import keys

    registry = call.agent.resources.registry
    if registry.auth.stored(provider) is None:
        raise AgentError(f"{registry.auth.path} has no key of {provider}")
    try:
        await keys.store(registry, provider, None)
    except keys.BadKey as error:
        raise AgentError(str(error)) from None


@command("take_keys", key="providers", owner=True)
async def take_keys(call: Call) -> list[str]:
    """Take over the keys that pi has in its own folder, where there are none yet."""
    from spindle.models import keys
    from spindle.models.ways import ways_to_a_model

    registry = call.agent.resources.registry
    found = next((way for way in await asyncio.to_thread(ways_to_a_model, registry) if way.kind == "keys"), None)
    if found is None:
        raise AgentError("pi has no keys here")
    try:
        taken = await keys.keys_of_pi(registry, found.name)
    except keys.BadKey as error:
        raise AgentError(str(error)) from None
    call.agent.prompting.look_for_model()
    return taken


@command("pull_model", key="model", owner=True)
async def pull_model(call: Call, name: str) -> str:
    """Get a model that runs on this machine, as `spindle models pull NAME`; `pull_progress` tells how far it is.

    Returns its id: its provider is `local`.
    """
    from spindle.llm.local import LocalModelError, check_machine
    from spindle.llm.local.pull import PULLABLE, pull

    if name not in PULLABLE:
        raise AgentError(f"There is no model {name} to get. There are {', '.join(PULLABLE)}")
    agent, loop, told = call.agent, asyncio.get_running_loop(), [-1]

    def tell(done: int, whole: int) -> None:
        part = done * 100 // whole if whole else 0
        if part != told[0]:
            told[0] = part
            loop.call_soon_threadsafe(agent.publish, PullProgress(name, done, whole))

    try:
        check_machine()
        await asyncio.to_thread(pull, PULLABLE[name], agent_dir() / "models", tell)
    except LocalModelError as error:
        raise AgentError(str(error)) from None
    agent.resources.registry.reload()
    return PULLABLE[name].name


# -- settings and rules ------------------------------------------------------------------------------


@command("get_settings", key="settings")
def get_settings(call: Call) -> list[SettingItem]:
    """Return all settings: what each means, what holds in this working directory, and where that comes from."""
    from spindle.resources.settings_list import setting_items

    return setting_items(call.agent.resources.store)


@command("set_setting", owner=True)
async def set_setting(call: Call, key: str, value: Any = None) -> None:
    """Write a setting into the user's file; without a value it is taken out. It holds for this session at once, for
    others when they are opened or reloaded."""
    from spindle.resources.settings_list import change_setting

    store = call.agent.resources.store
    if key.startswith(("permissions.", "sandbox.")):
        _check_rules(key, value)
    await asyncio.to_thread(change_setting, store, key, value)
    await call.agent.reload()


@command("set_rule", owner=True)
async def set_rule(
    call: Call,
    behavior: Literal["allow", "ask", "deny"],
    rule: str,
    project: bool = False,
    remove: bool = False,
) -> None:
    """Add a permission rule to the settings of the user, or of the project; with `remove` take it out."""
    store, key = call.agent.resources.store, f"permissions.{behavior}"
    _check_rules(key, [rule])
    change = store.remove if remove else store.add
    try:
        await asyncio.to_thread(change, key, [rule], project=project)
    except (BadFile, OSError) as error:
        raise AgentError(str(error)) from None
    await call.agent.reload()


def _check_rules(key: str, value: Any) -> None:
    """Raise `AgentError` for rules and modes that make no sense: no agent would start with them."""
    from spindle.agent.fences.rules import mode_named, rules_of

    name = key.partition(".")[2]
    try:
        if name == "defaultMode" and value is not None:
            mode_named(str(value))
        if name in ("allow", "ask", "deny", "outside") and isinstance(value, list):
            rules_of("deny", [str(text) for text in value], "settings")
    except ValueError as error:
        raise AgentError(str(error)) from None


@command("reload")
async def reload(call: Call) -> None:
    """Read settings, skills, prompts, extensions and MCP servers again."""
    await call.agent.reload()


# -- MCP servers -------------------------------------------------------------------------------------


@command("add_mcp_server", key="servers", owner=True)
async def add_mcp_server(call: Call, name: str, config: dict[str, Any]) -> list[McpServerState]:
    """Write an MCP server into the user's `mcp.json`, in the form of `mcpServers`, and use it from now on."""
    from spindle.plugins.mcp.user_servers import write_server

    return await _with_servers(call, write_server, name, config)


@command("remove_mcp_server", key="servers", owner=True)
async def remove_mcp_server(call: Call, name: str) -> list[McpServerState]:
    """Take an MCP server out of the user's `mcp.json`."""
    from spindle.plugins.mcp.user_servers import remove_server

    return await _with_servers(call, remove_server, name)


@command("switch_mcp_server", key="servers", owner=True)
async def switch_mcp_server(call: Call, name: str, on: bool) -> list[McpServerState]:
    """Switch an MCP server of the user's `mcp.json` on or off."""
    from spindle.plugins.mcp.user_servers import switch_server

    return await _with_servers(call, partial(switch_server, on=on), name)


async def _with_servers(call: Call, change: Any, *arguments: Any) -> list[McpServerState]:
    from spindle.plugins.mcp import McpError
    from spindle.plugins.mcp.server_config import user_file

    try:
        await asyncio.to_thread(change, user_file(), *arguments)
    except (McpError, BadFile) as error:
        raise AgentError(str(error)) from None
    return await call.agent.mcp_servers.read_again()


@command("restart_mcp_server", key="servers", owner=True)
async def restart_mcp_server(call: Call, name: str) -> list[McpServerState]:
    """End an MCP server and start it again; the answer comes when it is ready, or has failed."""
    await call.agent.mcp_servers.restart(name)
    return call.agent.mcp_servers.states()


@command("log_in_mcp_server", key="servers", owner=True)
async def log_in_mcp_server(call: Call, name: str) -> list[McpServerState]:
    """Log in at an MCP server: the client gets the address as `extension_ui_request` `open_url`. The login comes back
    to this machine, so the browser has to be here. The response comes when it is over."""
    await call.agent.mcp_servers.log_in(name)
    return call.agent.mcp_servers.states()


# -- what there is -----------------------------------------------------------------------------------


class LoadedHere(Wire):
    commands: list[CommandItem]
    """Skills and prompt templates, as in `get_commands`."""
    extensions: list[ExtensionInForce]
    problems: list[str]
    """What was not loaded, and why."""


@command("get_loaded")
def get_loaded(call: Call) -> LoadedHere:
    """Return the skills, prompt templates and extensions that are loaded, and what was not."""
    agent = call.agent
    problems = [found.message for found in agent.resources.diagnostics]
    return LoadedHere(agent.resources.commands(), agent.extensions(), problems)


class Folders(Wire):
    path: str
    parent: str | None
    """None: there is nothing above it that may be looked at."""
    folders: list[str]
    """Names of the folders in it; those that begin with a dot are left out."""


@command("list_folders")
async def list_folders(call: Call, path: str | None = None) -> Folders:
    """Return the folders in a folder that sessions may work in, for a client that lets a person choose one."""
    agent = call.agent
    place = os.path.abspath(os.path.join(agent.cwd, os.path.expanduser(path or agent.cwd)))

    def read() -> list[str]:
        with os.scandir(place) as found:
            return sorted(one.name for one in found if not one.name.startswith(".") and one.is_dir())

    try:
        agent.check_place(place)
        folders = await asyncio.to_thread(read)
    except OSError as error:
        raise AgentError(f"{place}: {error.strerror or error}") from None
    except ValueError:
        raise AgentError("The path has characters that no path can have") from None
    parent: str | None = os.path.dirname(place)
    try:
        agent.check_place(parent or place)
    except AgentError:
        parent = None
    return Folders(place, None if parent == place else parent, folders)
