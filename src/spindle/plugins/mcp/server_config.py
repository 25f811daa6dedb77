"""The configured servers: files of the user and the project, entries of a client, and references in their values.

Every source has the form that Claude Code, Cursor and pi share: an object `mcpServers` of entries by name. A later
source overrides an earlier one by name; an entry without `command` and `url` only changes an earlier entry.
"""

import os
import re
from _blake2 import blake2b  # `hashlib` would load OpenSSL, which delays every start with a server
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from spindle.agent.hooks import McpServerState
from spindle.base import limits
from spindle.base.agent_dir import agent_dir, agent_dir_problem, expand_home
from spindle.base.spelling import in_order, nearest
from spindle.base.user_files import BadFile, parse_object, read_text
from spindle.plugins.mcp import McpError
from spindle.resources.trust import MCP_FILES, TrustDecision, TrustStore
from spindle.shapes.codec import encode

Exposure = Literal["direct", "deferred", "hidden"]
"""Tools are shown to the model at once, wait behind `tool_search`, or are not shown."""
_CODE_MODE: Final = ("codemode", "codemode-deferred")
"""Exposures of pi: its scripts may call the tools. Here they wait behind `tool_search`."""
KEYS: Final = ("mcpServers", "servers")
"""Keys that may hold the servers in a file; the second is that of VS Code."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_KINDS: Final = {
    "stdio": "stdio", "local": "stdio", "http": "http", "streamablehttp": "http", "remote": "http", "sse": "sse"
}  # fmt: skip
Protocol = Literal["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


NOT_AGREED: Final = (
    "its servers are new, or it has changed since you agreed to them. `spindle trust` there agrees to it as it is "
    "now, --approve for one run"
)


class IdentityProvider(Struct, frozen=True, rename="camel"):
    """A company's identity provider, which tells other servers who the user is."""

    token_endpoint: str
    client_id: str
    id_token: str
    """ID token of the user."""
    client_secret: str | None = None


class OAuthOptions(Struct, frozen=True, rename="camel"):
    """Configured facts about a login; everything else is discovered."""

    issuer: str | None = None
    """The authorization server to log in at, whichever one the server names. Needed for secrets, which else only go to
    the origin of the server itself."""
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    callback_port: int | None = None
    grant_type: Literal["authorization_code", "client_credentials"] | None = None
    """None: as the server wants it."""
    client_metadata_url: str | None = None
    """Used as the client id, where the server supports that."""
    private_key: str | None = None
    """In PEM form; proves the identity of the client in place of a secret."""
    assertion: str | None = None
    """A token of the platform that the program runs on; it proves the identity of the program."""
    identity_provider: IdentityProvider | None = None

    @property
    def is_program(self) -> bool:
        """Whether a program may be able to log in without a person."""
        return any((self.client_secret, self.private_key, self.assertion, self.identity_provider))


class ServerConfig(Struct, frozen=True, rename="camel"):
    """One server as configured; values may still be references (`resolve`)."""

    name: str
    source: str
    """Where it is configured, as text for people."""
    trusted: bool = True
    """False: it comes from a file of the project, even if the user trusts the project."""
    command: str | None = None
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    sse: bool = False
    """Whether it speaks the HTTP transport of 2024."""
    protocol: Protocol | None = None
    """Version of the protocol to speak; None: the newest that the server knows."""
    timeout: float = limits.MCP_REQUEST
    """Seconds for one answer."""
    enabled: bool = True
    exposure: Exposure | None = None
    """None: direct as long as there are few tools."""
    tool_exposure: dict[str, Exposure] = field(default_factory=dict)
    description: str = ""
    oauth: OAuthOptions | None = None
    sandbox: bool = False
    """Whether the program runs behind a fence, of the session's level or of `workspace-write`."""

    @property
    def transport(self) -> str:
        return "stdio" if self.url is None else "sse" if self.sse else "http"

    def key(self) -> str:
        """Return a name for everything that the server is started with."""
        mine = [
            self.name,
            self.command,
            self.args,
            self.env,
            self.cwd,
            self.url,
            self.headers,
            self.trusted,
            self.oauth,
            *([self.sandbox] if self.sandbox else []),
            *([self.sse, self.protocol] if self.sse or self.protocol else []),
        ]
        return blake2b(encode(mine), digest_size=16).hexdigest()


_KEYS: Final = tuple(
    name for name in ServerConfig.__struct_encode_fields__ if name not in ("name", "source", "trusted", "sse")
)
"""What people may write; `_OTHER_KEYS` are understood as well."""
_OTHER_KEYS: Final = ("type", "disabled", "name")


class Servers(Struct):
    """The entries of all sources together."""

    configs: dict[str, ServerConfig] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Why an entry, or a whole file, cannot be used; by name or path."""
    notes: list[str] = field(default_factory=list)
    """Values that are read in another way than they are written, or passed over."""
    unagreed: dict[Path, str] = field(default_factory=dict)
    """The content of files that the user has not agreed to."""

    def add(self, value: Any, source: str, *, trusted: bool = True) -> None:
        """Take the entries of one source: an object by name, or a list with names in it, as ACP has it."""
        for name, entry in _entries(value):
            try:
                config = _read(name, self._readable(name, entry, source), source, trusted, self.configs.get(name))
            except (ValueError, msgspec.ValidationError) as error:
                self.configs.pop(name, None)
                self.problems[name] = f"{source}: {error}"
                continue
            self.problems.pop(name, None)
            self.configs[name] = config

    def _readable(self, name: str, entry: Any, source: str) -> Any:
        """Return the entry with exposures that we know; the others are noted."""
        if not isinstance(entry, dict):
            return entry
        given = entry.get("toolExposure")
        by_tool = dict(given) if isinstance(given, dict) else {}
        places = [(entry := dict(entry), "exposure"), *((by_tool, tool) for tool in [*by_tool])]
        for place, key in places:
            if (value := place.get(key)) is None or value in get_args(Exposure):
                continue
            if value in _CODE_MODE:
                place[key] = "deferred"
                self._note_code_mode(name)
            else:
                del place[key]
                what = "exposure" if place is entry else f"toolExposure of {key}"
                choices = ", ".join(get_args(Exposure))
                self.notes.append(f"{source}: {name}: {what}: {encode(value).decode()} is none of {choices}")
        return entry | {"toolExposure": by_tool} if isinstance(given, dict) else entry

    def _note_code_mode(self, name: str) -> None:
        """Note once that servers are written for pi's code mode."""
        start = 'MCP servers with "exposure": "codemode" are read as "deferred", as there is no code mode: '
        for index, note in enumerate(self.notes):
            if note.startswith(start):
                if name not in note.removeprefix(start).split(", "):
                    self.notes[index] = f"{note}, {name}"
                return
        self.notes.append(start + name)

    def add_file(
        self,
        path: Path,
        *,
        trusted: bool = True,
        required: bool = False,
        is_agreed: Callable[[str], bool] = lambda text: True,
    ) -> None:
        """Take the entries of a file if the user agrees to its text. A missing file has none, unless `required`."""
        try:
            text = read_text(path)
            value = parse_object(text, comments=True)
        except (FileNotFoundError, NotADirectoryError):
            if required:
                self.problems[str(path)] = "no such file"
            return
        except (BadFile, OSError) as error:
            if path.parent != agent_dir() or not agent_dir_problem():  # that is reported for the whole directory
                self.problems[str(path)] = str(getattr(error, "strerror", None) or error)
            return
        if not is_agreed(text):
            self.unagreed[path], self.problems[str(path)] = text, NOT_AGREED
            return
        found = next((value[key] for key in KEYS if key in value), None)
        if not isinstance(found, dict):
            self.problems[str(path)] = 'has no object "mcpServers"'
            return
        self.add(found, str(path), trusted=trusted)

    def enabled(self) -> list[ServerConfig]:
        return [config for config in self.configs.values() if config.enabled]

    def unused(self) -> list[McpServerState]:
        """Return the states of servers that make no sense or are switched off."""
        off = [config for config in self.configs.values() if not config.enabled]
        return [
            *(McpServerState(name=name, state="invalid", error=problem) for name, problem in self.problems.items()),
            *(McpServerState(name=c.name, state="disabled", transport=c.transport, source=c.source) for c in off),
        ]


def user_file() -> Path:
    return agent_dir() / "mcp.json"


def load_servers(
    cwd: str | Path, trust: TrustDecision, files: Sequence[str] = (), before: Servers | None = None
) -> Servers:
    """Read the user's file, those of a trusted project as far as the user has agreed to them, then `files`.

    They add to `before`, and override its servers by name.
    """
    servers, store = before or Servers(), TrustStore(agent_dir())
    servers.add_file(user_file())
    for name in MCP_FILES if trust.trusted else ():
        path = Path(cwd) / name
        servers.add_file(path, trusted=False, is_agreed=partial(store.is_agreed, trust.project / name, decision=trust))
    for name in files:
        servers.add_file(Path(cwd) / expand_home(name), required=True)
    return servers


def shown_servers(path: Path, text: str) -> str:
    """Return what the servers of a file would start, one in a line."""
    servers = Servers()
    servers.add_file(path, is_agreed=lambda now: now == text)
    lines = [f"{c.name}: {c.url or ' '.join([c.command or '', *c.args])}" for c in servers.enabled()]
    return "\n".join([*lines, *servers.problems.values()])


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(name), entry) for name, entry in value.items()]
    if not isinstance(value, list):
        raise McpError("Servers must be an object by name, or a list")
    found = []
    for entry in value:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise McpError('Every server in a list must be an object with a "name"')
        found.append((entry["name"], entry))
    return found


def _read(name: str, entry: Any, source: str, trusted: bool, before: ServerConfig | None) -> ServerConfig:
    """Read one entry; `before` is an earlier entry of that name. Raises `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f'"{name}" cannot be the name of a server: letters, digits, "_" and "-", at most 64')
    if not isinstance(entry, dict):
        raise ValueError("an entry must be an object")
    entry = _common_form({key: value for key, value in entry.items() if value is not None})
    given_kind = entry.pop("type", None)
    kind = _kind(given_kind)
    if not entry.get("command") and not entry.get("url"):
        if before is None:
            raise ValueError(f"an entry needs a command or a url{_misspelt(entry)}")
        changed = {key: entry[key] for key in ("enabled", "exposure", "toolExposure", "description") if key in entry}
        return msgspec.convert(msgspec.to_builtins(before) | changed, ServerConfig)
    kind = kind or ("stdio" if entry.get("command") else _kind_at(entry["url"]))
    needed, other = ("command", "url") if kind == "stdio" else ("url", "command")
    entry.pop(other, None)
    if not entry.get(needed):
        raise ValueError(f"an entry of type {given_kind} needs a {needed}")
    known = {key: value for key, value in entry.items() if key in _KEYS}
    ours = {"name": name, "source": source, "trusted": trusted, "sse": kind == "sse"}
    config = msgspec.convert(known | ours, ServerConfig)
    _check(config)
    return config


def _check(config: ServerConfig) -> None:
    """Raise `ValueError` for values that make no sense."""
    if config.sse and config.protocol == "2026-07-28":
        raise ValueError(f"the transport sse has no protocol {config.protocol}")
    if not 0 < config.timeout < float("inf"):
        raise ValueError("timeout must be a number of seconds above 0")
    if config.url is not None and "${" not in config.url and not _is_address(config.url):
        raise ValueError(f"not an HTTP address: {config.url}")


def check_keys(servers: Any, what: str) -> None:
    """Check the keys of servers that a program names. Files may have keys of other programs, so they are not checked.

    Raises `TypeError` for an entry that is no object, `ValueError` for a key that looks like one of ours.
    """
    for name, entry in _entries(servers):
        if not isinstance(entry, Mapping):
            raise TypeError(f'{what}[{name!r}] must be a dict with a "command" or a "url", not {entry!r}')
        if wrong := _misspelt(entry):
            raise ValueError(f"{what}[{name!r}]{wrong} Keys are: {', '.join(_KEYS)}")


def _misspelt(entry: Mapping[str, Any]) -> str:
    """Return the end of a sentence about the first key that may be meant for one of ours; empty if there is none."""
    for key in entry:
        near = nearest(key, _KEYS) or next((name for name in ("command", "url") if in_order(key.lower(), name)), None)
        if key not in _KEYS and key not in _OTHER_KEYS and near is not None:
            return f': there is no key "{key}", did you mean "{near}"?'
    return ""


def _common_form(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry as we would write it, whichever program it was written for. Raises `ValueError`."""
    if isinstance(command := entry.get("command"), list):  # some files have the program and its arguments as one list
        more = entry.get("args", [])
        entry["command"] = command[0] if command else ""
        entry["args"] = [*command[1:], *more] if isinstance(more, list) else more
    if entry.pop("disabled", False) is True:
        entry["enabled"] = False
    for key in ("env", "headers"):
        if key in entry:
            entry[key] = _texts(key, entry[key])
    if isinstance(entry.get("oauth"), bool):
        del entry["oauth"]
    return entry


def _texts(key: str, pairs: Any) -> Any:
    """Return the texts of `env` or `headers` by name. Raises `ValueError`."""
    if isinstance(pairs, dict):
        return {name: text if isinstance(text, str) else encode(text).decode() for name, text in pairs.items()}
    if not isinstance(pairs, list):
        return pairs  # the check of types refuses it
    if not all(isinstance(pair, dict) and {"name", "value"} <= pair.keys() for pair in pairs):
        raise ValueError(f'{key} must be an object, or a list of objects with "name" and "value"')
    return {str(pair["name"]): pair["value"] for pair in pairs}


def _kind(given: Any) -> str | None:
    """Return the transport that a `type` means. Raises `ValueError`."""
    if given is None:
        return None
    kind = _KINDS.get(re.sub("[-_]", "", str(given)).lower())
    if kind is None:
        raise ValueError(f'unknown type "{given}": there are stdio, http and sse')
    return kind


def _kind_at(url: Any) -> str:
    """Return the transport of an address without a type: servers of 2024 were put at `/sse`."""
    return "sse" if isinstance(url, str) and url.partition("?")[0].rstrip("/").endswith("/sse") else "http"


def _is_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
    except ValueError:
        return False


# -- references in values ------------------------------------------------------------------------


def _expand(text: str, source: str) -> str:
    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None and match[2] is None:
            raise McpError(f"the environment variable {match[1]} is not set ({source})")
        return match[2] if not found and match[2] is not None else found or ""

    return _VARIABLE.sub(value, text)


async def _secret(text: str, source: str) -> str:
    if not text.startswith("!"):
        return _expand(text, source)
    from spindle.models.credentials import UnresolvedValue, resolve_value

    try:
        return await resolve_value(text)
    except UnresolvedValue as error:
        raise McpError(f"no value from the {error} ({source})") from None


async def resolve_oauth(config: ServerConfig) -> OAuthOptions:
    """Return the configured facts about the login, with values as in `resolve`. Raises `McpError`."""

    async def put(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: await put(part) for name, part in value.items()}
        return await _secret(value, config.source) if isinstance(value, str) else value

    return msgspec.convert(await put(msgspec.to_builtins(config.oauth or OAuthOptions())), OAuthOptions)


async def resolve(config: ServerConfig) -> ServerConfig:
    """Replace `${VAR}` by its value, and in `env` and `headers` also `!command`; see also `resolve_oauth`.

    Raises `McpError`.
    """
    expand, secret = partial(_expand, source=config.source), partial(_secret, source=config.source)
    url = None if config.url is None else expand(config.url)
    if url is not None and not _is_address(url):
        raise McpError(f"not an HTTP address: {config.url} ({config.source})")
    return msgspec.structs.replace(
        config,
        command=None if config.command is None else expand_home(expand(config.command)),
        args=[expand(text) for text in config.args],
        env={name: await secret(text) for name, text in config.env.items()},
        cwd=None if config.cwd is None else expand_home(expand(config.cwd)),
        url=url,
        headers={name: await secret(text) for name, text in config.headers.items()},
    )
