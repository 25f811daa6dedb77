"""What a person is told of an agent directory, and of their place on a server: models, keys, settings, quotas."""

from typing import Any, Literal

from msgspec import field

from spindle.shapes.messages import Wire


class Way(Wire):
    """A way to a model for who has none."""

    kind: Literal["server", "keys", "sign-in", "key", "small"]
    name: str
    """A model for `server` and `small`, else a provider; empty: any. For `keys` the file that has them."""
    title: str
    command: str
    """What does the same in a shell."""


class KeyState(Wire, kw_only=True):
    provider: str
    source: str | None = None
    """Where the key comes from: `auth.json`, a variable, …; left out if the stored one cannot be used."""
    stored: str | None = None
    """What `auth.json` has of the provider: `key` or `login`; left out if nothing."""


class SettingItem(Wire, kw_only=True):
    key: str
    """As in the file; `compaction.enabled` stands in an object `compaction`."""
    about: str
    kind: Literal["switch", "number", "text", "choice", "list", "object"]
    choices: list[str] = field(default_factory=list)
    """Of a `choice`, or of the words in a `list`."""
    default: Any
    value: Any
    """What holds in this working directory."""
    source: Literal["default", "user", "project"]


class AccountState(Wire, kw_only=True):
    """What a client may do on a server, and what its user has used up today (UTC)."""

    name: str | None = None
    """The user; left out on a server without users."""
    owner: bool = False
    """Whether keys, settings, rules and servers may be changed, with the code of the server."""
    runs: int = 0
    runs_per_day: int | None = None
    cost: float = 0.0
    cost_per_day: float | None = None
    """US dollars."""
    mode: str | None = None
    """The permission mode that the operator has fixed."""
    sandbox: str = "off"
    """The least level of the sandbox."""
    models: list[str] = field(default_factory=list)
    """Patterns of the models that may be used; none: all."""
