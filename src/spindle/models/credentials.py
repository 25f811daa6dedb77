"""Keys of model providers: from the command line, from `auth.json`, from the environment. Never printed.

`catalog/index.json` says which variables belong to which provider. A value in a file may stand for a secret kept
elsewhere: `!command` runs a shell command, `$NAME` and `${NAME}` read the environment anywhere in the text (`$$` and
`$!` are the plain characters), and a value that is nothing but the NAME of a set variable means that variable.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from spindle import limits
from spindle.config.user_files import BadFile, Diagnostic, read_object
from spindle.process import run

_NAME = r"[A-Z][A-Z0-9_]*"
_REFERENCE = r"\$(?:([$!])|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))"


class UnresolvedValue(ValueError):
    """The value is not there; the text says where it was looked for, never what it is."""


def is_resolvable(value: str, env: Mapping[str, str] | None = None) -> bool:
    """Tell whether the value is there without running a command."""
    if value.startswith("!"):
        return len(value) > 1
    try:
        return bool(_interpolate(value, env or {}))
    except UnresolvedValue:
        return False


def referred_variables(value: str) -> set[str]:
    """Return the names of the variables that the value is read from."""
    if value.startswith("!"):
        return set()
    if "$" not in value:
        return {value} if re.fullmatch(_NAME, value) else set()
    return {match[2] or match[3] for match in re.finditer(_REFERENCE, value) if not match[1]}


async def resolve_value(value: str, env: Mapping[str, str] | None = None) -> str:
    """Return what the value stands for; `env` is looked at before the environment. Raises `UnresolvedValue`."""
    if value.startswith("!"):
        return await _run(value[1:].strip())
    return _interpolate(value, env or {})


def _interpolate(value: str, env: Mapping[str, str]) -> str:
    if "$" not in value:
        found = (env.get(value) or os.environ.get(value)) if re.fullmatch(_NAME, value) else None
        return found or value

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        name = match[2] or match[3]
        found = env.get(name) or os.environ.get(name)
        if not found:
            raise UnresolvedValue(f"environment variable: {name}")
        return found

    return re.sub(_REFERENCE, replace, value)


async def _run(command: str) -> str:
    # No grace: the group is killed as a whole, because a child of the command may be what hangs.
    done = await run(["/bin/sh", "-c", command], timeout=limits.CREDENTIAL_COMMAND, grace=0)
    text = done.output.decode("utf-8", "replace").strip()
    if done.timed_out or done.code != 0 or not text:
        raise UnresolvedValue(f"shell command: {command}")
    return text


class MissingCredentials(Exception):
    """There is no usable key for a model; the text says what to do."""


class ModelAuth(Struct, frozen=True):
    """What a request needs to be accepted."""

    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "ModelAuth(…)"


class AuthStore:
    """Stored and environment credentials. `api_keys` are those given on the command line."""

    def __init__(self, agent_dir: Path) -> None:
        self.path = agent_dir / "auth.json"
        self.api_keys: dict[str, str] = {}
        self._problem: Diagnostic | None = None
        self._stored: dict[str, Any] | None = None
        self._resolved: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"AuthStore({str(self.path)!r})"

    @property
    def problem(self) -> Diagnostic | None:
        """What is wrong with `auth.json`."""
        self.stored("")
        return self._problem

    def stored(self, provider: str) -> dict[str, Any] | None:
        """Return the entry of `auth.json`, which is read on first use."""
        if self._stored is None:
            try:
                self._stored = read_object(self.path) or {}
            except BadFile as error:
                self._problem = Diagnostic("error", f"Cannot use {self.path}: {error}", str(self.path))
                self._stored = {}
        entry = self._stored.get(provider)
        return entry if isinstance(entry, dict) else None

    def providers(self) -> list[str]:
        """Return the names in `auth.json`."""
        self.stored("")
        return list(self._stored or ())

    def forget(self) -> None:
        """Read `auth.json` again when next needed."""
        self._stored = self._problem = None
        self._resolved.clear()

    def source(self, provider: str, variables: Sequence[str]) -> str | None:
        """Tell where a key for the provider would come from; None if there is none. Runs no command."""
        if provider in self.api_keys:
            return "--api-key"
        if entry := self.stored(provider):
            if entry.get("type") == "oauth":
                return "auth.json (login)" if isinstance(entry.get("access"), str) else None
            if isinstance(key := entry.get("key"), str) and is_resolvable(key, _env(entry)):
                return "auth.json"
        return next((name for name in variables if os.environ.get(name)), None)

    def variables(self) -> set[str]:
        """Return the names of the variables that `auth.json` refers to."""
        self.stored("")
        keys = [entry.get("key") for entry in (self._stored or {}).values() if isinstance(entry, dict)]
        return {name for key in keys if isinstance(key, str) for name in referred_variables(key)}

    async def from_user(self, provider: str) -> ModelAuth | None:
        """Return the key of the command line or of `auth.json`. Raises `UnresolvedValue`, `MissingCredentials`."""
        if key := self.api_keys.get(provider):
            return ModelAuth(key)
        entry = self.stored(provider)
        if not entry:
            return None
        if entry.get("type") == "oauth":
            return _login(provider, entry)
        key = entry.get("key")
        if not isinstance(key, str) or not key:
            return None
        if provider not in self._resolved:
            self._resolved[provider] = await resolve_value(key, _env(entry))
        return ModelAuth(self._resolved[provider])

    def from_environment(self, variables: Sequence[str]) -> ModelAuth | None:
        for name in variables:
            if value := os.environ.get(name):
                return _bearer(value) if name.endswith(("_OAUTH_TOKEN", "_AUTH_TOKEN")) else ModelAuth(value)
        return None


def _env(entry: dict[str, Any]) -> dict[str, str]:
    env = entry.get("env")
    return {k: v for k, v in env.items() if isinstance(v, str)} if isinstance(env, dict) else {}


def _login(provider: str, entry: dict[str, Any]) -> ModelAuth:
    """Use the access token of a login made in pi for as long as it lasts; it is not renewed here."""
    access, expires = entry.get("access"), entry.get("expires")
    if not isinstance(access, str) or (isinstance(expires, int | float) and expires <= time.time() * 1000):
        raise MissingCredentials(
            f'Authentication failed for "{provider}": the login in auth.json has expired, and Spindle does not renew '
            "it. Log in again with the program that made it, or set an API key."
        )
    return _bearer(access)


def _bearer(token: str) -> ModelAuth:
    return ModelAuth(token, {"Authorization": f"Bearer {token}"})
