"""Keys and logins of model providers: from the command line, from `auth.json`, from the environment. Never printed.

`catalog/index.json` says which variables belong to which provider. A value in a file may stand for a secret kept
elsewhere: `!command` runs a shell command, `$NAME` and `${NAME}` read the environment anywhere in the text (`$$` and
`$!` are the plain characters), and a value that is nothing but the NAME of a set variable means that variable.

A login in `auth.json` is renewed when its token runs out, by one process at a time.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spindle.base import limits
from spindle.base.user_files import BadFile, Diagnostic, hold_lock, read_object, write_json
from spindle.shapes.model import Model

Entry: TypeAlias = dict[str, Any]
"""The entry of one provider in `auth.json`."""

UNSUPPORTED = {
    "anthropic": (
        "auth.json holds a login to an Anthropic subscription. Anthropic's terms allow such logins in its own programs "
        "only, so Spindle does not use it: an API key is needed."
    ),
    "radius": "auth.json holds a login to Radius, whose protocol (pi-messages) Spindle does not speak.",
}
"""Logins of pi that are not used here, and why."""

SIGN_IN_PROVIDERS = ("github-copilot", "openai", "openai-codex", "openrouter")
"""Providers that `spindle login` can sign in to. `logins` does it, but is not imported for a list."""

FORMER_NAMES = {"azure": "azure-openai-responses"}
"""Providers that had another name when keys and sessions were stored."""

_NAME = r"[A-Z][A-Z0-9_]*"
_REFERENCE = r"\$(?:([$!])|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))"


class UnresolvedValue(ValueError):
    """The value cannot be found; the text says where it should be, never a part of it."""


def is_resolvable(value: str, env: Mapping[str, str] | None = None) -> bool:
    """Tell whether the value can be found, without running a command."""
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
    from spindle.programs.process import run

    # No grace: the group is killed as a whole, because a child of the command may hang.
    done = await run(["/bin/sh", "-c", command], timeout=limits.CREDENTIAL_COMMAND, grace=0)
    text = done.output.decode("utf-8", "replace").strip()
    if done.timed_out or done.code != 0 or not text:
        raise UnresolvedValue(f"shell command: {command}")
    return text


class MissingCredentials(Exception):
    """There is no usable key for a model; the text says what to do."""


class ModelAuth(Struct, frozen=True):
    """Key, headers and address that a request needs to be accepted."""

    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """Settings of the provider that were stored with its key."""
    base_url: str | None = None
    """Address of the models, if it depends on the account."""
    if_refused: str = ""
    """What to tell the user when the server does not accept these credentials."""

    def at_its_address(self, model: Model) -> Model:
        return replace(model, base_url=self.base_url) if self.base_url else model

    def __repr__(self) -> str:
        return "ModelAuth(…)"


class AuthStore:
    """Stored and environment credentials. `api_keys` are the keys given on the command line."""

    def __init__(self, agent_dir: Path) -> None:
        self.path = agent_dir / "auth.json"
        self.api_keys: dict[str, str] = {}
        self.proxy: str | None = None
        """Proxy for requests to login servers."""
        self._renewals: dict[str, asyncio.Task[Entry]] = {}
        self._read_at: tuple[int, int] | None = None
        """Time and size of `auth.json` when it was read."""
        self._problem: Diagnostic | None = None
        self._stored: dict[str, Any] | None = None
        self._resolved: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"AuthStore({str(self.path)!r})"

    @property
    def problem(self) -> Diagnostic | None:
        """The problem with `auth.json`, if any."""
        self.stored("")
        return self._problem

    def flaws(self) -> list[str]:
        """Return a line for every entry of `auth.json` that cannot be used, with what is wrong; never its value."""
        self.stored("")
        found = {name: _flaw(entry) for name, entry in (self._stored or {}).items()}
        return [f"{self.path}: {name}: {flaw}" for name, flaw in found.items() if flaw]

    def stored(self, provider: str) -> Entry | None:
        """Return the entry of `auth.json`, which is read on first use and when it has changed."""
        try:
            status = os.stat(self.path)
            now = (status.st_mtime_ns, status.st_size)
        except OSError:
            now = None
        if self._stored is None or now != self._read_at:
            self.forget()
            self._read_at = now
            try:
                self._stored = read_object(self.path) or {}
            except BadFile as error:
                self._problem = Diagnostic("error", f"Cannot use {self.path}: {error}", str(self.path))
                self._stored = {}
        entry = self._stored.get(provider) or self._stored.get(FORMER_NAMES.get(provider, ""))
        return entry if isinstance(entry, dict) else None

    def env(self, provider: str) -> dict[str, str]:
        """Return the settings that are stored with the provider's key."""
        return stored_env(self.stored(provider) or {})

    def entries(self) -> dict[str, Entry]:
        self.stored("")
        return {name: entry for name, entry in (self._stored or {}).items() if isinstance(entry, dict)}

    def allowed(self, provider: str, models: list[Model]) -> list[Model]:
        """Return the models of a provider that the account of its login may use, as far as is known."""
        entry = self.stored(provider) or {}
        allowed = entry.get("availableModelIds") if entry.get("type") == "oauth" else None
        return [model for model in models if model.id in allowed] if isinstance(allowed, list) else models

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
                if provider not in UNSUPPORTED:
                    return "auth.json (login)" if isinstance(entry.get("access"), str) else None
            elif isinstance(key := entry.get("key"), str) and is_resolvable(key, stored_env(entry)):
                return "auth.json"
        return next((name for name in variables if os.environ.get(name)), None)

    def variable(self, provider: str, name: str) -> str | None:
        """Return a variable that belongs to a provider: of its entry in `auth.json`, else of the environment."""
        return self.env(provider).get(name) or os.environ.get(name)

    def variables(self) -> set[str]:
        """Return the names of the variables that `auth.json` refers to."""
        self.stored("")
        keys = [entry.get("key") for entry in (self._stored or {}).values() if isinstance(entry, dict)]
        return {name for key in keys if isinstance(key, str) for name in referred_variables(key)}

    async def from_user(self, provider: str, entry: Entry | None) -> ModelAuth | None:
        """Return the key of the command line, or the stored one. Raises `UnresolvedValue`, `MissingCredentials`."""
        if key := self.api_keys.get(provider):
            return ModelAuth(key)
        if not entry or (entry.get("type") == "oauth" and provider in UNSUPPORTED):
            return None
        if entry.get("type") == "oauth":
            return await self._login(provider, entry)
        key = entry.get("key")
        if not isinstance(key, str) or not key:
            return None
        if provider not in self._resolved:
            self._resolved[provider] = await resolve_value(key, stored_env(entry))
        return ModelAuth(self._resolved[provider])

    def from_environment(self, variables: Sequence[str]) -> ModelAuth | None:
        for name in variables:
            if value := os.environ.get(name):
                return bearer(value) if name.endswith(_BEARER_VARIABLES) else ModelAuth(value)
        return None

    # -- logins ----------------------------------------------------------------------------------

    async def _login(self, provider: str, entry: Entry) -> ModelAuth:
        """Return the credentials for a request, after renewing the login if it is due. Raises `MissingCredentials`."""
        from spindle.models.logins import LOGINS, expires, is_due

        login = LOGINS.get(provider)
        if is_due(entry) and login is not None:
            entry = await self._renewed(provider)
        if not isinstance(entry.get("access"), str) or expires(entry) <= time.time() * 1000:
            raise MissingCredentials(f"The login for {provider} has expired. {_sign_in_again(provider)}")
        auth = login.auth(entry) if login is not None else bearer(entry["access"])
        return replace(auth, if_refused=_sign_in_again(provider))

    async def replace_refused(self, provider: str, token: str | None) -> bool:
        """Get another token after a server refused this one before it expired; say whether there is another now."""
        from spindle.models.logins import LOGINS

        entry = self.stored(provider)
        if not entry or entry.get("type") != "oauth" or provider in self.api_keys or provider not in LOGINS:
            return False
        if entry.get("access") == token:
            try:
                entry = await self._renewed(provider, token)
            except MissingCredentials:
                return False  # the refusal itself is the better error text
        return entry.get("access") != token

    async def _renewed(self, provider: str, refused: str | None = None) -> Entry:
        if provider not in self._renewals:
            task = asyncio.create_task(self._renew(provider, refused))
            self._renewals[provider] = task
            task.add_done_callback(lambda _: self._renewals.pop(provider).cancelled() or task.exception())
        # The waiting task may be aborted; the old token may be void already, so the new one must be written.
        return await asyncio.shield(self._renewals[provider])

    async def _renew(self, provider: str, refused: str | None) -> Entry:
        """Ask for a new token and write it down, unless another process has just done it.

        `refused`: a token that is void even if it has not expired.
        """
        from spindle.models.logins import LOGINS, expires, is_due
        from spindle.models.sign_in import LoginError

        try:
            async with hold_lock(self.path):
                entry = (read_object(self.path) or {}).get(provider)
                if not isinstance(entry, dict) or entry.get("type") != "oauth":
                    raise MissingCredentials(f"The login for {provider} is gone. {_sign_in_again(provider)}")
                is_void = refused is not None and entry.get("access") == refused
                if not is_due(entry) and not is_void:
                    return entry
                if not isinstance(entry.get("refresh"), str):
                    raise LoginError("its entry has no refresh token", refused=True)
                try:
                    entry |= await LOGINS[provider].renew(entry, self.proxy)
                except LoginError:
                    if expires(entry) > time.time() * 1000 and not is_void:
                        return entry  # the time left until it expires may be enough for this request
                    raise
                self._write(lambda entries: entries.__setitem__(provider, entry))
                return entry
        except LoginError as error:
            what_now = _sign_in_again(provider) if error.refused else "Try again later."
            raise MissingCredentials(f"The login for {provider} could not be renewed: {error}. {what_now}") from None
        except (BadFile, OSError) as error:
            raise MissingCredentials(f"The login for {provider} could not be renewed: {error}") from None

    async def store(self, provider: str, entry: Entry | None) -> None:
        """Write an entry, or remove it. Raises `BadFile`, `OSError`."""
        async with hold_lock(self.path):
            if entry is not None:
                self._write(lambda entries: entries.__setitem__(provider, entry))
            else:
                self._write(lambda entries: entries.pop(provider, None))

    def _write(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change `auth.json`, whose lock is held."""
        entries = read_object(self.path) or {}
        change(entries)
        write_json(self.path, entries, private=True)
        self.forget()


_BEARER_VARIABLES = ("_OAUTH_TOKEN", "_AUTH_TOKEN", "COPILOT_GITHUB_TOKEN")
_AWS_VARIABLES = (
    "AWS_PROFILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def _sign_in_again(provider: str) -> str:
    program = "spindle login" if provider in SIGN_IN_PROVIDERS else "pi: /login"
    return f"Sign in again with {program} {provider}"


def _flaw(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return 'must be an object, as {"type": "api_key", "key": "…"}'
    if entry.get("type") == "oauth":
        return None if isinstance(entry.get("access"), str) else 'the login has no "access" token'
    return None if isinstance(entry.get("key", ""), str) else '"key" must be a text'


def stored_env(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that are stored with a key."""
    env = entry.get("env")
    return {k: v for k, v in env.items() if isinstance(v, str)} if isinstance(env, dict) else {}


def bearer(token: str) -> ModelAuth:
    return ModelAuth(token, {"Authorization": f"Bearer {token}"})


# -- credentials of a cloud ------------------------------------------------------------------------


def ambient_source(provider: str, entry: Mapping[str, Any] | None) -> str | None:
    """Tell where credentials of a cloud would come from; None if there are none. Opens no file.

    `entry` is the provider's entry in `auth.json`: a key, settings that come before the environment, or only the wish
    to use the credentials of this machine.
    """
    if provider == "google-vertex":
        return _google({**os.environ, **stored_env(entry or {})})
    if provider != "amazon-bedrock":
        return None
    is_key = entry is not None and entry.get("type") == "api_key"
    return "auth.json" if is_key else _amazon({**os.environ, **stored_env(entry or {})})


def _amazon(env: Mapping[str, str]) -> str | None:
    if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
        return "AWS_ACCESS_KEY_ID"
    if found := next((name for name in _AWS_VARIABLES if env.get(name)), None):
        return found
    file = Path(os.path.expanduser(env.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"))
    if not os.path.isfile(file):
        return None
    from importlib.util import find_spec

    return str(file) if find_spec("botocore") else None


def _google(env: Mapping[str, str]) -> str | None:
    if not (env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT")) or not env.get("GOOGLE_CLOUD_LOCATION"):
        return None
    default = "~/.config/gcloud/application_default_credentials.json"
    file = Path(os.path.expanduser(env.get("GOOGLE_APPLICATION_CREDENTIALS") or default))
    return str(file) if os.path.isfile(file) else None
