"""Keys of providers as people give them: kept, listed and removed, never shown."""

import re

from spindle.base.user_files import BadFile
from spindle.models.catalog import builtin_providers
from spindle.models.credentials import Entry
from spindle.models.model_registry import LOCAL, SCRIPTED, ModelRegistry
from spindle.shapes.owner import KeyState

KEYLESS = (LOCAL, SCRIPTED)


class BadKey(ValueError):
    """A text is no key, or there is no such provider; the message has no part of the text."""


def key_states(registry: ModelRegistry) -> list[KeyState]:
    """Return the providers with a key or a login, without either."""
    found = []
    for provider in dict.fromkeys([*registry.providers(), *registry.auth.entries()]):
        source = registry.credential_source(provider)
        entry = registry.auth.stored(provider)
        if entry is None and source in (None, "not needed"):
            continue
        stored = None if entry is None else "login" if entry.get("type") == "oauth" else "key"
        found.append(KeyState(provider=provider, source=source, stored=stored))
    return found


def stored_form(key: str, *, literal: bool = False) -> str:
    """Return the text that stands for a key in `auth.json`, where `$NAME` is a variable and `!command` a command.

    With `literal` it stands for nothing but itself.
    """
    reference = r"\$(\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)"
    if not literal and (key.startswith("!") or re.fullmatch(reference, key)):
        return key
    plain = key.replace("$", "$$")
    return "$!" + plain[1:] if plain.startswith("!") else plain


def check_key(key: str) -> str:
    """Return a key without blanks around it. Raises `BadKey`."""
    if not (key := key.strip()):
        raise BadKey("No key was given; nothing has changed")
    if not re.fullmatch(r"[!-~]+", key):
        raise BadKey("That is no key: keys have no blanks and no letters with accents. Nothing has changed")
    return key


async def keep_key(registry: ModelRegistry, provider: str, stored: str) -> str | None:
    """Keep the `stored_form` of a key. Returns the type of the entry that it replaces. Raises `BadKey`."""
    before = registry.auth.stored(provider) or {}
    entry: Entry = {"type": "api_key", "key": stored}
    if "env" in before:
        entry["env"] = before["env"]
    await store(registry, provider, entry)
    return before.get("type")


async def keys_of_pi(registry: ModelRegistry, file: str) -> list[str]:
    """Keep the keys of pi's file where there is none yet. Returns their providers. Raises `BadKey`."""
    from pathlib import Path

    from spindle.models.credentials import AuthStore

    found = []
    for name, entry in AuthStore(Path(file).parent).entries().items():
        if entry.get("type") == "api_key" and registry.auth.stored(name) is None:
            await store(registry, name, entry)
            found.append(name)
    return found


async def store(registry: ModelRegistry, provider: str, entry: Entry | None) -> None:
    """Write the entry of a provider, or remove it. Raises `BadKey`."""
    try:
        await registry.auth.store(provider, entry)
    except (BadFile, OSError) as error:
        raise BadKey(f"Cannot change {registry.auth.path}: {error}") from None


def provider_named(registry: ModelRegistry, name: str) -> str | None:
    """Return the provider of this name that may have a key; None if there is none."""
    known = [provider for provider in (*registry.providers(), *registry.auth.entries()) if provider not in KEYLESS]
    return next((one for one in (name.lower(), name) if one in known), None)


def provider_of_variable(name: str) -> str | None:
    """Return the provider whose variable begins with this word."""
    word = f"{name.upper()}_"
    return next((name for name, info in builtin_providers().items() if any(word in one for one in info.env)), None)
