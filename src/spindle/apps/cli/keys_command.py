"""`spindle keys`: store, list and remove the keys of providers. A key is never an argument, and never shown."""

import asyncio
import os
import sys
from typing import NoReturn

from spindle.apps.cli import tell
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir
from spindle.base.spelling import did_you_mean
from spindle.models import keys
from spindle.models.catalog import builtin_providers
from spindle.models.credentials import Entry, is_resolvable
from spindle.models.model_registry import ModelRegistry

_LONGEST = 1 << 16
"""Bytes of stdin that are read."""


class _Parser(CommandParser):
    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` without the words that were typed: one of them may be a key."""
        del message
        raise UsageError(
            "Usage: spindle keys set PROVIDER, spindle keys list, spindle keys remove PROVIDER. A key is no argument, "
            "because others can see those (ps): it is asked for, or read from stdin"
        )


def parser() -> CommandParser:
    parser = _Parser("spindle keys", description="Keys of providers, in auth.json of the agent directory.")
    actions = parser.add_actions(
        {
            "set": "Store a key. It is asked for without being shown, or read from stdin.",
            "list": "Say which providers have a key, and where it comes from.",
            "remove": "Forget a stored key.",
        }
    )
    for name in ("set", "remove"):
        actions[name].add_argument("provider", metavar="PROVIDER", help="such as anthropic or openai")
    return parser


def run(argv: list[str]) -> int:
    """Carry out `spindle keys <argv>`. Raises `UsageError`."""
    given = parser().parse_args(argv or ["list"])
    registry = ModelRegistry(agent_dir())
    if problem := registry.auth.problem:
        raise UsageError(problem.message, 1)
    if given.action == "list":
        return _list(registry)
    provider = known_provider(registry, given.provider)
    if given.action == "remove":
        return asyncio.run(_remove(registry, provider))
    key = read_key(provider)  # not inside of asyncio, which would keep Ctrl-C from ending it
    return asyncio.run(set_key(registry, provider, key))


def known_provider(registry: ModelRegistry, name: str, advice: str = "") -> str:
    """Return the provider of this name. Raises `UsageError`, without the name: it may be a key in the wrong place.

    `advice` takes the place of the list of providers.
    """
    if (found := keys.provider_named(registry, name)) is not None:
        return found
    known = [provider for provider in registry.providers() if provider not in keys.KEYLESS]
    by_variable = keys.provider_of_variable(name)
    near = f" Did you mean {by_variable}?" if by_variable else did_you_mean(name, known)
    advice = advice or f"There are: {', '.join(known)}"
    raise UsageError("There is no provider of that name." + (near or f" {advice}"))


async def set_key(registry: ModelRegistry, provider: str, key: str) -> int:
    """Store a key. Raises `UsageError`."""
    auth, key = registry.auth, keys.stored_form(key)
    try:
        was = " in place of a login" if await keys.keep_key(registry, provider, key) == "oauth" else ""
    except keys.BadKey as error:
        raise UsageError(str(error), 1) from None
    print(f"The key of {provider} is kept in {auth.path}{was}")
    if not is_resolvable(key, auth.env(provider)):
        tell("Note", "The variable that it names is not set here")
    elif not registry.has_credentials(provider):
        tell("Note", registry.no_key_text(provider))
    return 0


def read_key(provider: str) -> str:
    """Read a key from the terminal, without showing it, or from stdin. Raises `UsageError`."""
    if sys.stdin.isatty():
        import getpass

        try:
            key = getpass.getpass(f"Key of {provider} (it is not shown): ")
        except EOFError:
            key = ""
    else:
        key = sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace")
    if key.strip().startswith("!"):
        return key.strip()
    try:
        return keys.check_key(key)
    except keys.BadKey as error:
        raise UsageError(str(error), 1) from None


def _list(registry: ModelRegistry) -> int:
    rows = []
    for provider in dict.fromkeys([*registry.providers(), *registry.auth.entries()]):
        source = registry.credential_source(provider)
        if source and source != "not needed":
            unused = [name for name in _variables(provider) if os.environ.get(name) and name != source]
            rows.append((provider, source + (f" ({unused[0]} is set, too, and not used)" if unused else "")))
        elif registry.auth.stored(provider):
            rows.append((provider, f"in auth.json, but cannot be used: {_why_not(registry, provider)}"))
    for provider, source in rows:
        print(f"{provider:<22} {source}")
    if not rows:
        print("No keys yet. Store one with: spindle keys set PROVIDER")
    return 0


def _variables(provider: str) -> tuple[str, ...]:
    info = builtin_providers().get(provider)
    return info.env if info else ()


def _why_not(registry: ModelRegistry, provider: str) -> str:
    if provider not in registry.providers():
        return "there is no such provider here"
    return registry.no_key_text(provider).partition("\n\n")[0]


async def _remove(registry: ModelRegistry, provider: str) -> int:
    path = registry.auth.path
    entry = registry.auth.stored(provider)
    if entry is None:
        source = registry.credential_source(provider)
        where = f"; its key comes from {source}" if source and source != "not needed" else ""
        raise UsageError(f"{path} has no key of {provider}{where}", 1)
    if entry.get("type") == "oauth":
        raise UsageError(f"{path} has a login of {provider}, no key. Forget it with: spindle logout {provider}", 1)
    await _store(registry, provider, None)
    print(f"Removed the key of {provider} from {path}")
    if source := registry.credential_source(provider):
        tell("Note", f"{provider} still has a key, from {source}")
    return 0


async def _store(registry: ModelRegistry, provider: str, entry: Entry | None) -> None:
    try:
        await keys.store(registry, provider, entry)
    except keys.BadKey as error:
        raise UsageError(str(error), 1) from None
